"""Other ways to choose strings: premium by number of tokens added, on the same text.

    python benchmarks/plan_baselines.py --flores flores200_dataset --out results/plan-baselines

Tokens are chosen on FLORES dev with English and code protected, for each language alone, by every
mode of `planning` that makes merges, and tested on devtest with plain `tokenizers` (mean of
per-sentence ratios to English) at the first 250, 500, 1,000 and 2,000 tokens. Then `audit`'s
baseline: what a language would pay if it had its own vocabulary of as many equiprobable strings as
English has, and nothing else. With `--peer FOLDER`, a checkout of
https://github.com/taidopurason/tokenizer-extension, also their own continued BPE (Purason et al.
2025, arXiv 2512.03989) on the same lines.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from plan_flores import first_tokens
from plan_world import PIVOT, changed, lengths, read
from tokengraft.paper.tunstall import read_by_own
from tokengraft.planning import MODES
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Planning, with_plan
from tokengraft.planning.protect import protected_text
from tokengraft.tokenizer.catalog import as_json, find

LANGUAGES = ("shn_Mymr", "tam_Taml", "swh_Latn", "yor_Latn")
SIZES = (0, 250, 500, 1000, 2000)
OWN = "strings of its own, English too"
PEER = "continued BPE of Purason et al."


def measured(base: Any, made: Callable[[int], Any], most: int, code: str, devtest: Any) -> Any:
    """Premiums of one language at each size, and the lines of devtest's English that change."""
    old, premiums, lines = Tokenizer.from_str(json.dumps(base)), {}, {}
    for size in (size for size in SIZES if size <= most):
        new = Tokenizer.from_str(json.dumps(made(size))) if size else old
        ratios = lengths(new, devtest[code]) / lengths(new, devtest[PIVOT])
        premiums[size] = float(ratios.mean())
        lines[size] = changed(old, new, devtest[PIVOT])
    return {"premiums": premiums, "english_lines_changed": lines}


def by_mode(name: str, mode: Any, code: str, texts: tuple[Any, Any]) -> Any:
    """What a plan of that mode does."""
    dev, devtest = texts
    base = as_json(find(name))
    kept = protected_text([], bundled=True)
    options = Planning(budget=max(SIZES), mode=mode)
    plan = plan_tokens(base, {code: dev[code]}, options, protect=kept)

    def made(size: int) -> Any:
        return with_plan(base, first_tokens(plan, size))

    return measured(base, made, len(plan.tokens), code, devtest)


def by_peer(name: str, code: str, texts: tuple[Any, Any]) -> Any:
    """What their tokens do: merges appended to the old ones, the split pattern as it is."""
    from tokenizer_extension.train_vocab_extension import (  # type: ignore[import-not-found]
        train_vocab_extension,
    )
    from transformers import PreTrainedTokenizerFast

    dev, devtest = texts
    base = as_json(find(name))
    pipeline = Tokenizer.from_str(json.dumps(base))
    opened = PreTrainedTokenizerFast(tokenizer_object=pipeline)  # type: ignore[no-untyped-call]
    # More than asked for: some of what it names is in the vocabulary already, and not added.
    for wanted in range(2 * max(SIZES), 0, -500):
        with contextlib.suppress(IndexError):  # no pair is left
            learned = train_vocab_extension(opened, dev[code], wanted)
            break
    old = set(opened.get_vocab())
    new = [token for token in learned["vocab"] if token not in old]

    def made(size: int) -> Any:
        model = base["model"]
        first = max(opened.get_vocab().values()) + 1
        vocab = model["vocab"] | {token: first + n for n, token in enumerate(new[:size])}
        merges = [f"{a} {b}" if isinstance(model["merges"][0], str) else [a, b]
                  for a, b in learned["merges"] if {a, b, a + b} <= vocab.keys()]  # fmt: skip
        return base | {"model": model | {"vocab": vocab, "merges": model["merges"] + merges}}

    return measured(base, made, len(new), code, devtest)


def own(code: str, texts: tuple[Any, Any]) -> Any:
    """Premiums of one language if it and English have a vocabulary each."""
    dev, devtest = texts
    premiums = {}
    for size in SIZES[1:]:
        tokens = [np.array(read_by_own(dev[c], devtest[c], size)) for c in (code, PIVOT)]
        premiums[size] = float((tokens[0] / tokens[1]).mean())
    return {"premiums": premiums}


def table(rows: list[dict[str, Any]]) -> str:
    """Premiums by language, mode and number of tokens, and the English that changes with most."""
    lines = [
        f"| language | mode | {' | '.join(f'{n:,}' for n in SIZES)} | English lines changed |",
        f"|---|---|{'---:|' * (len(SIZES) + 1)}",
    ]
    for row in rows:
        cells = {int(size): f"{premium:.2f}" for size, premium in row["premiums"].items()}
        shown = " | ".join(cells.get(size, "–") for size in SIZES)
        last = [*row.get("english_lines_changed", {"0": "–"}).values()][-1]
        lines.append(f"| {row['language']} | {row['mode']} | {shown} | {last} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure everything that is not in the results yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flores", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("-t", "--tokenizer", default="llama-3")
    parser.add_argument("--language", action="append", default=[])
    parser.add_argument("--mode", action="append", default=[], help="These only.")
    parser.add_argument("--peer", type=Path, help="A checkout of tokenizer-extension.")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    texts = read(options.flores, "dev"), read(options.flores, "devtest")
    path = options.out / f"{options.tokenizer}.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    modes = [*(mode for mode in MODES if mode not in ("paper", "characters")), OWN]
    if options.peer is not None:
        sys.path.insert(0, str(options.peer))
        modes.insert(1, PEER)
    modes = options.mode or modes
    for code in options.language or LANGUAGES:
        for mode in modes:
            if (code, mode) in {(row["language"], row["mode"]) for row in rows}:
                continue
            if mode == OWN:
                found = own(code, texts)
            elif mode == PEER:
                found = by_peer(options.tokenizer, code, texts)
            else:
                found = by_mode(options.tokenizer, mode, code, texts)
            rows.append({"language": code, "mode": mode, **found})
            path.write_text(json.dumps(rows, indent=1) + "\n")
            path.with_suffix(".md").write_text(table(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
