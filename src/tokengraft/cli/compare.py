"""`tokengraft compare`."""

from __future__ import annotations

from typing import Annotated

import typer

from tokengraft.cli import options
from tokengraft.cli.console import drawing, print_json, say_written, stdout
from tokengraft.cli.options import ForceOption, check_out, holds_file

_WHAT = (
    "A tokenizer (a catalog name such as llama-3 or a common one such as gpt-4, a hub id or a "
    "path), or the folder of an audit, a plan or a graft."
)


def compare(
    a: Annotated[str, typer.Argument(help=f"The first to compare. {_WHAT}")],
    b: Annotated[str, typer.Argument(help="The second, given the same way.")],
    corpus: Annotated[
        str | None,
        typer.Option(
            help="Parallel text to count, by name or path. Default: the text of the audit, if one "
            "of the two is an audit, else the bundled Declaration of Human Rights."
        ),
    ] = None,
    language: options.LanguageOption = None,
    split: options.SplitOption = None,
    skip_empty: options.SkipEmptyOption = False,
    pivot: Annotated[
        str | None,
        typer.Option(help="The language that premiums are relative to. Default: eng_Latn."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            help="The tokenizer that a plan is for, if the plan's own name for it is no known one."
        ),
    ] = None,
    tokenizers: options.TokenizersOption = None,
    out: options.ResultsOption = None,
    force: ForceOption = False,
    figures: Annotated[bool, options.output(help="Draw figures (with --out).")] = True,
    plain: options.PlainOption = False,
    json: Annotated[bool, options.output("--json", help="Print every language as JSON.")] = False,
) -> None:
    """Compare two audits, tokenizers, plans or grafts side by side.

    Better and worse mean fewer and more tokens for the same text. Premiums are
    shown too, but they also move when only the pivot language changes.

    [bold]Examples[/bold]

      tokengraft compare gpt-4 gpt-4o -o compared/

      tokengraft compare llama3 plan/ -l shn -l tam

      tokengraft compare audit-before/ audit-after/ --json

      tokengraft compare llama3 ./my-model --corpus flores200.tar.xz
    """
    from tokengraft.api.compare import compare as side_by_side
    from tokengraft.render.comparison_folder import COMPARISON
    from tokengraft.render.terminal import show_comparison

    check_out(out, holds_file(COMPARISON), force)
    with drawing() as progress:
        result = side_by_side(
            a, b, corpus, language or None, split=split, skip_empty=skip_empty, pivot=pivot,
            base=base, search=tokenizers or (), progress=progress,
        )  # fmt: skip
    options.tell_empty(result.facts["corpus"].get("left_out", 0))
    written = result.save(out, figures="plain" if plain and figures else figures) if out else []
    if json:
        print_json(result.languages.to_dicts())
        return
    show_comparison(stdout, result.facts, result.languages, result.summary)
    say_written(written, out)
