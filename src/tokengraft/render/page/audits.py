"""From an audit to the page's data: rounded columns, and the sentences at the top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

from tokengraft.auditing.audit_tables import AuditTables
from tokengraft.auditing.cost import age_note
from tokengraft.auditing.frames import UNK_LIMIT
from tokengraft.core.errors import TokengraftError
from tokengraft.core.wording import counted
from tokengraft.languages.codes import language, other_names, script_group, well_formed
from tokengraft.render.page.document import digits, last_name, pack, without_paths
from tokengraft.render.selection import (
    by_use,
    disagreements,
    fairest,
    inexact_notes,
    labels,
    lead,
    readers,
    units,
)
from tokengraft.tokenizer.catalog import BY_NAME

# From this share of UNK on, most of the text is lost: an UNK stands for a whole word or more, and
# T5 puts a space marker before each, so that text of nothing but UNK has a share of one half.
_MOST = 0.4
FORMS = (".csv", ".tex")  # of tables that the page offers for download
_MISSING = 60  # characters that are shown at most of those that a vocabulary lacks
# Name on the page → column; the page gets a list per tokenizer with a number per language.
_CELLS = {
    "premium": "premium", "low": "premium_low", "high": "premium_high", "sums": "ratio_of_sums",
    "unk": "unk_share", "lossless": "lossless_share", "floor": "floor",
    "longer": "missing_tokens", "characters": "missing_characters",
    "perUnit": "tokens_per_unit", "bytesPerToken": "bytes_per_token",
}  # fmt: skip


def audit_data(audit: AuditTables) -> dict[str, Any]:
    """Everything the page shows of one audit, except tokens and downloads."""
    premiums, pivot = audit.premiums, audit.pivot
    if premiums.is_empty():
        raise TokengraftError(f"{audit.corpus.name}: the audit has no premiums")
    codes = sorted(premiums["language"].unique())
    names = _order(premiums, pivot)
    called, led = labels(audit), lead(premiums, pivot)
    grid = _Grid(premiums, names, codes)
    first = premiums.filter(pl.col("tokenizer") == premiums["tokenizer"][0])
    by_code = {row["language"]: row for row in first.to_dicts()}
    vocabulary = audit.frames.get("vocabulary")
    return {
        "title": without_paths(audit.corpus.title),
        "corpus": audit.corpus.name,
        "units": units(audit),
        "lead": None if led is None else without_paths(asdict(led)),
        "summary": without_paths(audit.summary.to_dicts()),
        "pivot": codes.index(pivot),
        "unkLimit": UNK_LIMIT,
        "unkMost": _MOST,
        "tokenizers": [_tokenizer(name, called[name]) for name in names],
        "byUse": [names.index(name) for name in by_use(called)],
        "reference": names.index(_reference(premiums)),
        "languages": [about(code) | {"n": by_code[code]["n"]} for code in codes],
        "cells": {key: grid.numbers(column) for key, column in _CELLS.items()},
        "disagreements": [
            *disagreements(premiums, called, pivot),
            *inexact_notes(premiums, called),
        ],
        "bad": grid.flags("meaningless"),
        "perCharacter": grid.numbers("tokens_per_character"),
        "utf8": [digits(by_code[code]["utf8"]) for code in codes],
        "coverage": _coverage(audit.frames.get("coverage"), names, codes),
        "vocabulary": without_paths(vocabulary.to_dicts() if vocabulary is not None else []),
        "jaccard": _square(audit.frames.get("jaccard")),
        "containment": _square(audit.frames.get("containment")),
        "cost": _cost(audit.frames.get("cost"), names, pivot),
        "manifest": without_paths(_private(audit.manifest())),
    }


def counted_data(audit: AuditTables) -> dict[str, Any]:
    """What the page shows of text that is not parallel: tokens per byte, most costly first."""
    manifest, counts = audit.facts, audit.counts
    if counts.is_empty():
        raise TokengraftError(f"{audit.corpus.name}: the audit has no counts")
    labels = counts.select("tokenizer", "label").unique(maintain_order=True).rows()
    codes = counts["language"].unique(maintain_order=True).to_list()
    grid = _Grid(counts, [name for name, _ in labels], codes)
    values, bad = grid.numbers("tokens_per_byte"), grid.flags("meaningless")
    first = {row["language"]: row for row in reversed(counts.to_dicts())}
    rows = [
        {
            **about(code),
            "name": str(first[code]["name"]),
            "n": first[code]["rows"],
            "values": [row[place] for row in values],
            "bad": "".join(row[place] for row in bad),
        }
        for place, code in enumerate(codes)
    ]
    left = [
        counted(manifest[key] if isinstance(manifest[key], int) else len(manifest[key]), what)
        for key, what in (("bad_rows", "bad row"), ("broken_files", "broken file"))
        if manifest.get(key)
    ]
    return {
        "title": without_paths(audit.corpus.name),
        "tokenizers": [without_paths(str(label)) for _, label in labels],
        "rows": sorted(rows, key=lambda row: -max((v for v in row["values"] if v), default=0)),
        "left": f"Left out: {' and '.join(left)}." if left else "",
    }


def about(code: str) -> dict[str, Any]:
    """What the page states about a language."""
    if not well_formed(code):
        bare = {"code": code, "name": code, "script": "", "dir": "auto", "readers": 0}
        return {**bare, "group": script_group("")}
    entry = language(code)
    return {
        "code": code,
        "name": entry.name,
        "autonym": entry.autonym,
        "also": other_names(code),
        "script": entry.script,
        "scriptName": entry.script_name or entry.script,
        "group": script_group(entry.script),
        "dir": entry.direction or "auto",
        "family": entry.family,
        "speakers": entry.speakers_total,
        # 0 for a second script of a language, whose speakers mostly write the first
        "readers": readers(code),
    }


class _Grid:
    """Columns of a long table as tokenizers × languages."""

    def __init__(self, frame: pl.DataFrame, names: Sequence[str], codes: Sequence[str]) -> None:
        self._frame, self._names, self._codes = frame, names, codes

    def values(self, column: str) -> list[list[Any]]:
        """One list per tokenizer, with None where there is no such cell."""
        cells = {}
        if column in self._frame.columns:  # else it is a run of an earlier version
            rows = self._frame.select("tokenizer", "language", column).rows()
            cells = {(name, code): value for name, code, value in rows}
        return [[cells.get((name, code)) for code in self._codes] for name in self._names]

    def numbers(self, column: str) -> list[list[float | None]]:
        """The same to four digits, whole numbers as integers."""
        kept = [[digits(value) for value in row] for row in self.values(column)]
        return [[int(v) if v is not None and v == int(v) else v for v in row] for row in kept]

    def flags(self, column: str) -> list[str]:
        """One string per tokenizer, with `1` for true and `0` for false."""
        return ["".join("1" if value else "0" for value in row) for row in self.values(column)]


def _reference(premiums: pl.DataFrame) -> str:
    """The initial choice of “Compared with”: the first of the tokenizers that lose least text."""
    lost = premiums.group_by("tokenizer", maintain_order=True).agg(pl.col("meaningless").sum())
    return str(lost.sort("meaningless", maintain_order=True)["tokenizer"][0])


def _order(premiums: pl.DataFrame, pivot: str) -> list[str]:
    """Tokenizers by median honest premium, those mostly spoilt by UNK last."""
    ranked = (
        premiums.filter(pl.col("language") != pivot)
        .group_by("tokenizer", maintain_order=True)
        .agg(
            (pl.col("meaningless").mean() > 0.25).alias("spoilt"),
            pl.col("premium").filter(~pl.col("meaningless")).median().alias("median"),
        )
        .sort("spoilt", "median", nulls_last=True, maintain_order=True)
    )
    return [str(name) for name in ranked["tokenizer"]]


def _tokenizer(name: str, label: str) -> dict[str, Any]:
    entry = BY_NAME.get(name)
    shown: dict[str, Any] = {"name": without_paths(name), "label": label}
    if entry is not None:
        shown |= {"model": entry.model, "maker": entry.maker, "released": entry.released}
    return shown


def _private(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest without the paths of the user's text files, which older runs recorded."""
    corpus = manifest["corpus"]
    lead, mark, files = str(corpus.get("source", "")).partition("own text files: ")
    if lead or not mark:
        return manifest
    names = ", ".join(map(last_name, files.split(", ")))
    return {**manifest, "corpus": {**corpus, "source": mark + names}}


def _coverage(
    frame: pl.DataFrame | None, names: Sequence[str], codes: Sequence[str]
) -> dict[str, Any] | None:
    if frame is None:
        return None
    grid = _Grid(frame, names, codes)
    return {
        "running": grid.numbers("running_share"),
        "characters": grid.values("characters"),
        "covered": grid.values("covered"),
        "missing": [[(text or "")[:_MISSING] for text in row] for row in grid.values("missing")],
    }


def _square(frame: pl.DataFrame | None) -> dict[str, Any] | None:
    if frame is None:
        return None
    values = [[digits(value) for value in row[1:]] for row in frame.rows()]
    return {"labels": frame.columns[1:], "values": values}


def _cost(frame: pl.DataFrame | None, names: Sequence[str], pivot: str) -> dict[str, Any] | None:
    if frame is None or frame.is_empty():
        return None
    shown = {"model": "model", "input": "input_usd", "output": "output_usd", "context": "context"}
    # In the pivot language the ratio is 1, so its row holds the plain price.
    models = [
        {key: row[column] for key, column in shown.items()}
        | {"tokenizer": names.index(row["tokenizer"]), "source": row["source"]}
        for row in frame.filter(pl.col("language") == pivot).to_dicts()
        if row["tokenizer"] in names
    ]
    as_of = str(frame["as_of"][0])
    return {"asOf": as_of, "stale": age_note(as_of), "models": models}


def downloads(folder: Path) -> list[dict[str, Any]]:
    """Name, size and packed content of every CSV and LaTeX table of a run."""
    paths = sorted(path for path in (folder / "tables").iterdir() if path.suffix in FORMS)
    return [
        {"file": path.name, "size": path.stat().st_size, "data": pack(path.read_bytes())}
        for path in paths
    ]


_MANY = 20  # of fewer languages no percentage is given


def headline(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Title, lead and three figures of an audit, all computed from its numbers."""
    led, pivot = audit["lead"], audit["languages"][audit["pivot"]]["name"]
    if led is None:
        lost, most = _lost(audit)
        title = f"No language shares a line of text with {pivot}"
        if all(row[audit["pivot"]] == "1" for row in audit["bad"]):
            title = f"No premiums: text of {pivot} itself is lost to UNK"
        elif lost:
            verb = "is lost to" if lost == most else "loses text to"
            title = f"Every language but {pivot} {verb} UNK"
        return {"title": title, "lead": "", "figures": []}
    value = led["premium"]
    worst = next(n for n, e in enumerate(audit["languages"]) if e["code"] == led["language"])
    many = "" if value < 1.05 else f"{_times(value)} "
    title = f"The same words cost {many}as many tokens in {_name(audit, led)} as in {pivot}"
    return {
        "title": f"No language here takes as many tokens as {pivot}" if value < 1 else title,
        "lead": _lead(audit),
        "figures": _figures(audit),
        "worst": worst,
        "tokenizer": _place(audit, led["tokenizer"]),
    }


def _lead(audit: Mapping[str, Any]) -> str:
    led, fair = audit["lead"], fairest(audit["summary"])[0]
    tokenizer = audit["tokenizers"][_place(audit, led["tokenizer"])]
    label, released = tokenizer["label"], str(tokenizer.get("released", ""))[:4]
    pivot, several = audit["languages"][audit["pivot"]]["name"], len(audit["tokenizers"]) > 1
    whose = f"That is the count of {label}"
    about = f"a tokenizer of {released}" if released else ""
    if led["used"] and several:
        about += f"{', ' if about else ''}used most today of those measured here"
    whose += f" ({about})" if about else ""
    text = f"{whose}; tokens are what models charge for and what fills their memory. "
    if led["several"]:
        text += f"On all that write {_name(audit, led)} it is {_range(led)}. "
    name = audit["tokenizers"][_place(audit, fair["tokenizer"])]["label"]
    above, total, lost = fair["above_2x"], fair["compared"], fair["meaningless_cells"]
    if len(audit["languages"]) == 2:
        pass  # the range has said all there is
    elif several and not lost:
        text += (
            f"Even {name}, the fairest of the tokenizers measured here that can write every "
            f"language, makes {above} of {counted(total, 'language')} pay more than double what "
            f"{pivot} pays."
        )
    elif several:
        text += (
            f"Every tokenizer measured here loses text to UNK in some language. Even {name}, "
            f"which does so in the fewest ({lost}), makes {above} of the other {total} pay more "
            f"than double what {pivot} pays."
        )
    elif total > 1:
        text += f"It makes {above} of {total} languages pay more than double what {pivot} pays."
    return text.rstrip()


def _figures(audit: Mapping[str, Any]) -> list[dict[str, str]]:
    led, fair = audit["lead"], fairest(audit["summary"])[0]
    label = audit["tokenizers"][_place(audit, led["tokenizer"])]["label"]
    pivot = audit["languages"][audit["pivot"]]["name"]
    beside = f"; {_range(led)} on all that write it" if led["several"] else ""
    figures = [(f"{led['premium']:.1f}×", f"{_name(audit, led)} on {label}{beside}")]
    several = len(audit["tokenizers"]) > 1
    if several:
        typical = [
            median(values)
            for n, column in enumerate(zip(*audit["cells"]["premium"], strict=True))
            if n != audit["pivot"] and (values := _honest(audit, n, column))
        ]
        above = sum(value > 2 for value in typical)
        words = f"pay more than double what {pivot} pays on the typical tokenizer"
        if len(typical) >= _MANY:
            figures.append((f"{above / len(typical):.0%}", f"of {len(typical)} languages {words}"))
        elif len(typical) > 1:
            figures.append((f"{above} of {len(typical)}", f"languages {words}"))
    lost, most = _lost(audit)
    # The lead already counts the languages above 2× on the fairest tokenizer.
    if fair["compared"] > 1 and not (several and lost):
        name = audit["tokenizers"][_place(audit, fair["tokenizer"])]["label"]
        on = f" on {name}, the fairest" if several else ""
        words = f"the median premium of {counted(fair['compared'], 'language')}{on}"
        figures.append((f"{fair['median_premium']:.1f}×", words))
    if lost:
        pairs = f"{'pair' if lost == 1 else 'pairs'} of language and tokenizer"
        what = pairs if several else "language" if lost == 1 else "languages"
        extent = f"; in {most:,} of them most of it" if lost > most > 0 else ""
        part = "most" if lost == most else "part"
        words = f"{what} where {part} of the text is not encoded but thrown away (UNK){extent}"
        figures.append((f"{lost:,}", words))
    return [{"number": number, "words": words} for number, words in figures]


def _place(audit: Mapping[str, Any], tokenizer: str) -> int:
    return next(n for n, one in enumerate(audit["tokenizers"]) if one["name"] == tokenizer)


def _name(audit: Mapping[str, Any], led: Mapping[str, Any]) -> str:
    return next(str(e["name"]) for e in audit["languages"] if e["code"] == led["language"])


def _range(led: Mapping[str, Any]) -> str:
    return f"{led['low']:.1f} to {led['high']:.1f} times"


def _lost(audit: Mapping[str, Any]) -> tuple[int, int]:
    """How many cells UNK spoils, and in how many of them most of the text is lost."""
    shares = [
        share
        for row, bad in zip(audit["cells"]["unk"], audit["bad"], strict=True)
        for share, mark in zip(row, bad, strict=True)
        if mark == "1" and share > audit["unkLimit"]
    ]
    return len(shares), sum(share >= audit["unkMost"] for share in shares)


def _honest(audit: Mapping[str, Any], place: int, premiums: Sequence[float | None]) -> list[float]:
    """A language's premiums on the tokenizers that lose none of its text."""
    rows = zip(premiums, audit["bad"], strict=True)
    return [value for value, bad in rows if value is not None and bad[place] == "0"]


def _times(value: float) -> str:
    """`two times`, `2.4 times`, `12 times`."""
    words = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    near = round(value)
    if value >= 9.95:
        return f"{words[near] if near <= 10 else near} times"
    return f"{words[near]} times" if near > 1 and abs(value - near) < 0.05 else f"{value:.1f} times"
