"""Options that several commands share, each declared once."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from tokengraft.cli.destination import RULE
from tokengraft.corpus.shards import Format
from tokengraft.engine.engines import ENGINES


def panel(title: str) -> Any:
    """`typer.Option` for options that `--help` shows together, under this title."""
    return partial(typer.Option, rich_help_panel=title)


_option = panel("Large corpora (docs/scale.md)")
TokenizersOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--tokenizers", help="A folder or archive in which named tokenizers are looked up first."
    ),
]
ModelArgument = Annotated[
    str, typer.Argument(help="rootstock (bundled), a model folder or a hub id.")
]
PlanArgument = Annotated[Path, typer.Argument(help="plan.json, or the folder that holds it.")]
PivotOption = Annotated[str, typer.Option(help="The language that premiums are relative to.")]
SplitOption = Annotated[
    str | None, typer.Option(help="For FLORES: dev, devtest or dev+devtest (default).")
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, …")]
ResultsOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help=f"Write tables and figures into this folder. {RULE}"),
]


def _known_engine(name: str) -> str:
    if name not in ENGINES:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, ENGINES))}.")
    return name


EngineOption = Annotated[
    str,
    _option(
        "--engine",
        metavar=f"<{'|'.join(ENGINES)}>",
        callback=_known_engine,
        autocompletion=lambda: list(ENGINES),
        help="; ".join(f"{row.name}: {row.help}" for row in ENGINES.values()) + ".",
    ),
]
AddressOption = Annotated[
    str | None,
    _option("--address", help="A running Ray cluster: `auto` or host:port."),
]
WorkersOption = Annotated[
    int | None, _option("--workers", min=1, help="Processes that count. Default: one per core.")
]
StreamOption = Annotated[
    bool,
    _option(
        "--stream",
        help="Do not load the parallel corpus but stream it in shards, whatever its size: JSONL or "
        "Parquet with a column per language, or CODE=FILE pairs of text files.",
    ),
]
MonolingualOption = Annotated[
    bool,
    _option(
        "--monolingual",
        help="The corpus is not parallel: count each language's text. Implied by the four options "
        "below.",
    ),
]
TextColumnOption = Annotated[
    str | None, _option("--text-column", help="Column that holds the text (default: text).")
]
LanguageColumnOption = Annotated[
    str | None, _option("--language-column", help="Column that holds the language.")
]
LanguageFromPathOption = Annotated[
    str | None,
    _option("--language-from-path", help="Regular expression whose group is the language."),
]
DetectorOption = Annotated[
    str | None,
    _option("--detector", help="package.module:function that gives the language of a text."),
]
FormatOption = Annotated[
    Format | None, _option("--format", help="Format of the files. Default: by suffix.")
]
SkipBadOption = Annotated[
    bool,
    _option("--skip-bad", help="Leave out and list bad rows and broken files instead of stopping."),
]
MaxRowOption = Annotated[
    int | None, _option("--max-row-bytes", min=1, help="A longer row is bad (default 2 MiB).")
]
ShardOption = Annotated[
    int | None, _option("--shard-bytes", min=1, help="Size of a shard (default 16 MiB).")
]
StateOption = Annotated[
    Path | None,
    _option("--state", help="Folder that keeps finished shards. Default: the cache."),
]
