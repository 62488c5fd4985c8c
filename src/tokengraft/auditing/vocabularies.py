"""Comparing vocabularies: the paper's breakdown, overlap matrices and their clustering order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from fontTools.unicodedata import block
from numpy.typing import NDArray

from tokengraft.core.cache import Store
from tokengraft.tokenizer import Located, Tokenizer
from tokengraft.tokenizer.vocabulary import recovered_text

_VERSION = "1"
LENGTHS = 8  # tokens of 1 … 7 bytes, and longer
Breakdown = dict[str, int]


def breakdown(clean: frozenset[bytes], raw_bytes: bool) -> Breakdown:
    """The paper's columns for one normalised vocabulary."""
    texts = map(recovered_text, clean) if raw_bytes else (p.decode("utf-8") for p in clean)
    characters = set("".join(texts))
    if raw_bytes:
        # Single bytes are too short for the recovery rule, yet every ASCII character is a token.
        characters |= {chr(p[0]) for p in clean if len(p) == 1 and p[0] < 0x80}
    row = {"clean_vocab_size": len(clean), "unicode_blocks": len({block(c) for c in characters})}
    sizes = [len(c.encode("utf-8")) for c in characters]
    row |= {f"chars_{n}b": sizes.count(n) for n in range(1, 5)}
    lengths = np.bincount([len(p) for p in clean], minlength=LENGTHS)
    row |= {f"toks_{n}b": int(lengths[n]) for n in range(1, LENGTHS)}
    row["toks_gt7b"] = int(lengths[LENGTHS:].sum())
    return row


#: Normalised vocabularies by fingerprint, one piece per row: a fifth of the memory of sets.
Clean = dict[str, pl.DataFrame]


def note(located: Located, tokenizer: Tokenizer, store: Store, clean: Clean) -> None:
    """Keep what is needed of an open tokenizer's vocabulary, so it need not be opened again."""
    place = located.fingerprint
    if place in clean or _described(store, place):
        return
    vocabulary = tokenizer.clean_vocabulary()
    clean[place] = _listed(vocabulary)
    _put(store, _key("breakdown", place), breakdown(vocabulary, tokenizer.raw_bytes))
    _put(store, _key("characters", place), "".join(sorted(tokenizer.vocabulary.characters)))


def compare(
    tokenizers: Sequence[Located], store: Store, clean: Clean | None = None
) -> tuple[list[Breakdown], NDArray[np.int64], list[str]]:
    """Breakdowns, the matrix of shared entries, and each tokenizer's one-token characters.

    A tokenizer is opened only if neither the store nor `clean` has all that is needed.
    """
    clean = {} if clean is None else clean
    count = len(tokenizers)
    prints = [located.fingerprint for located in tokenizers]
    shared = np.full((count, count), -1, np.int64)
    for a, b in combinations(range(count), 2):
        known = _get(store, _key("shared", prints[a], prints[b]))
        shared[a, b] = shared[b, a] = -1 if known is None else known
    for a, located in enumerate(tokenizers):
        paired = all(shared[a, b] >= 0 for b in range(count) if b != a)
        if prints[a] not in clean and not (paired and _described(store, prints[a])):
            tokenizer = located.open()
            note(located, tokenizer, store, clean)
            if prints[a] not in clean:
                clean[prints[a]] = _listed(tokenizer.clean_vocabulary())
    for a, b in combinations(range(count), 2):
        if shared[a, b] < 0:
            both = clean[prints[a]].join(clean[prints[b]], on="piece", how="semi")
            shared[a, b] = shared[b, a] = both.height
            _put(store, _key("shared", prints[a], prints[b]), int(shared[a, b]))
    rows: list[Breakdown] = [_get(store, _key("breakdown", p)) for p in prints]
    for a, row in enumerate(rows):
        shared[a, a] = row["clean_vocab_size"]
    return rows, shared, [_get(store, _key("characters", p)) for p in prints]


def jaccard(shared: NDArray[np.int64]) -> NDArray[np.float64]:
    """Shared entries over all entries of each pair."""
    sizes = np.diag(shared)
    return shared / (sizes[:, None] + sizes[None, :] - shared)


def containment(shared: NDArray[np.int64]) -> NDArray[np.float64]:
    """Share of the row's entries that the column has too."""
    return shared / np.diag(shared)[:, None]


def cluster_order(similarity: NDArray[np.float64]) -> list[int]:
    """An order that puts similar vocabularies together (average linkage, optimal leaf order)."""
    if len(similarity) < 3:
        return list(range(len(similarity)))
    from scipy.cluster.hierarchy import leaves_list, linkage  # takes a fifth of a second
    from scipy.spatial.distance import squareform

    distance = 1 - similarity
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform(distance, checks=False), "average", optimal_ordering=True)
    return [int(n) for n in leaves_list(tree)]


def _listed(vocabulary: frozenset[bytes]) -> pl.DataFrame:
    return pl.DataFrame({"piece": list(vocabulary)}, schema={"piece": pl.Binary})


def _described(store: Store, fingerprint: str) -> bool:
    keys = (_key(kind, fingerprint) for kind in ("breakdown", "characters"))
    return all(store.get(key) is not None for key in keys)


def _key(kind: str, *fingerprints: str) -> str:
    return "/".join((kind, _VERSION, *sorted(fingerprints)))


def _get(store: Store, key: str) -> Any:
    stored = store.get(key)
    return None if stored is None else json.loads(stored)


def _put(store: Store, key: str, value: object) -> None:
    store.put(key, json.dumps(value).encode())
