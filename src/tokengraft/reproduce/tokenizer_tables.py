"""The paper's tokenizer tables, computed by the audit and put against its printed values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer

from tokengraft.auditing.audit import Auditing, audit, find_all
from tokengraft.auditing.count_corpus import OnCount
from tokengraft.auditing.frames import vocabulary
from tokengraft.auditing.vocabularies import compare
from tokengraft.core.cache import Store
from tokengraft.core.errors import CorpusError
from tokengraft.corpus.archive import open_bundle
from tokengraft.corpus.layout import decode, split
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.planning.paper import absent_characters
from tokengraft.planning.words import lengths, load
from tokengraft.reproduce.claim import Key, Verdict, changed_inputs, judge, read_claim
from tokengraft.tokenizer.catalog import PAPER, as_json, find
from tokengraft.tokenizer.insert import first_free_id

_SPLITS = ("dev", "devtest")


def premiums(
    corpus: ParallelCorpus,
    search: Sequence[Path],
    on_count: OnCount | None = None,
    resamples: int = 0,
) -> tuple[Verdict, list[str]]:
    """The premium table, and remarks on inputs that are missing or not the recorded ones.

    With `resamples` each value has its bootstrap interval.
    """
    claim = read_claim("premiums")
    languages = dict.fromkeys(row for row, _ in claim.expected)
    result = audit(
        corpus, PAPER, languages,
        Auditing(search=search, resamples=resamples, skip_missing=True),
        on_count=on_count,
    )  # fmt: skip
    rows = {(row["language"], row["label"]): row for row in result.premiums.to_dicts()}
    values = {key: row["premium"] for key, row in rows.items()}
    intervals = {key: (row["premium_low"], row["premium_high"]) for key, row in rows.items()}
    hashes = {
        "corpus": dict(result.facts["corpus"]["languages"]),
        "tokenizers": {located.name: located.fingerprint for located in result.tokenizers},
    }
    remarks = [*result.skipped.values(), *_remarks(changed_inputs(claim, hashes))]
    return judge(claim, values, intervals), remarks


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


def new_token_share(corpus: Path) -> Verdict:
    """The shares of new tokens in the paper's fidelity table, and the lengths before and after.

    The paper adds every character whose literal string is no key of Llama 3's vocabulary. Its
    printed shares come out on the 997 dev lines with BOS in the denominator (over all tokens), and
    equally on the 1,012 devtest lines as a mean over lines; dev + devtest misses one. The numbers
    of tokens before and after are on all 2,009 lines as they stand in the files, stray spaces
    included.
    """
    claim = read_claim("new-token-share")
    base = as_json(find("llama-3"))
    old, first = load(base), first_free_id(base)
    values: dict[Key, float] = {}
    codes = list(dict.fromkeys(row for row, _ in claim.expected))
    for code, raw in _raw_lines(corpus, codes).items():
        dev = [line.strip() for line in raw["dev"]]
        new = _with_absent(base, old, dev)
        ids = [e.ids for e in new.encode_batch_fast(dev, add_special_tokens=False)]
        added = sum(number >= first for row in ids for number in row)
        values[code, "percent_new"] = 100 * added / sum(len(row) + 1 for row in ids)
        if (code, "tokens_before") in claim.expected:
            lines = [*raw["dev"], *raw["devtest"]]
            values[code, "tokens_before"] = float(lengths(old, lines).sum())
            both = _with_absent(base, old, lines)
            values[code, "tokens_after"] = float(lengths(both, lines).sum())
    return judge(claim, values)


def _with_absent(base: dict[str, object], old: Tokenizer, lines: list[str]) -> Tokenizer:
    """The tokenizer with every absent character of the lines added; the model is the same one."""
    new = Tokenizer(old.model)
    new.pre_tokenizer = old.pre_tokenizer
    for _, token in sorted(old.get_added_tokens_decoder().items()):
        new.add_special_tokens([token])
    new.add_tokens(absent_characters(base, lines))
    return new


def _raw_lines(corpus: Path, codes: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """By language and split; the archive is read once."""
    lines_by_code: dict[str, dict[str, list[str]]] = {}
    with open_bundle(corpus) as bundle:
        for code in codes:
            for name in bundle.names:
                for part in _SPLITS:
                    if name.endswith(f"{part}/{code}.{part}"):
                        lines = split(decode(bundle.read(name), bundle.place(name)))
                        lines_by_code.setdefault(code, {})[part] = lines
            if len(lines_by_code.get(code, ())) < len(_SPLITS):
                raise CorpusError(
                    f"{corpus} has no dev/{code}.dev and devtest/{code}.devtest: give the "
                    "FLORES-200 folder or archive"
                )
    return lines_by_code
