"""`tokengraft plan` and `tokengraft insert`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tokengraft.cli import options
from tokengraft.cli.audit import tell_left_out
from tokengraft.cli.console import drawing, print_json, say_written, stdout, warn
from tokengraft.cli.options import (
    KINDS,
    ForceOption,
    ReplaceOption,
    by_language,
    check_out,
    holds_file,
    lines_by_language,
    panel,
)
from tokengraft.core.errors import UsageError
from tokengraft.core.options import PIVOT
from tokengraft.core.wording import counted
from tokengraft.planning import MODES, mode_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokengraft.corpus.parallel import ParallelCorpus
    from tokengraft.planning.count_words import CountedTexts

_option = panel("Which tokens (docs/plan.md)")


def plan(
    tokenizer: Annotated[str, typer.Argument(help="A catalog name, hub id or path.")],
    language: Annotated[
        list[str],
        typer.Option(
            "--language",
            "-l",
            help="A language to plan for; repeat for more. Or a group of those that have text: "
            "all, a script (Latn), a family (Niger-Congo), or 'premium>2' (on the test corpus).",
        ),
    ],
    text: Annotated[
        list[str] | None,
        typer.Option(
            "--text",
            help="Text to choose tokens on: FILE when there is one language, or CODE=FILE, or a "
            "FOLDER with one file per language (swh_Latn.txt); "
            f"{KINDS}. Without it, half of the test corpus is used.",
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            show_default="2000",
            help="At most this many new tokens in all.",
        ),
    ] = None,
    mode: Annotated[
        str,
        _option(
            metavar="MODE",
            help="How strings are chosen. "
            + " ".join(f"{one.name}: {one.help}." for one in MODES.values()),
        ),
    ] = "merges",
    boundaries: Annotated[
        Literal["auto", "keep", "relax", "portable"],
        _option(
            metavar="HOW",
            help="Whether words may be cut into fewer pieces before merges. auto relaxes the split "
            "pattern for the planned scripts where its floor is above 1.2; keep never does; relax "
            "always does; portable does only what every program can follow (llama.cpp has no "
            "relaxed pattern, so for now the same as keep), and says what that costs.",
        ),
    ] = "auto",
    objective: Annotated[
        str,
        _option(
            metavar="OBJECTIVE",
            help="Which language the next token goes to. total: most tokens saved; parity: always "
            "help the costliest language; equal: as many tokens for each; speakers: weigh by "
            "number of speakers; minimax:2.0: the fewest tokens that bring every language to that "
            "premium, within the budget.",
        ),
    ] = "total",
    protect: Annotated[
        list[str] | None,
        _option(
            help="Text whose ids may not change in any line: FILE, or LANGUAGE for its bundled "
            "UDHR; repeat for more. For languages in Latin script a bundled sample of English and "
            "source code is protected anyway, unless this is 'nothing'."
        ),
    ] = None,
    keep_names: Annotated[
        bool,
        _option(
            "--keep-names",
            help="Also keep the ids of every word that begins with a capital, with the accents "
            "that names in English text have (São) or without, and of every word of an English "
            "dictionary: new tokens in these letters are then whole words in lower case, or where "
            "the tokenizer does not look whole words up, beginnings of such words. Hardly any "
            "English changes; languages in Latin script gain less. BPE only.",
        ),
    ] = False,
    same_size: Annotated[
        bool,
        _option(
            "--same-size",
            help="Replace tokens instead of adding any: new ones take free rows, then reserved "
            "tokens, then the ids of old tokens that no merge builds on and that neither the given "
            "text nor the bundled English, code and UDHR uses. The model does not grow; other text "
            "that did use those tokens gets longer.",
        ),
    ] = False,
    compare: Annotated[
        bool,
        _option("--compare-objectives", help="Plan with every objective and show the curves."),
    ] = False,
    test: Annotated[
        str, typer.Option(help="Parallel corpus on which premiums are measured.")
    ] = "udhr",
    split: options.SplitOption = None,
    pivot: options.PivotOption = PIVOT,
    tokenizers: options.TokenizersOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help=f"Write plan.json, tables and the curve into this folder. {options.RULE}",
        ),
    ] = None,
    force: ForceOption = False,
    figures: Annotated[bool, options.output(help="Draw the curve (with --out).")] = True,
    plain: options.PlainOption = False,
    json: Annotated[bool, options.output("--json", help="Print the plan as JSON.")] = False,
    engine: options.EngineOption = "local",
    address: options.AddressOption = None,
    workers: options.WorkersOption = None,
    text_column: options.TextColumnOption = None,
    format_: options.FormatOption = None,
    skip_bad: options.SkipBadOption = False,
    state: options.StateOption = None,
) -> None:
    r"""Choose new tokens for languages and say how far they lower the premium; no model is touched.

    The plan is proved with the real encoder before it is given: no line of
    the text, of the test corpus or of the bundled UDHR in the planned scripts
    gets longer, and every token is used.

    [bold]Examples[/bold]

      tokengraft plan llama-3 -l shn -o plan/

      tokengraft plan Qwen/Qwen3-0.6B -l tam -l tel \
        --text tam_Taml=ta.txt --text tel_Telu=te.txt.gz \
        --budget 4000 --objective parity \
        --test flores200.tar.xz --split devtest -o plan/

      tokengraft plan llama-3 -l shn --text 'web/shn-*.jsonl.zst' \
        --engine ray -o plan/

      tokengraft plan llama-3 -l swh -l yor --protect fra \
        --protect my-prompts.txt -o plan/

      tokengraft plan llama-3 -l 'premium>2' --text texts/ \
        --budget 32000 --objective parity -o world/
    """
    from tokengraft.api.verbs import count_words, open_corpus
    from tokengraft.api.verbs import plan as run_plan
    from tokengraft.planning.objectives import check_objective
    from tokengraft.planning.plan import OBJECTIVES
    from tokengraft.render.terminal import show_plans
    from tokengraft.serving import config_of, where_served

    check_out(out, holds_file("plan.json"), force)
    corpus = open_corpus(test, split)
    check_objective(objective)
    mode_named(mode)
    codes, sources = _asked(tokenizer, language, text or [], corpus, pivot, tokenizers or ())
    texts: CountedTexts | dict[str, list[str]] | None = None
    if sources and mode_named(mode).literal:
        texts = lines_by_language(sources, text_column or "text", format_)
    elif sources:
        with drawing() as progress:
            texts = counts = count_words(
                sources, text_column=text_column or "text",
                format_=format_, engine=engine, workers=workers,
                address=address, skip_bad=skip_bad, state=state, progress=progress,
            )  # fmt: skip
        tell_left_out(counts.total)
    wanted = list(dict.fromkeys((*OBJECTIVES, objective))) if compare else [objective]
    plans = {}
    for goal in wanted:
        with drawing() as progress:
            plans[goal] = run_plan(
                tokenizer, codes, texts, chosen_on=_names(sources) if sources else None,
                budget=budget, mode=mode, boundaries=boundaries, objective=goal,
                protect=protect or (), keep_names=keep_names, same_size=same_size, test=corpus,
                pivot=pivot, search=tokenizers or (), progress=progress,
            )  # fmt: skip
    chosen = plans[objective]
    warn(*chosen.plan.notes)
    others = plans if compare else None
    written = (
        chosen.save(out, figures="plain" if plain and figures else figures, others=others)
        if out
        else []
    )
    if json:
        print_json(chosen.plan.to_json())
        return
    show_plans(stdout, plans, chosen)
    served = where_served(chosen.base, config_of(tokenizer), bool(chosen.plan.cut.scripts))
    stdout.print(served, markup=False)
    say_written(written, out)


def _asked(
    tokenizer: str,
    languages: list[str],
    files: list[str],
    corpus: ParallelCorpus,
    pivot: str,
    search: Sequence[Path],
) -> tuple[list[str], dict[str, list[str]] | None]:
    """The planned languages and the files of each, from the values of -l and --text."""
    from tokengraft.planning import plan_files as plans

    several = len(languages) > 1 or any(map(plans.is_group, languages))
    alone = len(files) == 1 and Path(files[0]).is_dir()
    folder = plans.texts_of_folder(Path(files[0])) if several and alone else {}
    codes = plans.languages_for(
        languages, list(folder) or corpus.languages, corpus.require(pivot),
        lambda code: plans.premium_before(tokenizer, corpus, code, pivot, search),
    )  # fmt: skip
    if not folder:
        return codes, by_language(files, codes) if files else None
    missing = [code for code in codes if code not in folder]
    if missing:
        raise UsageError(f"{files[0]} has no file for {', '.join(missing)}")
    return codes, {code: [str(folder[code])] for code in codes}


def _names(sources: dict[str, list[str]]) -> str:
    """The names of the files that tokens were chosen on, without their folders."""
    names = {Path(file).name for files in sources.values() for file in files}
    shown = ", ".join(sorted(names)[:12])
    return shown if len(names) <= 12 else f"{shown}, … ({len(names)} files)"


def insert(
    tokenizer: Annotated[str, typer.Argument(help="The tokenizer the plan was made for.")],
    plan: options.PlanArgument,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help=f"The folder for the tokenizer. {options.WHOLE_RULE}"),
    ],
    tokenizers: options.TokenizersOption = None,
    force: ReplaceOption = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Put a plan's tokens into the tokenizer: a folder that AutoTokenizer loads.

    Every old id, special token, chat template and post-processor stays as it is,
    but for the old tokens that a plan of the same size replaces:
    `tokengraft_insert.json` lists them.

    [bold]Example[/bold]

      tokengraft insert llama-3 plan/ -o llama-3-shan/
    """
    from tokengraft.core.files import read_json
    from tokengraft.planning.plan_files import INSERTED, insert_plan, read_plan

    check_out(out, holds_file(INSERTED), force, whole=True)
    insert_plan(tokenizer, plan, out, tokenizers or (), force)
    if note := read_json(out / INSERTED).get("note"):
        warn(note)
    inserted = read_plan(plan)
    count = len(inserted.tokens)
    if json:
        print_json({"folder": str(out), "new_tokens": count})
    else:
        done = "added" if inserted.places is None else "put in the place of old ones"
        stdout.print(f"{counted(count, 'token')} {done}: {out}", markup=False)
