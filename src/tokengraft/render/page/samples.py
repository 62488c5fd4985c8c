"""Parallel sentences with their tokens under every tokenizer of a run, for “See the tokens”."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokengraft.core.errors import CorpusError, TokengraftError
from tokengraft.core.files import ASSETS
from tokengraft.corpus import load as load_corpus
from tokengraft.corpus import udhr
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.languages.codes import base as base_code
from tokengraft.tokenizer import Located, Tokenizer, find
from tokengraft.tokenizer.vocabulary import CONTINUATION_MARK, decoded

# A token is its text; if that is not valid UTF-8, [its bytes in hexadecimal]; for UNK, 0.
Shown = str | list[str] | int
SENTENCES = 2
_LENGTHS = (40, 100)  # characters in the pivot language: a sentence that fits a phone


@dataclass(frozen=True)
class Shelf:
    """A tokenizer under the label the page gives it; `graft` marks one made by tokengraft."""

    label: str
    open: Callable[[], Tokenizer]
    graft: bool = False


def sample_data(
    manifest: dict[str, Any],
    shelves: Sequence[Shelf],
    corpus: str | Path | ParallelCorpus | None = None,
) -> dict[str, Any] | None:
    """Sentences of every language of the run, and the tokens that each shelf makes of them.

    The text is the run's own corpus if it is given as `corpus` or can be found by name, else the
    bundled Declaration. None unless it has the pivot and at least one other language of the run.
    """
    text = _corpus(manifest, corpus)
    pivot = str(manifest["pivot"])
    codes = [code for code in manifest["corpus"]["languages"] if code in text.texts]
    if pivot not in codes or len(codes) < 2 or not shelves:
        return None
    numbers = choose_units(text, pivot, SENTENCES)
    lines = {code: [text.texts[code][n] for n in numbers] for code in codes}
    flat = [(code, n) for code in codes for n in range(len(numbers)) if lines[code][n] is not None]
    texts = [line for code, n in flat if (line := lines[code][n]) is not None]
    tokens: dict[str, list[list[Any]]] = {
        code: [[None] * len(shelves) for _ in numbers] for code in codes
    }
    for place, shelf in enumerate(shelves):
        for (code, n), shown in zip(flat, segment(shelf.open(), texts), strict=True):
            tokens[code][n][place] = shown
    return {
        "corpus": text.title,
        "own": text.name == manifest["corpus"].get("name") or _same_text(text, manifest, pivot),
        "units": [text.units[n] for n in numbers],
        "shelves": [{"label": shelf.label, "graft": shelf.graft} for shelf in shelves],
        "lines": lines,
        "tokens": tokens,
    }


def _same_text(text: ParallelCorpus, manifest: dict[str, Any], pivot: str) -> bool:
    """Whether a corpus of another name (a folder, once pairs of files) has the run's pivot text."""
    return bool(text.digest(pivot) == manifest["corpus"]["languages"][pivot])


def choose_units(corpus: ParallelCorpus, pivot: str, count: int) -> list[int]:
    """The units that most languages have, preferring pivot text that is neither long nor short."""
    low, high = _LENGTHS

    def rank(number: int) -> tuple[bool, int, int]:
        text = corpus.texts[pivot][number] or ""
        have = sum(texts[number] is not None for texts in corpus.texts.values())
        return not low <= len(text) <= high, -have, number

    there = [n for n, text in enumerate(corpus.texts[pivot]) if text is not None]
    return sorted(sorted(there, key=rank)[:count])


def shelves_of(
    manifest: dict[str, Any], names: Sequence[str], search: Sequence[Path] = ()
) -> tuple[list[Shelf], list[str]]:
    """The run's tokenizers that this machine has with the same hash, in the order of `names`.

    The second value lists the labels of the others, which “See the tokens” leaves out.
    """
    shelves: list[Shelf] = []
    absent: list[str] = []
    for name in names:
        about = manifest["tokenizers"].get(name, {})
        here = _find(name, search)
        if here is None or here.fingerprint != about.get("sha256"):
            absent.append(str(about.get("label", name)))
        else:
            shelves.append(Shelf(str(about.get("label", here.label)), here.open))
    return shelves, absent


def graft_shelves(folder: Path, base: str) -> list[Shelf]:
    """The tokenizer of a graft's base, if this machine has it, and then the graft's own."""
    name = folder.resolve().name
    label = name if "graft" in name else f"{name} (grafted)"
    own = Shelf(label, find(str(folder)).open, graft=True)
    embedded = ASSETS / base
    here = _find(str(embedded) if base and embedded.is_dir() else base, ())
    return [own] if here is None else [Shelf(base, here.open), own]


def _find(name: str, search: Sequence[Path]) -> Located | None:
    try:
        return find(name, search)
    except (TokengraftError, OSError, ValueError):
        return None


def _corpus(manifest: dict[str, Any], given: str | Path | ParallelCorpus | None) -> ParallelCorpus:
    if isinstance(given, ParallelCorpus):
        return given
    if given is not None:
        return load_corpus(given)
    try:
        return load_corpus(str(manifest["corpus"].get("name", udhr.NAME)))
    except CorpusError:
        bundled = udhr.load()
        # The run may have a plain code where the Declaration has only a variety of it.
        plain = {base_code(code): code for code in reversed(bundled.languages)}
        wanted = manifest["corpus"]["languages"]
        texts = {
            code: bundled.texts[code if code in bundled.texts else plain[code]]
            for code in wanted
            if code in bundled.texts or code in plain
        }
        return ParallelCorpus(bundled.name, bundled.source, bundled.units, texts)


def segment(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[Shown]]:
    """The tokens of each text, one entry per token."""
    spelled: Any = getattr(tokenizer, "pipeline", None)
    wordpiece = tokenizer.family == "WordPiece"

    def opens(token: int) -> bool:
        """Whether a token begins a word in WordPiece, whose pieces do not include the space."""
        return wordpiece and not str(spelled.id_to_token(token)).startswith(CONTINUATION_MARK)

    return [
        [_shown(tokenizer, token, bool(place) and opens(token)) for place, token in enumerate(ids)]
        for ids in tokenizer.encode(texts)
    ]


def _shown(tokenizer: Tokenizer, token: int, spaced: bool) -> Shown:
    vocabulary = tokenizer.vocabulary
    if token in vocabulary.unknown:
        return 0
    piece = vocabulary.pieces[token] if token < len(vocabulary.pieces) else b""
    text = decoded(piece)
    return [piece.hex()] if text is None else (" " if spaced else "") + text
