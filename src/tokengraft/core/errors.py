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
    """A known tokenizer whose files are not on this machine; an audit may skip it."""


class ModelError(TokengraftError):
    """A model folder that cannot be read or served as it is."""


class GraftError(TokengraftError):
    """The written folder failed its own verification and was removed."""

    exit_code = 3


class CheckFailed(TokengraftError):
    """A measured figure is outside the limits that the user set."""

    exit_code = 4


class MissingExtra(TokengraftError):
    """A feature whose optional dependencies are not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs more packages: pip install 'tokengraft[{extra}]'")


class EncoderDiffers(UserWarning):
    """A faster encoder gave other ids than the tokenizer's own library, and is not used."""


def optional(module: str, feature: str, extra: str) -> Any:
    """Import `module`, which `feature` needs; MissingExtra, naming the extra, if it fails."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(feature, extra) from error


def gave_up(error: BaseException) -> bool:
    """Whether `error` is a library giving up, as in a Rust panic, and not a lack of memory."""
    return type(error).__name__ == "PanicException" or (
        isinstance(error, Exception) and not isinstance(error, MemoryError)
    )


@contextlib.contextmanager
def panics_as_errors(what: str) -> Iterator[None]:
    """Turn refusals and panics of `tokenizers` into TokenizerErrors; `what` says what it did."""
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
    """The row called `name`; if there is none, a UsageError that lists the known names."""
    if name not in table:
        raise no_such(what, name, table)
    return table[name]


def no_such(what: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a `name` that is not among the `known` names of a `what` ("engine")."""
    names = list(known)
    return UsageError(f"no {what} {name!r}; known: {', '.join(names)}.{did_you_mean(name, names)}")


def did_you_mean(got: str, known: Iterable[str]) -> str:
    """' Did you mean x, y?' for the known names closest to `got`, or '' if none is close."""
    close = difflib.get_close_matches(got, list(known), n=3, cutoff=0.6)
    return f" Did you mean {', '.join(close)}?" if close else ""
