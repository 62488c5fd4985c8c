"""Speed of planning and of extended tokenizers, each beside its peer in one run.

    python benchmarks/plan.py [--text DIR] [--megabytes 20] [--tokens 2000]

Learning is compared with `tokenizers`' BpeTrainer, which learns as many tokens from scratch on the
same lines; loading and encoding are compared with the base tokenizer, and with the same tokens
added by `add_tokens`. `--text` is a folder of plain text files named by language (`hin_Deva.txt`);
without it the bundled UDHR is repeated, which flatters everyone alike.
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Boundaries, Planning, with_plan
from tokengraft.tokenizer.sources import bundled

T = TypeVar("T")
LEARN_LIMIT, ENCODE_LIMIT = 3.0, 1.1
BOUNDARIES: tuple[Boundaries, ...] = ("keep", "auto")
BUNDLED = ("hin_Deva", "tam_Taml", "shn_Mymr", "amh_Ethi", "tel_Telu", "ben_Beng", "khm_Khmr")


def timed(work: Callable[[], T], clock: Callable[[], float] = time.perf_counter) -> tuple[float, T]:
    """Time of one run, and its result."""
    start = clock()
    result = work()
    return clock() - start, result


def read_texts(folder: Path | None, megabytes: float) -> dict[str, list[str]]:
    """About `megabytes` of lines, language by language."""
    if folder is not None:
        found = {
            p.stem: p.read_text(encoding="utf-8").splitlines() for p in sorted(folder.glob("*.txt"))
        }
        found.pop("eng_Latn", None)
    else:
        source = files("tokengraft") / "assets" / "udhr.jsonl.xz"
        with lzma.open(str(source), "rt", encoding="utf-8") as rows:
            every = {row["code"]: list(row["units"].values()) for row in map(json.loads, rows)}
        found = {code: every[code] for code in BUNDLED}
    share = megabytes * 1e6 / len(found)
    texts = {}
    for code, lines in found.items():
        size, kept = 0.0, []
        for line in cycle(lines):
            if size >= share:
                break
            kept.append(line)
            size += len(line.encode())
        texts[code] = kept
    return texts


def load(tokenizer: dict[str, Any]) -> Tokenizer:
    """The tokenizer as an object of `tokenizers`."""
    return Tokenizer.from_str(json.dumps(tokenizer))


def main() -> None:
    """Print one line per comparison: the two times, their ratio and its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--cpu", action="store_true", help="learning in processor, not wall, time")
    arguments = parser.parse_args()
    base = json.loads(bundled("llama-3").read("tokenizer.json"))
    texts = read_texts(arguments.text, arguments.megabytes)
    lines = [line for text in texts.values() for line in text]
    size = sum(len(line.encode()) for line in lines) / 1e6
    print(f"{size:.1f} MB, {len(lines):,} lines, {len(texts)} languages")

    def train() -> None:
        scratch = Tokenizer(models.BPE())
        scratch.pre_tokenizer = load(base).pre_tokenizer
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=arguments.tokens + len(alphabet), initial_alphabet=alphabet,
            show_progress=False,
        )  # fmt: skip
        scratch.train_from_iterator(lines, trainer)

    clock = time.process_time if arguments.cpu else time.perf_counter
    peer, _ = timed(train, clock)
    sample = lines[:: max(1, len(lines) // 8000)]
    for boundaries in BOUNDARIES:
        options = Planning(arguments.tokens, boundaries=boundaries)
        learning = partial(plan_tokens, base, texts, options)
        mine, plan = timed(learning, clock)
        say(f"learn {arguments.tokens}, {boundaries} / BpeTrainer", mine, peer, LEARN_LIMIT)
        raw = [json.dumps(base), json.dumps(with_plan(base, plan))]
        # Taken in turns: on a busy machine two blocks of runs would not be comparable.
        rounds = [[timed(partial(Tokenizer.from_str, text)) for text in raw] for _ in range(5)]
        load_base, load_new = (min(turn[i][0] for turn in rounds) for i in (0, 1))
        old, new = (turn[1] for turn in rounds[-1])
        say(f"load, {boundaries} / base", load_new, load_base, ENCODE_LIMIT)
        added = load(base)
        content = [t.text for t in plan.tokens if t.text is not None]
        added.add_tokens([AddedToken(text, special=False) for text in content])
        spent: dict[str, float] = {}
        counts: dict[str, int] = {}
        for _ in range(5):
            for name, one in (("base", old), ("merges", new), ("add_tokens", added)):
                encode = partial(one.encode_batch_fast, sample, add_special_tokens=False)
                seconds, encodings = timed(encode)
                spent[name] = min(seconds, spent.get(name, seconds))
                counts[name] = sum(map(len, encodings))
        say(f"encode, {boundaries} / base", spent["merges"], spent["base"], ENCODE_LIMIT)
        say(f"encode, {boundaries}: add_tokens / base", spent["add_tokens"], spent["base"], None)
        print("  tokens of the sample:", ", ".join(f"{k} {v:,}" for k, v in counts.items()))


def say(what: str, mine: float, peer: float, limit: float | None) -> None:
    """Print one comparison, with a verdict if there is a limit."""
    ratio = mine / peer
    verdict = "" if limit is None else f"  limit {limit}: {'ok' if ratio <= limit else 'TOO SLOW'}"
    print(f"{what:40s} {mine:7.2f} s / {peer:7.2f} s = {ratio:5.2f}{verdict}", flush=True)


if __name__ == "__main__":
    main()
