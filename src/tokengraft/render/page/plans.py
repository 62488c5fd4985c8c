"""`plan.json` and graft folders as the page shows them; unknown or missing parts are left out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fontTools.unicodedata import script

from tokengraft.auditing.frames import UNK_LIMIT
from tokengraft.core.errors import TokengraftError
from tokengraft.core.files import read_json
from tokengraft.languages.codes import language_name
from tokengraft.model.folder import MANIFEST
from tokengraft.render.page.audits import about
from tokengraft.render.page.shown import digits, without_paths

_TOKENS = 400
_SHARES = ("unk_share_before", "unk_share_after")
_ANY = ("Zyyy", "Zinh", "Zzzz")  # scripts that are none: common, inherited, unknown


def plan_data(path: Path) -> dict[str, Any]:
    """The plan's what-if curves, outcomes and first tokens."""
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
        "budget": plan.get("budget") or len(tokens),
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
    keys = ("premium_before", "premium_after", "floor_before", "floor_after")
    counts = (
        "planning_before", "planning_after", "unknown_before", "unknown_after", "first_token",
    )  # fmt: skip
    return (
        about(code)
        | {key: digits(outcome.get(key)) for key in keys}
        | {key: digits(outcome.get(key)) for key in _SHARES}
        | {key: outcome.get(key) for key in counts}
        | {
            "curve": [
                [
                    point.get("tokens"),
                    digits(point.get("premium")),
                    point.get("planning_tokens"),
                    digits(point.get("unk_share")),
                ]
                for point in outcome.get("curve") or ()
            ]
        }
    )


def graft_data(folder: Path) -> dict[str, Any]:
    """What a graft folder's manifest says: base, method, output policy, hashes."""
    manifest = read_json(folder / MANIFEST)
    rows = manifest.get("rows") or {}
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
            "policy": (manifest.get("output") or {}).get("policy"),
            "versions": manifest.get("versions") or {},
            "plan": manifest.get("plan"),
            "files": manifest.get("files") or {},
        }
    )
