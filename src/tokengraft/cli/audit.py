"""`tokengraft audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from tokengraft.cli import survey as large
from tokengraft.cli.console import counting, print_json, stdout, warn
from tokengraft.cli.destination import RULE, ForceOption, check_out, holds_audit
from tokengraft.cli.terminal import Column, code_column, print_table, text_column
from tokengraft.core.defaults import PIVOT, SAMPLE_LINES
from tokengraft.core.errors import UsageError
from tokengraft.core.wording import counted
from tokengraft.tokenizer.entries import BUNDLED

if TYPE_CHECKING:
    from tokengraft.api.results import Audit
    from tokengraft.corpus.parallel import ParallelCorpus
    from tokengraft.engine.protocol import Engine

SHOWN = 24


def audit(
    corpus: Annotated[
        list[str] | None,
        typer.Argument(
            help="A corpus by name (`udhr`, the default, is bundled; see [bold]tokengraft "
            "corpora[/bold]), a folder, an archive or a table file; or two or more text files as "
            "`eng_Latn=a.txt shn_Mymr=b.txt`.",
        ),
    ] = None,
    tokenizer: Annotated[
        list[str] | None,
        typer.Option(
            "--tokenizer",
            "-t",
            help="A catalog name, hub id, path or tiktoken encoding; repeat for more. Default: the "
            "nine bundled ones.",
        ),
    ] = None,
    tokenizers: Annotated[
        list[Path] | None,
        typer.Option(
            "--tokenizers",
            help="A folder or archive in which named tokenizers are looked up first.",
        ),
    ] = None,
    language: Annotated[
        list[str] | None,
        typer.Option(
            "--language", "-l", help="Only these languages (shn_Mymr or shn). Default: all."
        ),
    ] = None,
    pivot: Annotated[str, typer.Option(help="The language that premiums are relative to.")] = PIVOT,
    split: Annotated[
        str | None, typer.Option(help="For FLORES: dev, devtest or dev+devtest (default).")
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="Your own price file (YAML); see docs/audit.md.")
    ] = None,
    sample_lines: Annotated[
        int,
        typer.Option(
            min=0,
            help="Lines a language on which split floor and losslessness are measured; 0: all.",
        ),
    ] = SAMPLE_LINES,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help=f"Write tables and figures into this folder. {RULE}"),
    ] = None,
    force: ForceOption = False,
    figures: Annotated[bool, typer.Option(help="Draw figures (with --out).")] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the premiums as JSON.")] = False,
    engine: large.EngineOption = large.EngineName.local,
    address: large.AddressOption = None,
    workers: large.WorkersOption = None,
    stream: large.StreamOption = False,
    monolingual: large.MonolingualOption = False,
    text_column: large.TextColumnOption = None,
    language_column: large.LanguageColumnOption = None,
    language_from_path: large.LanguageFromPathOption = None,
    detector: large.DetectorOption = None,
    format_: large.FormatOption = None,
    skip_bad: large.SkipBadOption = False,
    max_row_bytes: large.MaxRowOption = None,
    shard_bytes: large.ShardOption = None,
    state: large.StateOption = None,
) -> None:
    r"""Measure what each language pays: premiums, UNK, split floor, vocabularies, coverage, cost.

    A premium is the mean over sentences of tokens(language) / tokens(pivot).
    Counts are cached, so a second run encodes nothing and an interrupted one
    goes on where it stopped.

    [bold]Examples[/bold]

      tokengraft audit -o audit/

      tokengraft audit flores200.tar.xz -t llama-3 -l shn -l tam -o audit/

      tokengraft audit eng_Latn=en.txt quy_Latn=quechua.txt

      tokengraft audit 'web/*.jsonl.zst' --language-column lang \
        -t llama-3 --engine ray -o web/
    """
    check_out(out, holds_audit, force)
    ways = (text_column, language_column, language_from_path, detector)
    monolingual = monolingual or any(ways)
    if monolingual or stream:
        if monolingual and stream:
            raise UsageError("--stream is for parallel text, --monolingual for other; keep one.")
        if not corpus:
            raise UsageError("Name the files to count: paths, folders, globs or URLs.")
        from tokengraft.api.verbs import survey
        from tokengraft.corpus.rows import MAX_ROW_BYTES, Layout
        from tokengraft.corpus.shards import SHARD_BYTES

        # Where nothing in the data says the language, one -l does.
        fixed = language[0] if language and len(language) == 1 and not any(ways[1:]) else None
        chosen = Layout(
            text_column or "text",
            language_column,
            language_from_path,
            detector,
            None if stream else fixed,
            tuple(language) if language and (stream or fixed is None) else None,
            max_row_bytes=max_row_bytes or MAX_ROW_BYTES,
        )
        with large.metering() as on_meter:
            surveyed = survey(
                corpus,
                tokenizer or BUNDLED,
                layout=chosen,
                parallel=stream,
                pivot=pivot,
                format_=format_.value if format_ else None,
                search=tokenizers or (),
                engine=engine.value,
                workers=workers,
                address=address,
                shard_bytes=shard_bytes or SHARD_BYTES,
                skip_bad=skip_bad,
                state=state,
                on_meter=on_meter,
            )
        large.finish(surveyed, out, json)
        return
    for name, given in (
        ("--format", format_),
        ("--skip-bad", skip_bad),
        ("--max-row-bytes", max_row_bytes),
        ("--shard-bytes", shard_bytes),
        ("--state", state),
    ):
        if given:
            raise UsageError(f"{name} goes with --monolingual or --stream.")
    from tokengraft.api.verbs import audit as run_audit
    from tokengraft.auditing.cost import read_prices

    with counting() as on_count:
        result = run_audit(
            open_corpus(corpus or ["udhr"], split),
            tokenizer or BUNDLED,
            language or None,
            pivot=pivot,
            search=tokenizers or (),
            prices=prices,
            sample_lines=sample_lines or None,
            on_count=on_count,
            engine=_engine(engine, workers, address),
        )
    audited = {known.name for known in result.tokenizers}
    if prices and (unused := {p.tokenizer for p in read_prices(prices).models} - audited):
        warn(f"{prices}: no cost for {', '.join(sorted(unused))}, which the audit does not hold.")
    written = result.save(out, figures=figures) if out else []
    if json:
        print_json(result.premiums.to_dicts())
    else:
        show(result)
        if out:
            stdout.print(f"{len(written)} files written to {out}")


def _engine(name: large.EngineName, workers: int | None, address: str | None) -> Engine | None:
    """The engine of a corpus in memory; None: this process, whose tokenizers use all cores."""
    if name is large.EngineName.local and workers is None and address is None:
        return None
    from tokengraft.engine.registry import make_engine

    return make_engine(name.value, workers, address)


def open_corpus(given: list[str], split: str | None) -> ParallelCorpus:
    """A corpus from the command line: one name or path, or `code=file` pairs."""
    from tokengraft.corpus import load, load_pairs

    if len(given) == 1 and "=" not in given[0]:
        return load(given[0], split=split)
    return load_pairs(given)


def show(result: Audit) -> None:
    """Print the premium table, worst languages first, and what each tokenizer is like."""
    import polars as pl

    from tokengraft.render.selection import comparable_note, labels

    table = result.premiums
    worst = (
        table.filter(~pl.col("meaningless"))
        .group_by("language", "name")
        .agg(pl.col("premium").median().alias("median"))
        .drop_nulls("median")
        .sort("median", descending=True)
    )
    cells = {(r["language"], r["tokenizer"]): r for r in table.to_dicts()}
    top = worst.head(SHOWN)
    codes = top["language"].to_list()
    names = labels(result)
    columns = [
        Column(names[found.name], [_cell(cells[code, found.name]) for code in codes])
        for found in result.tokenizers
    ]
    spoilt = any("†" in cell for column in columns for cell in column.cells)
    print_table(
        stdout,
        [code_column("language", codes), text_column("name", top["name"].to_list())],
        columns,
        title=f"Premium over {result.pivot} (mean of ratios), {result.corpus.name}",
        caption="† over 1 % UNK: the premium says too little" if spoilt else None,
    )
    if worst.height > SHOWN:
        more = counted(worst.height - SHOWN, "more language")
        stdout.print(f"… and {more} (--out or --json gives all).")
    if missing := comparable_note(result):
        stdout.print(missing, markup=False)
    for row in result.summary.to_dicts():
        lost = row["meaningless_cells"]
        unk = f", text lost to UNK in {counted(lost, 'language')}" if lost else ""
        name = f"[bold]{escape(names[row['tokenizer']])}[/bold]"
        if not row["compared"]:
            stdout.print(f"{name}: no language but {result.pivot} to compare{unk}")
            continue
        stdout.print(
            f"{name}: worst {row['worst_language']} {row['worst_premium']:.2f}, "
            f"median {row['median_premium']:.2f}, Gini {row['gini']:.3f}, "
            f"{row['above_2x']} of {counted(row['compared'], 'language')} above 2×{unk}"
        )


def _cell(row: dict[str, float]) -> str:
    text = f"{row['premium']:.2f}"
    if row["meaningless"]:
        return f"[dim]{text}†[/dim]"
    return f"[red]{text}[/red]" if row["premium"] >= 4 else text
