"""Saved runs in, one self-contained `index.html` out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from tokengraft.auditing.audit_tables import AuditTables
from tokengraft.core import __version__
from tokengraft.core.errors import TokengraftError
from tokengraft.core.files import adding
from tokengraft.core.wording import counted, in_markdown
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.languages.codes import SCRIPT_GROUPS
from tokengraft.render.audit_folder import read_audit
from tokengraft.render.page.audits import audit_data, counted_data, downloads, headline
from tokengraft.render.page.document import alphabets, document, pack, safe_json, without_paths
from tokengraft.render.page.runs import (
    comparison_data,
    evaluation_data,
    graft_data,
    grafted_premiums,
    plan_data,
)
from tokengraft.render.page.samples import Shelf, graft_shelves, sample_data, shelves_of
from tokengraft.render.tables import reading_back

LIMIT = 8_000_000  # bytes of a page


@dataclass(frozen=True)
class Runs:
    """Folders of audits and grafts, files of plans and evaluations, each once, in order."""

    audits: tuple[Path, ...] = ()
    plans: tuple[Path, ...] = ()
    grafts: tuple[Path, ...] = ()
    evaluations: tuple[Path, ...] = ()
    comparisons: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Page:
    """A finished page and what could not be shown on it."""

    html: str
    title: str
    notes: tuple[str, ...] = ()
    data: dict[str, Any] = field(default_factory=dict, repr=False)
    files: dict[str, bytes] = field(default_factory=dict, repr=False)  # of a site, by path


def save_page(page: Page, out: Path) -> Path:
    """Write the page, its README.md and its files into `out`, all or none; returns its path."""
    texts = {"index.html": page.html, "README.md": readme(page.title)}
    with adding(out) as new:
        for name, data in ({n: text.encode() for n, text in texts.items()} | page.files).items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_bytes(data)
    return out / "index.html"


def make_page(
    runs: Runs,
    *,
    tokenizers: Sequence[Path] = (),
    corpus: str | Path | ParallelCorpus | None = None,
    live: dict[str, Any] | None = None,
    place: str | None = None,
) -> Page:
    """The page as text; `live` adds the playground, which needs no runs.

    `place` is the page's future address.
    """
    notes: list[str] = []
    grafts = [shelf for folder in runs.grafts for shelf in _grafted(folder, notes)]
    audits, surveys = [], []
    for folder in runs.audits:
        with reading_back(folder, "audit"):
            tables, files = read_audit(folder), {"downloads": downloads(folder)}
            if tables.parallel:
                audits.append(_audit(tables, grafts, tokenizers, corpus, notes) | files)
            else:
                surveys.append(counted_data(tables) | files)
    plans, made = (
        _read(plan_data, runs.plans, "plan"),
        _read(graft_data, runs.grafts, "graft"),
    )
    for one in made:
        grafted_premiums(one, plans)
    comparisons = _read(comparison_data, runs.comparisons, "comparison")
    data: dict[str, Any] = {
        "version": __version__,
        "made": date.today().isoformat(),
        "audits": audits,
        "counted": surveys,
        "plans": plans,
        "grafts": made,
        "evaluations": _read(evaluation_data, runs.evaluations, "evaluation"),
        "comparisons": comparisons,
        "groups": SCRIPT_GROUPS,
        "live": live,
    }
    title = _title(data)
    html = document(title, data, _scripts(data), place)
    size = len(html.encode("utf-8"))
    if size > LIMIT:
        raise TokengraftError(
            f"the page would have {size / 1e6:.1f} MB, the limit is {LIMIT / 1e6:.0f} MB: "
            "give fewer runs"
        )
    return Page(html, title, tuple(notes), data)


def _read(
    data: Callable[[Path], dict[str, Any]], places: Sequence[Path], called: str
) -> list[dict[str, Any]]:
    """What the page shows of each saved result; TokengraftError names a damaged one."""
    shown = []
    for place in places:
        with reading_back(place, called):
            shown.append(data(place))
    return shown


def _title(data: dict[str, Any]) -> str:
    """The page's title, by the first of what it shows."""
    if data["audits"]:
        return str(data["audits"][0]["headline"]["title"])
    if data["counted"]:
        return f"Tokens per byte: {data['counted'][0]['title']}"
    if data["comparisons"] and not data["grafts"]:
        return "{a} and {b}, side by side".format_map(data["comparisons"][0]["pairs"][0])
    if data["evaluations"]:
        return "A graft, measured"
    if data["grafts"]:
        return f"A graft of {data['grafts'][0]['base'] or 'a model'}"
    if data["plans"]:
        plan = data["plans"][0]
        return f"{counted(plan['count'], 'new token')} for {plan['label'] or 'a tokenizer'}"
    return "How tokenizers cut your text"


def _audit(
    tables: AuditTables,
    grafts: Sequence[Shelf],
    tokenizers: Sequence[Path],
    corpus: str | Path | ParallelCorpus | None,
    notes: list[str],
) -> dict[str, Any]:
    audit, manifest = audit_data(tables), tables.manifest()
    order = {tokenizer["label"]: n for n, tokenizer in enumerate(audit["tokenizers"])}
    names = sorted(
        manifest["tokenizers"], key=lambda n: order.get(manifest["tokenizers"][n]["label"], 99)
    )
    shelves, absent = shelves_of(manifest, names, tokenizers)
    if absent:
        notes.append(
            f"See the tokens leaves out {', '.join(absent)}: not on this machine with the same "
            "hash (--tokenizers names a folder to look into)"
        )
    samples = sample_data(manifest, [*grafts, *shelves], corpus)
    if samples is not None and not samples["own"] and corpus is None:
        notes.append(
            f"See the tokens shows the {samples['corpus']}: an audit does not keep its text "
            "(--corpus names a folder, archive or table that has it)"
        )
    audit["headline"] = headline(audit)
    audit["same"] = _same_sentence(audit, samples)
    audit["samples"] = None if samples is None else pack(safe_json(samples).encode("utf-8"))
    return audit


def _same_sentence(audit: dict[str, Any], samples: dict[str, Any] | None) -> dict[str, Any] | None:
    """How many tokens one sentence takes in a handful of languages, under the worst tokenizer."""
    lead = audit["headline"]
    if samples is None or "worst" not in lead:
        return None
    label = audit["tokenizers"][lead["tokenizer"]]["label"]
    place = next((n for n, s in enumerate(samples["shelves"]) if s["label"] == label), None)
    if place is None:
        return None
    counts = {
        code: len(rows[0][place])
        for code, rows in samples["tokens"].items()
        if rows[0][place] is not None
    }
    entries = {entry["code"]: entry for entry in audit["languages"]}
    pivot = audit["languages"][audit["pivot"]]["code"]
    worst = audit["languages"][lead["worst"]]["code"]
    spoken = sorted(
        (code for code in counts if code not in (pivot, worst)),
        key=lambda code: (-entries[code]["readers"], code),
    )
    chosen = [pivot]
    for code in spoken:  # the most spoken language of each group of scripts
        if entries[code]["group"] not in {entries[c]["group"] for c in chosen}:
            chosen.append(code)
    chosen = sorted(chosen[:6], key=lambda code: counts.get(code, 0))
    if worst in counts:
        chosen.append(worst)
    return {
        "label": label,
        "elsewhere": None if samples["own"] else samples["corpus"],
        "text": samples["lines"][pivot][0],
        "counts": [[code, counts[code]] for code in chosen if code in counts],
    }


def _grafted(folder: Path, notes: list[str]) -> list[Shelf]:
    with reading_back(folder, "graft"):
        base = str(graft_data(folder).get("base") or "")
    try:
        return graft_shelves(folder, base)
    except TokengraftError as error:
        notes.append(f"See the tokens lacks a graft: {without_paths(str(error))}")
        return []


def _scripts(data: dict[str, Any]) -> set[str]:
    entries = [entry for audit in data["audits"] for entry in audit["languages"]]
    entries += [entry for run in data["counted"] for entry in run["rows"]]
    entries += [entry for plan in data["plans"] for entry in plan["languages"]]
    entries += [entry for graft in data["grafts"] for entry in graft["languages"]]
    # The playground on this machine shows whatever is typed; a site keeps its page small.
    typed = alphabets() if data["live"] and "tokenizers" not in data["live"] else ()
    return {entry["script"] for entry in entries} | set(typed)


def readme(title: str) -> str:
    """README.md of the folder, with the front matter of a static hub space."""
    front = {
        "title": title if len(title) <= 60 else "Tokenization premiums",
        "emoji": "⚖️",
        "colorFrom": "indigo",
        "colorTo": "red",
        "sdk": "static",
        "app_file": "index.html",
        "pinned": False,
    }
    head = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    return (
        f"---\n{head}---\n\n# {in_markdown(title)}\n\n`index.html` is one self-contained page made "
        "by `tokengraft report`. Open it in a browser, put it on any web server, or push this "
        "folder to a static space.\n"
    )
