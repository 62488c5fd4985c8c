"""Finds, by trying, the split pattern of llama.cpp that cuts as a tokenizer.json does.

llama.cpp reads no pattern from a file; `tokenizer.ggml.pre` names one that is in its code, and
some of those only approximate the original. So each candidate is run: a tiny model with the
folder's vocabulary is served, and every line must get the folder's ids.
"""

from __future__ import annotations

import json
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tokengraft.core.errors import TokengraftError
from tokengraft.model.checkpoint import read_json
from tokengraft.model.tokenizer_files import TOKENIZER
from tokengraft.serving.gguf_file import write_probe
from tokengraft.serving.llama_cpp import LlamaError, serving
from tokengraft.tokenizer.adapters import AWKWARD, Difference, difference
from tokengraft.tokenizer.insert import family
from tokengraft.tokenizer.pre_tokenizer import (
    GPT2,
    is_relaxed,
    pattern_of,
    steps_of,
    tells_case,
)

#: Patterns of llama.cpp that cut words, tried where none is known to be the tokenizer's.
PATTERNS = ("llama-bpe", "qwen2", "gpt-2")
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS = r"|\s*[\r\n]|\s+(?!\S)|\s+"
_WORD, _TAIL = r"|[^\r\n\p{L}\p{N}]?", rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*{_BLANKS}"
#: llama.cpp's names of the same pattern, where words are merged and where they are looked up whole
#: first (`ignore_merges`, which goes with the name), by a tokenizer's patterns in order (`_usual`).
#: cl100k's differs where text ends in blanks after a line feed, but none of its tokens joins those.
SAME = {
    (GPT2,): ("gpt-2", None),
    (r"\p{N}", GPT2): ("smollm", None),
    (rf"{_SHORT}{_WORD}\p{{L}}+|\p{{N}}{{1,3}}{_TAIL}",): ("smaug-bpe", "llama-bpe"),
    (rf"{_SHORT}{_WORD}\p{{L}}+|\p{{N}}{_TAIL}",): ("qwen2", None),
    (rf"{_SHORT}{_WORD}\p{{L}}[\p{{L}}\p{{M}}]*|\p{{N}}{{1,3}}{_TAIL}",): ("k2-horizon", None),
    (
        r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    ): ("deepseek-v3", None),
}  # fmt: skip
#: If a pattern in tokenizer.json contains this, these names are tried first.
_LIKELY = (
    ("{|}~][A-Za-z]+", ("deepseek-v3",)),
    (r"[\p{Lu}\p{Lt}", ("granite-embed-multi-97m", "gpt-4o", "tekken")),
    (r"\p{L}[\p{L}\p{M}]*", ("k2-horizon", "qwen35")),
    (r"\p{N}{1,3}|", ("llama-bpe", "smaug-bpe")),
    (r"|\p{N}|", ("qwen2", "stablelm2")),
    ("'(?:[sdmt]|ll|ve|re)", ("gpt-2",)),
)
_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
_SAMPLE = 300  # lines on which a pattern is tried before all of them are


def folder_ids(folder: Path, lines: Sequence[str], frame: bool = False) -> list[list[int]]:
    """The ids of each line by the folder's tokenizer.json; with `frame`, special tokens too."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str((folder / TOKENIZER).read_text("utf-8"))
    encodings = tokenizer.encode_batch(list(lines), add_special_tokens=frame)
    return [encoding.ids for encoding in encodings]


def in_form(folder: Path, lines: Sequence[str]) -> tuple[list[str], str]:
    """The lines in the tokenizer's Unicode form, and a note if that changed any.

    llama.cpp does not normalise text, neither for a base nor for its graft: a line in another form
    gets other ids there, whatever the file says (Qwen and Command R normalise to NFC).
    """
    normalizer = read_json(folder / TOKENIZER).get("normalizer") or {}
    form = normalizer.get("type")
    if form not in _FORMS:
        return list(lines), ""
    normal = [unicodedata.normalize(form, line) for line in lines]
    moved = sum(a != b for a, b in zip(lines, normal, strict=True))
    if not moved:
        return normal, ""
    return normal, (
        f"send text in {form}: llama.cpp reads it as it comes, for the base as for the graft, "
        f"where this tokenizer normalises it first; {moved} of {len(lines)} check lines are not "
        f"in {form} and get the folder's ids only after unicodedata.normalize({form!r}, text)"
    )


def choose_pattern(folder: Path, lines: Sequence[str], first: Iterable[str] = ()) -> str | None:
    """The pattern of llama.cpp that is the tokenizer's own, once every line got the folder's ids.

    Lines are compared in the tokenizer's own Unicode form (`in_form`). None for a tokenizer that
    needs no pattern (SentencePiece), if its ids are right. Agreeing on all lines is not enough: a
    pattern must be known as the same (`SAME`), or be among `first`, the names that a person or the
    base's GGUF gives. Otherwise, raises TokengraftError with the nearest one and what to do.
    """
    lines, _ = in_form(folder, lines)
    ids = folder_ids(folder, lines)
    tokenizer = read_json(folder / TOKENIZER)
    fit: Sequence[str | None] = [None]
    if family(tokenizer) == "byte-level-bpe":
        never = is_relaxed(tokenizer) or tells_case(tokenizer)
        fit = [] if never else [*first, *filter(None, [same_pattern(tokenizer)])]
    # If none is the same, a few are tried so as to name the nearest.
    wanted = fit or list(dict.fromkeys([*likely(tokenizer), *PATTERNS[:3]]))
    at = [i for i in range(len(lines)) if i < len(AWKWARD) or i % (len(lines) // _SAMPLE or 1) == 0]
    some, some_ids = [lines[i] for i in at], [ids[i] for i in at]
    nearest: tuple[str | None, Difference] | None = None
    for name in wanted:
        with tempfile.TemporaryDirectory() as scratch:
            probe = Path(scratch) / "probe.gguf"
            write_probe(folder, probe, name)
            try:
                with serving(probe, threads=1) as llama:
                    apart = difference(llama.tokenize, some, some_ids)
                    apart = apart or difference(llama.tokenize, lines, ids)
            except LlamaError as error:
                if "unknown pre-tokenizer" not in str(error):
                    raise
                continue
        if apart is None and name in fit:
            return name
        apart = apart or Difference(0, len(lines), "")
        if nearest is None or apart.wrong / apart.lines < nearest[1].wrong / nearest[1].lines:
            nearest = (name, apart)
    raise TokengraftError(_refusal(folder, nearest))


def same_pattern(tokenizer: dict[str, Any]) -> str | None:
    """llama.cpp's name for how a byte-level tokenizer cuts and looks up words, if it is known."""
    steps = steps_of(tokenizer.get("pre_tokenizer"))
    digits = [s["type"] == "Digits" and s.get("individual_digits") for s in steps]
    cuts = [r"\p{N}" if one else pattern_of(s) for one, s in zip(digits, steps, strict=True)]
    merged, looked_up = SAME.get(tuple(map(_usual, filter(None, cuts))), (None, None))
    return looked_up if tokenizer["model"].get("ignore_merges") else merged


def _usual(pattern: str) -> str:
    """A pattern as `SAME` has it, where the same can be written in several ways."""
    for other, usual in (
        ("\r", r"\r"), ("\n", r"\n"), (r"'(?i:[sdmt]|ll|ve|re)", _SHORT),
        (r"\s*[\r\n]+", r"\s*[\r\n]"), (r"|\s+\z|\s*[\r\n]|\s+(?!\S)|\s", _BLANKS),
    ):  # fmt: skip
        pattern = pattern.replace(other, usual)
    return pattern


def likely(tokenizer: dict[str, Any]) -> Iterator[str]:
    """Names to try first, judging by the tokenizer's pre-tokenization steps."""
    steps = steps_of(tokenizer.get("pre_tokenizer"))
    if any(step["type"] == "Digits" and step.get("individual_digits") for step in steps):
        yield "smollm"
    patterns = "\n".join(filter(None, map(pattern_of, steps)))
    for sign, names in _LIKELY:
        if sign in patterns:
            yield from names


def _refusal(folder: Path, nearest: tuple[str | None, Difference] | None) -> str:
    if nearest is None:
        return "this llama.cpp knows none of the split patterns: update it"
    name, apart = nearest
    tokenizer = read_json(folder / TOKENIZER)
    if is_relaxed(tokenizer):
        way = (
            "The graft's boundaries are relaxed, which llama.cpp cannot express: plan with "
            "--boundaries portable and graft again"
        )
    elif apart.wrong or tells_case(tokenizer):
        way = (
            "Its base is cut differently there as well: serve the folder with a program that "
            "reads tokenizer.json"
        )
    else:
        way = (
            "If you know that llama.cpp cuts this model's text alike, name its pattern (--pattern)"
        )
    if name and not apart.wrong:
        return (
            f"llama.cpp may read other tokens: its split pattern {name!r} comes nearest and gives "
            f"all {apart.lines} check lines the folder's ids, but it is another pattern. {way}, or "
            "write the file anyway with --unchecked."
        )
    how = f"its split pattern {name!r} comes nearest" if name else "its SentencePiece"
    return (
        f"llama.cpp would read other tokens: {how}, with other ids on {apart.wrong} of "
        f"{apart.lines} lines, first {json.dumps(apart.line[:60], ensure_ascii=False)}. {way}, or "
        "write the file anyway with --unchecked."
    )
