"""`tokengraft graft`: a model that reads a plan's tokens."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tokengraft.cli.console import drawing, print_json, stderr, stdout, warn
from tokengraft.cli.options import (
    DTYPE,
    KINDS,
    WHOLE_RULE,
    ModelArgument,
    PlainFormatOption,
    PlainTextColumnOption,
    PlanArgument,
    ReplaceOption,
    check_out,
    holds_file,
    panel,
    read_text,
)
from tokengraft.core.errors import UsageError
from tokengraft.core.options import TRAINING_FREE
from tokengraft.core.wording import counted
from tokengraft.deriving.known_methods import METHODS
from tokengraft.deriving.known_methods import named as method_named
from tokengraft.grafting.output_policies import DEFAULT, POLICIES, named

_rows, _training, _writing = map(panel, ("Rows", "Training", "Writing in new tokens"))


def _refuse_idle(method: str, text: bool, given: Collection[str]) -> None:
    """UsageError for an option that would do nothing with this method."""
    chosen = "distil" if method == "auto" and text else method
    uses = () if chosen == "auto" else method_named(chosen).uses
    for name in given:
        if name not in uses:
            known = ", ".join(one.name for one in METHODS.values() if name in one.uses)
            idle = f"with {method}"
            if method == "auto" and not text and name in METHODS["distil"].uses:
                idle = "without --text"
            raise UsageError(f"--{name} does nothing {idle}: it is for {known}")


def _pairs(given: Collection[str] | None) -> dict[str, str]:
    """The values of `--option NAME=VALUE` by name."""
    pairs = {}
    for pair in given or ():
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--option {pair}: give NAME=VALUE")
        pairs[name] = value
    return pairs


def graft(
    model: ModelArgument,
    plan: PlanArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help=f"Folder for the model. {WHOLE_RULE}")],
    method: Annotated[
        str,
        _rows(
            help=f"How rows are derived. auto: distil when text is given, else {TRAINING_FREE}. "
            + " ".join(f"{one.name}: {one.summary}." for one in METHODS.values())
        ),
    ] = "auto",
    text: Annotated[
        list[str] | None,
        _rows(
            "--text",
            metavar="FILE",
            help="Text to train the rows on (distil), FILE or CODE=FILE: "
            f"{KINDS}; repeat for more. Of several languages (CODE=FILE, or a folder with one file "
            "per language) each has an equal share of the training.",
        ),
    ] = None,
    translation: Annotated[
        list[str] | None,
        _rows(
            "--translation",
            metavar="FILE",
            help="For an encoder: the lines of --text in a language that it reads. Its vectors for "
            "these lines teach the rows of text that was UNK before; repeat for more.",
        ),
    ] = None,
    text_column: PlainTextColumnOption = "text",
    format_: PlainFormatOption = None,
    option: Annotated[
        list[str] | None,
        _rows(
            "--option",
            metavar="NAME=VALUE",
            help="An option of a plugin's method or policy, as `tokengraft paper` lists them; "
            "repeat for more.",
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        _training(min=0, help="Stop distillation after this many minutes. Default: no limit."),
    ] = None,
    steps: Annotated[
        int | None,
        _training(
            min=1,
            help="At most this many steps of distillation. Default 1500; fewer if the rows "
            "stop getting better.",
        ),
    ] = None,
    own: Annotated[
        int | None,
        _training(
            min=1,
            help="Let the model itself write this many passages, each begun with a line of the "
            "text, and train on them too: for little text, or text all of one kind. On a GPU, 6000 "
            "is a good number.",
        ),
    ] = None,
    by_text: Annotated[
        float | None,
        _training(
            min=0,
            max=1,
            help="How much of what follows a prompt in new tokens is learned from the text; the "
            "rest is learned from the base model. Default 0.5; 1 for a language that the base "
            "hardly knows, 0 for answers as close to the base's as can be. Not with --policy "
            "write, nor --train lora.",
        ),
    ] = None,
    start: Annotated[
        Path | None,
        _training(
            metavar="FOLDER",
            help="An earlier graft of the same plan into the same model, to train on from: from "
            "its rows, its output rows with --policy write, and its lanes with --train lanes. "
            "Adapters begin anew.",
        ),
    ] = None,
    checkpoint_dir: Annotated[
        Path | None,
        _training(
            "--checkpoint-dir",
            "--work",
            metavar="FOLDER",
            help="Where checkpoints are kept, with what the base read: a second run goes on from "
            "them. Default: OUT.training, which is removed once OUT is verified.",
        ),
    ] = None,
    policy: Annotated[
        str,
        _writing(
            help="What may be written with the new tokens. "
            + " ".join(f"{one.name}: {one.help}." for one in POLICIES.values())
            + " write needs --text and, if the table is tied, a second one."
        ),
    ] = DEFAULT,
    protect: Annotated[
        list[str] | None,
        _writing(
            "--protect",
            metavar="FILE",
            help="Text to leave as it is, besides bundled English and code. With --policy write: "
            "no new token may come up in it; with --train lora: it must be read as before. "
            "Repeat for more.",
        ),
    ] = None,
    tied: Annotated[
        bool,
        _writing(
            "--tied",
            help="With --policy write: if input and output share one table, keep it so. Each row "
            "then serves both ends, which writes a little worse.",
        ),
    ] = False,
    train: Annotated[
        str,
        _training(
            help="What learns from the text. rows: only those of the new tokens; every old weight "
            "stays. lanes: a wider body too, which acts only where a new token has been read, so "
            "that English cannot change (Llama, Mistral, Qwen 2 and 3). lora: adapters in the "
            "body, which read and write new tokens better; English and code are replayed so that "
            "they move by 0.003 nats at most (--keep). auto: lanes if the model can have them, "
            "else rows."
        ),
    ] = "auto",
    keep: Annotated[
        float | None,
        _training(
            min=0,
            max=1,
            help="With --train lora: at what share of positions in English, code and "
            "--protect the likeliest next token must stay the base's, on text not trained on. "
            "Default 0.97, at which their bits change by a few hundredths of a percent. With a "
            "lower share new tokens are read better, with a higher one worse (docs/adapt.md).",
        ),
    ] = None,
    lanes: Annotated[
        int | None,
        _training(
            min=1,
            help="With lanes: by how many dimensions at least the model gets wider, with four "
            "neurons in each block for every one. Default: a sixth of its width, 64 to 256. More "
            "read new tokens better and make the model larger for every text: 256 make the blocks "
            "of Qwen2.5 1.5B larger by 36%, 64 by 17% (docs/adapt.md).",
        ),
    ] = None,
    adapter_only: Annotated[
        bool,
        _training(
            "--adapter-only",
            help="With --train lora: write what was learned as an adapter that peft loads on the "
            "base, some tens of MB, instead of the whole model.",
        ),
    ] = False,
    device: Annotated[
        str, _training(help="auto (every visible GPU, else the CPU), cpu, cuda, or cuda:0,cuda:1 …")
    ] = "auto",
    dtype: Annotated[str, _training(help=DTYPE)] = "auto",
    seed: Annotated[int, _training(help="Seed of every random choice.")] = 0,
    sign: Annotated[
        Path | None,
        typer.Option(
            metavar="KEY",
            help="Sign the folder with this private key (PEM, elliptic curve), as OpenSSF model "
            "signing does; `verify --key` checks it by the public one (docs/graft.md).",
        ),
    ] = None,
    force: ReplaceOption = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    r"""Write the model with a plan's tokens: a folder that plain transformers loads, verified.

    Only the embedding tables are rewritten; every old row and every other
    tensor stays as it is, unless --train says otherwise. Exits with 3 and
    leaves no folder if verification fails.

    [bold]Examples[/bold]

      tokengraft graft rootstock plan/ -o grafted/

      tokengraft graft rootstock plan/ --text shan.txt --minutes 5 -o grafted/

      tokengraft graft rootstock plan/ --text shan.txt --train rows -o grafted/

      tokengraft graft Qwen/Qwen3-0.6B plan/ --text shan.txt \
        --policy write -o grafted/
    """
    from tokengraft.api.verbs import graft as run_graft
    from tokengraft.core.files import read_json
    from tokengraft.grafting.graft import training_folder
    from tokengraft.grafting.write_folder import second_table
    from tokengraft.model.embedding_tables import is_encoder
    from tokengraft.model.folder import CONFIG, MANIFEST, resolve
    from tokengraft.model.tokenizer_files import TOKENIZER
    from tokengraft.serving import where_served

    check_out(out, holds_file(MANIFEST), force, whole=True)
    tuned = {
        "minutes": minutes, "steps": steps, "own": own, "by-text": by_text, "start": start,
        "checkpoint-dir": checkpoint_dir,
    }  # fmt: skip
    _refuse_idle(method, bool(text), [name for name, value in tuned.items() if value is not None])
    if by_text is not None and (named(policy).trains or train not in ("auto", "rows", "lanes")):
        given = "--policy write" if named(policy).trains else f"--train {train}"
        raise UsageError(f"--by-text does nothing with {given}: leave one of them out")
    if named(policy).trains and not tied and (size := second_table(resolve(model).path)):
        warn(
            f"input and output share one table in {model}: a second one of {size / 1e6:,.0f} MB "
            "and the new rows will be written (--tied keeps one)"
        )
    trains = bool(text) and method in ("auto", "distil")
    if (
        trains
        and checkpoint_dir is None
        and not is_encoder(read_json(resolve(model).path / CONFIG))
    ):
        kept = training_folder(out)
        stderr.print(
            f"What is learned is kept in {kept} until {out} is verified; after any stop, the same "
            "command goes on from there.",
            markup=False,
        )
    with drawing() as progress:
        result = run_graft(
            model, plan, out, method=method, text=read_text(text, text_column, format_),
            minutes=minutes, steps=steps, options=_pairs(option), device=device, dtype=dtype,
            checkpoint_dir=checkpoint_dir,
            translation=read_text(translation, text_column, format_),
            derive_options={"own": own, "by_text": by_text},
            policy=policy, protect=read_text(protect, text_column, format_),
            untie=not tied, train=train, keep=keep, lanes=lanes, start=start,
            adapter_only=adapter_only, sign=sign,
            seed=seed, force=force, command=["tokengraft", *sys.argv[1:]], progress=progress,
        )  # fmt: skip
    warn(*result.notes)
    if named(policy).trains:
        warn(
            "sample from it, or give generate logits_processor=tokengraft.logits_processor(OUT), "
            "since the likeliest single token often is an old one"
        )
    checks = result.report.checks if result.report else ()
    if json:
        about = {"folder": str(result.folder), "new_tokens": len(result.new)}
        every = [asdict(check) for check in checks]
        print_json({**about, "method": result.method, "checks": every})
        return
    for line in result.report.lines() if result.report else ():
        stdout.print(line, markup=False)
    done = f"{counted(len(result.new), 'token')} grafted by {result.method}: {result.folder}"
    stdout.print(done, markup=False)
    if adapter_only:
        stdout.print("For peft; other programs need the whole model: graft without --adapter-only.")
    elif not is_encoder(config := read_json(result.folder / CONFIG)):
        parsed = read_json(result.folder / TOKENIZER)
        said = where_served(parsed, config)
        if (result.facts.get("trained") or {}).get("train") == "lanes":
            said += " Lanes were tried in transformers, vLLM and, but for Qwen 2, llama.cpp only."
        stdout.print(said, markup=False)
