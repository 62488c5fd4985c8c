"""The folder in plain transformers: no remote code, every tensor in its place.

A same-size graft is compared with the larger graft that it was made from, which was verified.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokengraft.grafting.verify.tensors import first_found
from tokengraft.grafting.verify.tokens import EncodedBoth
from tokengraft.model.checkpoint import Checkpoint, read_checkpoint, read_json
from tokengraft.model.embedding_tables import Tables, is_encoder
from tokengraft.model.folder import CONFIG
from tokengraft.model.libraries import dtype_option, pick_device, quiet, straight_to
from tokengraft.model.tokenizer_files import TOKENIZER, around
from tokengraft.tokenizer.pipeline import encode, load

if TYPE_CHECKING:
    import torch

_PROMPT = "The history of the world is"
_STEPS = 24
_MOST_LINES = 5_000


def load_tokenizer(folder: Path) -> Any:
    """AutoTokenizer on local files only, without remote code."""
    with quiet(warnings=False) as transformers:
        return transformers.AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )


def same_ids(tokenizer: Any, lines: Sequence[str], ids: Sequence[Sequence[int]]) -> str | None:
    """How transformers' ids differ from tokenizer.json's on a few thousand lines, or None."""
    step = -(-len(lines) // _MOST_LINES) or 1
    some = list(lines)[::step]
    with quiet(warnings=False):  # lines longer than the model's window are of no concern here
        got = tokenizer(some, add_special_tokens=False)["input_ids"] if some else []
    for line, expected, given in zip(some, ids[::step], got, strict=True):
        if list(expected) != list(given):
            return (
                f"{type(tokenizer).__name__} of this transformers encodes {line[:40]!r} as "
                f"{list(given)[:6]}, tokenizer.json as {list(expected)[:6]}: it brings a split "
                "pattern of its own. Plan with --boundaries portable, or install another version "
                "of transformers (docs/serving.md says which keep the pattern)"
            )
    return None


def reloaded(tokenizer: Any, folder: Path) -> Any:
    """The tokenizer as it comes back after `save_pretrained`, beside the model's own config."""
    with tempfile.TemporaryDirectory() as scratch, quiet(warnings=False):
        tokenizer.save_pretrained(scratch)
        shutil.copyfile(folder / CONFIG, Path(scratch) / CONFIG)
        return load_tokenizer(Path(scratch))


def read_otherwise(
    tokenizer: Any, folder: Path, lines: Sequence[str], ids: Sequence[Sequence[int]], lossy: bool
) -> tuple[str | None, str]:
    """How ids differ as loaded or saved again, or None; and what is not promised.

    `lossy`: of this model it is known that some transformers lose the pattern in saving.
    """
    if wrong := same_ids(tokenizer, lines, ids):
        return wrong, ""
    wrong = same_ids(reloaded(tokenizer, folder), lines, ids)
    if wrong and not lossy:
        return f"after save_pretrained: {wrong}", ""
    if not wrong:
        return None, ""
    return None, (
        "; NOT promised after save_pretrained, where this transformers takes Qwen2's own "
        "split pattern: copy tokenizer.json over, or plan with --boundaries portable"
    )


def tokenizer_traits(tokenizer: Any) -> dict[str, Any]:
    """What must survive besides the vocabulary: special tokens, their places, the chat template."""
    a, b = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in "ab")
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    special = {name: getattr(tokenizer, name, None) for name in names}
    return {
        **{name: None if value is None else str(value) for name, value in special.items()},
        **{f"{name}_id": getattr(tokenizer, f"{name}_id", None) for name in names},
        "around a text": around(tokenizer("a")["input_ids"], a),
        "around two texts": around(tokenizer("a", "b")["input_ids"], a, b),
        "chat template": tokenizer.chat_template,
    }


def fits_memory(size: int, device: torch.device | None = None) -> bool:
    """Whether `size` bytes can be loaded with room for activations: on `device`, or in memory."""
    if device is not None and device.type == "cuda":
        import torch

        torch.cuda.empty_cache()
        return size * 1.5 < torch.cuda.mem_get_info(device)[0]
    free = _available()
    return size < 4 << 30 if free is None else size * 1.5 < free


def _available(source: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that a program can allocate, including those of the page cache, which makes room.

    A graft just written is in that cache: counting only free pages would give too little.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in source.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    with contextlib.suppress(ValueError, OSError, AttributeError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _class(transformers: Any, folder: Path) -> Any:
    """The transformers class that loads a folder, by the architecture in its config."""
    config = read_json(folder / CONFIG)
    if not is_encoder(config):
        return transformers.AutoModelForCausalLM
    guesses = not str(config["architectures"][0]).endswith("Model")
    return getattr(transformers, config["architectures"][0] if guesses else "AutoModel")


def load_model(
    folder: Path, *, dtype: str, device: torch.device | None = None
) -> tuple[Any, dict[str, Any]]:
    """The model, and what transformers reports about missing or unexpected tensors."""
    with quiet(warnings=False) as transformers:
        model, info = _class(transformers, folder).from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, use_safetensors=True,
            output_loading_info=True, **dtype_option(dtype),
            **straight_to(device),
        )  # fmt: skip
    return (model if device is None else model.to(device)).eval(), info


class PlainModels:
    """Models as plain transformers loads them, each loaded once and kept while memory allows.

    They are in float32, on `device` or, if they do not fit there, on the CPU. Half-precision scores
    tie exactly now and then, and a larger table may round a tie apart.
    """

    def __init__(self, device: str = "auto") -> None:
        first, cpu = pick_device(device), pick_device("cpu")
        self._devices = [first] if first == cpu else [first, cpu]
        self._held: dict[Path, tuple[Any, dict[str, Any]]] = {}

    def fit(self, *folders: Path) -> bool:
        """Whether these fit into memory together."""
        return self._place(folders) is not None

    def load(self, folder: Path) -> tuple[Any, dict[str, Any]]:
        """The model, and what transformers reports about missing or unexpected tensors.

        If it does not fit in float32, it is in the type that the folder has.
        """
        if folder not in self._held:
            if self._place((*self._held, folder)) is None:
                self.drop()
            device, dtype = self._place((folder,)), "float32"
            if device is None:
                device, dtype = self._devices[-1], "auto"
            self._held[folder] = load_model(folder, dtype=dtype, device=device)
        return self._held[folder]

    def drop(self) -> None:
        """Free the memory of all, even if something still refers to them."""
        for model, _ in self._held.values():
            model.to_empty(device="meta")
        self._held.clear()

    def _place(self, folders: Sequence[Path]) -> torch.device | None:
        """The first device with room for those that are not loaded yet, beside those that are."""
        more = [folder for folder in folders if folder not in self._held]
        size = 4 * sum(map(_weights, more))
        return next((device for device in self._devices if fits_memory(size, device)), None)


def _weights(folder: Path) -> int:
    return sum(math.prod(tensor.shape) for tensor in read_checkpoint(folder).tensors.values())


def examine(
    models: PlainModels, folder: Path, layout: Tables, rows: int, ids: Sequence[int]
) -> tuple[str | None, bool]:
    """What is wrong with the loaded model, or None; and whether its weights could be loaded.

    If they exceed the free memory, its empty skeleton is examined. `ids` is a text with new tokens:
    the model must give finite scores for it over `rows` tokens.
    """
    import torch

    if not fits_memory(read_checkpoint(folder).size):
        return _examine_frame(folder, layout, rows), False
    model, info = models.load(folder)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        # Many encoders are saved without the pooler that their class has.
        if names := [name for name in info.get(key) or () if not str(name).startswith("pooler.")]:
            return f"transformers reports {key.replace('_', ' ')}: {names[0]}", True
    inputs, outputs = model.get_input_embeddings(), model.get_output_embeddings()
    if inputs.weight.shape[0] != rows:
        return f"the loaded table has {inputs.weight.shape[0]} rows, not {rows}", True
    if outputs and (inputs.weight.data_ptr() == outputs.weight.data_ptr()) != layout.tied:
        return "the loaded model does not tie its tables as the base does", True
    with torch.no_grad():
        read = model(input_ids=torch.tensor([list(ids)], device=model.device))
    scores = read[0] if outputs else read.last_hidden_state
    if (outputs and scores.shape[-1] != rows) or not bool(torch.isfinite(scores).all()):
        return f"what it makes of a text with new tokens is not finite over {rows} tokens", True
    if differs := _loaded_otherwise(model, read_checkpoint(folder)):
        return f"transformers loads other values for {differs} than its file holds", True
    return None, True


def _loaded_otherwise(model: Any, checkpoint: Checkpoint) -> str | None:
    """The first tensor that differs between the loaded model and the files, or None.

    Tensors that a version of transformers renames or joins are not compared.
    """
    import torch

    kinds = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
    loaded, prefix = model.state_dict(), f"{model.base_model_prefix}."
    tensors = checkpoint.tensors

    def differs(name: str) -> str | None:
        tensor = tensors[name]
        names = name, prefix + name, name.removeprefix(prefix)
        value = next((loaded[known] for known in names if known in loaded), None)
        if value is None or tensor.dtype not in kinds or not tensor.shape:
            return None
        if tuple(value.shape) != tensor.shape:
            return name
        flat, at = value.flatten(), 0
        for block in checkpoint.shard_of(tensor).blocks(tensor.begin, tensor.end):
            rows = torch.frombuffer(bytearray(block), dtype=kinds[tensor.dtype]).to(value.device)
            if not torch.equal(flat[at : at + len(rows)], rows.to(value.dtype)):
                return name
            at += len(rows)
        return None

    return first_found(differs, tensors)


def same_states(models: PlainModels, base: Path, folder: Path, tokenizer: Any) -> bool:
    """Whether two encoders read an English text alike, to the last bit."""
    import torch

    ids, read = [tokenizer(_PROMPT)["input_ids"]], []
    for one in (base, folder):
        model = models.load(one)[0]
        with torch.no_grad():
            read.append(model(input_ids=torch.tensor(ids, device=model.device))[0].cpu())
    return torch.equal(read[0], read[1][..., : read[0].shape[-1]])


def _examine_frame(folder: Path, layout: Tables, rows: int) -> str | None:
    import torch

    with quiet(warnings=False) as transformers:
        config = transformers.AutoConfig.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
        with torch.device("meta"):
            kind = _class(transformers, folder)
            model = (getattr(kind, "from_config", None) or kind._from_config)(config)
    shape = tuple(model.get_input_embeddings().weight.shape)
    if shape != (rows, layout.width):
        return f"the model's frame wants a table of {list(shape)}, the file has {rows} rows"
    return None


def greedy(
    models: PlainModels, folder: Path, tokenizer: Any, barred: Sequence[int] = ()
) -> list[int]:
    """The ids that greedy `generate` gives for an English prompt."""
    import torch

    model, _ = models.load(folder)
    inputs = torch.tensor([tokenizer(_PROMPT)["input_ids"]], device=model.device)
    with quiet(warnings=False), torch.no_grad():
        generated = model.generate(
            inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=_STEPS,
            do_sample=False, num_beams=1, **({"suppress_tokens": list(barred)} if barred else {}),
        )  # fmt: skip
    ids: list[int] = generated[0].tolist()
    return ids


def same_size(
    models: PlainModels,
    folder: Path,
    base: Path,
    layout: Tables,
    places: Mapping[str, Any],
    grown: EncodedBoth,
    first: int,
) -> tuple[bool, str]:
    """Whether `folder` reads as it did before `shrink`, and writes English as the base does.

    `grown` holds the ids of before, in which new tokens have the ids from `first` on. A line with a
    token that was replaced has other ids now; nothing was promised for it.
    """
    at, names, lines = places["ids"], places["replaced"], grown.lines
    ids = [one for batch in encode(load(read_json(folder / TOKENIZER)), lines) for one in batch]
    gone, holding = set(map(int, names)), 0
    for line, now, was in zip(lines, ids, grown.new, strict=True):
        if not gone.isdisjoint(was):
            holding += 1
        elif now != [at[i - first] if i >= first else i for i in was]:
            return False, f"{line[:40]!r} has other tokens than when the vocabulary had grown"
    if holding == len(lines):
        return False, f"every one of {len(lines)} lines has a token that was replaced"
    tokenizer = load_tokenizer(folder)
    if wrong := same_ids(tokenizer, lines, ids):
        return False, wrong
    wrong, loaded = examine(models, folder, layout, layout.rows, [at[0], at[-1], 0])
    if wrong:
        return False, wrong
    said = (
        f"{layout.rows} rows as the base has; {len(names)} ids changed their meaning (first "
        f"{next(iter(names), None)}, which was {next(iter(names.values()), None)!r}): text with "
        f"those old tokens gets longer, as do {holding} of {len(lines)} lines here"
    )
    if not (loaded and models.fit(base)):
        return True, said
    before, after = (greedy(models, one, tokenizer, at) for one in (base, folder))
    if before != after:
        return False, f"greedy English gives ids {after[:12]}, the base {before[:12]}"
    return True, f"{said}; greedy English is the base's"
