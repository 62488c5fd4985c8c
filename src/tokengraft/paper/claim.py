"""A claim is a YAML file in `reproduce/`; a verdict says which of its values were reproduced.

A value counts as reproduced if it equals the printed one at the printed precision, or within the
claim's `tolerance`, if it depends on the type that a model computes in. A value that is known to
differ carries the figure we get instead: it must come out as that one, so that a change in either
direction is noticed.

The paper's tokenizer tables are computed by the audit and compared with its printed values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tokenizers import Tokenizer

from tokengraft.auditing.audit import Auditing, audit, find_all
from tokengraft.auditing.frames import vocabulary
from tokengraft.auditing.vocabularies import compare
from tokengraft.core.cache import Store
from tokengraft.core.errors import CorpusError, TokengraftError
from tokengraft.core.files import ASSETS
from tokengraft.core.progress import OnProgress
from tokengraft.corpus.catalog import open_files
from tokengraft.corpus.layout import decode, split
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.paper.literals import absent_characters
from tokengraft.tokenizer.catalog import PAPER, as_json, find
from tokengraft.tokenizer.insert import first_free_id
from tokengraft.tokenizer.pipeline import lengths, load

Key = tuple[str, str]  # row, column


@dataclass(frozen=True)
class Claim:
    """One published table."""

    name: str
    title: str
    command: str
    inputs: dict[str, dict[str, str]]  # kind → name → sha256
    decimals: int
    expected: dict[Key, float]
    known: dict[Key, float]  # cells where the paper's figure does not come out, and what does
    why: str
    besides: tuple[str, ...] = ()  # columns the paper prints but does not count with the others
    model: str = ""  # the paper's, if it matters
    languages: Mapping[str, str] = field(default_factory=dict)  # the paper's codes, and ours
    tolerance: float = 0.0  # by how much a value may differ from the printed one


@dataclass(frozen=True)
class ClaimCell:
    """One value of a claim beside the run's."""

    row: str
    column: str
    paper: float
    ours: float | None
    verdict: str  # "reproduced", "known difference", "differs", "missing"
    low: float | None = None  # the interval of ours, if there is one
    high: float | None = None


@dataclass(frozen=True)
class ClaimVerdict:
    """Every cell of a claim."""

    claim: Claim
    cells: tuple[ClaimCell, ...]

    @property
    def axes(self) -> tuple[list[str], list[str]]:
        """The names of its rows and of its columns, in their order."""
        columns = dict.fromkeys(cell.column for cell in self.cells)
        return list(dict.fromkeys(cell.row for cell in self.cells)), list(columns)

    @property
    def reproduced(self) -> int:
        """How many values equal the paper's."""
        return sum(cell.verdict == "reproduced" for cell in self.cells)

    @property
    def holds(self) -> bool:
        """Whether every value is the paper's or, for a known difference, the recorded one."""
        return all(cell.verdict in ("reproduced", "known difference") for cell in self.cells)

    def exact(self, column: str) -> bool:
        """Whether every value of a column equals the paper's."""
        return all(c.verdict == "reproduced" for c in self.cells if c.column == column)

    @property
    def line(self) -> str:
        """How many values were reproduced, as a line of text."""
        known = sum(cell.verdict == "known difference" for cell in self.cells)
        suffix = f" ({known} known to differ)" if known else ""
        return f"{self.reproduced} of {len(self.cells)} reproduced{suffix}"


def folder() -> Path:
    """The folder of the claims: in the installed package, or in the repository."""
    installed = ASSETS / "reproduce"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "reproduce"


def read_claim(name: str) -> Claim:
    """The claim `reproduce/NAME.yaml`."""
    path = folder() / f"{name}.yaml"
    try:
        data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise TokengraftError(f"{path}: cannot read this claim ({error})") from error
    columns = data["columns"]
    expected = {
        (str(row), column): float(value)
        for row, values in data["rows"].items()
        for column, value in zip(columns, values, strict=True)
        if value is not None
    }
    known = {
        (str(row), column): float(value)
        for column, values in data.get("known_differences", {}).items()
        for row, value in values.items()
    }
    return Claim(
        name,
        data["title"],
        data["command"],
        data.get("inputs", {}),
        data["decimals"],
        expected,
        known,
        data.get("why", ""),
        tuple(data.get("besides", ())),
        data.get("model", ""),
        data.get("languages", {}),
        data.get("tolerance", 0.0),
    )


def judge(
    claim: Claim,
    values: Mapping[Key, float],
    intervals: Mapping[Key, tuple[float | None, float | None]] | None = None,
    columns: Collection[str] | None = None,
) -> ClaimVerdict:
    """Compare a run's values with the claim's, cell by cell; only in `columns`, if given."""
    cells = []
    for (row, column), paper in claim.expected.items():
        if columns is not None and column not in columns:
            continue
        ours = values.get((row, column))
        instead = claim.known.get((row, column))
        if ours is None:
            verdict = "missing"
        elif instead is not None:
            same = _same(ours, instead, claim)
            verdict = "known difference" if same else "differs"
        else:
            verdict = "reproduced" if _same(ours, paper, claim) else "differs"
        low, high = (intervals or {}).get((row, column), (None, None))
        cells.append(ClaimCell(row, column, paper, ours, verdict, low, high))
    return ClaimVerdict(claim, tuple(cells))


def changed_inputs(claim: Claim, hashes: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The inputs whose hash is not the one the claim was recorded with."""
    return [
        f"{kind} {name}"
        for kind, names in claim.inputs.items()
        for name, digest in names.items()
        if name in hashes.get(kind, {}) and hashes[kind][name] != digest
    ]


def _same(ours: float, printed: float, claim: Claim) -> bool:
    near = abs(ours - printed) <= claim.tolerance
    return near or f"{ours:.{claim.decimals}f}" == f"{printed:.{claim.decimals}f}"


_SPLITS = ("dev", "devtest")


def premiums(
    corpus: ParallelCorpus,
    search: Sequence[Path],
    progress: OnProgress | None = None,
    resamples: int = 0,
) -> tuple[ClaimVerdict, list[str]]:
    """The premium table (with intervals from `resamples`), and remarks as in `vocabularies`."""
    claim = read_claim("premiums")
    languages = dict.fromkeys(row for row, _ in claim.expected)
    result = audit(
        corpus,
        PAPER,
        languages,
        Auditing(search=search, resamples=resamples, skip_missing=True),
        progress=progress,
    )
    rows = {(row["language"], row["label"]): row for row in result.premiums.to_dicts()}
    values = {key: row["premium"] for key, row in rows.items()}
    intervals = {key: (row["premium_low"], row["premium_high"]) for key, row in rows.items()}
    hashes = {
        "corpus": dict(result.facts["corpus"]["languages"]),
        "tokenizers": {located.name: located.fingerprint for located in result.tokenizers},
    }
    return judge(claim, values, intervals), [*result.skipped.values(), *_remarks(claim, hashes)]


def vocabularies(search: Sequence[Path]) -> tuple[ClaimVerdict, list[str]]:
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
    return judge(claim, values), [*skipped.values(), *_remarks(claim, hashes)]


def _remarks(claim: Claim, hashes: Mapping[str, Mapping[str, str]]) -> list[str]:
    changed = changed_inputs(claim, hashes)
    return [
        f"{name}: not the file the claim was recorded with (sha256 differs)" for name in changed
    ]


def new_token_share(corpus: Path) -> ClaimVerdict:
    """The shares of new tokens in the paper's fidelity table, and the lengths before and after.

    The paper adds every character whose literal string is not a key of Llama 3's vocabulary. Its
    printed shares come out on the 997 dev lines over all tokens, with BOS in the denominator, and
    also on the 1,012 devtest lines as a mean over lines; dev + devtest misses one. Tokens before
    and after are counted on all 2,009 lines as they stand in the files, stray spaces included.
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
    """The tokenizer with every absent character of the lines added; it shares the model."""
    new = Tokenizer(old.model)
    new.pre_tokenizer = old.pre_tokenizer
    for _, token in sorted(old.get_added_tokens_decoder().items()):
        new.add_special_tokens([token])
    new.add_tokens(absent_characters(base, lines))
    return new


def _raw_lines(corpus: Path, codes: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """Lines by language and split, unstripped; the archive is read once."""
    lines_by_code: dict[str, dict[str, list[str]]] = {}
    with open_files(corpus) as bundle:
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
