"""Search for a text that relaxed boundaries make longer: hypothesis, steered by the difference.

    python benchmarks/search_longer.py --minutes 45 --out results/never-longer/search.jsonl

For each tokenizer and script in turn, texts of its letters and marks (all that Unicode assigns to
it), punctuation, spaces, digits, Latin, joiners and combining marks are encoded by the base and by
the same tokenizer with relaxed boundaries and *no* new token, the worst case: appended merges only
make a text shorter. Hypothesis is told the difference as its target, so it climbs towards longer
texts. One line of JSON a round: seed, number of texts, the largest difference and a text that has
it. Rounds go on until the time is up; the exit status is 1 where any text got longer.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
import unicodedata
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings, target
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tokengraft.tokenizer.boundaries import relaxed_pattern, script_names, with_pattern
from tokengraft.tokenizer.catalog import as_json, find

SCRIPTS = {
    "Arab": "ARABIC", "Hebr": "HEBREW", "Deva": "DEVANAGARI", "Thai": "THAI", "Khmr": "KHMER",
    "Tibt": "TIBETAN", "Syrc": "SYRIAC", "Beng": "BENGALI", "Mymr": "MYANMAR", "Taml": "TAMIL",
}  # fmt: skip
SHARED = " .,!?:;-()؟،।“”'\u200c\u200d\u0301\u0327\ufe0f\n\t0123٣५aeZé中я"


def alphabet(script: str) -> list[str]:
    """Letters and marks named after the script, in the two-byte and three-byte blocks."""
    characters = map(chr, range(0x250, 0xFFFF))
    return [
        c
        for c in characters
        if unicodedata.category(c)[0] in "LM" and unicodedata.name(c, "").startswith(script)
    ]


def texts(script: str, vocabulary: list[str]) -> st.SearchStrategy[str]:
    """Random words, and words put together from tokens of the vocabulary in that script."""
    own = alphabet(script)
    marks = [c for c in own if unicodedata.category(c)[0] == "M"]
    names = set(own)
    tokens = [t for t in vocabulary if len(t) > 1 and any(c in names for c in t)] or own
    part = st.one_of(
        st.sampled_from(own),
        st.sampled_from(marks or own),
        st.sampled_from(SHARED),
        st.sampled_from(tokens),
    )
    return st.lists(part, min_size=2, max_size=24).map("".join)


def main() -> None:
    """Rounds over tokenizers and scripts until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("-t", "--tokenizer", action="append", default=[])
    parser.add_argument("--tokenizers", type=Path, action="append", default=[])
    parser.add_argument("--examples", type=int, default=3000, help="texts a round")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    end, seen, longer, number = time.monotonic() + 60 * options.minutes, 0, 0, 0
    pairs: dict[tuple[str, str], tuple[Tokenizer, Tokenizer, st.SearchStrategy[str]]] = {}
    wanted = [(n, s) for n in options.tokenizer or ["llama-3", "gpt2"] for s in SCRIPTS]
    with options.out.open("a", encoding="utf-8") as out:
        while time.monotonic() < end:
            name, script = wanted[number % len(wanted)]
            if (name, script) not in pairs:
                base = as_json(find(name, options.tokenizers))
                relaxed = with_pattern(base, relaxed_pattern(base, script_names([script])))
                old, new = (Tokenizer.from_str(json.dumps(t)) for t in (base, relaxed))
                vocabulary = [old.decode([i]) for i in range(old.get_vocab_size())]
                whole = [t for t in vocabulary if "\ufffd" not in t]
                pairs[name, script] = old, new, texts(SCRIPTS[script], whole)
            row = search(*pairs[name, script], options.examples, random.randrange(1 << 32))
            number += 1
            seen, longer = seen + row["texts"], longer + (row["most"] > 0)
            out.write(json.dumps({"tokenizer": name, "script": script, **row}) + "\n")
            out.flush()
    print(f"{seen:,} texts in {number} rounds; rounds with a longer text: {longer}")
    sys.exit(bool(longer))


def search(
    old: Tokenizer, new: Tokenizer, strategy: st.SearchStrategy[str], examples: int, start: int
) -> dict[str, Any]:
    """One round from the seed `start`."""
    most, worst, tried = -(10**9), "", 0

    @seed(start)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.target],
    )
    @given(text=strategy)
    def climb(text: str) -> None:
        nonlocal most, worst, tried
        before, after = (len(t.encode(text, add_special_tokens=False).ids) for t in (old, new))
        tried += 1
        if after - before > most:
            most, worst = after - before, text
        target(float(after - before), label="longer by")

    climb()
    return {"seed": start, "texts": tried, "most": most, "text": worst}


if __name__ == "__main__":
    main()
