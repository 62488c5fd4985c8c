"""Labels of a corpus's lines, for a `probe` to find or a model to answer with (`question`).

SIB-200 (Adelani et al. 2024, https://arxiv.org/abs/2309.07445) labels FLORES lines with topics in
all of its languages.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from tokengraft.core.errors import CorpusError, UsageError
from tokengraft.corpus.parallel import ParallelCorpus

_LEAST = 10  # lines that a label needs: two for each fold of a probe


def read_labels(file: Path | str) -> dict[str, str]:
    """Labels by unit of the corpus (`dev.1`), from a CSV file.

    Its columns are `category` or `label`, and `unit` or `line`; with `line` also `flores_split` or
    `split` if the corpus has several splits.
    """
    try:
        with Path(file).open(encoding="utf-8", newline="") as opened:
            rows = list(csv.DictReader(opened))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    columns = set(rows[0]) if rows else set()
    label = next((name for name in ("category", "label") if name in columns), None)
    if label is None or not columns & {"unit", "line"}:
        raise UsageError(
            f"{file} has the columns {', '.join(sorted(columns)) or 'none'}; needed are category "
            "(or label), and unit or line (with flores_split)"
        )
    part = next((name for name in ("flores_split", "split") if name in columns), None)
    if "unit" in columns:
        return {row["unit"]: row[label] for row in rows}
    return {f"{row[part]}.{row['line']}" if part else row["line"]: row[label] for row in rows}


def labelled(
    corpus: ParallelCorpus, code: str, labels: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """The corpus's lines whose label occurs on at least `_LEAST` of them, and their labels."""
    texts = dict(zip(corpus.units, corpus.texts[code], strict=True))
    known = [(line, labels[unit]) for unit, line in texts.items() if line and unit in labels]
    common = Counter(label for _, label in known)
    known = [(line, label) for line, label in known if common[label] >= _LEAST]
    if len({label for _, label in known}) < 2:
        raise CorpusError(
            f"{code}: a probe needs two labels that {_LEAST} lines each have; {len(known)} lines "
            f"have such a label. The corpus names its lines like {next(iter(texts), '')!r}, the "
            f"labels like {next(iter(labels), '')!r}: do they belong together?"
        )
    return [line for line, _ in known], [label for _, label in known]


def guessing(names: Sequence[str]) -> float:
    """The accuracy of guessing the commonest label for every line."""
    return max(Counter(names).values()) / len(names)
