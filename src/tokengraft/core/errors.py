"""One exception family: every failure a user can cause or cure is a `TokengraftError`.

The command line prints its message (never a traceback) and exits with `exit_code`.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

Row = TypeVar("Row")


class TokengraftError(Exception):
    """Something went wrong that the message explains: what was got, what exists, what to do."""

    exit_code = 1


class UsageError(TokengraftError):
    """The call itself is wrong: an unknown option value, a contradiction between options."""

    exit_code = 2


class CorpusError(TokengraftError):
    """Text that cannot be used as given: misaligned, broken UTF-8, empty lines, unknown codes."""


class TokenizerError(TokengraftError):
    """A tokenizer that cannot be read or cannot serve what was asked of it."""


class Unavailable(TokenizerError):
    """A known tokenizer whose files are not on this machine: an audit goes on without it."""


class ModelError(TokengraftError):
    """A model folder that cannot be read or served as it is."""


class GraftError(TokengraftError):
    """The written folder failed its own verification; it was removed again."""

    exit_code = 3


class CheckFailed(TokengraftError):
    """What was measured is not within the limits that the user set."""

    exit_code = 4


class MissingExtra(TokengraftError):
    """A feature whose optional dependencies are not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs more packages: pip install 'tokengraft[{extra}]'")


def optional(module: str, feature: str, extra: str) -> Any:
    """A module that `feature` needs; MissingExtra, which names the extra, where it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(feature, extra) from error


def gave_up(error: BaseException) -> bool:
    """Whether a library gave up (Rust panics too); running out of memory is our own fault."""
    return type(error).__name__ == "PanicException" or (
        isinstance(error, Exception) and not isinstance(error, MemoryError)
    )


@contextlib.contextmanager
def panics_as_errors(what: str) -> Iterator[None]:
    """What `tokenizers` refuses or panics at inside as a TokenizerError: `what` it was doing."""
    try:
        yield
    except BaseException as error:
        # `tokenizers` raises bare Exceptions, which nothing else does.
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        said = str(error).partition("\n")[0]
        raise TokenizerError(
            f"the library `tokenizers` gave up on this tokenizer.json while {what} ({said}): its "
            "settings contradict each other. Fetch the tokenizer again."
        ) from error


def look_up(what: str, name: str, table: Mapping[str, Row]) -> Row:
    """The row of that name; UsageError that names those there are."""
    if name not in table:
        raise no_such(what, name, table)
    return table[name]


def no_such(what: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that means no `what`."""
    names = list(known)
    return UsageError(f"no {what} {name!r}; known: {', '.join(names)}.{did_you_mean(name, names)}")


def did_you_mean(got: str, known: Iterable[str]) -> str:
    """' Did you mean x, y?' for the known names closest to `got`, or '' where none is close."""
    close = difflib.get_close_matches(got, list(known), n=3, cutoff=0.6)
    return f" Did you mean {', '.join(close)}?" if close else ""
