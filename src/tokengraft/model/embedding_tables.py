"""Which tensors are the embedding tables, by architecture, tying and shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokengraft.core.errors import ModelError, did_you_mean
from tokengraft.core.untrusted import refuse_code
from tokengraft.model.checkpoint import SERVED, Checkpoint, Tensor, read_checkpoint, read_json
from tokengraft.model.folder import CONFIG

_USUAL = ("model.embed_tokens.weight", "lm_head.weight")
# Checkpoints saved before transformers 4.52 nest the language model the other way round.
_NESTED = (
    ("model.language_model.embed_tokens.weight", "lm_head.weight"),
    ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight"),
)
# OpenAI's own GPT-2 files leave the prefix out.
_GPT2 = (("transformer.wte.weight", "lm_head.weight"), ("wte.weight", "lm_head.weight"))
# Encoders, with a head for masked tokens or without a head.
_WORDS = "embeddings.word_embeddings.weight"
_BERT = (f"bert.{_WORDS}", "cls.predictions.decoder.weight")
_ROBERTA = (f"roberta.{_WORDS}", "lm_head.decoder.weight")
ENCODERS: dict[str, tuple[tuple[str, str], ...]] = {
    "BertForMaskedLM": (_BERT,),
    "BertForPreTraining": (_BERT,),
    "BertModel": ((_WORDS, ""), (_BERT[0], "")),
    "RobertaForMaskedLM": (_ROBERTA,),
    "RobertaModel": ((_WORDS, ""), (_ROBERTA[0], "")),
    "XLMRobertaForMaskedLM": (_ROBERTA,),
    "XLMRobertaModel": ((_WORDS, ""), (_ROBERTA[0], "")),
}

#: Names of the input and output table of each supported architecture; the first pair present wins.
ARCHITECTURES: dict[str, tuple[tuple[str, str], ...]] = {
    "LlamaForCausalLM": (_USUAL,),
    "MistralForCausalLM": (_USUAL,),
    "Qwen2ForCausalLM": (_USUAL,),
    "Qwen3ForCausalLM": (_USUAL,),
    "Gemma3ForCausalLM": (_USUAL,),
    "Gemma3ForConditionalGeneration": _NESTED,
    "Olmo2ForCausalLM": (_USUAL,),
    "PhiForCausalLM": (_USUAL,),
    "GPT2LMHeadModel": _GPT2,
    **ENCODERS,
}
#: Model types that tie their tables unless the config says otherwise.
_TIES = dict.fromkeys(("gpt2", "gemma3", "gemma3_text", "bert", "roberta", "xlm-roberta"), True)


_BLOCK = 8192  # rows looked at together


@dataclass(frozen=True)
class Tables:
    """The embedding tables of a checkpoint; `head` is None if only the input table is stored.

    A tied checkpoint may still store a copy of its table as `head`; `tied` is true there too.
    """

    input: Tensor
    head: Tensor | None
    biases: tuple[Tensor, ...]  # of the head: none, one, or two with the same values
    tied: bool
    rows: int
    width: int
    head_name: str = "lm_head.weight"  # the head's name, whether or not it is stored

    @property
    def bias(self) -> Tensor | None:
        """The head's bias, if it has one."""
        return self.biases[0] if self.biases else None

    @property
    def tables(self) -> tuple[Tensor, ...]:
        """The tensors that a graft rewrites."""
        return tuple(t for t in (self.input, self.head, *self.biases) if t is not None)


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a config that describes the language model."""
    inner = config.get("text_config")
    return inner if isinstance(inner, Mapping) else config


def find_layout(config: Mapping[str, Any], checkpoint: Checkpoint) -> Tables:
    """The embedding tables of a checkpoint, each checked against the config's sizes.

    Raises ModelError for a model that needs custom code, an unsupported architecture, a table that
    is missing or of another shape, and for further tables over the vocabulary.
    """
    refuse_code(config, "config.json")
    architecture = next(iter(config.get("architectures") or ()), None)
    if architecture not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise ModelError(
            f"the architecture {architecture} is not supported. Supported: {known}."
            f"{did_you_mean(str(architecture), ARCHITECTURES)}"
        )
    tensors = checkpoint.tensors
    pairs = ARCHITECTURES[architecture]
    names = next((pair for pair in pairs if pair[0] in tensors), None)
    if names is None:
        raise ModelError(f"the checkpoint has no {pairs[0][0]}, which {architecture} needs")
    input_table, head = tensors[names[0]], tensors.get(names[1])
    text = text_config(config)
    rows = text.get("vocab_size", config.get("vocab_size"))
    width = text.get("hidden_size", text.get("n_embd"))
    if not isinstance(rows, int) or not isinstance(width, int):
        raise ModelError("config.json lacks vocab_size or hidden_size")
    for table in (input_table, head):
        if table is not None and table.shape != (rows, width):
            raise ModelError(
                f"{table.name} has shape {list(table.shape)}, config.json says [{rows}, {width}]; "
                "the weights and the config belong to different models"
            )
        if table is not None and table.dtype not in SERVED:
            raise ModelError(
                f"{table.name} is stored as {table.dtype}; supported: {', '.join(SERVED)}. "
                "Graft the model before it is quantised."
            )
    tied = is_tied(config, head is not None)
    if not tied and head is None:
        raise ModelError(f"config.json says that the head is not tied, but {names[1]} is missing")
    # MLM heads have a bias, and some files hold a copy of it beside the decoder.
    called = [names[1].removesuffix(end) + "bias" for end in ("decoder.weight", "weight")]
    biases = tuple(tensors[name] for name in called if names[1] and name in tensors)
    _refuse_others(checkpoint, {t.name for t in (input_table, head, *biases) if t}, rows, width)
    return Tables(input_table, head, biases, tied, rows, width, names[1])


def refuse_damaged(folder: Path, name: str) -> None:
    """ModelError if weights cannot be read or a table is not finite: no graft would be any good."""
    try:
        checkpoint = read_checkpoint(folder)
    except ModelError as error:
        named = str(error).startswith(f"{folder.name} ")
        raise ModelError(str(error) if named else f"{name}: {error}") from error
    tables = find_layout(read_json(folder / CONFIG), checkpoint)
    for table in filter(None, (tables.input, tables.head)):
        for first in range(0, tables.rows, _BLOCK):
            rows = checkpoint.rows(table, first, min(first + _BLOCK, tables.rows))
            broken = np.flatnonzero(~np.isfinite(rows).all(1))
            if len(broken):
                raise ModelError(
                    f"{name} is damaged: row {first + int(broken[0])} of {table.name} holds "
                    "numbers that are not finite. Get the model again."
                )


def is_encoder(config: Mapping[str, Any]) -> bool:
    """Whether a model is one of the supported encoders."""
    return next(iter(config.get("architectures") or ()), None) in ENCODERS


def is_tied(config: Mapping[str, Any], has_head: bool) -> bool:
    """Whether input and output table are the same tensor, by transformers' rules."""
    text = text_config(config)
    said = config.get("tie_word_embeddings", text.get("tie_word_embeddings"))
    if isinstance(said, bool):
        return said
    return _TIES.get(str(text.get("model_type", config.get("model_type"))), not has_head)


def _refuse_others(checkpoint: Checkpoint, known: set[str], rows: int, width: int) -> None:
    for name, tensor in checkpoint.tensors.items():
        if name not in known and tensor.shape == (rows, width):
            raise ModelError(
                f"{name} is another table over the vocabulary; it is not known how to grow it"
            )
