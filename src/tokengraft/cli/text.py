"""`--text`: what every verb that reads text takes, FILE or CODE=FILE, and how it is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from tokengraft.core.errors import UsageError
from tokengraft.corpus.shards import Format
from tokengraft.languages.codes import resolve

KINDS = "a file, folder, glob or URL of text, JSONL or Parquet, plain or compressed"

TextColumnOption = Annotated[
    str, typer.Option("--text-column", help="Column of JSONL or Parquet that holds the text.")
]
FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format", help="Format of the text. Default: by suffix; text where that says nothing."
    ),
]


def by_language(values: Sequence[str], planned: Collection[str] = ()) -> dict[str, list[str]]:
    """`--text` values by language, under "" where none is named.

    With `planned` languages every value belongs to one of them: to the only one, or to the one it
    names. A file whose own name holds an equals sign is a file.
    """
    sources: dict[str, list[str]] = {}
    for value in values:
        label, equals, path = value.partition("=")
        if equals and "/" not in label and not Path(value).exists():
            code = resolve(label)
            if planned and code not in planned:
                raise UsageError(f"--text {value}: {code} is not planned for; add -l {code}")
        else:
            code, path = "", value
            if len(planned) > 1:
                raise UsageError(f"--text {value}: with several languages write CODE={value}")
            code = next(iter(planned), "")
        sources.setdefault(code, []).append(path)
    return sources


def read_text(
    values: Sequence[str] | None, text_column: str = "text", format_: Format | None = None
) -> list[str] | None:
    """The lines of all `--text` values, or None where there are none."""
    if not values:
        return None
    lines = lines_by_language(by_language(values), text_column, format_)
    return [line for own in lines.values() for line in own]


def lines_by_language(
    sources: Mapping[str, Sequence[str]], text_column: str, format_: Format | None
) -> dict[str, list[str]]:
    """The lines of each language's files."""
    from tokengraft.corpus.lines_of import lines_of_files

    return {
        code: list(lines_of_files(paths, text_column=text_column, format_=format_))
        for code, paths in sources.items()
    }
