"""A graft in llama.cpp: ids, greedy English beside the base, barred ids."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tokengraft.core.errors import TokengraftError
from tokengraft.grafting.verify.invariants import Check
from tokengraft.serving import gguf_file, llama_cpp, split_patterns
from tokengraft.serving.gguf_tokenizer import suppressed
from tokengraft.serving.prompts import ENGLISH, STEPS, planned_prompts, writing_checks


def run(folder: Path, base: Path, lines: Sequence[str]) -> list[Check]:
    """Write both models as GGUF, serve them one after the other and compare."""
    try:
        pattern, _ = split_patterns.choose_pattern(folder, lines)
    except TokengraftError as error:
        return [Check("llama.cpp: ids", False, str(error))]
    how = f"split pattern {pattern}" if pattern else "SentencePiece scores"
    barred = set(suppressed(folder).get("tokenizer.ggml.suppress_tokens", ()))
    english = split_patterns.folder_ids(folder, ENGLISH, frame=True)
    others = planned_prompts(folder, lines)
    version = ""
    with tempfile.TemporaryDirectory() as scratch:
        wrote: dict[str, list[list[int]]] = {}
        for name, model in (("graft", folder), ("base", base)):
            file = Path(scratch) / f"{name}.gguf"
            gguf_file.write_gguf(model, file, pre=pattern)
            with llama_cpp.serving(file) as llama:
                wrote[name] = [llama.complete(ids, STEPS)["tokens"] for ids in english]
                if name == "graft":
                    free = [llama.complete(ids, STEPS, temperature=1.0) for ids in others]
                    version = llama.version()
            file.unlink()
    said = f"{len(lines)} lines as the folder's; {how}; {version}"
    if note := split_patterns.in_form(folder, lines)[1]:
        said = f"{said}; {note}"
    checks = [Check("llama.cpp: ids", True, said)]
    if barred:
        answers = wrote["graft"], wrote["base"]
        checks += writing_checks("llama.cpp", barred, *answers, [one["tokens"] for one in free])
    return checks
