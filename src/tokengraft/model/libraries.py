"""torch and transformers: imported only when a model is run, with version differences hidden here.

`spread` divides work among devices, each with a copy of the frozen model. Shares run in parallel,
one thread per device, and results come back in order, so sums over them do not depend on which
device finishes first.
"""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tokengraft.core.errors import MissingExtra, ModelError, UsageError, gave_up, optional
from tokengraft.tokenizer.align import Ints

if TYPE_CHECKING:
    import torch


def require_torch() -> Any:
    """The torch module, or MissingExtra."""
    return optional("torch", "Running a model", "model")


def require_transformers() -> Any:
    """The transformers module, or MissingExtra."""
    return optional("transformers", "Loading a model", "model")


def dtype_option(dtype: Any) -> dict[str, Any]:
    """The weights' type as a keyword of `from_pretrained`, whose name depends on the version."""
    version = tuple(int(part) for part in require_transformers().__version__.split(".")[:2])
    return {"dtype" if version >= (4, 56) else "torch_dtype": dtype}


def body(model: Any) -> Any:
    """A causal model without its head.

    In transformers 4.5x, Gemma 3 names a body it does not have, so `base_model` is the whole model.
    """
    inner = model.base_model
    return getattr(model, "model", model) if inner is model else inner


@contextlib.contextmanager
def quiet(warnings: bool = True) -> Iterator[Any]:
    """The transformers module with progress bars off; `warnings=False` silences all but errors."""
    require_torch()
    transformers = require_transformers()
    logging: Any = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    if not warnings:
        logging.set_verbosity_error()
    try:
        yield transformers
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def straight_to(device: torch.device | None) -> dict[str, Any]:
    """Options of `from_pretrained` by which weights go to a GPU without a copy in memory."""
    if device is None or device.type != "cuda" or find_spec("accelerate") is None:
        return {}
    return {"device_map": {"": device}}


def load_frozen(
    folder: Path, dtype: Any, causal: bool = True, device: torch.device | None = None
) -> Any:
    """Load the model in `folder`, frozen: checked safetensors, no custom code; else ModelError."""
    from tokengraft.model.checkpoint import read_checkpoint

    try:
        read_checkpoint(folder)
        with quiet() as transformers:
            kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
            model = kind.from_pretrained(
                str(folder),
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=True,
                **dtype_option(dtype),
                **straight_to(device),
            )
    except ModelError as error:
        named = str(error).startswith(f"{folder.name} ")
        raise ModelError(str(error) if named else f"{folder.name}: {error}") from error
    except Exception as error:
        # A config with wrong values ends in whatever the classes of transformers run into.
        if isinstance(error, MissingExtra) or not gave_up(error):
            raise
        raise ModelError(f"{folder.name}: cannot be loaded ({error})") from error
    return model.eval().requires_grad_(False)


Member = TypeVar("Member")
Result = TypeVar("Result")


def pick_devices(names: str) -> list[torch.device]:
    """`auto` (every GPU, else the CPU) or comma-separated names, as torch devices."""
    library = require_torch()
    if names == "auto":
        count = library.cuda.device_count() if library.cuda.is_available() else 0
        return [library.device("cuda", n) for n in range(count)] or [library.device("cpu")]
    return [pick_device(name.strip()) for name in names.split(",")]


def pick_device(name: str) -> torch.device:
    """`auto`, `cpu`, `cuda`, `cuda:1` … as one torch device; UsageError if there is none."""
    library = require_torch()
    if name == "auto":
        return pick_devices(name)[0]
    if name.startswith("cuda") and not library.cuda.is_available():
        raise UsageError(f"device {name!r} was asked for, but torch sees no GPU here")
    try:
        device: torch.device = library.device(name)
    except RuntimeError as error:
        raise UsageError(f"no device {name!r}: give auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= library.cuda.device_count():
        raise UsageError(f"no device {name!r}: torch sees {library.cuda.device_count()} GPUs here")
    return device


def memory_taken(device: torch.device) -> str:
    """The most memory that this process has taken: of the GPU if it computes there."""
    if device.type == "cuda":
        most = require_torch().cuda.max_memory_allocated(device)
        return f"{most / 1e9:.1f} GB of GPU memory"
    scale = 1 if sys.platform == "darwin" else 1024
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 1e9:.1f} GB of memory"


def quick_in_half(device: torch.device) -> bool:
    """Whether `device` multiplies bfloat16 several times as fast as float32."""
    if device.type != "cpu":
        return device.type == "cuda"
    has: Any = getattr(require_torch().cpu, "get_capabilities", dict)()
    return bool(has.get("avx512_bf16") or has.get("amx_bf16"))


def spread(
    team: Sequence[Member], numbers: Ints, work: Callable[[Member, Ints], Result]
) -> list[Result]:
    """Results of `work(member, share)` for even, consecutive, non-empty shares of `numbers`."""
    shares = [share for share in np.array_split(numbers, len(team)) if len(share)]
    if len(shares) < 2:
        return [work(team[0], share) for share in shares]
    with ThreadPoolExecutor(len(shares)) as threads:
        return list(threads.map(work, team, shares))
