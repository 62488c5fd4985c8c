"""`graft`: plan and rows in, a verified model folder out, or nothing."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokengraft.core.errors import MissingExtra, TokengraftError, UsageError, no_such
from tokengraft.core.files import writing_folder
from tokengraft.core.options import options_from, refuse_unknown
from tokengraft.core.progress import OnProgress, Progress
from tokengraft.core.verdict import Done
from tokengraft.corpus.lines_of import Sources, lines_of, spaced, texts_of
from tokengraft.deriving.derive import Derived, derive_rows
from tokengraft.deriving.distil.recipe import SETTLED, TRAINED, WIDENED, Adapting, Writing
from tokengraft.deriving.task import Deriving
from tokengraft.grafting.card import Facts, write_card
from tokengraft.grafting.manifest import outputs, read_manifest, shown_command, write_manifest
from tokengraft.grafting.output_policies import DEFAULT, named, recorded
from tokengraft.grafting.same_size import shrink
from tokengraft.grafting.signature import check_key, sign
from tokengraft.grafting.start import read_start
from tokengraft.grafting.verify.before_training import refuse_failed, refuse_unreadable
from tokengraft.grafting.verify.invariants import Check, Report, check_lines, verify
from tokengraft.grafting.verify.loading import PlainModels
from tokengraft.grafting.verify.protected import measure
from tokengraft.grafting.verify.tokens import Pair
from tokengraft.grafting.write_folder import Changes, Learned, Written, check_room, write_model
from tokengraft.model.checkpoint import read_checkpoint, read_json
from tokengraft.model.embedding_tables import find_layout, is_encoder, refuse_damaged
from tokengraft.model.folder import CONFIG, MANIFEST, Model, resolve
from tokengraft.model.tokenizer_files import TOKENIZER, base_tokenizer, sentencepiece_file
from tokengraft.planning.plan import Plan
from tokengraft.planning.protect import insert_proved
from tokengraft.tokenizer.insert import family, vocabulary
from tokengraft.tokenizer.sentence_piece import SENTENCEPIECE, checked_file
from tokengraft.tokenizer.vocabulary import piece_reader

_MOST_LINES = 20_000  # of training text that a graft is verified on, besides the check lines
_NEURONS = 4  # for every lane, as there are by default


@dataclass(frozen=True, repr=False)
class Graft:
    """A finished graft: its folder, what was written and what was proved."""

    folder: Path
    written: Written
    rows: Derived
    report: Report | None


@dataclass(frozen=True)
class Derivation:
    """How to make rows: by `method`, from `text` if it is given (`corpus.lines_of`).

    `train` says what learns (`auto`: `_what_learns`): the new `rows` alone, LoRA adapters in the
    body as well (`lora`), or else `lanes`, which make it wider and cannot change what it says of
    text without new tokens. With `lora`, `keep` is the share of positions of protected text whose
    likeliest token must stay the same (`Adapting.keeping`). `start` is an earlier graft of the same
    plan, from which training goes on (`read_start`). With `train="lanes"`, `lanes` is by how many
    dimensions at least the body gets wider (64), with four neurons in each block for every one
    asked for. `options` holds `progress` and, by name, fields of `Deriving` and of the option
    objects inside it.
    """

    method: str = "auto"
    text: Sources | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    train: str = "auto"
    keep: float | None = None
    start: Path | str | None = None
    lanes: int | None = None


@dataclass(frozen=True)
class Output:
    """What `generate` may do with the new tokens (`output_policies`).

    `more` holds options that a plugin's policy takes, by name. Under `write`, new tokens are
    trained to stay silent in `protect` and in bundled English and code (which a body that is
    trained must also read as before); a tied model gets a separate head unless `untie` is false,
    when the same row serves as input and as output.
    """

    policy: str = DEFAULT
    more: Mapping[str, Any] = field(default_factory=dict)
    protect: Sources | None = None
    untie: bool = True


@dataclass(frozen=True)
class Finishing:
    """How the folder is verified and described.

    `check` is text to verify on besides the training text (default: the bundled UDHR). `force`
    replaces a folder at the destination whatever it holds. `adapter_only` writes what LoRA learned
    without the base, for peft to load. `sign` is a private key to sign the folder with.
    """

    check: Sources | None = None
    verified: bool = True
    license: str | None = None
    seed: int = 0
    command: Sequence[str] = ()
    force: bool = False
    adapter_only: bool = False
    sign: Path | str | None = None
    device: str = "auto"
    progress: OnProgress | None = None


def graft(
    model: str | Path,
    plan: Plan,
    out: Path | str,
    rows: Derived | NDArray[np.float32] | Derivation = Derivation(),  # noqa: B008 - frozen
    *,
    output: Output = Output(),  # noqa: B008 - frozen
    options: Finishing = Finishing(),  # noqa: B008 - frozen
) -> Graft:
    """Graft the plan's tokens into `model` and write the verified folder `out`.

    `rows` are the new tokens' input rows, or how to derive them. An existing graft at `out` is
    replaced; any other folder that is not empty is refused. Raises GraftError (exit code 3) if
    verification fails; then, as after any other failure, `out` is left as it was.
    """
    chosen = named(output.policy)
    if options.sign is not None:
        check_key(options.sign)
    text = rows.text if isinstance(rows, Derivation) else None
    refuse_unknown(output.more, chosen.takes, f"policy {chosen.name}")
    bias: Any = 0.0
    if chosen.settle is not None:
        bias = chosen.settle(output.more, text is not None or options.check is not None)
    texts = None if text is None else texts_of(text)
    training_lines = None if texts is None else list(chain.from_iterable(texts))
    base = resolve(model)
    out = Path(out)
    check_target(out, base.path, options.force)
    if isinstance(rows, Derivation):
        rows = replace(rows, train=_what_learns(rows, base, plan, output, options.adapter_only))
    adapting = _adapting(rows, training_lines, output, base)
    lanes = adapting is not None and adapting.grows
    _refuse_unfit(base, plan, output, adapting, options.adapter_only)
    earlier = outputs(read_manifest(base.path))
    _refuse_overwriting(base.name, earlier, plan.places or ())
    old = base_tokenizer(base.path)
    new = insert_proved(old, plan, base.name)
    refuse_damaged(base.path, base.name)
    _refuse_full(base, plan, out, output, adapting)
    notes: list[str] = []
    if options.verified and training_lines is not None:
        first_parts = [token.parts[0] for token in plan.tokens]
        refuse_unreadable(base.path, new, plan.languages, first_parts)
    before = [recorded(one["policy"]) for one in earlier]
    if any(policy.trains or policy.pools for policy in before):
        notes.append(
            f"what {base.name} writes in new tokens is kept: for greedy decoding give generate "
            "logits_processor=tokengraft.logits_processor(folder)"
        )
    training = None
    if isinstance(rows, Derivation):
        given = {name: value for name, value in rows.options.items() if value is not None}
        settings = {"seed": options.seed, **given}
        if training_lines is not None and "checkpoint_dir" not in given:
            training = training_folder(out)
            settings |= {"checkpoint_dir": training, "keep_states": False}
        if rows.start is not None:
            if training_lines is None or rows.method not in ("auto", "distil"):
                raise UsageError(
                    "--start is where distil begins: give text with --text FILE, and no other "
                    "--method"
                )
            settings["start"], adapting, left = read_start(Path(rows.start), plan, base, adapting)
            if rows.lanes is not None and settings["start"].wider is not None:
                raise UsageError(
                    f"training goes on with the lanes that {rows.start} has: leave --lanes out"
                )
            notes.append(left)
        if chosen.trains:
            settings["writing"] = _writing(base.path, training_lines, output)
        if adapting is not None:
            settings["adapting"] = adapting
        derived = derive_for(base.path, plan, new, rows.method, texts, settings)
    elif isinstance(rows, Derived):
        derived = rows
    else:
        derived = Derived(np.asarray(rows, np.float32), "given")
    parts = [token.parts for token in plan.tokens]
    check = options.check
    others = check_lines(plan.languages) if check is None else lines_of(check)
    lines = [*spaced(training_lines or (), _MOST_LINES), *others]
    removed: tuple[int, ...] = ()
    if chosen.bars is not None:
        removed, note = chosen.bars(old, new, parts, lines)
        notes.append(note)
    pieces = None
    if plan.places is None:
        pieces, note = checked_file(new, lines, sentencepiece_file(base.path))
        notes.append(note)
    derived = replace(derived, notes=(*derived.notes, *filter(None, notes)))
    changed: Changes = {}
    if derived.student is not None and not lanes:
        from tokengraft.deriving.distil.student import changes

        changed = changes(derived.student)
    config = read_json(base.path / CONFIG)
    facts = Facts(
        name=out.name, base=base.name, license=options.license or base.license, policy=chosen,
        method=derived.method, params=derived.params, notes=derived.notes,
        fidelity={"held-out text": derived.scores} if derived.scores else {},
        measured=Pair(old, new).premiums(plan.languages), verdict=derived.verdict,
        encoder=is_encoder(config),
    )  # fmt: skip
    made = Done(
        trained=("rows" if adapting is None else adapting.train) if derived.scores else None,
        writes=chosen.trains,
        settled=derived.params.get("stopped") == SETTLED,
        by_text=derived.params.get("by_text"),
        lanes=next(iter(config.get("architectures") or ()), None) in WIDENED,
        fixed=plan.places is not None or is_encoder(config),
    )
    if derived.judged is not None:  # the card is for users, what is printed for the maker
        said = f"{derived.verdict} {derived.judged.caution(made)}".strip()
        facts = replace(facts, verdict=said)
        if derived.judged.below:
            advice = f"{derived.verdict} {derived.judged.next_step(made)}"
            derived = replace(derived, notes=(*derived.notes, advice))
    report, shifts = None, {}

    def describe(folder: Path, written: Written, facts: Facts) -> None:
        about: dict[str, Any] = {"earlier": earlier} if earlier else {}
        about["premiums"] = {
            code: [effect.premium_before, effect.premium_after]
            for code, effect in plan.languages.items()
        }
        about["verdict"] = facts.verdict
        if adapting is not None:
            about["trained"] = {**adapting.promise(), "tensors": list(written.trained)}
        if lanes:
            about["trained"]["lanes"] = written.width - derived.rows.shape[1]
        write_card(folder, plan, written, facts)
        write_manifest(
            folder, base=base.name, plan=plan, rows=derived.rows,
            method={"method": derived.method, "params": dict(derived.params),
                    "notes": list(derived.notes)},
            output={"policy": chosen.name, "bias": bias}, written=written,
            run={"command": shown_command(options.command), "seed": options.seed, **about},
        )  # fmt: skip

    models = PlainModels(options.device)
    with writing_folder(out) as folder:
        whole = folder / "merged" if options.adapter_only else folder
        whole.mkdir(exist_ok=True)
        written = write_model(
            base.path, new, derived.rows, whole, parts=parts, policy=chosen.name,
            learned=Learned(
                None if _shared(base.path, output) else derived.head, changed,
                derived.student if lanes else None,
            ),
            removed=removed, progress=options.progress,
        )  # fmt: skip
        if pieces is not None:
            (whole / SENTENCEPIECE).write_bytes(pieces)
        if callable(bias):
            bias, said = bias(whole, written.new, parts, training_lines or lines)
            facts = replace(facts, notes=(*facts.notes, said))
            derived = replace(derived, notes=(*derived.notes, said))
        if adapting is not None:
            if options.verified:
                if options.progress is not None:
                    options.progress(Progress("measuring English and code", 0))
                taught = chosen.trains and not lanes  # lanes are not what new tokens stray by
                shifts = measure(models, whole, base.path, () if taught else written.new)
            moved = {kind: str(one) for kind, one in shifts.items()}
            facts = replace(facts, trained=adapting.train, moved=moved)
        describe(whole, written, facts)
        if plan.places is not None:
            shrink(whole, base.path, plan.places)
        if options.verified:
            report = verify(
                whole, base.path, lines, shifts, models=models, progress=options.progress
            )
            if not report.passed:
                left = "no folder was written"
                if derived.checkpoint is not None:
                    left = _keep_unverified(whole, out, report, derived.checkpoint)
                refuse_failed(report, left)
        if options.adapter_only and adapting is not None and derived.student is not None:
            from tokengraft.grafting.adapter import write_adapter

            near = write_adapter(folder, whole, base.path, derived.student, written, adapting.rank)
            shutil.rmtree(whole)
            describe(folder, written, replace(facts, adapter=True))
            report = Report((*(report.checks if report else ()), Check("adapter", True, near)))
        if options.sign is not None:
            sign(folder, options.sign)
    if training is not None and derived.checkpoint is not None:
        shutil.rmtree(derived.checkpoint)
        for empty in (derived.checkpoint.parent, training):  # others' checkpoints stay
            with contextlib.suppress(OSError):
                empty.rmdir()
    return Graft(out, written, derived, report)


def training_folder(out: Path) -> Path:
    """Where what is learned for the graft `out` is kept until that is verified."""
    return out.with_name(f"{out.name}.training")


def _keep_unverified(folder: Path, out: Path, report: Report, checkpoint: Path) -> str:
    """Leave a trained graft that failed its verification beside `out`, and say where."""
    left = out.with_name(f"{out.name}-unverified")
    shutil.rmtree(left, ignore_errors=True)
    folder.rename(left)
    (left / "VERIFICATION.txt").write_text("\n".join(report.lines()) + "\n", encoding="utf-8")
    return (
        f"what was written is in {left}, what was learned in {checkpoint.parent} (once the cause "
        "is mended, the same command goes on from there without training again)"
    )


def _refuse_full(
    base: Model, plan: Plan, out: Path, output: Output, adapting: Adapting | None
) -> None:
    """Raise TokengraftError if the disk has no room for the graft and what is learned on the way.

    A checkpoint holds each learned number four times (value, best value and two moments), and the
    next one is written beside it.
    """
    checkpoint = read_checkpoint(base.path)
    layout = find_layout(read_json(base.path / CONFIG), checkpoint)
    more = len(plan.tokens) * layout.input.row_bytes * len(layout.tables)
    if named(output.policy).trains and output.untie and layout.head is None:
        more += layout.rows * layout.input.row_bytes
    learned = len(plan.tokens) * layout.width
    if adapting is not None and adapting.grows:
        from tokengraft.deriving.distil.lanes import count_added

        numbers = count_added(read_json(base.path / CONFIG), adapting)
        learned += numbers
        more += numbers * layout.input.row_bytes // layout.width
    place = next(folder for folder in (out, *out.resolve().parents) if folder.is_dir())
    check_room(place, checkpoint.size + more + 32 * learned, "with what is learned the model needs")


def _what_learns(
    rows: Derivation, base: Model, plan: Plan, output: Output, adapter_only: bool
) -> str:
    """`rows.train`; under `auto` what is best here.

    That is lanes if text is given, the model can have them and nothing that is asked for excludes
    them; else the new rows. An adapter alone is LoRA's.
    """
    if rows.train != "auto":
        return rows.train
    if adapter_only:
        return "lora"
    writes = named(output.policy).trains
    plain = output.policy == DEFAULT and output.protect is None
    learns = rows.text is not None and rows.method in ("auto", "distil")
    if not learns or not (plain or writes) or rows.keep is not None or plan.places is not None:
        return "rows"
    if rows.start is not None:
        earlier = (read_manifest(Path(rows.start)) or {}).get("trained") or {}
        return "lanes" if earlier.get("train") == "lanes" else "rows"
    try:
        _refuse_lanes(read_json(base.path / CONFIG))
    except UsageError:
        return "rows"
    return "lanes"


def _refuse_lanes(config: Mapping[str, Any]) -> None:
    """Raise UsageError if a model of that config cannot have lanes."""
    from tokengraft.deriving.distil.lanes import refuse_unfit

    architecture = str(next(iter(config.get("architectures") or ()), None))
    refuse_unfit(architecture, config.get("hidden_act", "silu"))


def _usual_lanes(base: Model) -> int:
    """A sixth of the model's width, 64 at least and 256 at most."""
    layout = find_layout(read_json(base.path / CONFIG), read_checkpoint(base.path))
    return min(256, max(64, layout.width // 6))


def _refuse_unfit(
    base: Model, plan: Plan, output: Output, adapting: Adapting | None, adapter_only: bool
) -> None:
    """Raise UsageError if this model or this plan cannot have what is asked for."""
    config = read_json(base.path / CONFIG)
    if is_encoder(config) and (adapting is not None or output.policy != DEFAULT):
        raise UsageError(
            f"{base.name} is an encoder: it writes nothing, and its rows are all that is trained"
        )
    if adapting is not None and adapting.grows:
        _refuse_lanes(config)
    if adapter_only:
        from tokengraft.grafting.adapter import refuse_unfit

        tied = find_layout(config, read_checkpoint(base.path)).tied
        parted = named(output.policy).trains and tied and output.untie
        refuse_unfit(None if adapting is None else adapting.train, parted)
    if plan.places is not None and (output.policy != DEFAULT or adapting is not None):
        raise UsageError(
            f"a plan of the same size goes with --train rows and --policy {DEFAULT} only: for the "
            "others plan without --same-size"
        )


def _refuse_overwriting(
    name: str, earlier: Sequence[Mapping[str, Any]], places: Sequence[int]
) -> None:
    """Raise UsageError if a plan of the same size gives up tokens that the base was taught."""
    if taken := {number for one in earlier for number in range(*one["new"])} & set(places):
        raise UsageError(
            f"this plan gives the ids of {len(taken)} tokens that an earlier graft added to {name} "
            "to others: plan without --same-size"
        )


def _adapting(
    rows: Derived | NDArray[np.float32] | Derivation,
    text: Sequence[str] | None,
    output: Output,
    base: Model,
) -> Adapting | None:
    """How to train the body, or None if only rows learn; `rows.options` may bring `adapting`."""
    if not isinstance(rows, Derivation):
        return None
    train = rows.train
    if train not in TRAINED:
        raise no_such("way to train", train, TRAINED)
    if rows.lanes is not None and (train != "lanes" or rows.lanes < 1):
        raise UsageError(f"--lanes {rows.lanes}: give 1 or more, with --train lanes")
    if train == "rows":
        if rows.keep is not None:
            raise UsageError("rows alone keep all of English: --keep goes with --train lora")
        return None
    if text is None:
        raise UsageError(f"--train {train} learns from text: give some with --text FILE")
    given: Adapting | None = rows.options.get("adapting")
    if train == "lanes":
        silent = output.protect is not None and not named(output.policy).trains
        if rows.keep is not None or silent:
            idle = "--protect" if silent else "--keep"
            raise UsageError(
                f"lanes cannot change text without new tokens, so {idle} has nothing to keep: "
                "leave it out, or take --train lora"
            )
        if rows.lanes is not None and given is not None:
            raise UsageError("lanes and adapting both say how many lanes: leave one out")
        if given is None:
            lanes = rows.lanes or _usual_lanes(base)
            given = Adapting(lanes=lanes, neurons=_NEURONS * lanes)
        return replace(given, train=train)
    given = given or Adapting()
    quiet = () if output.protect is None else tuple(lines_of(output.protect))
    given = given if rows.keep is None else given.keeping(rows.keep)
    return replace(given, train=train, protect=quiet or given.protect)


def logits_processor(folder: str | Path, *, greedy: bool = True) -> Any:
    """The `logits_processor` that `generate` needs for the folder's output policy.

    For write, if decoding is `greedy`, the choice of the likeliest text instead of the likeliest
    token (sampling needs nothing); for input-only an empty list, since the folder's generation
    config already does everything. A graft of a graft gets what both of them need.
    """
    try:
        from transformers import LogitsProcessorList

        from tokengraft.grafting.greedy_text import GreedyText
    except ImportError:
        raise MissingExtra("A logits processor", "model") from None
    manifest = read_manifest(Path(folder))
    if manifest is None:
        raise TokengraftError(f"{Path(folder).name} has no {MANIFEST}: it is not a grafted model")
    processors = LogitsProcessorList()
    first: dict[int, int] = {}
    written: list[int] = []
    for output in outputs(manifest):
        policy, new = recorded(output["policy"]), range(*output["new"])
        parts = output["first_parts"]
        if policy.pools:  # the latest first: its first parts may be tokens of an earlier graft
            processors.insert(0, policy.pools(new, parts, output["bias"]))
        first |= {number: first.get(part, part) for number, part in zip(new, parts, strict=True)}
        written += new if policy.trains else ()
    if written and greedy:
        parsed = read_json(Path(folder) / TOKENIZER)
        names = {number: token for token, number in vocabulary(parsed).items()}
        read = piece_reader(family(parsed))
        pieces = [read(names[number]) for number in written]
        processors.append(GreedyText(written, [first[number] for number in written], pieces))
    return processors


def derive_for(
    model: Path,
    plan: Plan,
    tokenizer: dict[str, Any],
    method: str,
    texts: Sequence[Sequence[str]] | None,
    options: Mapping[str, Any],
) -> Derived:
    """Rows for the plan's tokens, which `tokenizer` already holds; `options` as in `Derivation`.

    `texts` are lines, language by language: all of them are trained on alike.
    """
    settings = dict(options)
    text = None if texts is None else list(chain.from_iterable(texts))
    if texts is not None and len(texts) > 1:
        settings["languages"] = tuple(map(len, texts))
    parts = [token.parts for token in plan.tokens]
    return derive_rows(
        model, parts, method, text=text, tokenizer=tokenizer,
        progress=settings.pop("progress", None), options=options_from(Deriving, settings),
    )  # fmt: skip


def _writing(base: Path, text: Sequence[str] | None, output: Output) -> Writing:
    """How to train the new tokens to be written."""
    if text is None:
        raise UsageError("--policy write is learned from text: give some with --text FILE")
    quiet = () if output.protect is None else tuple(lines_of(output.protect))
    return Writing(quiet, shared=_shared(base, output))


def _shared(base: Path, output: Output) -> bool:
    """Whether one row serves both ends of a new token that is written."""
    if output.untie or not named(output.policy).trains:
        return False
    return find_layout(read_json(base / CONFIG), read_checkpoint(base)).tied


def check_target(out: Path, base: Path, force: bool, known: str = MANIFEST) -> None:
    """Raise UsageError if `out` overlaps the base or, without `force`, holds files but no `known`.

    `known` is the file by which an earlier result, which may be replaced, is recognised.
    """
    target, source = out.resolve(), base.resolve()
    if target == source or source in target.parents or target in source.parents:
        raise UsageError(f"{out} is or holds the base model; write to another folder")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file, a folder is needed: choose another")
    if not force and out.exists() and not (out / known).is_file() and any(out.iterdir()):
        raise UsageError(
            f"{out} exists and holds something else (no {known}): it is left alone, choose another"
        )
