"""Search for a text that a plan makes longer: hypothesis, steered by the difference in length.

    python benchmarks/search_longer.py --prepare pairs/ -t llama-3 -t gpt2 -t o200k_base
    python benchmarks/search_longer.py --pairs pairs/ --minutes 8 --processes 8 --out search.json
    python benchmarks/search_longer.py --pairs pairs/ --cuts flores200_dataset --out cuts.json

A *pair* is a tokenizer before and after a change for one script: `relaxed` has the relaxed split
pattern and no new token (the worst case, since appended merges only make a text shorter), `plan`
the tokens of a plan chosen on the bundled UDHR, both as it is and with marks strewn into it. Only
`--prepare` calls tokengraft; the search itself needs `tokenizers` and hypothesis.

Texts are made of the script's letters and marks (all that Unicode assigns to it), tokens of the
vocabulary, punctuation, spaces, line ends, digits of several scripts, joiners, Latin, Han and the
text of special tokens; hypothesis maximises the largest growth among a text and its shuffled
variants. A finding is

- `longer`: the text takes more tokens than before;
- `other ids`: with relaxed boundaries alone the ids differ without becoming fewer (the proof says
  that each joined piece begins with the tokens of its parts);
- `touched`: without the characters named after the script, the text has other ids than before.

`--cuts` relaxes each tokenizer's pattern for all scripts at once for which that is possible, and
counts the lines of a folder's files that it cuts where the old one did not: there may be none.

The exit status is 1 if there is a finding. Every round has its own seed and can be repeated.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import sys
import time
import unicodedata
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings, target
from hypothesis import strategies as st
from tokenizers import Tokenizer

SCRIPTS = {
    "Arab": "ARABIC", "Hebr": "HEBREW", "Deva": "DEVANAGARI", "Thai": "THAI", "Khmr": "KHMER",
    "Tibt": "TIBETAN", "Syrc": "SYRIAC", "Beng": "BENGALI", "Mymr": "MYANMAR", "Taml": "TAMIL",
    "Laoo": "LAO", "Telu": "TELUGU", "Sinh": "SINHALA", "Mlym": "MALAYALAM", "Gujr": "GUJARATI",
    "Thaa": "THAANA", "Java": "JAVANESE", "Ethi": "ETHIOPIC",
}  # fmt: skip
SHARED = [
    *" .,!?:;-()/؟،।“”'\u200c\u200d\u200e\u0301\u0327\u034f\ufe0f\n\t\u00a0\u30fb09٣५๓᠐aeZé中яا",
    *("\r\n", "  ", "\n\n", "'s", "'ll", "123456", " a", " the", "ﷺ", "👩\u200d👩", "\U000e0101"),
]
VARIANTS = 24  # of each text that hypothesis makes
BUDGET = 500
CUTS = "every.cuts"  # the end of a name: the pattern relaxed for all scripts at once


class Finding(NamedTuple):
    """What is wrong with a text."""

    what: str
    text: str
    before: int
    after: int


def named(script: str) -> list[str]:
    """All characters named after the script."""
    characters = map(chr, (*range(0x250, 0xD800), *range(0xE000, 0x32000)))
    return [c for c in characters if unicodedata.name(c, "").startswith(script)]


def alphabet(script: str) -> list[str]:
    """Its letters and marks."""
    return [c for c in named(script) if unicodedata.category(c)[0] in "LM"]


# --- pairs ---------------------------------------------------------------------------------------


def prepare(folder: Path, names: list[str], folders: list[Path], scripts: list[str]) -> None:
    """Write the bases, and what changes in each for each of the `scripts`."""
    from tokengraft.core.errors import TokengraftError
    from tokengraft.corpus import load
    from tokengraft.planning.choose import plan_tokens
    from tokengraft.planning.plan import Boundaries, Planning, with_plan
    from tokengraft.tokenizer.catalog import as_json, find
    from tokengraft.tokenizer.pre_tokenizer import SCRIPTS as relaxable  # noqa: N811
    from tokengraft.tokenizer.pre_tokenizer import (
        relaxed_pattern,
        script_names,
        split_pattern,
        with_pattern,
    )

    folder.mkdir(parents=True, exist_ok=True)
    udhr = load("udhr")
    for name in names:
        base = _paired(as_json(find(name, folders)))
        relaxes = split_pattern(base) is not None
        packed = json.dumps(base, ensure_ascii=False).encode("utf-8", "surrogatepass")
        (folder / f"{name}.base.xz").write_bytes(lzma.compress(packed, preset=1))
        if relaxes:
            every = with_pattern(base, relaxed_pattern(base, script_names(relaxable)))
            relaxed = json.dumps(_difference(base, every), ensure_ascii=False)
            (folder / f"{name}.{CUTS}").write_text(relaxed, encoding="utf-8")
        for script in scripts:
            changed = {}
            if relaxes:
                pattern = relaxed_pattern(base, script_names([script]))
                changed["relaxed"] = with_pattern(base, pattern)
            code = next(code for code in udhr.texts if code.endswith(script))
            lines = [line for c in udhr.texts if c.endswith(script) for line in udhr.lines(c)]
            texts = {code: [*lines, *_strewn(lines, script)]}
            how: Boundaries = "relax" if relaxes else "keep"
            try:
                plan = plan_tokens(base, texts, Planning(budget=BUDGET, boundaries=how))
                changed["plan"] = _paired(with_plan(base, plan))
            except TokengraftError as error:
                print(f"{name} {script}: no plan ({error})")
            for kind, tokenizer in changed.items():
                delta = _difference(base, tokenizer)
                text = json.dumps(delta, ensure_ascii=False)
                (folder / f"{name}.{script}.{kind}.json").write_text(text, encoding="utf-8")
            print(f"{name} {script}: {', '.join(changed)}", flush=True)


def _strewn(lines: list[str], script: str) -> Iterator[str]:
    """The lines with a mark of the script after every third of its letters."""
    own = alphabet(SCRIPTS[script])
    marks = [c for c in own if unicodedata.category(c)[0] == "M"][:40] or [""]
    letters, chance = set(own) - set(marks), random.Random(0)
    for line in lines:
        yield "".join(
            c + (chance.choice(marks) if c in letters and chance.random() < 0.35 else "")
            for c in line
        )


def _paired(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """The same with every merge as a pair, whichever form it was written in."""
    model = tokenizer["model"]
    pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    return {**tokenizer, "model": {**model, "merges": pairs}}


def _difference(base: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """What turns `base` into `new`; asserts that `_changed` applies it correctly."""
    model, old = new["model"], base["model"]
    rest = {key: value for key, value in model.items() if key not in ("vocab", "merges")}
    vocab = {token: n for token, n in model["vocab"].items() if token not in old["vocab"]}
    merges = model["merges"][len(old["merges"]) :]
    top = {k: v for k, v in new.items() if k != "model" and v != base.get(k)}
    delta = {"top": top, "model": rest, "vocab": vocab, "merges": merges}
    assert _changed(base, delta) == new
    return delta


def _changed(base: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    old = base["model"]
    model = {
        **delta["model"],
        "vocab": {**old["vocab"], **delta["vocab"]},
        "merges": [*old["merges"], *delta["merges"]],
    }
    return {**base, **delta["top"], "model": model}


# --- the search ----------------------------------------------------------------------------------


class Pair:
    """A tokenizer before and after, and the parts that texts are made of."""

    def __init__(self, base: dict[str, Any], old: Tokenizer, tokens: list[str], path: Path) -> None:
        self.name, self.script, self.kind = _named(path)
        delta = json.loads(path.read_text("utf-8"))
        self.old = old
        self.new = Tokenizer.from_str(json.dumps(_changed(base, delta)))
        for tokenizer in (self.old, self.new):
            tokenizer.no_truncation()
            tokenizer.no_padding()
        own = alphabet(SCRIPTS[self.script])
        self.own = set(named(SCRIPTS[self.script]))
        marks = [c for c in own if unicodedata.category(c)[0] == "M"] or own
        tokens = [*tokens, *_spelled(self.new, old.get_vocab_size())]
        mine = [t for t in tokens if len(t) > 1 and not self.own.isdisjoint(t)] or own
        special = [token["content"] for token in base.get("added_tokens") or []][:20] or [" "]
        self.parts = [own, own, marks, marks, mine, mine, SHARED, tokens]
        self.parts.append(special)
        self.texts = st.lists(st.one_of(*map(st.sampled_from, self.parts)), min_size=2, max_size=24)

    def part(self, chance: random.Random) -> str:
        """Any part of a text."""
        return str(chance.choice(chance.choice(self.parts)))

    def findings(self, texts: list[str]) -> tuple[int, list[Finding]]:
        """The largest growth among the texts, and what is wrong with any of them."""
        bare = ["".join(c for c in text if c not in self.own) for text in texts]
        before, after = (
            [one.ids for one in t.encode_batch_fast([*texts, *bare], add_special_tokens=False)]
            for t in (self.old, self.new)
        )
        wrong = []
        for n, text in enumerate([*texts, *bare]):
            old, new = before[n], after[n]
            if len(new) > len(old):
                wrong.append(Finding("longer", text, len(old), len(new)))
            elif n >= len(texts) and new != old:
                wrong.append(Finding("touched", text, len(old), len(new)))
            elif self.kind == "relaxed" and new != old and len(new) == len(old):
                wrong.append(Finding("other ids", text, len(old), len(new)))
        return max(len(after[n]) - len(before[n]) for n in range(len(texts))), wrong


def _spelled(tokenizer: Tokenizer, first: int = 0) -> list[str]:
    """The text of every token from the id `first` on that consists of whole characters."""
    ids = range(first, tokenizer.get_vocab_size(with_added_tokens=True))
    return [t for t in (tokenizer.decode([n]) for n in ids) if t and "\ufffd" not in t]


def varied(parts: list[str], pair: Pair, chance: random.Random) -> Iterator[str]:
    """The text of the parts, and variants of it."""
    yield "".join(parts)
    for _ in range(VARIANTS - 1):
        found = list(parts)
        for _ in range(chance.randint(1, 3)):
            place, how = chance.randrange(len(found) + 1), chance.randrange(4)
            if how == 0 and len(found) > 2:
                del found[place - 1]
            elif how == 1 and found:
                found[place:place] = found[max(0, place - 2) : place]
            elif how == 2:
                chance.shuffle(found)
            else:
                found.insert(place, pair.part(chance))
        yield "".join(found)


def search(pair: Pair, start: int, examples: int, end: float) -> dict[str, Any]:
    """One round from the seed `start`."""
    row: dict[str, Any] = {"seed": start, "texts": 0, "most": None, "findings": []}

    @seed(start)
    @settings(
        max_examples=examples, deadline=None, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.target],
    )  # fmt: skip
    @given(pair.texts, st.integers(0, 2**32))
    def climb(parts: list[str], number: int) -> None:
        if time.monotonic() > end:
            return
        texts = list(varied(parts, pair, random.Random(number)))
        growth, wrong = pair.findings(texts)
        row["texts"] += 2 * len(texts)
        row["most"] = growth if row["most"] is None else max(row["most"], growth)
        row["findings"] += wrong[: max(0, 5 - len(row["findings"]))]
        target(float(growth), label="longer by")

    climb()
    return row


def recut(job: tuple[Path, Path]) -> dict[str, Any]:
    """How many lines of a folder one tokenizer's relaxed pattern cuts in new places."""
    path, folder = job
    base = _base(path)
    changed = _changed(base, json.loads(path.read_text("utf-8")))
    old, new = (Tokenizer.from_str(json.dumps(one)).pre_tokenizer for one in (base, changed))
    row: dict[str, Any] = {"tokenizer": path.name.removesuffix(f".{CUTS}"), "lines": 0}
    row |= {"joined": 0, "cut anew": 0, "findings": []}
    for file in sorted(one for one in folder.rglob("*") if one.is_file()):
        for line in file.read_text("utf-8").splitlines():
            before, after = ({end for _, (_, end) in p.pre_tokenize_str(line)} for p in (old, new))
            row["lines"] += 1
            row["joined"] += after < before
            if not after <= before:
                row["cut anew"] += 1
                row["findings"] = [*row["findings"], line][:5]
    return row


def _base(path: Path) -> Any:
    """The tokenizer that a pair changes."""
    name = path.name.removesuffix(f".{CUTS}") if path.suffix == ".cuts" else _named(path)[0]
    return json.loads(lzma.decompress((path.parent / f"{name}.base.xz").read_bytes()))


def _named(path: Path) -> tuple[str, str, str]:
    """Tokenizer, script and kind of a pair."""
    name, script, kind, _ = path.name.rsplit(".", 3)
    return name, script, kind


def work(job: tuple[int, list[Path], int, float, int, Path]) -> None:
    """One process: its pairs in turn until the time is up; a row for each is written at once."""
    number, paths, start, seconds, examples, rows = job
    began, chance = time.monotonic(), random.Random(start + number)
    bases: dict[str, tuple[dict[str, Any], Tokenizer, list[str]]] = {}
    for place, path in enumerate(paths):
        if time.monotonic() > began + seconds:
            break
        name = _named(path)[0]
        if name not in bases:
            base = _base(path)
            old = Tokenizer.from_str(json.dumps(base))
            bases = {name: (base, old, _spelled(old))}
        pair = Pair(*bases[name], path)
        left = began + seconds - time.monotonic()
        end = time.monotonic() + left / (len(paths) - place)
        row: dict[str, Any] = {
            "tokenizer": pair.name, "script": pair.script, "kind": pair.kind, "rounds": 0,
            "texts": 0, "most": None, "seeds": [], "findings": [],
        }  # fmt: skip
        cpu = time.process_time()
        while time.monotonic() < end:
            found = search(pair, chance.randrange(1 << 32), examples, end)
            row["rounds"] += 1
            row["texts"] += found["texts"]
            grown = [one for one in (row["most"], found["most"]) if one is not None]
            row["most"] = max(grown, default=None)
            row["seeds"].append(found["seed"])
            row["findings"] += [{**f._asdict(), "seed": found["seed"]} for f in found["findings"]]
        row["cpu_seconds"] = round(time.process_time() - cpu, 1)
        with rows.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


def main() -> None:
    """Prepare pairs, or search them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prepare", type=Path, help="write pairs into this folder, and stop")
    parser.add_argument("-t", "--tokenizer", action="append", default=[])
    parser.add_argument("--tokenizers", type=Path, action="append", default=[])
    parser.add_argument("-s", "--script", action="append", choices=SCRIPTS)
    parser.add_argument("--pairs", type=Path, help="search these")
    parser.add_argument("--cuts", type=Path, help="count where lines of this folder are cut")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--examples", type=int, default=500, help="of hypothesis, a round")
    parser.add_argument("--start", type=int, default=None, help="first seed (default: at random)")
    options = parser.parse_args()
    if options.prepare:
        names, scripts = options.tokenizer or ["llama-3", "gpt2"], options.script or list(SCRIPTS)
        prepare(options.prepare, names, options.tokenizers, scripts)
        return
    if not options.pairs or not options.out:
        parser.error("give --prepare, or --pairs with --out")
    if options.cuts:
        relaxed = [(path, options.cuts) for path in sorted(options.pairs.glob(f"*.{CUTS}"))]
        with get_context("spawn").Pool(min(options.processes, len(relaxed))) as pool:
            rows = pool.map(recut, relaxed)
        options.out.write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", "utf-8")
        sys.exit(any(row["findings"] for row in rows))
    start = random.randrange(1 << 32) if options.start is None else options.start
    # Neighbours in the list share a base, so that a process reads few of them.
    paths = sorted(options.pairs.glob("*.*.*.json"))
    count = min(options.processes, len(paths))
    share = [paths[len(paths) * n // count : len(paths) * (n + 1) // count] for n in range(count)]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    files = [options.out.with_suffix(f".{n}.jsonl") for n in range(count)]
    for file in files:
        file.unlink(missing_ok=True)
    seconds = 60 * options.minutes
    jobs = [(n, share[n], start, seconds, options.examples, files[n]) for n in range(count)]
    with get_context("spawn").Pool(count) as pool:
        done = pool.map_async(work, jobs)
        while not done.ready():
            done.wait(10)
            _write(options.out, start, files)
        done.get()
    sys.exit(bool(_write(options.out, start, files)))


def _write(out: Path, start: int, files: list[Path]) -> int:
    """Write all results so far, with totals by tokenizer, script and kind; count the findings."""
    lines = [line for f in files if f.exists() for line in f.read_text("utf-8").splitlines()]
    rows = [json.loads(line) for line in lines]
    rows.sort(key=lambda row: (row["tokenizer"], row["script"], row["kind"]))
    totals = {
        by: {
            value: sum(row["texts"] for row in rows if row[by] == value)
            for value in sorted({row[by] for row in rows})
        }
        for by in ("tokenizer", "script", "kind")
    }
    told = {
        "start": start,
        "texts": sum(row["texts"] for row in rows),
        "cpu_seconds": round(sum(row["cpu_seconds"] for row in rows), 1),
        "most": max((row["most"] for row in rows if row["most"] is not None), default=None),
        "findings": sum(len(row["findings"]) for row in rows),
        "by": totals,
        "rows": rows,
    }
    out.write_text(json.dumps(told, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(f"{told['texts']:,} texts, {told['findings']} findings, most {told['most']}", flush=True)
    return int(told["findings"])


if __name__ == "__main__":
    main()
