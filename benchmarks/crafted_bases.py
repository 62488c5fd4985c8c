"""Attack the planner's promises on tokenizers that nobody ships.

    python benchmarks/crafted_bases.py --seed 11 --minutes 4

Each round trains a small BPE on a few languages of the UDHR with settings drawn at random: one of
six kinds (the split patterns of GPT-2, Llama 3, Qwen, GPT-4o and DeepSeek, or SentencePiece's byte
fallback), words looked up before merging or not, a normaliser, added tokens with every flag, among
them letters and marks of the planned scripts. A plan for Hindi and Arabic must then, on 1,500
hostile texts, make none longer, decode to what the base decodes to, and keep the ids of text
without the planned scripts. Refusals are counted. If a text holds an added token that may now be
found in other places, according to the plan's `notes`, only the first promise is checked. The exit
status is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from tokengraft.core.errors import TokengraftError
from tokengraft.corpus import udhr
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Planning, with_plan
from tokengraft.tokenizer.openai import PATTERNS

LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CUTS = {
    "gpt2": "",
    "llama": LLAMA,
    "qwen": LLAMA.replace(r"\p{N}{1,3}", r"\p{N}"),
    "o200k": PATTERNS["o200k_base"],
    "deepseek": r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s+",
    "fallback": "",
}
NORMALISERS = (
    None, normalizers.NFC(), normalizers.NFKC(), normalizers.NFD(), normalizers.Lowercase(),
    normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()]), normalizers.Strip(),
    normalizers.Replace(Regex(r"\s+"), " "),
)  # fmt: skip
ADDED: tuple[tuple[list[AddedToken], list[AddedToken]], ...] = (
    ([], []),
    (
        [AddedToken("का", lstrip=True, rstrip=True), AddedToken("मा", single_word=True),
         AddedToken("Tok", normalized=True), AddedToken("ّ")],
        [AddedToken("<|x|>", lstrip=True), AddedToken("ि", rstrip=True, normalized=False)],
    ),
    (
        [AddedToken("the", single_word=True, normalized=True), AddedToken(" ", rstrip=True),
         AddedToken("و")],
        [AddedToken("<s>", rstrip=True), AddedToken("़")],
    ),
)  # fmt: skip
HARD = [
    *" \n\r\t.,،।؟!'\"-()0123٣५७é中яß\u0301\u0327\u093c\u094d\u200c\u200d\u200e\u2028\u00a0\ufe0f",
    *"\ufeff\u0085\u034f\x00\x7f𝟙ﷺﬁﻻ",
    *("\r\n", "<|end|>", "<|x|>", "<s>"),
    *("का", "मा", "ि", "ّ", "'s", "'LL", "\u0915\u093c", "e\u0301"),
    *("👩\u200d👩", "\U0001f1e9\U0001f1ea", "Tok", "the", "و", "़", "لا", "ၵၢၼ်", "௧௨"),
]  # fmt: skip
PLANNED = [
    *((0x900, 0x980), (0xA8E0, 0xA900), (0x1CD0, 0x1D00)),  # Devanagari
    *((0x600, 0x700), (0x750, 0x780), (0x8A0, 0x900), (0xFB50, 0xFE00), (0xFE70, 0xFF00)),  # Arabic
]
TEXTS = 1500


def crafted(chance: random.Random, texts: list[str]) -> tuple[str, dict[str, Any], Any]:
    """A tokenizer with random settings: a description, its tokenizer.json and its normaliser."""
    kind, looked_up = chance.choice(list(CUTS)), chance.random() < 0.5
    normaliser, added = chance.choice(NORMALISERS), chance.randrange(len(ADDED))
    size, prefix = 700 + 300 * chance.randrange(6), chance.random() < 0.2
    said = f"{kind}, looked up {looked_up}, {normaliser}, added {added}, {size}, {prefix}"
    if kind == "fallback":
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        spaces = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        tokenizer.normalizer = normalizers.Sequence(
            [*([normaliser] if normaliser else []), *spaces]
        )
        special = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
        trainer = trainers.BpeTrainer(
            vocab_size=size, special_tokens=special, show_progress=False, limit_alphabet=90
        )
        back = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        tokenizer.decoder = decoders.Sequence([*back, decoders.Strip(" ", 1, 0)])
    else:
        tokenizer = Tokenizer(models.BPE(ignore_merges=looked_up))
        if normaliser:
            tokenizer.normalizer = normaliser
        steps: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=prefix)]
        if CUTS[kind]:
            last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            steps = [pre_tokenizers.Split(Regex(CUTS[kind]), "isolated"), last]
        if kind == "deepseek":
            steps.insert(0, pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=size + 200, special_tokens=["<|end|>"], show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens(ADDED[added][0])
    tokenizer.add_special_tokens(ADDED[added][1])
    return said, json.loads(tokenizer.to_str()), normaliser


def hostile(chance: random.Random, lines: list[str]) -> Iterator[str]:
    """Texts of hard characters, letters and words in any order."""
    letters, words = "".join(lines), [word for line in lines for word in line.split()]
    for _ in range(TEXTS):
        pools: list[Any] = [HARD, HARD, HARD, letters, letters, letters, words, words]
        parts = (chance.choice(chance.choice(pools)) for _ in range(chance.randint(1, 25)))
        yield "".join(parts)


def broken(old: Tokenizer, new: Tokenizer, text: str, seen: str, loose: bool) -> str | None:
    """The promise that a text breaks; `seen`: as the model sees it; `loose`: check length only."""
    ids = [t.encode(text, add_special_tokens=False).ids for t in (old, new)]
    if len(ids[1]) > len(ids[0]):
        return f"longer: {len(ids[0])} to {len(ids[1])}"
    if loose:
        return None
    back = [t.decode(i, skip_special_tokens=False) for t, i in zip((old, new), ids, strict=True)]
    if back[0] != back[1]:
        return f"comes back as {back[1]!r}, was {back[0]!r}"
    planned = any(first <= ord(c) < last for c in text + seen for first, last in PLANNED)
    return None if planned or ids[0] == ids[1] else f"ids {ids[0]}, now {ids[1]}"


def main() -> int:
    """Run rounds until the time is up."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=2.0)
    options = parser.parse_args()
    corpus = udhr.load(["eng", "hin", "arb", "shn", "tam"])
    lines = [line for code in corpus.languages for line in corpus.lines(code)]
    planned = {code: corpus.lines(code) for code in ("hin_Deva", "arb_Arab")}
    chance, counts = random.Random(options.seed), Counter[str]()
    until = time.monotonic() + 60 * options.minutes
    while time.monotonic() < until:
        said, base, normaliser = crafted(chance, lines)
        counts["tokenizers"] += 1
        boundaries: Any = chance.choice(["auto", "keep"])
        try:
            plan = plan_tokens(base, planned, Planning(budget=60, boundaries=boundaries))
            extended = with_plan(base, plan)
        except TokengraftError:
            counts["refused"] += 1
            continue
        old, new = (Tokenizer.from_str(json.dumps(one)) for one in (base, extended))
        warned = any("added token" in note for note in plan.notes)
        added = [token["content"] for token in base["added_tokens"]] if warned else []
        for text in hostile(chance, lines):
            counts["texts"] += 1
            seen = normaliser.normalize_str(text) if normaliser else text
            loose = any(content in text or content in seen for content in added)
            if wrong := broken(old, new, text, seen, loose):
                counts["broken"] += 1
                print(f"{said}, {boundaries}: {text!r} {wrong}", flush=True)
                break
    print(dict(counts))
    return 1 if counts["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
