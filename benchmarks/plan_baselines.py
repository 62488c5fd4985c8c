"""How else strings could be chosen: premium by tokens added, on the same text and the same words.

    python benchmarks/plan_baselines.py --flores flores200_dataset --out results/plan-baselines

Chosen on FLORES dev, tested on devtest (mean of per-sentence ratios to English as the base has it),
each language alone, words cut as the plan cuts them. A method gives strings in order:

- merges: tokengraft's plan (continued BPE);
- likelihood: pairs by count(xy) / (count(x) count(y)), WordPiece's rule, of those that occur at
  least `OFTEN` times (half as often when there are none left); continued from the same old tokens;
- unigram: the pieces of a Unigram model of three times the size, likeliest first (Kudo 2018);
- prefix-free: a complete prefix-free set of roughly equiprobable strings (the paper's dream;
  Tunstall 1967): the commonest string is replaced by its continuations until the set is full.

All are read the same, most favourable way: the fewest tokens that spell a word, of the old ones and
the first n strings. `merges` is also encoded by the real tokenizer. Last, with no old vocabulary:
what each language pays if it has as many equiprobable strings of its own as English has.
"""

from __future__ import annotations

import argparse
import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, trainers

from plan_flores import first_tokens
from plan_world import PIVOT, lengths, read
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Planning, insert
from tokengraft.planning.protect import protected_text
from tokengraft.planning.words import Cutter
from tokengraft.tokenizer.catalog import as_json, find
from tokengraft.tokenizer.insert import vocabulary
from tokengraft.tokenizer.vocabulary import byte_level_piece

LANGUAGES = ("shn_Mymr", "tam_Taml", "swh_Latn", "yor_Latn")
SIZES = (0, 250, 500, 1000, 2000)
OFTEN = 10
LONGEST = 32  # characters of a string
Sentences = list[list[bytes]]


def likelihood(words: Counter[tuple[bytes, ...]], budget: int) -> list[bytes]:
    """Strings of WordPiece's merges, from words that are spelled in old tokens."""
    spelled = [list(word) for word in words]
    times = list(words.values())
    pairs: Counter[tuple[bytes, bytes]] = Counter()
    single: Counter[bytes] = Counter()
    where: dict[tuple[bytes, bytes], set[int]] = defaultdict(set)
    for number, word in enumerate(spelled):
        for part in word:
            single[part] += times[number]
        for pair in pairwise(word):
            pairs[pair] += times[number]
            where[pair].add(number)
    strings: list[bytes] = []
    often = OFTEN
    while len(strings) < budget and often > 1:
        common = [pair for pair, count in pairs.items() if count >= often]
        if not common:
            often //= 2
            continue
        best = max(common, key=lambda p: (pairs[p] / (single[p[0]] * single[p[1]]), p))
        strings.append(best[0] + best[1])
        for number in list(where[best]):
            word, count = spelled[number], times[number]
            for part in word:
                single[part] -= count
            for pair in pairwise(word):
                pairs[pair] -= count
            merged: list[bytes] = []
            for part in word:
                if merged and (merged[-1], part) == best:
                    merged[-1] += part
                else:
                    merged.append(part)
            spelled[number] = merged
            for part in merged:
                single[part] += count
            for pair in pairwise(merged):
                pairs[pair] += count
                where[pair].add(number)
        del pairs[best]
    return strings


def unigram(words: Counter[str], budget: int) -> list[bytes]:
    """Pieces of a Unigram model, the likeliest first, without single characters."""
    model = Tokenizer(models.Unigram())
    trainer = trainers.UnigramTrainer(
        vocab_size=3 * budget, show_progress=False, unk_token="<unk>",
        special_tokens=["<unk>"], max_piece_length=16,
    )  # fmt: skip
    model.train_from_iterator((word for word, n in words.items() for _ in range(n)), trainer)
    pieces = json.loads(model.to_str())["model"]["vocab"]
    return [piece.encode() for piece, _ in pieces if len(piece) > 1 and piece != "<unk>"]


def prefix_free(words: Counter[str]) -> Iterator[str]:
    """The strings of the set as it grows; each replaces what it continues, which stays usable.

    Counted at every place of a word, as a suffix automaton counts them.
    """
    text = np.array([ord(c) for word in words for c in f"{word}\0"])
    times = np.repeat(list(words.values()), [len(word) + 1 for word in words])
    every = np.flatnonzero(text > 0)
    heap: list[tuple[int, str, Any]] = [(-int(times.sum()), "", every)]
    while heap:
        _, string, places = heapq.heappop(heap)
        following = text[places + len(string)]
        for character in np.unique(following[following > 0]).tolist():
            at = places[following == character]
            longer = string + chr(character)
            yield longer
            if len(longer) < LONGEST and (count := int(times[at].sum())) >= 2:
                heapq.heappush(heap, (-count, longer, at))


def fewest(word: bytes, known: set[bytes], longest: int) -> int:
    """The fewest strings of `known`, or single bytes, that spell the word."""
    best = [0] + [len(word)] * len(word)
    for end in range(1, len(word) + 1):
        best[end] = best[end - 1] + 1
        for start in range(max(0, end - longest), end - 1):
            if best[start] + 1 < best[end] and word[start:end] in known:
                best[end] = best[start] + 1
    return best[-1]


def premium(sentences: Sentences, known: set[bytes], english: np.ndarray) -> float:
    """Mean over sentences of the fewest tokens to English's tokens."""
    longest = max(map(len, known))
    cost = {word: fewest(word, known, longest) for word in {w for s in sentences for w in s}}
    tokens = np.array([sum(cost[word] for word in sentence) for sentence in sentences])
    return float((tokens / english).mean())


def parse(word: str, strings: set[str]) -> int:
    """Strings of a prefix-free set in a word, each as long as it can be; else characters."""
    count = at = 0
    while at < len(word):
        end = at + 1
        while end < len(word) and word[at : end + 1] in strings:
            end += 1
        count, at = count + 1, end
    return count


def words_of(cutter: Cutter, line: str) -> list[bytes]:
    """The words of a line as bytes."""
    return [byte_level_piece(word) for word in cutter.words(line) if isinstance(word, str)]


def measure(name: str, code: str, texts: tuple[Any, Any], budget: int) -> dict[str, Any]:
    """One language by every method."""
    dev, devtest = texts
    base_json = as_json(find(name))
    base = Tokenizer.from_str(json.dumps(base_json))
    english = lengths(base, devtest[PIVOT])
    kept = protected_text([], bundled=True)
    plan = plan_tokens(base_json, {code: dev[code]}, Planning(budget=budget), protect=kept)
    whole = insert(base_json, plan)
    cutter = Cutter(whole)
    chosen = Counter(word for line in dev[code] for word in words_of(cutter, line))
    spelled: Counter[tuple[bytes, ...]] = Counter()
    words: Counter[str] = Counter()
    names = {number: byte_level_piece(token) for token, number in vocabulary(base_json).items()}
    for word, count in chosen.items():
        ids = base.encode(word.decode(), add_special_tokens=False).ids
        spelled[tuple(names[i] for i in ids)] += count
        words[word.decode()] += count
    old = set(names.values())
    equiprobable: list[bytes] = []
    for string in prefix_free(words):
        if len(equiprobable) == budget:
            break
        if string.encode() not in old:
            equiprobable.append(string.encode())
    strings = {
        "merges": [bytes.fromhex(token.bytes) for token in plan.tokens],
        "likelihood": [s for s in likelihood(spelled, budget) if s not in old],
        "unigram": [s for s in unigram(words, budget) if s not in old],
        "prefix-free": equiprobable,
    }
    sentences = [words_of(cutter, line) for line in devtest[code]]
    row: dict[str, Any] = {"language": code, "fewest": {}, "encoded": {}}
    for method, own in strings.items():
        row["fewest"][method] = {
            n: premium(sentences, old | set(own[:n]), english) for n in SIZES if n <= len(own)
        }
    for size in SIZES:
        made = insert(base_json, first_tokens(plan, size)) if size else base_json
        new = Tokenizer.from_str(json.dumps(made))
        row["encoded"][size] = float(
            (lengths(new, devtest[code]) / lengths(new, devtest[PIVOT])).mean()
        )
    row["alone"] = {}
    english_words = Counter(w.decode() for line in dev[PIVOT] for w in words_of(cutter, line))
    for size in SIZES[1:]:
        both = []
        for held, lines in ((words, devtest[code]), (english_words, devtest[PIVOT])):
            own_set = set(islice(prefix_free(held), size))
            both.append(
                np.array(
                    [
                        sum(parse(w.decode(), own_set) for w in words_of(cutter, line))
                        for line in lines
                    ]
                )
            )
        row["alone"][size] = float((both[0] / both[1]).mean())
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Premiums by language, method and number of strings."""
    lines = [
        f"| language | read | method | {' | '.join(f'{size:,}' for size in SIZES)} |",
        f"|---|---|---|{'---:|' * len(SIZES)}",
    ]

    def add(code: str, read_as: str, method: str, values: dict[Any, float]) -> None:
        cells = {int(size): f"{value:.2f}" for size, value in values.items()}
        shown = " | ".join(cells.get(size, "–") for size in SIZES)
        lines.append(f"| {code} | {read_as} | {method} | {shown} |")

    for row in rows:
        add(row["language"], "by the tokenizer", "merges", row["encoded"])
        for method, values in row["fewest"].items():
            add(row["language"], "fewest tokens", method, values)
        add(row["language"], "no old vocabulary", "prefix-free, English too", row["alone"])
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure what is not measured yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flores", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("-t", "--tokenizer", default="llama-3", help="Byte-level BPE.")
    parser.add_argument("--language", action="append", default=[])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    texts = read(options.flores, "dev"), read(options.flores, "devtest")
    path = options.out / f"{options.tokenizer}.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    for code in options.language or LANGUAGES:
        if code not in {row["language"] for row in rows}:
            rows.append(measure(options.tokenizer, code, texts, max(SIZES)))
            path.write_text(json.dumps(rows, indent=1) + "\n")
            path.with_suffix(".md").write_text(table(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
