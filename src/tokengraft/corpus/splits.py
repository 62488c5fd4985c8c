"""Which parts of a corpus are read, and in which order."""

from __future__ import annotations

from collections.abc import Iterable

from tokengraft.core.errors import CorpusError, did_you_mean

#: Published numbers on FLORES use both splits in this order.
_ORDER = {"dev": 0, "devtest": 1}


def choose_splits(split: str | None, have: Iterable[str], where: str) -> list[str]:
    """The splits named by `split` ("dev", "dev+devtest"), in that order; all of them for None.

    Without a choice, dev comes before devtest and both before others. A split that is not
    there, and any choice where there are no splits, is a CorpusError.
    """
    known = sorted(dict.fromkeys(have), key=lambda name: _ORDER.get(name, len(_ORDER)))
    if split is None:
        return known
    if not known:
        raise CorpusError(f"{where} has no splits; leave out the split {split!r}.")
    chosen = list(dict.fromkeys(split.split("+")))
    for name in chosen:
        if name not in known:
            raise CorpusError(
                f"{where} has no split {name!r}; it has {', '.join(known)}, and + joins several "
                f"({'+'.join(known)}).{did_you_mean(name, known)}"
            )
    return chosen
