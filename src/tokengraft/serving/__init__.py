"""Programs that serve a graft, as rows of a table: what each needs, and how it is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tokengraft.core.errors import look_up
from tokengraft.core.options import Later

if TYPE_CHECKING:  # vLLM imports this package for its processor: nothing heavy may be imported
    from tokengraft.grafting.verify.invariants import Check

#: Runs the program on a graft, its base and lines to read, and reports checks.
Run: TypeAlias = "Callable[[Path, Path, Sequence[str]], list[Check]]"


@dataclass(frozen=True)
class Server:
    """One program: `needs` is what must be installed.

    `relaxed` is whether it cuts at relaxed boundaries as the folder does, None if only a trial can
    tell. `run` gives a check of the ids and, if the program writes text, one of its English
    (greedy, compared with the base in the same program) and one of the barred ids.
    """

    name: str
    summary: str
    needs: str
    relaxed: bool | None
    run: Run


def _by_its_own(name: str) -> Run:
    return partial(Later("tokengraft.serving.in_programs:in_its_own"), name)


SERVERS: dict[str, Server] = {
    server.name: server
    for server in (
        Server(
            "transformers", "the folder as it is, and after save_pretrained and loading again",
            "tokengraft[model]", True, Later("tokengraft.serving.in_programs:in_transformers"),
        ),
        Server(
            "llama.cpp", "and Ollama, LM Studio: one GGUF file (tokengraft export)",
            "tokengraft[serve], or llama-server on the PATH", False,
            Later("tokengraft.serving.in_programs:in_llama_cpp"),
        ),
        Server(
            "vllm", "the folder as it is; barred ids by the processor that tokengraft brings",
            "vllm and tokengraft in one environment", True,
            Later("tokengraft.serving.in_programs:in_vllm"),
        ),
        Server(
            "openvino-genai", "its tokenizer, converted from the folder; barred ids are not read",
            "openvino-genai and openvino-tokenizers", None, _by_its_own("openvino-genai"),
        ),
        Server(
            "onnxruntime-genai", "its tokenizer, by its own builder; barred ids are not read",
            "onnxruntime-genai, onnx, onnx-ir and onnxruntime", None,
            _by_its_own("onnxruntime-genai"),
        ),
        Server(
            "ctranslate2", "the converted model, told what is barred; text by the folder's file",
            "ctranslate2", None, _by_its_own("ctranslate2"),
        ),
    )
}  # fmt: skip


def named(name: str) -> Server:
    """The server of that name; UsageError that lists the known ones if there is none."""
    return look_up("server", name, SERVERS)


#: The model that a name of the catalog stands for, where `graft` or llama.cpp may not take it.
_MODELS = {
    "t5": "T5ForConditionalGeneration", "mt5": "MT5ForConditionalGeneration",
    "m2m100": "M2M100ForConditionalGeneration", "nllb-200": "M2M100ForConditionalGeneration",
    "bert-multilingual": "BertForMaskedLM", "xlm-r": "XLMRobertaForMaskedLM",
    "deepseek-v3": "DeepseekV3ForCausalLM", "command-r-plus": "CohereForCausalLM",
    "llama-4": "Llama4ForConditionalGeneration", "bloom": "BloomForCausalLM",
    "gpt-oss": "GptOssForCausalLM", "phi-4": "Phi3ForCausalLM",
}  # fmt: skip


def config_of(tokenizer: str) -> dict[str, Any]:
    """What is known of the config.json of the model that a tokenizer's name or folder means."""
    from tokengraft.model.checkpoint import read_if_there
    from tokengraft.model.folder import CONFIG
    from tokengraft.tokenizer.catalog import ALSO_CALLED

    if Path(tokenizer).is_dir():
        return read_if_there(Path(tokenizer) / CONFIG)
    called = [name for name, others in ALSO_CALLED.items() if tokenizer.lower() in others]
    architecture = _MODELS.get(next(iter(called), Path(tokenizer).name.lower()))
    return {"architectures": [architecture]} if architecture else {}


def where_served(
    tokenizer: dict[str, Any], config: Mapping[str, Any], relaxed: bool | None = None
) -> str:
    """A sentence on which programs read the tokens as the folder does, or why there is no folder.

    `tokenizer` is the base's or the graft's parsed tokenizer.json, `config` the model's config.json
    as far as it is known, and `relaxed` says whether boundaries are or will be (default: as they
    are in `tokenizer`).
    """
    from tokengraft.model.embedding_tables import ARCHITECTURES, ENCODERS
    from tokengraft.tokenizer.pre_tokenizer import is_relaxed
    from tokengraft.tokenizer.transformers_classes import rebuilt

    relaxed = is_relaxed(tokenizer) if relaxed is None else relaxed
    architecture = next(iter(config.get("architectures") or ()), None)
    if architecture in ENCODERS:
        return "Served by transformers (an encoder: no other program was tried)."
    if architecture is not None and architecture not in ARCHITECTURES:
        known = ", ".join(name for name in ARCHITECTURES if name not in ENCODERS)
        return (
            f"graft does not take a {architecture}, only encoders (BERT, RoBERTa) and {known}: for "
            "another model, `tokengraft insert` writes the tokenizer alone."
        )
    by_trial = [name for name, server in SERVERS.items() if server.relaxed is None]
    more = f" `tokengraft verify --served-by` tries others ({', '.join(by_trial)})."
    why = why_not_llama_cpp(tokenizer, config, relaxed)
    if rebuilt(config, relaxed):
        return (
            "Served by transformers 4.57 and 5.22 as it lies; not by 5.17 to 5.19 and 5.23, where "
            "graft refuses it, by vLLM with those, nor after save_pretrained, where Qwen 2's own "
            "split pattern is taken, nor by llama.cpp: for those, plan with --boundaries portable, "
            "or let transformers and vLLM read a folder that tokengraft insert writes."
            f"{more}"
        )
    fit = [
        one.name for one in SERVERS.values() if one.relaxed or (one.relaxed is False and not why)
    ]
    return f"Served by {', '.join(fit)}{why and f'; not by llama.cpp, {why}'}.{more}"


def why_not_llama_cpp(tokenizer: dict[str, Any], config: Mapping[str, Any], relaxed: bool) -> str:
    """Why `export` would refuse, as a relative clause; empty if nothing is against it."""
    from tokengraft.serving.gguf_layers import ARCHITECTURES
    from tokengraft.serving.split_patterns import same_pattern
    from tokengraft.tokenizer.insert import family
    from tokengraft.tokenizer.pre_tokenizer import tells_case

    kind = family(tokenizer)
    architecture = next(iter(config.get("architectures") or ()), None)
    if kind in ("unigram", "wordpiece"):
        return f"for which only BPE is exported, and this is {kind}"
    if tells_case(tokenizer):
        return "which cuts this tokenizer's words differently, before a graft as after"
    if relaxed:
        return "which cannot cut at relaxed boundaries: for it, plan with --boundaries portable"
    if kind == "byte-level-bpe" and same_pattern(tokenizer) is None:
        return "of whose split patterns none is known to be this tokenizer's"
    if architecture is not None and architecture not in ARCHITECTURES:
        return f"unless you have the base's GGUF: a {architecture} is not exported without it"
    return ""
