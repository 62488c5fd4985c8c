"""The tokenizer's files: `tokenizer.json` is new, the rest keeps saying what it said.

transformers 5 rebuilds the tokenizers of some classes from their vocabulary with a split pattern
from its own code, and so would lose a relaxed one; `PreTrainedTokenizerFast` takes
`tokenizer.json` as it is, in 4.5x and 5. The class is therefore replaced, and what it brought
along is written out: its special tokens, its padding side, its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokengraft.errors import TokenizerError
from tokengraft.grafting.errors import ModelError
from tokengraft.grafting.weights import read_json
from tokengraft.tokenizer.insert import vocabulary
from tokengraft.tokenizer.insert_sentencepiece import from_sentencepiece

TOKENIZER = "tokenizer.json"
CONFIG = "tokenizer_config.json"
#: The old vocabulary in other formats: a program that read one would see another tokenizer.
STALE = frozenset(
    {"vocab.json", "merges.txt", "tokenizer.model", "spiece.model", "tekken.json", "vocab.txt"}
)
_INPUTS = ["input_ids", "attention_mask"]
_END = "<|endoftext|>"
_SENTENCE = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
_GPT2 = {"unk_token": _END, "bos_token": _END, "eos_token": _END}
_GEMMA = {"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
#: What a class sets where tokenizer_config.json is silent.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "GPT2Tokenizer": _GPT2,
    "Qwen2Tokenizer": {"unk_token": _END, "eos_token": _END, "pad_token": _END},
    "LlamaTokenizer": {**_SENTENCE, "padding_side": "left"},
    "CodeLlamaTokenizer": {**_SENTENCE, "padding_side": "left"},
    "GemmaTokenizer": {**_GEMMA, "padding_side": "left"},
    "PreTrainedTokenizer": {},
    "TokenizersBackend": {},
}
_STARTING = ("LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer")
_REBUILT = ("qwen2",)
_BY_MODEL = {
    "gpt2": "GPT2Tokenizer",
    "qwen2": "Qwen2Tokenizer",
    "qwen3": "Qwen2Tokenizer",
    "llama": "LlamaTokenizer",
    "mistral": "LlamaTokenizer",
    "gemma3": "GemmaTokenizer",
    "gemma3_text": "GemmaTokenizer",
    "olmo2": "GPT2Tokenizer",
}


def base_tokenizer(folder: Path) -> dict[str, Any]:
    """The base's tokenizer as a parsed `tokenizer.json`, converted where it is SentencePiece."""
    if (folder / TOKENIZER).is_file():
        return read_json(folder / TOKENIZER)
    if (folder / "tokenizer.model").is_file():
        try:
            return from_sentencepiece((folder / "tokenizer.model").read_bytes())
        except RuntimeError as error:
            raise TokenizerError(f"tokenizer.model cannot be read: {error}") from None
    raise ModelError(
        f"{folder.name} holds no {TOKENIZER}: save the fast tokenizer with "
        "`AutoTokenizer.from_pretrained(MODEL).save_pretrained(DIR)`"
    )


def tokenizer_config(
    old: Mapping[str, Any],
    config: Mapping[str, Any],
    tokenizer: Mapping[str, Any],
    relaxed: bool = False,
) -> dict[str, Any]:
    """tokenizer_config.json so that every transformers loads `tokenizer.json` as it is.

    Everything said before is kept but the class. A class that is not known here is kept as well.
    `relaxed` says that the split pattern is not the base's.
    """
    if old.get("auto_map"):
        raise ModelError("tokenizer_config.json has an auto_map: code of its own is never loaded")
    new = dict(old)
    new.setdefault("model_input_names", list(_INPUTS))
    model_type = str(config.get("model_type"))
    name = str(old.get("tokenizer_class") or config.get("tokenizer_class") or "")
    name = name.removesuffix("Fast") or _BY_MODEL.get(model_type, "")
    if name not in _DEFAULTS:
        return new
    known = {*vocabulary(dict(tokenizer)), *_added(tokenizer)}
    for key, value in _DEFAULTS[name].items():
        # A class whose tokens are not in the vocabulary would add them; nothing may be added here.
        if key not in new and (not key.endswith("_token") or value in known):
            new[key] = value
    new["tokenizer_class"] = "PreTrainedTokenizerFast"
    if relaxed and model_type in _REBUILT:
        # Whatever class is named, transformers 5 takes Qwen2Tokenizer and its pattern for this
        # model, but for one: a Llama class with a byte-level file is loaded as the file says.
        new["tokenizer_class"] = "LlamaTokenizerFast"
        new.pop("add_prefix_space", None)
        silent = {"unk_token": None, "bos_token": None, "eos_token": None, "legacy": False}
        flags = {"add_bos_token": False, "add_eos_token": False, "padding_side": "right"}
        new = {**silent, **flags, **new}
    return new


def with_start(tokenizer: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """The tokenizer with its class's start token as a post-processor, where the file has none.

    A Llama or Gemma class puts it there when it loads; without the class nobody would.
    """
    name = str(old.get("tokenizer_class") or "").removesuffix("Fast")
    start = old.get("bos_token") or _DEFAULTS.get(name, {}).get("bos_token")
    start = start["content"] if isinstance(start, dict) else start
    current = tokenizer.get("post_processor")
    wanted = name in _STARTING and old.get("add_bos_token", current is None)
    ids = {**vocabulary(tokenizer), **{t["content"]: t["id"] for t in tokenizer["added_tokens"]}}
    if not wanted or start not in ids or (current is not None and current["type"] != "ByteLevel"):
        return tokenizer
    first = {"SpecialToken": {"id": start, "type_id": 0}}
    a, b = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
    template = {
        "type": "TemplateProcessing",
        "single": [first, a],
        "pair": [first, a, {"SpecialToken": {"id": start, "type_id": 1}}, b],
        "special_tokens": {start: {"id": start, "ids": [ids[start]], "tokens": [start]}},
    }
    both = {"type": "Sequence", "processors": [current, template]}
    return {**tokenizer, "post_processor": template if current is None else both}


def _added(tokenizer: Mapping[str, Any]) -> set[str]:
    return {token["content"] for token in tokenizer.get("added_tokens") or ()}
