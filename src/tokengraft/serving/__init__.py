"""Programs that serve a graft, as rows of a table: what each needs, and how it is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

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


def where_served(relaxed: bool, rebuilt: bool = False, cased: bool = False) -> str:
    """A sentence on which programs read the tokens as the folder does.

    `rebuilt`: some versions of transformers use their own split pattern for the model
    (`transformers_classes`). `cased`: the pattern depends on capitals (`boundaries.tells_case`),
    which llama.cpp knows in ASCII only, for the base too.
    """
    by_trial = [name for name, server in SERVERS.items() if server.relaxed is None]
    more = f" `tokengraft verify --served-by` tries others ({', '.join(by_trial)})."
    sure = [server for server in SERVERS.values() if server.relaxed is not None]
    fit = [one.name for one in sure if one.relaxed or not (relaxed or cased)]
    rest = [one.name for one in sure if one.name not in fit]
    why = "which cannot cut at relaxed boundaries: for it, plan with --boundaries portable"
    if cased:
        why = "which cuts this tokenizer's words differently, before a graft as after"
    if rebuilt:
        return (
            "Served by transformers 4.57 and 5.22 as it lies; not by 5.17 to 5.19, by vLLM with "
            "those, nor after save_pretrained, where Qwen 2's own split pattern is taken, nor by "
            f"{', '.join(rest)}: for those, plan with --boundaries portable, or let transformers "
            f"and vLLM read a folder that tokengraft insert writes.{more}"
        )
    not_by = f"; not by {', '.join(rest)}, {why}" if rest else ""
    return f"Served by {', '.join(fit)}{not_by}.{more}"
