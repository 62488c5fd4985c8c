"""The paper's tokenizer tables, computed by the audit and put against its printed values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokengraft.auditing.audit import Auditing, audit, find_all
from tokengraft.auditing.count_corpus import OnCount
from tokengraft.auditing.frames import vocabulary
from tokengraft.auditing.vocabularies import compare
from tokengraft.core.cache import Store
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.reproduce.claim import Verdict, changed_inputs, judge, read_claim
from tokengraft.tokenizer.catalog import PAPER


def premiums(
    corpus: ParallelCorpus, search: Sequence[Path], on_count: OnCount | None = None
) -> tuple[Verdict, list[str]]:
    """The premium table, and remarks on inputs that are missing or not the recorded ones."""
    claim = read_claim("premiums")
    languages = dict.fromkeys(row for row, _ in claim.expected)
    result = audit(
        corpus, PAPER, languages,
        Auditing(search=search, sample_lines=1, resamples=0, skip_missing=True), on_count=on_count,
    )  # fmt: skip
    values = {(row["language"], row["label"]): row["premium"] for row in result.premiums.to_dicts()}
    hashes = {
        "corpus": dict(result.facts["corpus"]["languages"]),
        "tokenizers": {located.name: located.fingerprint for located in result.tokenizers},
    }
    remarks = [*result.skipped.values(), *_remarks(changed_inputs(claim, hashes))]
    return judge(claim, values), remarks


def vocabularies(search: Sequence[Path]) -> tuple[Verdict, list[str]]:
    """The vocabulary breakdown, and remarks on inputs that are missing or not the recorded ones."""
    claim = read_claim("vocabulary")
    located, skipped = find_all(PAPER, search, skip_missing=True)
    store = Store()
    try:
        breakdowns, _, _ = compare(located, store)
    finally:
        store.close()
    values = {
        (row["label"], column): value
        for row in vocabulary(located, breakdowns).to_dicts()
        for column, value in row.items()
        if column not in ("tokenizer", "label")
    }
    hashes = {"tokenizers": {entry.name: entry.fingerprint for entry in located}}
    return judge(claim, values), [*skipped.values(), *_remarks(changed_inputs(claim, hashes))]


def _remarks(changed: list[str]) -> list[str]:
    return [
        f"{name}: not the file the claim was recorded with (sha256 differs)" for name in changed
    ]
