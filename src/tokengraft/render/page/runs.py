"""Saved plans, grafts, evaluations and comparisons as the page shows them.

Parts that are unknown or missing are left out, since another version may have written the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fontTools.unicodedata import script

from tokengraft.auditing.frames import UNK_LIMIT
from tokengraft.core.errors import TokengraftError
from tokengraft.core.files import read_json
from tokengraft.core.verdict import DECIDING, Done, Judged, judge
from tokengraft.evaluating.generation import fewer_steps
from tokengraft.evaluating.measures import described
from tokengraft.grafting.output_policies import is_recorded, recorded
from tokengraft.languages.codes import language_name
from tokengraft.model.folder import MANIFEST
from tokengraft.render.comparison_folder import findings, names, of_pair, read_comparison
from tokengraft.render.page.audits import about
from tokengraft.render.page.document import digits, without_paths

_TOKENS = 400
_OUTCOMES = (
    "premium_before", "premium_after", "floor_before", "floor_after", "unk_share_before",
    "unk_share_after",
)  # fmt: skip
_COUNTS = ("planning_before", "planning_after", "unknown_before", "unknown_after", "first_token")
_COSTS = (
    "tokens_per_prompt", "prefill_ms_per_character", "decode_ms_per_character",
    "characters_per_token_out", "cache_bytes_per_character",
)  # fmt: skip
_CODE = re.compile(r"\b[a-z]{3}_[A-Z][a-z]{3}(-\w+)?\b")  # a language's code
_ANY = ("Zyyy", "Zinh", "Zzzz")  # not real scripts: common, inherited, unknown


def plan_data(path: Path) -> dict[str, Any]:
    """The plan's what-if curves, outcomes and first few hundred tokens."""
    plan = read_json(path)
    outcomes: Mapping[str, Any] = plan.get("languages") or {}
    tokens = plan.get("tokens") or []
    if not isinstance(tokens, list) or not isinstance(outcomes, Mapping):
        raise TokengraftError(f"{path}: this is not a plan")
    pivot = plan.get("pivot")
    return {
        "name": path.parent.resolve().name if path.name == "plan.json" else path.stem,
        "mode": plan.get("mode"),
        "objective": plan.get("objective"),
        "family": plan.get("family"),
        "sha256": plan.get("tokenizer"),
        "label": without_paths(plan.get("label")),
        "relaxed": (plan.get("cut") or {}).get("scripts") or [],
        "check": plan.get("check") or {},
        "notes": without_paths(plan.get("notes") or []),
        "pivot": pivot,
        "pivotName": language_name(pivot) if isinstance(pivot, str) else None,
        "unkLimit": UNK_LIMIT,
        "count": len(tokens),
        "tokens": [_token(token) for token in tokens[:_TOKENS]],
        "languages": [_outcome(code, outcome) for code, outcome in outcomes.items()],
    }


def _token(token: Mapping[str, Any]) -> dict[str, Any]:
    text = token.get("text")
    raw = text if isinstance(text, str) else _readable(str(token.get("bytes", "")))
    return {
        "script": next((s for c in raw if (s := script(c)) not in _ANY), None),
        "shown": text if isinstance(text, str) else [str(token.get("bytes", ""))],
        "count": token.get("count"),
        "parts": len(token.get("parts") or ()),
    }


def _readable(hexadecimal: str) -> str:
    try:
        return bytes.fromhex(hexadecimal).decode("utf-8", "ignore")
    except ValueError:
        return ""


def _outcome(code: str, outcome: Mapping[str, Any]) -> dict[str, Any]:
    curve = [
        [one.get("tokens"), digits(one.get("premium")), one.get("planning_tokens"),
         digits(one.get("unk_share"))]
        for one in outcome.get("curve") or ()
    ]  # fmt: skip
    numbers = {key: digits(outcome.get(key)) for key in _OUTCOMES}
    return about(code) | numbers | {key: outcome.get(key) for key in _COUNTS} | {"curve": curve}


def graft_data(folder: Path) -> dict[str, Any]:
    """What a graft folder's manifest says: base, method, output policy, hashes."""
    manifest = read_json(folder / MANIFEST)
    rows = manifest.get("rows") or {}
    policy = (manifest.get("output") or {}).get("policy")
    premiums = manifest.get("premiums") or {}
    return without_paths(  # type: ignore[no-any-return]
        {
            "name": folder.resolve().name,
            "base": manifest.get("base"),
            "command": manifest.get("command"),
            "seed": manifest.get("seed"),
            "languages": [about(code) for code in manifest.get("languages") or ()],
            "method": rows.get("method"),
            "params": rows.get("params") or {},
            "table": manifest.get("table") or {},
            "policy": policy,
            "writes": recorded(str(policy)).help if is_recorded(policy) else None,
            "trained": len((manifest.get("trained") or {}).get("tensors") or ()),
            "lanes": (manifest.get("trained") or {}).get("lanes"),
            "replaced": len((manifest.get("places") or {}).get("replaced") or ()),
            "versions": manifest.get("versions") or {},
            "plan": manifest.get("plan"),
            "tokenizer": manifest.get("tokenizer"),
            "premiums": [
                about(code) | dict(zip(_OUTCOMES[:2], map(digits, both), strict=True))
                for code, both in premiums.items()
            ],
            "verdict": manifest.get("verdict") or None,
            "files": manifest.get("files") or {},
        }
    )


def grafted_premiums(graft: dict[str, Any], plans: Sequence[Mapping[str, Any]]) -> None:
    """Give a graft that does not state its premiums those of the plan it was made by, if here.

    A plan is its own if it is for the same tokenizer, by hash, and for the same languages.
    """
    codes = {entry["code"] for entry in graft["languages"]}
    for plan in plans:
        same = plan["sha256"] and plan["sha256"] == graft["tokenizer"]
        if same and codes == {entry["code"] for entry in plan["languages"]}:
            graft["premiums"] = graft["premiums"] or plan["languages"]


def evaluation_data(path: Path) -> dict[str, Any]:
    """Scores, samples and the cost of generation, with the names of folder and models."""
    value = read_json(path)
    rows = _records(value, "scores") + _records(value, "tasks")
    scores = [_score(row) for row in rows if digits(row.get("value")) is not None]
    samples = [
        {key: text for key, text in row.items() if isinstance(text, str)}
        for row in _records(value, "samples")
    ]
    generation = _records(value, "generation")
    notes = value.get("notes")
    said = [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []
    return {
        "name": path.parent.resolve().name,
        "graft": _text(value.get("graft")),
        "base": _text(value.get("base")),
        "scores": scores,
        "measures": {score["measure"]: described(score["measure"]) for score in scores},
        "notes": without_paths([_CODE.sub(lambda m: language_name(m[0]), note) for note in said]),
        "verdict": _verdict(scores, value.get("settings")),
        "costs": list(_costs(generation)),
        "writing": list(_writing(generation, scores)),
        "samples": samples[:12],  # in full: readers compare them letter by letter
    }


def _records(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The rows of a table of an evaluation; none if the table is missing."""
    rows = value.get(name)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


def _text(value: Any) -> str | None:
    return str(without_paths(value)) if isinstance(value, str) and value else None


def _score(row: Mapping[str, Any]) -> dict[str, Any]:
    code = row.get("language")
    named = (row.get(key) for key in ("method", "task", "model"))
    return {
        "measure": str(row.get("metric", "score")),
        "method": ", ".join(str(name) for name in named if name) or None,
        "language": code,
        "name": None if code is None else language_name(str(code)),
        **{key: digits(row.get(key), 4) for key in ("value", "low", "high", "floor", "ceiling")},
        "n": row.get("n"),
        "definition": row.get("definition"),
    }


def _verdict(scores: Sequence[Mapping[str, Any]], settings: Any) -> str | None:
    """Whether the graft works, in a sentence; None where no floor was measured."""
    own = [score for score in scores if score["name"] and score["method"] is None]
    if not any(score["measure"] in DECIDING and score["floor"] is not None for score in own):
        return None
    named = ("measure", "name", "value", "floor", "ceiling")
    verdict = judge([Judged(*(score[key] for key in named)) for score in own])
    done = settings.get("done") if isinstance(settings, Mapping) else None
    made = Done(**done) if isinstance(done, Mapping) else None
    return f"{verdict} {verdict.caution(made)}".strip()


def _costs(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """What generation cost, a row per language: each figure as [base, graft]."""
    sides = {(str(row.get("language")), row.get("model")): row for row in rows}
    for code in dict.fromkeys(code for code, _ in sides):
        both = [sides.get((code, model)) for model in ("base", "graft")]
        if None not in both:
            pairs = {key: [digits(row.get(key)) for row in both if row] for key in _COSTS}
            prompts = (both[0] or {}).get("prompts")
            yield {"name": language_name(code), "prompts": prompts, **pairs}


def _writing(
    rows: Sequence[Mapping[str, Any]], scores: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """A sentence for each language that the graft writes in fewer steps than its base.

    Measured in greedy steps if those were counted, else by what a sampled token is worth; a graft
    that may not write has neither.
    """
    worth = {s["language"]: s["value"] for s in scores if s["measure"] == "written_worth"}
    counted = fewer_steps(rows)
    for code, sampled in worth.items():
        times, how = (counted[code], "greedily") if code in counted else (sampled, "sampled")
        if times >= 1.05:
            yield f"Writes {language_name(code)} in {times:.1f} times fewer steps ({how})"


def comparison_data(folder: Path) -> dict[str, Any]:
    """Both sides of every pair, language by language, and what the figures say."""
    facts, tables = read_comparison(folder)
    facts, pairs = without_paths(facts), []
    for pair in tables["summary"].to_dicts():
        own = of_pair(tables["languages"], pair)
        a, b = names(facts, pair)
        rows = [_compared(row) for row in own.to_dicts()]
        pairs.append({"a": a, "b": b, "words": findings(facts, pair, own), "rows": rows})
    if not pairs:
        raise TokengraftError(f"{folder}: the comparison has no languages")
    return {"corpus": facts["corpus"]["source"], "pairs": pairs}


def _compared(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "code": row["language"],
        "name": row["name"],
        "tokens": [row["tokens_a"], row["tokens_b"]],
        "change": row["change"] if row["change"] is None else round(row["change"], 5),
        "premiums": [digits(row["premium_a"]), digits(row["premium_b"])],
        "bad": [row["meaningless_a"], row["meaningless_b"]],
        "covered": [digits(row["covered_a"]), digits(row["covered_b"])],
        "speakers": row["speakers_total"],
        "outcome": row["outcome"],
    }
