"""What a tokenizer class of transformers adds to the files it loads, written into the files.

transformers 5 rebuilds the tokenizers of some classes from their vocabulary, with a split pattern
from its own code, and would so lose a relaxed one. `PreTrainedTokenizerFast` takes
`tokenizer.json` as it is, in 4.5x and 5. The class is therefore replaced by it, and what the class
brought along is written out: special tokens, padding side, inputs, what is put around a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokengraft.core.untrusted import refuse_code
from tokengraft.tokenizer.convert import END, FLAGS
from tokengraft.tokenizer.insert import added_ids, vocabulary
from tokengraft.tokenizer.pre_tokenizer import steps_of

#: The class that takes `tokenizer.json` as it is.
PLAIN = "PreTrainedTokenizerFast"
_INPUTS = ["input_ids", "attention_mask"]
_SENTENCE = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
_T5 = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}
_BERT = {
    "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}  # fmt: skip
_GPT2 = {"unk_token": END, "bos_token": END, "eos_token": END}
_GEMMA = {"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
#: What each class sets if tokenizer_config.json does not.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "GPT2Tokenizer": _GPT2,
    "Qwen2Tokenizer": {"unk_token": END, "eos_token": END, "pad_token": END},
    "LlamaTokenizer": {**_SENTENCE, "padding_side": "left"},
    "CodeLlamaTokenizer": {**_SENTENCE, "padding_side": "left"},
    "GemmaTokenizer": {**_GEMMA, "padding_side": "left"},
    "T5Tokenizer": _T5,
    "BertTokenizer": _BERT,
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
_SENTINELS = 100


def completed(tokenizer: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """A converted file with what the class named in tokenizer_config.json adds on loading.

    That is BERT's [CLS] and [SEP], T5's sentinels and end token, Llama's and Gemma's start token.
    Formats older than `tokenizer.json` leave these to code.
    """
    ids = _ids(tokenizer)
    name = _class(config)
    if tokenizer["model"]["type"] == "WordPiece" and {"[CLS]", "[SEP]"} <= ids.keys():
        around = [["[CLS]", "A", "[SEP]"], ["B", "[SEP]"]]
        return {**tokenizer, "post_processor": _template(around, ids)}
    if name == "T5Tokenizer":
        first, count = max(ids.values()) + 1, int(config.get("extra_ids", _SENTINELS))
        names = [f"<extra_id_{count - 1 - i}>" for i in range(count)]
        new = [(n, first + i) for i, n in enumerate(names) if n not in ids]
        added = [{"id": i, "content": text, **FLAGS, "special": True} for text, i in new]
        tokenizer = {**tokenizer, "added_tokens": [*tokenizer["added_tokens"], *added]}
        if "</s>" in ids:
            around = [["A", "</s>"], ["B", "</s>"]]
            tokenizer["post_processor"] = _template(around, ids, kinds=(0, 0))
        return tokenizer
    return with_start(tokenizer, config)


def tokenizer_config(
    old: Mapping[str, Any],
    config: Mapping[str, Any],
    tokenizer: Mapping[str, Any],
    relaxed: bool = False,
) -> dict[str, Any]:
    """A tokenizer_config.json with which every transformers takes `tokenizer.json` as it is.

    Everything in `old` is kept except the class; that is kept too if it is not known here, or if it
    takes the file as it is. `relaxed` says that the split pattern is not the base's.
    """
    refuse_code(old, "tokenizer_config.json")
    new = dict(old)
    new.setdefault("model_input_names", list(_INPUTS))
    model_type = str(config.get("model_type"))
    name = _class(old) or _class(config) or _BY_MODEL.get(model_type, "")
    if name not in _DEFAULTS or taken_as_it_is(old, tokenizer):
        return new
    known, defaults = _ids(tokenizer), _DEFAULTS[name]
    if relaxed and model_type in _REBUILT:  # transformers gives the base that class in any case
        defaults = {**_DEFAULTS[_BY_MODEL[model_type]], **defaults}
    for key, value in defaults.items():
        # Special tokens missing from the vocabulary would be added on loading; nothing may be.
        if key not in new and (not key.endswith("_token") or value in known):
            new[key] = value
    new["tokenizer_class"] = PLAIN
    if relaxed and model_type in _REBUILT:
        # Whatever class is named, transformers 5 uses Qwen2Tokenizer and its pattern for this
        # model, with one exception: a Llama class over a byte-level file is loaded as it is.
        new["tokenizer_class"] = "LlamaTokenizerFast"
        new.pop("add_prefix_space", None)
        silent = {"unk_token": None, "bos_token": None, "eos_token": None, "legacy": False}
        flags = {"add_bos_token": False, "add_eos_token": False, "padding_side": "right"}
        new = {**silent, **flags, **new}
    return new


def rebuilt(config: Mapping[str, Any], relaxed: bool) -> bool:
    """Whether some versions of transformers replace this model's pattern, whatever its files say.

    So it is for relaxed patterns of model type qwen2: 5.17 to 5.19 and 5.23 use Qwen2Tokenizer with
    its own pattern, 5.22 after `save_pretrained`; 4.5x never does. No class name avoids that.
    """
    return relaxed and str(config.get("model_type")) in _REBUILT


def taken_as_it_is(config: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> bool:
    """Whether the class leaves `tokenizer.json` alone: a Llama class over a byte-level file.

    DeepSeek has that. transformers 4.5x adds the class's start token and 5 does not, so only the
    class itself behaves like the base in both.
    """
    steps = steps_of(tokenizer.get("pre_tokenizer"))
    return _class(config) == "LlamaTokenizer" and any(one["type"] == "ByteLevel" for one in steps)


def with_start(tokenizer: dict[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """The tokenizer with its class's start token as a post-processor, if the file has none.

    A Llama or Gemma class adds the token on loading; without the class nothing would.
    """
    name = _class(old)
    start = old.get("bos_token") or _DEFAULTS.get(name, {}).get("bos_token")
    start = start["content"] if isinstance(start, dict) else start
    current = tokenizer.get("post_processor")
    wanted = name in _STARTING and old.get("add_bos_token", current is None)
    ids = _ids(tokenizer)
    there = current is not None and current["type"] != "ByteLevel"
    if not wanted or start not in ids or there or taken_as_it_is(old, tokenizer):
        return tokenizer
    template = _template([[start, "A"], [start, "B"]], ids)
    both = {"type": "Sequence", "processors": [current, template]}
    return {**tokenizer, "post_processor": template if current is None else both}


def _template(
    around: Sequence[Sequence[str]], ids: Mapping[str, int], kinds: tuple[int, int] = (0, 1)
) -> dict[str, Any]:
    """A post-processor; `around` gives what stands around the first text, A, and the second, B."""
    first, second = (
        [
            {"Sequence" if one in "AB" else "SpecialToken": {"id": one, "type_id": kind}}
            for one in part
        ]
        for part, kind in zip(around, kinds, strict=True)
    )
    specials = sorted({one for part in around for one in part if one not in "AB"})
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": [*first, *second],
        "special_tokens": {s: {"id": s, "ids": [ids[s]], "tokens": [s]} for s in specials},
    }


def _class(config: Mapping[str, Any]) -> str:
    return str(config.get("tokenizer_class") or "").removesuffix("Fast")


def _ids(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    parsed = dict(tokenizer)
    return {**vocabulary(parsed), **added_ids(parsed)}
