"""Programs that serve a graft, as rows of a table: what each needs, and how it is really run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tokengraft.core.errors import look_up
from tokengraft.core.options import Later
from tokengraft.grafting.verify.invariants import Check

#: Runs the program on a graft, its base and lines to read, and says what was seen.
Run: TypeAlias = Callable[[Path, Path, Sequence[str]], list[Check]]


@dataclass(frozen=True)
class Server:
    """One program: `needs` is what must be installed, `relaxed` whether it cuts as the folder says.

    `run` gives a check of the ids and, where the program writes text, one of its English (greedy,
    against the base in the same program) and one of the barred ids.
    """

    name: str
    summary: str
    needs: str
    relaxed: bool
    run: Run


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
    )
}  # fmt: skip


def named(name: str) -> Server:
    """The server of that name; UsageError with the known ones otherwise."""
    return look_up("server", name, SERVERS)


def where_served(relaxed: bool, rebuilt: bool = False) -> str:
    """A sentence on which programs read the tokens as the folder does.

    `rebuilt`: some transformers have a split pattern of their own for the model
    (`tokenizer.classes`).
    """
    fit = [server.name for server in SERVERS.values() if server.relaxed or not relaxed]
    rest = [server.name for server in SERVERS.values() if server.name not in fit]
    if rebuilt:
        return (
            "Served by transformers 4.57 and 5.22 as it lies; not by 5.17 to 5.19, by vLLM with "
            "those, nor after save_pretrained, where Qwen 2's own split pattern is taken, nor by "
            f"{', '.join(rest)}: for those plan with --boundaries portable."
        )
    said = f"Served by {', '.join(fit)}"
    if not rest:
        return f"{said}."
    return (
        f"{said}; not by {', '.join(rest)}, which cannot cut at relaxed boundaries: "
        "for those plan with --boundaries portable."
    )
