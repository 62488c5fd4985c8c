"""The one type that every loader returns and every audit takes."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tokengraft.core.errors import CorpusError
from tokengraft.languages import codes as languages


def in_words(name: str, source: str) -> str:
    """A corpus by its source, splits included, without the place on disk it was read from.

    The user's own files are called by their `name`.
    """
    if not source or source.startswith("own text files"):
        return name
    return source.partition(", from ")[0].partition(", bundled")[0]


@dataclass(frozen=True, repr=False)
class ParallelCorpus:
    """Parallel text: one list of units per language, aligned by position.

    An entry is a text that is not empty, or None where the language lacks the unit.
    """

    name: str
    source: str
    units: tuple[str, ...]
    texts: Mapping[str, tuple[str | None, ...]]
    #: Units left out since a language's line was empty (`whole_units`).
    left_out: int = field(default=0, compare=False)
    _digests: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(set(self.units)) != len(self.units):
            raise CorpusError(f"{self.name}: a unit id occurs twice.")
        for code, texts in self.texts.items():
            if len(texts) != len(self.units):
                raise CorpusError(
                    f"{self.name}: {code} has {len(texts)} entries for {len(self.units)} units; "
                    f"put None where a unit is missing."
                )
            if "" in texts:
                unit = self.units[texts.index("")]
                raise CorpusError(
                    f"{self.name}: {code}, unit {unit}, is empty; put None where it is missing."
                )

    @property
    def title(self) -> str:
        """The corpus in words: `FLORES-200, devtest`."""
        return in_words(self.name, self.source)

    @property
    def languages(self) -> tuple[str, ...]:
        """The codes, sorted."""
        return tuple(sorted(self.texts))

    def select(self, codes: Iterable[str]) -> ParallelCorpus:
        """The same units in these languages only; a language that is missing is a CorpusError."""
        chosen = choose(codes, self.texts, self.name)
        return ParallelCorpus(
            self.name,
            self.source,
            self.units,
            {code: self.texts[code] for code in chosen},
            self.left_out,
        )

    def not_nfc(self) -> dict[str, tuple[str | None, ...]]:
        """Of each language with entries that are not in NFC, those entries in NFC; else None."""
        composed = {}
        for code, texts in self.texts.items():
            wrong = [t is not None and not unicodedata.is_normalized("NFC", t) for t in texts]
            if any(wrong):
                composed[code] = tuple(
                    unicodedata.normalize("NFC", text) if text and differs else None
                    for text, differs in zip(texts, wrong, strict=True)
                )
        return composed

    def digest(self, code: str) -> str:
        """SHA-256 of the language's entries, missing ones included; computed once.

        Equal digests mean equal entries; unit ids and the corpus name are not part of it.
        """
        if code not in self._digests:
            digest = hashlib.sha256()
            for text in self.texts[code]:
                data = b"" if text is None else text.encode()
                # No text is empty, so a length of zero can only mean a missing unit.
                digest.update(len(data).to_bytes(8, "little") + data)
            self._digests[code] = digest.hexdigest()
        return self._digests[code]

    def lines(self, *codes: str) -> list[str]:
        """The texts in these languages, one language after the other, without the missing ones."""
        return [text for code in codes for text in self.texts[code] if text is not None]

    def require(self, pivot: str) -> str:
        """The full code of `pivot`; a CorpusError unless it is one of two or more languages."""
        if len(self.texts) < 2:
            have = ", ".join(self.languages) or "none"
            raise CorpusError(
                f"{self.name} has fewer than two languages ({have}); a comparison needs the "
                f"pivot {pivot} and at least one more."
            )
        try:
            return languages.resolve(pivot, self.texts, self.name)
        except CorpusError as error:
            raise CorpusError(
                f"The pivot {pivot}: {error} Add its text, or choose another pivot."
            ) from None

    def __repr__(self) -> str:
        about = f"{len(self.texts)} languages, {len(self.units):,} units"
        return f"ParallelCorpus({self.name!r}: {about})"


def whole_units(
    name: str, source: str, units: Sequence[str], texts: Mapping[str, Sequence[str | None]]
) -> ParallelCorpus:
    """A corpus of the units in which no language has an empty line."""
    empty = {n for lines in texts.values() for n, line in enumerate(lines) if line == ""}
    left = [n for n in range(len(units)) if n not in empty]
    if empty and not left:
        raise CorpusError(f"{name}: every line is empty in one of the languages.")
    return ParallelCorpus(
        name,
        source,
        tuple(units[n] for n in left),
        {code: tuple(lines[n] for n in left) for code, lines in texts.items()},
        len(empty),
    )


def choose(codes: Iterable[str] | None, among: Iterable[str], where: str) -> list[str]:
    """The full codes meant by `codes`, each once and in order; all, sorted, for None."""
    choices = sorted(among)
    if codes is None:
        return choices
    codes = languages.listed(codes)
    if not codes:
        raise CorpusError(f"No language chosen; {where} has {len(choices)}.")
    return list(dict.fromkeys(languages.resolve(code, choices, where) for code in codes))
