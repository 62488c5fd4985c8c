"""Options that several commands share, each declared once: text in, results out.

`--text` is FILE or CODE=FILE in every verb that reads text. One rule holds for every `--out`,
applied before anything is computed: a missing or empty folder, or one with an earlier result of the
same command, is written to. Any other folder is left alone unless `--force` is given; a file, or a
place that cannot be written to, is always an error.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from tokengraft.core.errors import TokengraftError, UsageError
from tokengraft.core.files import real
from tokengraft.core.lock import Lock, hold
from tokengraft.core.wording import counted, one_line
from tokengraft.corpus.lines_of import Sources
from tokengraft.corpus.shards import Format
from tokengraft.engine import ENGINES
from tokengraft.languages.codes import resolve

RULE = "Must be missing, empty or an earlier result of this command; --force writes into any other."
WHOLE_RULE = (
    "Must be missing, empty or an earlier result of this command; --force replaces any other."
)
ForceOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--force", help="Write into --out even if it holds files that this command did not write."
    ),
]
ReplaceOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Replace --out and all that is in it, even if this command did not write it.",
    ),
]


#: Options that a plugin has taken over, as they are said now.
_MOVED = {f"--{name}": f"--option {name}=N" for name in ("k", "layer", "synthetic", "bias")}
_MOVED["--equiprobable"] = "`tokengraft paper equiprobable --strings N`"


def _named(params: list[Any]) -> list[Any]:
    """Name what an option takes: typer prints `<bool>` after flags, `<list[str]>` after lists."""
    for param in params:
        if isinstance(param, TyperArgument):
            # Name and help say what it is; a type beside them (typer 0.29) would only confuse.
            setattr(param, "display_type_rich", lambda ctx: None)  # noqa: B010 - no field of it
        elif isinstance(param, TyperOption) and param.metavar is None:
            if param.is_flag:
                param.metavar = ""
            elif param.multiple:
                param.metavar = param.opts[0].strip("-").upper()
    return params


class Command(TyperCommand):
    """A command whose help names what an option takes, and nothing after a flag or argument."""

    def get_params(self, ctx: Any) -> Any:
        """Every option and argument, `--help` among them."""
        return _named(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As usual; whoever writes `--protect fra spa` is told how to give several values.

        An empty value, as of a shell's unset variable, is refused: as a path it would be the
        current folder.
        """
        ctx.allow_extra_args = True
        for word in args:
            if moved := _MOVED.get(word.partition("=")[0]):
                ctx.fail(f"{word} is called {moved} now (docs/paper.md)")
        empty = any(not word or (word.startswith("--") and word.endswith("=")) for word in args)
        if empty and not ctx.resilient_parsing:
            ctx.fail("An argument is empty. Is a variable of the shell not set?")
        extra = super().parse_args(ctx, args)
        if extra and not ctx.resilient_parsing:
            more = "For several values repeat the option, as in -l swh -l yor."
            ctx.fail(f"Got unexpected extra argument(s) ({' '.join(map(one_line, extra))}). {more}")
        return extra


class Commands(TyperGroup):
    """A group of commands, with the same help."""

    def get_params(self, ctx: Any) -> Any:
        """Every option, `--help` among them."""
        return _named(super().get_params(ctx))


_held: list[Lock] = []  # until this process ends
_NAMED = 3  # files in the way that a message names


def holds_file(name: str) -> Callable[[Path], bool]:
    """Whether a folder holds the file by which a command's result is known."""
    return lambda folder: (folder / name).is_file()


def holds_audit(folder: Path) -> bool:
    """Whether a folder holds an audit; other programs write a manifest.json too."""
    from tokengraft.api.results import Audit

    return Audit.is_in(folder)


def holds_page(folder: Path) -> bool:
    """Whether a folder holds a page that `report` made."""
    try:
        with (folder / "index.html").open(encoding="utf-8") as file:
            return '<meta name="generator" content="tokengraft">' in file.read(4096)
    except (OSError, ValueError):
        return False


def check_out(
    out: Path | None, holds: Callable[[Path], bool], force: bool = False, whole: bool = False
) -> None:
    """Raise unless `out` may be written to; nothing is left there.

    `holds` recognises an earlier result; `whole` says that the folder will be replaced as a whole.
    From here on this process holds the folder (`lock.hold`). UsageError names what is in the way,
    TokengraftError what the system refuses.
    """
    if out is None:
        return
    try:
        out = real(out)
        above = (out, *out.parents)
        file = next((path for path in above if path.exists() and not path.is_dir()), None)
        if file is not None:
            raise UsageError(f"--out {out}: {file} is a file, not a folder; name another one")
        if whole and os.fsencode(out) != str(out).encode(errors="replace"):
            raise UsageError(
                f"--out {out}: its name is not UTF-8, and the libraries that load models cannot "
                "open such a path; name another folder"
            )
        names = sorted(path.name for path in out.iterdir()) if out.exists() else []
        if names and not force and not holds(out):
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            what = "replace it and all that is in it" if whole else "write there anyway"
            raise UsageError(
                f"--out {out} already holds {', '.join(names[:_NAMED])}{more}, and is no earlier "
                f"result of this command: name another folder, or {what} with --force"
            )
        _try(out, whole)
        _held.append(hold(out))
    except OSError as error:
        reason = error.strerror or str(error)
        raise TokengraftError(
            f"--out {out} cannot be written to ({reason}): name another folder"
        ) from error


def _try(out: Path, whole: bool) -> None:
    """Try to make the folder and a file in it, and remove both again."""
    made = [path for path in (out, *out.parents) if not path.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out.parent if whole and not out.is_mount() else out):
            pass
    finally:
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()


def panel(title: str) -> Any:
    """`typer.Option` for options that `--help` shows together, under this title."""
    return partial(typer.Option, rich_help_panel=title)


output = panel("Output")
_option = panel("Large corpora (docs/scale.md)")
TokenizersOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--tokenizers",
        metavar="FOLDER",
        help="A folder or archive in which named tokenizers are looked up first.",
    ),
]
LanguageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--language",
        "-l",
        help="Only this language (shn_Mymr, shn or Shan); repeat for more. Default: all.",
    ),
]
ModelArgument = Annotated[
    str, typer.Argument(help="rootstock (bundled), a model folder or a hub id.")
]
PlanArgument = Annotated[Path, typer.Argument(help="plan.json, or the folder that holds it.")]
PivotOption = Annotated[str, typer.Option(help="The language that premiums are relative to.")]
SplitOption = Annotated[
    str | None, typer.Option(help="Part of FLORES: dev, devtest or dev+devtest (default).")
]
SkipEmptyOption = Annotated[
    bool,
    typer.Option(
        "--skip-empty",
        help="Leave out lines of parallel text files that are empty in a language, in all of them.",
    ),
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda, …")]
DTYPE = (
    "In which type the model is read: float32, bfloat16 or float16. auto: its own on a GPU, "
    "float32 on a CPU. bfloat16 halves the memory and, on CPUs that have it, most of the time."
)
DtypeOption = Annotated[str, typer.Option(help=DTYPE)]
ResultsOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", help=f"Write tables and figures into this folder. {RULE}"),
]


PlainOption = Annotated[
    bool,
    output(
        help="Draw figures for print: without title, credit or mark, as PDF too. "
        "tables/premiums_compact.tex has no intervals."
    ),
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
    str | None, _option("--address", help="A running Ray cluster: `auto` or host:port.")
]
WorkersOption = Annotated[
    int | None, _option("--workers", min=1, help="Processes that count. Default: one per core.")
]
ReferenceOption = Annotated[
    bool,
    _option(
        "--reference",
        help="Encode only with the libraries that tokenizers come with, never with a faster one "
        "that was found to agree.",
    ),
]
StreamOption = Annotated[
    bool,
    _option(
        "--stream",
        help="Stream the parallel corpus in shards instead of loading it, whatever its size: JSONL "
        "or Parquet with a column per language, or CODE=FILE pairs of text files.",
    ),
]
MonolingualOption = Annotated[
    bool,
    _option(
        "--monolingual",
        help="The corpus is not parallel: count each language's text by itself. Implied by the "
        "four options below.",
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
    _option(
        "--language-from-path",
        help="Regular expression for the path of a file; its group is the language.",
    ),
]
DetectorOption = Annotated[
    str | None,
    _option(
        "--detector",
        help="Python function, as package.module:function, that returns the language of a text.",
    ),
]
FormatOption = Annotated[
    Format | None, _option("--format", help="Format of the files. Default: by suffix.")
]
SkipBadOption = Annotated[
    bool,
    _option(
        "--skip-bad", help="Skip bad rows and broken files, and list them, instead of stopping."
    ),
]
MaxRowOption = Annotated[
    int | None,
    _option("--max-row-bytes", min=1, help="Rows longer than this are bad (default 2 MiB)."),
]
ShardOption = Annotated[
    int | None, _option("--shard-bytes", min=1, help="Size of a shard (default 16 MiB).")
]
StateOption = Annotated[
    Path | None,
    _option(
        "--state",
        help="Folder for finished counts, shard by shard: an interrupted audit resumes from it, "
        "and another plan for the same text does not count it again. Default: the cache.",
    ),
]

WordsOption = Annotated[
    bool,
    _option(
        "--words",
        help="Count words for plan in the same pass: plan --text with these files and the same "
        "--state then reads none of them again. For files of one language each (-l or "
        "--language-from-path).",
    ),
]


KINDS = "a file, folder, glob or URL of text, JSONL or Parquet, plain or compressed"

PlainTextColumnOption = Annotated[
    str, typer.Option("--text-column", help="Column of JSONL or Parquet that holds the text.")
]
PlainFormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format", help="Format of the text. Default: by suffix; text where that says nothing."
    ),
]


def by_language(values: Sequence[str], planned: Collection[str] = ()) -> dict[str, list[str]]:
    """`--text` values by language, under "" if none is named.

    With `planned` languages every value belongs to one of them: to the only one, or to the one it
    names; without, a folder with one file per language is one of several languages. A value is
    taken for a file, not CODE=FILE, if a file of that name exists.
    """
    sources: dict[str, list[str]] = {}
    for value in values:
        label, equals, path = value.partition("=")
        if equals and "/" not in label and not Path(value).exists():
            code = resolve(label)
            if planned and code not in planned:
                raise UsageError(f"--text {value}: {code} is not planned for; add -l {code}")
        elif not planned and (files := _files_by_language(Path(value))):
            for own, file in files.items():
                sources.setdefault(own, []).append(str(file))
            continue
        else:
            if len(planned) > 1:
                raise UsageError(
                    f"--text {value}: with several languages, say whose text it is: CODE={value}"
                )
            code, path = next(iter(planned), ""), value
        sources.setdefault(code, []).append(path)
    return sources


def _files_by_language(folder: Path) -> dict[str, Path]:
    """The files of a folder, if each is named after another language (`swh_Latn.txt`)."""
    from tokengraft.planning.plan_files import texts_of_folder

    if not folder.is_dir():
        return {}
    try:
        files = texts_of_folder(folder)
    except UsageError:
        return {}
    return files if len(files) == sum(1 for _ in folder.iterdir()) else {}


def tell_empty(left_out: int) -> None:
    """Say how many units `--skip-empty` has left out."""
    if left_out:
        from tokengraft.cli.console import warn

        warn(f"{counted(left_out, 'line')} left out in every language: empty in one of them.")


def read_text(
    values: Sequence[str] | None, text_column: str = "text", format_: Format | None = None
) -> Sources | None:
    """The lines of all `--text` values, by language if there are several; None without any."""
    if not values:
        return None
    lines = lines_by_language(by_language(values), text_column, format_)
    return lines if len(lines) > 1 else next(iter(lines.values()))


def lines_by_language(
    sources: Mapping[str, Sequence[str]], text_column: str, format_: Format | None
) -> dict[str, list[str]]:
    """The lines of each language's files."""
    from tokengraft.corpus.lines_of import lines_of_files

    return {
        code: list(lines_of_files(paths, text_column=text_column, format_=format_))
        for code, paths in sources.items()
    }
