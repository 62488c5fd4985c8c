"""`export`: a graft as a file for another program, its ids checked by running that program."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tokengraft.core.errors import MissingExtra, ModelError, TokengraftError, UsageError
from tokengraft.core.files import write_text
from tokengraft.grafting.manifest import outputs, read_manifest
from tokengraft.grafting.output_policies import recorded
from tokengraft.grafting.small_files import barred_ids
from tokengraft.grafting.verify.invariants import check_lines
from tokengraft.model.folder import resolve
from tokengraft.planning.protect import sample
from tokengraft.serving import gguf_file, llama_cpp, split_patterns
from tokengraft.serving.gguf_file import read_gguf
from tokengraft.serving.gguf_layers import check_kind
from tokengraft.tokenizer.adapters import AWKWARD

_PROMPT = "The history of the world is"


@dataclass(frozen=True)
class Exported:
    """What was written, and how it was checked; `checked` is 0 if it was not."""

    file: Path
    modelfile: Path
    pattern: str | None
    checked: int  # lines that get the folder's ids
    notes: tuple[str, ...] = ()


def export(
    graft: str | Path,
    out: Path | str,
    *,
    base: Path | str | None = None,
    quantize: str | None = None,
    texts: Iterable[str] | None = None,
    pattern: str | None = None,
    unchecked: bool = False,
    force: bool = False,
) -> Exported:
    """Write `graft` as the file `out` for llama.cpp, Ollama and other programs that read GGUF.

    With `base`, the base model's GGUF, old tensors are copied byte for byte; without it they are
    written in the folder's types, or quantised. llama.cpp then reads `texts` (default: the UDHR in
    the planned and other languages, and code): if a line does not get the folder's ids, that is a
    TokengraftError and no file is written. `unchecked` writes without llama.cpp, with `pattern` or
    the base's split pattern. A `Modelfile` for Ollama is written beside the file.
    """
    folder, out = resolve(graft).path, Path(out)
    if out.is_dir() or (out.exists() and not force):
        raise UsageError(f"{out} exists: name another file, or replace it with --force")
    if not out.parent.is_dir():
        raise UsageError(f"{out.parent} is not a folder: make it first")
    if base is not None and quantize is not None:
        raise UsageError("--quantize is for an export without --base: the base's types are kept")
    kind = None if quantize is None else check_kind(quantize)
    gguf_file.library()
    lines = check_corpus(folder, texts)
    notes: list[str] = []
    hints = [pattern] if pattern else []
    old = None if base is None else read_gguf(Path(base))
    if old is not None and (known := old.get("tokenizer.ggml.pre")):
        hints.append(known)
    checked = 0
    if unchecked:
        name: str | None = hints[0] if hints else None
        notes.append("ids were not checked: llama.cpp may read other tokens than the folder")
        if name is None:
            notes.append("no split pattern was given (--pattern): `default` is written")
    else:
        if llama_cpp.installed() is None:
            raise MissingExtra("Checking the ids with llama.cpp", "serve")
        name = split_patterns.choose_pattern(folder, lines, hints)
        checked = len(lines)
        if note := split_patterns.in_form(folder, lines)[1]:
            notes.append(note)
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        made = Path(scratch) / out.name
        if old is not None:
            gguf_file.write_from_base(old, folder, made, pre=name)
        else:
            gguf_file.write_gguf(folder, made, pre=name, kind=kind)
        if not unchecked:
            notes += _try(made, folder)
        made.replace(out)
    manifest = read_manifest(folder)
    policies = [recorded(one["policy"]) for one in outputs(manifest)]
    if any(policy.pools for policy in policies):
        notes.append("llama.cpp pools no tokens: the file behaves as without the logits processor")
    if any(policy.trains for policy in policies):
        notes.append("sample from it: decoded greedily it writes old tokens more than it should")
    said = (
        f"# llama.cpp:  llama-server -m {out.name} --port 8080\n"
        f"# Ollama:     ollama create {out.stem.lower()} -f {out.stem}.Modelfile\n"
        f"FROM ./{out.name}\n"
    )
    modelfile = write_text(out.with_name(f"{out.stem}.Modelfile"), said)
    return Exported(out, modelfile, name, checked, tuple(notes))


def check_corpus(folder: Path, texts: Iterable[str] | None = None) -> list[str]:
    """Lines on which a served graft is compared with its folder."""
    manifest = read_manifest(folder) or {}
    lines = [*check_lines(manifest.get("languages", ())), *sample()] if texts is None else texts
    every = [*AWKWARD, *lines, *manifest.get("examples", ())]
    return [line for line in dict.fromkeys(every) if line]


def _try(file: Path, folder: Path) -> list[str]:
    """Load the whole file and let it write; no barred id may come out. Returns notes, if any."""
    with llama_cpp.serving(file) as llama:
        prompt = llama.tokenize(_PROMPT, frame=True)
        expected = split_patterns.folder_ids(folder, [_PROMPT], frame=True)[0]
        if prompt != expected:
            raise TokengraftError(
                f"llama.cpp puts other tokens around a text than the folder does: {prompt}, not "
                f"{expected}"
            )
        wrote = llama.complete(prompt, 8)["tokens"]
    if said := barred_ids(folder) & set(wrote):
        raise ModelError(
            f"this llama.cpp wrote the barred id {min(said)}: it does not read "
            "tokenizer.ggml.suppress_tokens; update it"
        )
    if read_gguf(file).get("tokenizer.chat_template") is None:
        return []
    try:
        with llama_cpp.serving(file, chat=True):
            return []
    except llama_cpp.LlamaError as error:
        return [
            "llama.cpp cannot parse the chat template, the base's as it is: start llama-server "
            f"with --no-jinja, or give it another with --chat-template ({error})"
        ]
