"""`tokengraft tokenizers`, `corpora` and `languages`: what there is."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tokengraft.cli.console import print_json, stdout
from tokengraft.corpus import available, known, load
from tokengraft.tokenizer.catalog import status
from tokengraft.tokenizer.entries import ENTRIES

JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def tokenizers(
    tokenizers: Annotated[
        list[Path] | None,
        typer.Option("--tokenizers", help="A folder or archive to look into as well."),
    ] = None,
    json: JSON = False,
) -> None:
    """List the known tokenizers and where each would come from.

    Any hub id, local path or tiktoken encoding name works beside these.
    """
    rows = [asdict(entry) | {"where": status(entry, tokenizers or ())} for entry in ENTRIES]
    if json:
        print_json(rows)
        return
    table = Table("name", "model", "maker", "released", "where", "licence", "hub id")
    for row in rows:
        colour = {"hub": "yellow", "cached": "green", "bundled": "green"}.get(row["where"], "cyan")
        table.add_row(
            f"[bold]{row['name']}[/bold]",
            row["model"],
            row["maker"],
            row["released"],
            f"[{colour}]{row['where']}[/{colour}]",
            row["licence"],
            row["hub_id"] or "",
        )
    stdout.print(table)


def corpora(
    name: Annotated[
        str | None, typer.Argument(help="A corpus or path: list its languages instead.")
    ] = None,
    json: JSON = False,
) -> None:
    """List the known corpora, or the languages of one."""
    if name is not None:
        _show_languages(list(load(name).languages), json)
        return
    infos = available()
    if json:
        print_json([asdict(info) for info in infos])
        return
    table = Table("name", "corpus", "languages", "units", "licence", "where / how to get it")
    for info in infos:
        table.add_row(
            f"[bold]{info.name}[/bold]",
            info.title,
            "" if info.languages is None else str(info.languages),
            str(info.units),
            info.licence,
            info.where or info.how,
        )
    stdout.print(table)


def languages(json: JSON = False) -> None:
    """List the language table: code, name, script, family, speakers."""
    _show_languages(list(known()), json)


def _show_languages(codes: list[str], json: bool) -> None:
    from tokengraft.corpus import language

    entries = [language(code) for code in codes]
    if json:
        print_json([asdict(entry) for entry in entries])
        return
    table = Table("code", "name", "autonym", "script", "family", "total speakers")
    for entry in entries:
        speakers = "" if entry.speakers_total is None else f"{entry.speakers_total:,}"
        table.add_row(
            entry.code,
            entry.name,
            entry.autonym or "",
            entry.script_name or entry.script or "",
            entry.family or "",
            speakers,
        )
    stdout.print(table)
    stdout.print(f"{len(entries)} languages")
