"""The model that learns: a twin of the base whose body moves; the tables stay.

    lora   W x + B A x  at every linear layer of the lower blocks, B = 0 at first; W itself stays

Reference: Hu et al. 2022, LoRA (https://arxiv.org/abs/2106.09685), as implemented by `peft`; the
twin shares the base's weights. Changed: A does not begin at random, but in directions that planned
text uses and protected text does not. Its rows are the largest solutions of

    C_planned a = μ (C_protected + ε) a,     scaled to E (a x)² = mean x² over planned text

with C the second moments of the layer's input. Whatever is learned in these directions moves
English little. Related: adapters begun in the null space of what is to be kept, Tang et al. 2025,
LoRA-Null (https://arxiv.org/abs/2503.02659).
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tokengraft.core.errors import MissingExtra
from tokengraft.deriving.distil.recipe import Adapting
from tokengraft.model.cpu_attention import MOST_SCORES
from tokengraft.model.divergence import TRAINING
from tokengraft.model.frozen import FrozenModel, NewRows
from tokengraft.model.libraries import quick_in_half
from tokengraft.model.reading import Reader, fill
from tokengraft.tokenizer.align import Ints

_NAME = "default"  # peft's name of an adapter
_DAMPING = 0.03  # ε, in mean second moments of protected text
_DIRECTIONS = 512  # in which A is sought; for a layer no wider than this, all of them
_LOOKED = 2048  # positions of either text by which A is chosen
_HELD = 1 << 30  # bytes of layer inputs held at a time
_BETAS = (0.9, 0.99)
_TOKENS = 9000  # of a step of 48 passages, padded
_BESIDES = 1760 << 20  # bytes for the program, passages, and what its allocator cannot use again

#: By name of a tensor: a function from its values in the base to those in the student.
Changes = Mapping[str, Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]]


def require_peft() -> Any:
    """The peft module, or MissingExtra."""
    try:
        import peft
    except ImportError as error:
        raise MissingExtra("Training adapters", "adapt") from error
    return peft


def twin(base: FrozenModel, adapting: Adapting, seed: int = 0) -> FrozenModel:
    """A student that reads as the base does until it has learned something."""
    shared = (*base.model.parameters(), *base.model.buffers())
    model = copy.deepcopy(base.model, {id(held): held for held in shared})
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        settings = lora(adapting.rank, linear_layers(base, adapting.depth))
        model = require_peft().inject_adapter_in_model(settings, model)
    known = {id(held) for held in shared}
    own = {name: held for name, held in model.named_parameters() if id(held) not in known}
    for held in own.values():
        held.data = held.data.float()  # half precision would lose small steps
    if base.device.type == "cuda":
        read_merged(model)
    return base.student(model, own)


def read_merged(model: Any) -> None:
    """Let every adapted layer multiply by W + B A at once, as it will when it is merged.

    A GPU waits for memory here: one product takes less time than three and their sum.
    """
    for layer in model.modules():
        if hasattr(layer, "get_delta_weight"):
            layer.forward = functools.partial(_merged, layer)


def _merged(layer: Any, x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    base = layer.get_base_layer()
    weight = (base.weight + layer.get_delta_weight(_NAME)).to(base.weight.dtype)
    read: torch.Tensor = torch.func.functional_call(base, {"weight": weight}, (x,))
    return read


def halved(
    student: FrozenModel, halves: dict[int, torch.nn.Parameter] | None = None
) -> FrozenModel:
    """The same model in bfloat16, except for what it learns, which both share.

    `halves`, by the ids of whole weights, are taken where they are there and added where not, so
    that a base and its student can share them, too.

    It is about twice as fast (rootstock, GPU or CPU; `quick_in_half`), and good enough for
    gradients (cosine to those of float32 .997) and for the teacher, but not for measuring protected
    text (rounding alone changes 1 in 100 of its likeliest tokens).
    """
    halves = {} if halves is None else halves
    learning = {id(held): held for held in student.learning.values()}
    for held in student.model.parameters():
        if id(held) not in learning and id(held) not in halves:
            halves[id(held)] = torch.nn.Parameter(held.data.bfloat16(), held.requires_grad)
    model = copy.deepcopy(student.model, {**halves, **learning})
    read_merged(model)
    return student.around(model, student.learning)


def linear_layers(base: FrozenModel, depth: float = 1.0) -> list[str]:
    """Names of the linear layers in the lowest `depth` (a share) of the blocks."""
    blocks = base.blocks[: max(1, round(depth * len(base.blocks)))]
    inside = {id(module) for block in blocks for module in block.modules()}
    return [
        name
        for name, module in base.model.named_modules()
        if id(module) in inside and type(module).__name__ in ("Linear", "Conv1D")
    ]


def lora(rank: int, layers: Sequence[str], **more: Any) -> Any:
    """The adapter's settings, as peft takes them."""
    return require_peft().LoraConfig(
        r=rank, lora_alpha=rank, target_modules=list(layers), task_type="CAUSAL_LM", **more
    )


def memory_needed(base: FrozenModel, student: FrozenModel, adapting: Adapting) -> int:
    """An upper estimate of the bytes that training `student` takes, the base's weights included.

    For the backward pass about twice the inputs and outputs of all linear layers are kept. What the
    teacher keeps is not counted (`Teacher.size`). (Lanes on rootstock, on a CPU, with 1.5 MB of
    Amharic: 4.7 GB estimated with the teacher's, 4.6 resident at most in the first 95 seconds.)
    """
    half = base.weight.dtype == torch.float32 and quick_in_half(base.device)
    weights = sum(one.numel() for one in base.model.parameters())
    shapes = [base.model.get_submodule(name).weight.shape for name in linear_layers(base)]
    ends = sum(map(sum, shapes))
    own = sum(held.numel() for held in student.learning.values())
    wide = base.weight.element_size()
    held = weights * (wide + 2 if half else wide)  # bfloat16 beside float32
    kept = 2 * _TOKENS * ends * (2 if half else wide)
    if adapting.grows:  # each layer with its lanes, in one piece (`lanes`)
        kept += sum(math.prod(shape) for shape in shapes) * (2 if half else wide)
    if half and base.device.type == "cpu":
        kept += 2 * len(base.blocks) * MOST_SCORES  # of `cpu_attention`
    scores = 3 * 4 * TRAINING.get(base.device.type, 0)  # of a block of the loss, in float32
    return int(
        _BESIDES + held + 20 * own + kept + scores
    )  # own: weight, best one, gradient, moments


def scarce(base: FrozenModel, student: FrozenModel, adapting: Adapting) -> bool:
    """Whether training `student` may take all of the GPU's memory."""
    if base.device.type != "cuda":
        return False
    return memory_needed(base, student, adapting) > torch.cuda.mem_get_info(base.device)[1]


def save_memory(student: FrozenModel) -> None:
    """Keep only each block's input for the backward pass and recompute the rest: slower."""
    student.model.gradient_checkpointing_enable({"use_reentrant": False})
    for block in student.blocks:
        block.training = True  # the block only: its modules stay without dropout


def compile_blocks(model: FrozenModel) -> None:
    """Let a GPU train through each block in few kernels instead of many.

    Without gradients, and where a block cannot be compiled, it runs as before.
    """
    torch._dynamo.config.suppress_errors = True
    torch._dynamo.config.cache_size_limit = max(64, torch._dynamo.config.cache_size_limit)
    for block in model.blocks:
        plain, quick = block.forward, torch.compile(block.forward, dynamic=True)
        block.forward = functools.partial(_forward, plain, quick)


def _forward(plain: Any, quick: Any, *given: Any, **named: Any) -> Any:
    return (quick if torch.is_grad_enabled() else plain)(*given, **named)


def changes(student: FrozenModel) -> Changes:
    """What the student learned, tensor by tensor, computed on demand."""
    by_name: dict[str, Any] = {}
    for name, layer in adapted(student):
        by_name[f"{name}.weight"] = lambda old, layer=layer: (
            old + layer.get_delta_weight(_NAME).detach().float().cpu().numpy()
        )
    return by_name


class Weights:
    """The weights that the student learns, with their optimiser; copies on other devices follow."""

    def __init__(self, reader: Reader) -> None:
        self.named = reader.model.learning
        self._others = [list(one.model.learning.values()) for one in reader.team[1:]]
        self._start = {name: held.detach().clone() for name, held in self.named.items()}
        self.reset()

    def reset(self) -> None:
        """Back to the start."""
        fused = all(held.device.type == "cuda" for held in self.named.values())
        self._adam = torch.optim.Adam(self.named.values(), betas=_BETAS, fused=fused or None)
        self.take(self._start)

    @torch.no_grad()
    def step(self, grads: Sequence[torch.Tensor], rate: float) -> None:
        """Move against the gradients, which come in the order of `named`."""
        for held, grad in zip(self.named.values(), grads, strict=True):
            held.grad = grad
        self._adam.param_groups[0]["lr"] = rate
        self._adam.step()
        self._adam.zero_grad()
        self._spread()

    def values(self) -> dict[str, torch.Tensor]:
        """A copy of the present weights."""
        return {name: held.detach().clone() for name, held in self.named.items()}

    def tensors(self) -> dict[str, torch.Tensor]:
        """What a checkpoint has to hold."""
        held_by_name: dict[str, torch.Tensor] = {}
        for name, held in self.named.items():
            held_by_name[f"weights.{name}"] = held.detach()
            for key, value in self._adam.state.get(held, {}).items():
                held_by_name[f"adam.{key}.{name}"] = value
        return held_by_name

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take back what `tensors` gave."""
        self.take({name: tensors[f"weights.{name}"] for name in self.named})
        for name, held in self.named.items():
            keys = ("step", "exp_avg", "exp_avg_sq")
            if f"adam.step.{name}" in tensors:
                self._adam.state[held] = {key: tensors[f"adam.{key}.{name}"] for key in keys}
                if not self._adam.defaults["fused"]:
                    self._adam.state[held]["step"] = self._adam.state[held]["step"].cpu()

    @torch.no_grad()
    def take(self, values: Mapping[str, torch.Tensor]) -> None:
        """Set the weights to what `values` gave."""
        for name, held in self.named.items():
            held.copy_(values[name])
        self._spread()

    @torch.no_grad()
    def shrink(self, share: float) -> None:
        """Keep `share` of what was learned: of every B A, or of each weight's change."""
        for name, held in self.named.items():
            if "lora_A" not in name:
                held.copy_(torch.lerp(self._start[name], held, share))
        self._spread()

    def _spread(self) -> None:
        for others in self._others:
            for theirs, own in zip(others, self.named.values(), strict=True):
                theirs.data.copy_(own.data)


@torch.no_grad()
def look_apart(
    student: FrozenModel, planned: Sequence[Ints], new: NewRows, protected: Sequence[Ints]
) -> None:
    """Begin every adapter in directions that `planned` ids use and `protected` ones do not."""
    for layers in _groups(student):
        theirs, ours = (_inputs(student, layers, ids, new) for ids in (protected, planned))
        for name, layer in layers.items():
            begin = layer.lora_A[_NAME].weight.data
            rows = directions(ours[name], theirs[name], len(begin))
            begin[: len(rows)] = rows.to(begin)


def directions(planned: torch.Tensor, protected: torch.Tensor, rank: int) -> torch.Tensor:
    """At most `rank` rows a with the largest ratio of E (a x)² over planned to protected inputs."""
    size = planned.square().mean().sqrt()
    basis = None
    if planned.shape[1] > _DIRECTIONS:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            basis = torch.svd_lowrank(planned, _DIRECTIONS)[2]  # (width, directions)
        planned, protected = planned @ basis, protected @ basis
    here, there = (x.T @ x / len(x) for x in (planned.double(), protected.double()))
    there.diagonal().add_(_DAMPING * there.diagonal().mean() + 1e-12)
    lower = torch.linalg.cholesky(there)
    inner = torch.linalg.solve_triangular(lower, here, upper=False)
    inner = torch.linalg.solve_triangular(lower, inner.T, upper=False)
    best = torch.linalg.eigh((inner + inner.T) / 2).eigenvectors.flip(1)[:, :rank]
    ways = torch.linalg.solve_triangular(lower.T, best, upper=True).T  # (rank, directions)
    power = ((ways @ here) * ways).sum(1).clamp_(min=1e-12).sqrt_()
    ways = (ways / power[:, None]).float() * size
    rows: torch.Tensor = ways if basis is None else ways @ basis.T
    return rows


def adapted(model: FrozenModel) -> Iterator[tuple[str, Any]]:
    """The layers that have an adapter, by name."""
    for name, module in model.model.named_modules():
        if hasattr(module, "get_delta_weight"):
            yield name, module


def _groups(model: FrozenModel) -> Iterator[dict[str, Any]]:
    """The adapters in groups whose inputs can be held."""
    group: dict[str, Any] = {}
    size = 0
    for name, layer in adapted(model):
        group[name] = layer
        size += 8 * _LOOKED * layer.in_features
        if size > _HELD:
            yield group
            group, size = {}, 0
    if group:
        yield group


def _inputs(
    student: FrozenModel, layers: Mapping[str, Any], sequences: Sequence[Ints], new: NewRows
) -> dict[str, torch.Tensor]:
    """Each layer's inputs (positions, width), at most `_LOOKED`, while `sequences` are read."""
    held: dict[str, list[torch.Tensor]] = {name: [] for name in layers}
    inside = torch.zeros(0)

    def keep(name: str) -> Any:
        def hook(_: Any, given: tuple[Any, ...]) -> None:
            held[name].append(given[0][inside].float())

        return hook

    hooks = [layer.register_forward_pre_hook(keep(name)) for name, layer in layers.items()]
    read, at = 0, 0
    try:
        while read < _LOOKED and at < len(sequences):
            ids, mask = fill(student, sequences[at : at + 16], student.prefix)
            inside = mask.bool()
            student.states(ids, new=new)
            read, at = read + int(mask.sum()), at + 16
    finally:
        for hook in hooks:
            hook.remove()
    return {name: torch.cat(blocks)[:_LOOKED] for name, blocks in held.items()}
