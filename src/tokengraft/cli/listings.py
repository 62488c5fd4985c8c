"""`tokengraft tokenizers`, `corpora` and `languages`: lists of what is available."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from tokengraft.cli.console import print_json, stdout
from tokengraft.core.errors import UsageError
from tokengraft.core.wording import counted
from tokengraft.corpus import available, load
from tokengraft.corpus.catalog import described
from tokengraft.languages.codes import known, language, meanings, suggest
from tokengraft.render.terminal import Column, code_column, print_table, text_column
from tokengraft.tokenizer import file_kinds
from tokengraft.tokenizer.catalog import ALSO_CALLED, LISTED, status

JSON = Annotated[bool, typer.Option("--json", help="Print the list as JSON.")]


def files_read() -> str:
    """What can be opened, one line per adapter, for `--help`."""
    rows = (f"{adapter.name}: {adapter.help}" for adapter in file_kinds.ADAPTERS)
    return "[bold]Files that are read[/bold]\n\n" + "\n\n".join(f"  {row}" for row in rows)


def tokenizers(
    tokenizers: Annotated[
        list[Path] | None,
        typer.Option(
            "--tokenizers", metavar="FOLDER", help="A folder or archive to look into as well."
        ),
    ] = None,
    json: JSON = False,
) -> None:
    """List the known tokenizers and where each comes from.

    Any hub id, local path or tiktoken encoding name works as well.

    [bold]Examples[/bold]

      tokengraft tokenizers

      tokengraft tokenizers --tokenizers paper-ten.tar.xz --json
    """
    rows = [
        asdict(entry)
        | {"where": status(entry, tokenizers or ()), "also_called": ALSO_CALLED.get(entry.name, ())}
        for entry in LISTED
    ]
    if json:
        print_json(rows)
        return
    colours = {"hub": "yellow", "cached": "green", "bundled": "green"}
    where = [f"[{colours.get(r['where'], 'cyan')}]{escape(r['where'])}[/]" for r in rows]
    print_table(
        stdout,
        [code_column("name", [row["name"] for row in rows])],
        [
            text_column("model", [row["model"] for row in rows]),
            text_column("maker", [row["maker"] for row in rows]),
            code_column("released", [row["released"] for row in rows]),
            Column("where", where, text=True, right=False),
            text_column("licence", [row["licence"] for row in rows]),
            text_column("hub id", [row["hub_id"] or "" for row in rows]),
        ],
    )
    called = (f"{name} ({', '.join(also)})" for name, also in ALSO_CALLED.items())
    stdout.print(f"Also found by what people call them: {'; '.join(called)}.", markup=False)


def corpora(
    name: Annotated[
        str | None, typer.Argument(help="A corpus by name or path, to list its languages instead.")
    ] = None,
    json: JSON = False,
) -> None:
    """List the known corpora, or the languages of one.

    udhr is bundled; for the others the list says where to get them.

    [bold]Examples[/bold]

      tokengraft corpora

      tokengraft corpora udhr
    """
    if name is not None:
        _show_languages(list(load(name).languages), json)
        return
    infos = available()
    if json:
        print_json([asdict(info) for info in infos])
        return
    counts = ["" if info.languages is None else str(info.languages) for info in infos]
    print_table(
        stdout,
        [code_column("name", [info.name for info in infos])],
        [
            text_column("corpus", [info.title for info in infos]),
            Column("languages", counts),
            Column("units", [str(info.units) for info in infos]),
            text_column("licence", [info.licence for info in infos]),
            text_column("where", [info.where or "see below" for info in infos]),
        ],
    )
    for info in infos:
        if not info.where:
            stdout.print(f"{info.name}: {info.how}", markup=False, soft_wrap=True)
    stdout.print(described(), markup=False)


def languages(
    about: Annotated[
        str | None,
        typer.Argument(
            metavar="WORD",
            help="List only what this names: a language, code, script or family, or part of one.",
        ),
    ] = None,
    json: JSON = False,
) -> None:
    """List the language table: code, name, script, family, speakers.

    Any of these codes and names can be given wherever a language is asked for.

    [bold]Examples[/bold]

      tokengraft languages

      tokengraft languages Farsi

      tokengraft languages Niger-Congo --json
    """
    if about is None:
        return _show_languages(list(known()), json)
    word = about.casefold()
    codes = set(meanings(about)) | {
        code
        for code, e in known().items()
        if any(
            word in (said or "").casefold()
            for said in (code, e.name, e.autonym, e.script_name, e.family)
        )
    }
    if not codes & known().keys():
        raise UsageError(
            f"No language, script or family is called {about!r}.{suggest(about, known())}"
        )
    return _show_languages([code for code in known() if code in codes], json)


def _show_languages(codes: list[str], json: bool) -> None:
    entries = [language(code) for code in codes]
    if json:
        print_json([asdict(entry) for entry in entries])
        return
    speakers = [e.speakers_total for e in entries]
    print_table(
        stdout,
        [
            code_column("code", [e.code for e in entries]),
            text_column("name", [e.name for e in entries]),
        ],
        [
            text_column("autonym", [e.autonym or "" for e in entries]),
            text_column("script", [e.script_name or e.script or "" for e in entries]),
            text_column("family", [e.family or "" for e in entries]),
            Column("total speakers", ["" if n is None else f"{n:,}" for n in speakers]),
        ],
    )
    stdout.print(counted(len(entries), "language"))
