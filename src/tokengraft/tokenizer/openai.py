"""Adapter over tiktoken: OpenAI's encodings, from bundled ranks or by tiktoken's own loader."""

from __future__ import annotations

import base64
import binascii
import functools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tiktoken

from tokengraft.core.errors import TokenizerError
from tokengraft.core.untrusted import parse_json
from tokengraft.tokenizer.adapters import Tokenizer, count_batch, for_oniguruma, pretoken_counter
from tokengraft.tokenizer.convert import END, from_tiktoken
from tokengraft.tokenizer.fast import Definition, ranks_file
from tokengraft.tokenizer.file_shape import check_highest_id
from tokengraft.tokenizer.rows import Ints, Rows
from tokengraft.tokenizer.vocabulary import Vocabulary, byte_level_piece

# tiktoken keeps these inside functions that download the ranks; a test compares them with its own.
PATTERNS = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "cl100k_base": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|"
        r" ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ),
    "o200k_base": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
_PROMPT = "<|endofprompt|>"
#: Ids that are taken, though rank files do not say so: new tokens must not take them.
SPECIALS = {
    "gpt2": {END: 50256},
    "cl100k_base": {
        END: 100257,
        "<|fim_prefix|>": 100258,
        "<|fim_middle|>": 100259,
        "<|fim_suffix|>": 100260,
        _PROMPT: 100276,
    },
    "o200k_base": {END: 199999, _PROMPT: 200018},
}


class TikToken(Tokenizer):
    """A tiktoken encoding; text that spells one of its `specials` is encoded as ordinary text."""

    library = "tiktoken"

    def __init__(
        self,
        name: str,
        fingerprint: str,
        encoding: tiktoken.Encoding,
        specials: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(name, fingerprint)
        self.encoding = encoding
        self.specials = encoding._special_tokens if specials is None else specials
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1)

    @classmethod
    def from_ranks(cls, name: str, fingerprint: str, data: bytes, encoding: str) -> TikToken:
        """Read a `.tiktoken` rank file (base64 bytes and rank on each line) of a known encoding."""
        if encoding not in PATTERNS:
            raise TokenizerError(
                f"{name}: the split pattern of {encoding!r} is not known (only of "
                f"{', '.join(PATTERNS)}); convert it to a tokenizer.json, which carries one."
            )
        ranks = {}
        for number, line in enumerate(data.splitlines(), start=1):
            try:
                token, rank = line.split()
                ranks[base64.b64decode(token, validate=True)] = int(rank)
            except (ValueError, binascii.Error) as error:
                raise TokenizerError(f"{name}: line {number} is not a tiktoken rank") from error
        if not ranks:
            raise TokenizerError(f"{name}: the file of ranks is empty")
        check_highest_id(max(ranks.values(), default=0), len(data), name)
        return cls._build(name, fingerprint, ranks, encoding)

    @classmethod
    def from_gpt2(cls, name: str, fingerprint: str, vocab: bytes) -> TikToken:
        """Read GPT-2's `vocab.json`, whose ids are the merge ranks."""
        try:
            table: dict[str, int] = parse_json(vocab)
            ranks = {byte_level_piece(t): n for t, n in table.items() if t != END}
            check_highest_id(max(ranks.values(), default=0), len(vocab), name)
        except (AttributeError, TypeError, ValueError) as error:
            raise TokenizerError(f"{name}: vocab.json cannot be read ({error})") from error
        return cls._build(name, fingerprint, ranks, "gpt2")

    @classmethod
    def _build(cls, name: str, fingerprint: str, ranks: dict[bytes, int], pattern: str) -> TikToken:
        encoding = tiktoken.Encoding(
            name, pat_str=PATTERNS[pattern], mergeable_ranks=ranks, special_tokens={}
        )
        return cls(name, fingerprint, encoding, SPECIALS[pattern])

    def as_json(self) -> dict[str, Any]:
        """A parsed `tokenizer.json` that gives the same ids."""
        return from_tiktoken(self.encoding._mergeable_ranks, self.encoding._pat_str, self.specials)

    @property
    def family(self) -> str:
        return "byte-level BPE"

    @property
    def lossless(self) -> bool:
        return True

    @property
    def raw_bytes(self) -> bool:
        return True

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        # One task a thread: encode_ordinary_batch makes a task a text and is 1.5 times slower.
        workers = os.cpu_count() or 1
        size = -(-len(texts) // workers) or 1
        shares = [texts[n : n + size] for n in range(0, len(texts), size)]
        return [ids for share in self._threads.map(self._encode_share, shares) for ids in share]

    def _encode_texts(self, texts: Sequence[str], alone: bool = False) -> Rows:
        return Rows.of(self._encode_share(texts) if alone else self._encode(texts))

    def _definition(self) -> Definition:
        ranks, pattern = ranks_file(self.encoding._mergeable_ranks), self.encoding._pat_str
        schemes = (name for name, own in PATTERNS.items() if own == pattern)
        return Definition("ranks", ranks, pattern, next(schemes, "").removesuffix("_base"))

    def _encode_share(self, texts: Sequence[str]) -> list[list[int]]:
        with self._failing_clearly():
            return [self.encoding.encode_ordinary(text) for text in texts]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return [self.encoding.decode(list(row)) for row in ids]

    def pretokens(self, texts: Sequence[str], rows: Rows | None = None) -> Ints:
        del rows
        return self._pieces(
            self.encoding._pat_str, texts, lambda odd: count_batch(self._counter, odd)
        )

    @functools.cached_property
    def _counter(self) -> Any:
        from tokenizers import Regex
        from tokenizers.pre_tokenizers import Split

        pattern = for_oniguruma(self.encoding._pat_str)
        return pretoken_counter(Split(Regex(pattern), "isolated"))

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        ranks = self.encoding._mergeable_ranks
        specials = self.encoding._special_tokens
        by_id = [b""] * (self.encoding.max_token_value + 1)
        for piece, rank in ranks.items():
            by_id[rank] = piece
        for text, rank in specials.items():
            by_id[rank] = text.encode("utf-8")
        return Vocabulary(tuple(by_id), special=frozenset(specials.values()))

    def clean_vocabulary(self) -> frozenset[bytes]:
        return frozenset(self.encoding._mergeable_ranks)
