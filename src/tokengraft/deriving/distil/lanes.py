"""Lanes: a body that grows for new tokens and cannot change for anything else.

Every block gets k more dimensions, a key-value head with its queries, and some neurons. A state is
(x, l): x as before, l (the lanes) zero unless a new token has been read.

    old layers     read x and l, write x
    the new head   queries and keys from x and l, values from l alone; writes x and l
    new neurons    silu(G l) · U (x, l); write x and l
    norms          (x, l) / sqrt((|x|² + |l|²) / d + ε), with d the old width; the last drops l

l begins as k further numbers of a new token's row, and as 0 for any other token. Where no new token
has been read, values and gates are 0 in every block, hence all that is added, and x is the base's,
bit for bit, whatever was learned: no text has to be replayed to protect it. What writes into old
parts begins at 0, so at first lanes count in the norms of new tokens' states and nowhere else.

A new token's lanes begin by saying what it is (`begin`), so what new layers learn of one token
holds of those like it. Rootstock, three minutes of one core, held-out KL: .373 in Hindi and .083 in
Tamil, instead of .414 and .087 with lanes begun at random.

`widened` gives the same model as plain, wider tensors, for the base's own class in transformers:
that one divides by d + k, so norms' weights are multiplied by sqrt(d / (d + k)) and ε by its
square. Related: blocks added to a frozen model, which begin by doing nothing, Wu et al. 2024, LLaMA
Pro (https://arxiv.org/abs/2401.02415). Changed: what is added cannot act where no new token is.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional
from transformers.activations import ACT2FN

from tokengraft.core.errors import UsageError
from tokengraft.deriving.distil.recipe import WIDENED, Adapting
from tokengraft.model.frozen import FrozenModel, NewRows

_ALIGNED = 8  # GPUs multiply matrices fast whose sizes are multiples of it
_COMPONENT = 1e-4  # of the largest: smaller components are rounding
_TABLE = "lanes"  # the new tokens' lanes, once they are learned


@dataclass(frozen=True)
class Wider:
    """A tensor of the plain, wider model, from that of the base.

    A matrix gets the columns `right` of the old ones and then the rows `below`; for a norm or a
    bias, `values` gives all numbers from the old ones.
    """

    shape: tuple[int, ...]
    values: Callable[[NDArray[np.float32]], NDArray[np.float32]]
    right: Callable[[], NDArray[np.float32]] = lambda: np.zeros((0, 0), np.float32)
    below: Callable[[], NDArray[np.float32]] = lambda: np.zeros((0, 0), np.float32)


class Wide(torch.nn.Module):
    """A frozen linear layer with more inputs and outputs.

    Old outputs also read the new inputs (`reads`). New outputs (`adds`) read as many of the last
    inputs as `adds` has columns: all of them, or the new ones alone.
    """

    def __init__(self, old: torch.nn.Linear, more_inputs: int, adds: torch.Tensor) -> None:
        super().__init__()
        self.old = old
        reads = adds.new_zeros(old.out_features, more_inputs)
        self.reads, self.adds = torch.nn.Parameter(reads), torch.nn.Parameter(adds)

    def take(self, weight: NDArray[np.float32]) -> None:
        """Go on from what `weight` gave; UsageError if it is of another shape."""
        if weight.shape != self.shape:
            raise UsageError(f"lanes of shape {weight.shape} do not fit a model of {self.shape}")
        rows, columns = self.old.out_features, self.old.in_features
        self.reads.data.copy_(torch.from_numpy(weight[:rows, columns:]))
        self.adds.data.copy_(torch.from_numpy(weight[rows:, -self.adds.shape[1] :]))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Old outputs, then new ones. Without gradients, the old ones are exact where lanes are 0.

        With gradients rounding may differ: all is one product then.
        """
        old, width = self.old, self.old.in_features
        if torch.is_grad_enabled():
            product: Callable[..., torch.Tensor] = _Product.apply
            return product(given, old.weight, old.bias, self.reads, self.adds)
        reads, adds = self.reads.to(given.dtype), self.adds.to(given.dtype)
        known = old(given[..., :width]) + functional.linear(given[..., width:], reads)
        new = functional.linear(given[..., -adds.shape[1] :], adds)
        return torch.cat([known, new], -1)

    def right(self) -> NDArray[np.float32]:
        """The columns that the same layer as one matrix has beside the old ones."""
        return _array(self.reads)

    def below(self) -> NDArray[np.float32]:
        """The rows that it has below them."""
        new = np.zeros((len(self.adds), self.shape[1]), np.float32)
        new[:, -self.adds.shape[1] :] = _array(self.adds)
        return new

    def bias(self, old: NDArray[np.float32]) -> NDArray[np.float32]:
        """Its bias: 0 for what is new."""
        return np.concatenate([old, np.zeros(len(self.adds), np.float32)])

    @property
    def shape(self) -> tuple[int, int]:
        """Of that matrix."""
        more_outputs, more_inputs = len(self.adds), self.reads.shape[1]
        return self.old.out_features + more_outputs, self.old.in_features + more_inputs


class _Product(torch.autograd.Function):
    """A `Wide` layer as one product, with gradients at its inputs and at what is learned alone."""

    @staticmethod
    def forward(
        context: Any, given: torch.Tensor, old: torch.Tensor, bias: torch.Tensor | None,
        reads: torch.Tensor, adds: torch.Tensor,
    ) -> torch.Tensor:  # fmt: skip
        """Old outputs, then new ones."""
        unread = old.shape[1] + reads.shape[1] - adds.shape[1]
        whole = torch.cat(
            [torch.cat([old, reads.to(old)], 1), functional.pad(adds.to(old), (unread, 0))]
        )
        context.save_for_backward(given, whole, reads, adds)
        more = None if bias is None else functional.pad(bias, (0, len(adds)))
        return functional.linear(given, whole, more)

    @staticmethod
    def backward(context: Any, *slopes: torch.Tensor) -> Any:
        """None for the old weight and its bias."""
        given, whole, reads, adds = context.saved_tensors
        slope, inputs = slopes[0].flatten(0, -2), given.flatten(0, -2)
        count = len(reads)
        at_reads = slope[:, :count].T @ inputs[:, -reads.shape[1] :]
        at_adds = slope[:, count:].T @ inputs[:, -adds.shape[1] :]
        return slopes[0] @ whole, None, None, at_reads.to(reads), at_adds.to(adds)


class WideNorm(torch.nn.Module):
    """A frozen norm that divides (x, l) by the size of both; the `last` one gives x alone."""

    def __init__(self, old: Any, lanes: int, last: bool) -> None:
        super().__init__()
        self.old, self.lanes, self.last = old, lanes, last
        self._scale: torch.Tensor | None = None

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Where l is 0, x is divided exactly as by the old norm, unless gradients are wanted."""
        width = len(self.old.weight)
        if torch.is_grad_enabled():
            return self._at_once(given)
        wide = given.float()
        x, lanes = wide[..., :width], wide[..., width:]
        power = x.pow(2).mean(-1, keepdim=True) + lanes.pow(2).sum(-1, keepdim=True) / width
        by = torch.rsqrt(power + self.old.variance_epsilon)
        normed: torch.Tensor = self.old.weight * (x * by).to(given.dtype)
        return normed if self.last else torch.cat([normed, (lanes * by).to(given.dtype)], -1)

    def _at_once(self, given: torch.Tensor) -> torch.Tensor:
        """The plain norm of width d + k, as `widened` gives it."""
        width, wide = len(self.old.weight), given.shape[-1]
        if self._scale is None or self._scale.to(given) is not self._scale:  # of another type
            by = functional.pad(self.old.weight.float(), (0, self.lanes), value=1.0)
            self._scale = (by * math.sqrt(width / wide)).to(given.dtype)
        by, epsilon = self._scale, self.old.variance_epsilon * width / wide
        normed = functional.rms_norm(given, (wide,), by, epsilon)
        return normed[..., :width] if self.last else normed

    def weight(self, old: NDArray[np.float32]) -> NDArray[np.float32]:
        """The weight with which the plain norm of width d + k does the same."""
        new = np.full(self.shape, 0.0 if self.last else 1.0, np.float32)
        new[: len(old)] = old
        new *= math.sqrt(len(old) / len(new))
        return new

    @property
    def shape(self) -> tuple[int]:
        """Of that weight."""
        return (len(self.old.weight) + self.lanes,)


class Laned(FrozenModel):
    """A student with lanes: states are as wide as the base's, new rows by their lanes wider."""

    @property
    def lanes(self) -> int:
        """How many there are."""
        return int(self.body.norm.lanes)

    def embed(self, ids: torch.Tensor, new: NewRows) -> torch.Tensor:
        """Rows as the base has them, then lanes: 0 for old ids, and for rows that have none."""
        width = self.dimensions
        rows = functional.pad(new.rows, (0, width + self.lanes - new.rows.shape[1]))
        known = super().embed(ids, NewRows(new.first, rows[:, :width]))
        if not len(rows):
            return functional.pad(known, (0, self.lanes))
        numbers = (ids - new.first).clamp_(min=0)
        lanes = functional.embedding(numbers, rows[:, width:]) * (ids >= new.first)[..., None]
        return torch.cat([known, lanes.to(known.dtype)], -1)

    def states(
        self, ids: torch.Tensor, mask: Any = None, new: NewRows | None = None, **more: Any
    ) -> torch.Tensor:
        """As the base gives them, to the last bit, before any new token."""
        none = NewRows(len(self.weight), self.weight[:0])
        return super().states(ids, mask, none if new is None else new, **more)


def refuse_unfit(architecture: str, activation: object) -> None:
    """Raise UsageError if a model of that architecture and activation cannot have lanes."""
    if architecture not in WIDENED:
        raise UsageError(
            f"a body of {architecture} cannot have lanes, only {', '.join(WIDENED)}: graft "
            "with --train rows or lora"
        )
    if not isinstance(activation, str) or activation not in ACT2FN:
        raise UsageError(f"hidden_act is {activation!r}, no activation that transformers knows")
    if ACT2FN[activation](torch.zeros(1)).any():
        raise UsageError(
            f"a body whose activation is {activation} cannot have lanes: its neurons act on 0, so "
            "new ones would change every text. Graft with --train rows or lora."
        )


def with_lanes(base: FrozenModel, adapting: Adapting, seed: int = 0) -> Laned:
    """A student that shares the base's weights.

    What it learns is in float32. Raises UsageError for another architecture. There may be some more
    lanes than `adapting` says, since transformers wants a width that its heads divide.
    """
    refuse_unfit(type(base.model).__name__, getattr(base.model.config, "hidden_act", ""))
    look = base.blocks[0].self_attn
    heads = look.q_proj.out_features // look.head_dim
    lanes = _lanes(base.dimensions, heads, look.num_key_value_groups, adapting.lanes)
    neurons = adapting.neurons
    shared = {id(held): held for held in (*base.model.parameters(), *base.model.buffers())}
    model = copy.deepcopy(base.model, dict(shared))
    generator = torch.Generator().manual_seed(seed)

    def drawn(rows: int, columns: int, size: float) -> torch.Tensor:
        made = torch.randn(rows, columns, generator=generator) * size
        return made.to(base.device)

    def widen(holder: Any, name: str, more: int, outputs: int, *, x: bool, begun: bool) -> None:
        """Give a layer `more` inputs, and `outputs` that read `x` too and may begin at 0."""
        old = getattr(holder, name)
        inputs = more + (old.in_features if x else 0)
        adds = drawn(outputs, inputs, inputs**-0.5 if begun else 0.0)
        setattr(holder, name, Wide(old, more, adds))

    copied = base.around(model)
    for block in copied.blocks:
        look, mlp = block.self_attn, block.mlp
        size, queries = look.head_dim, look.head_dim * look.num_key_value_groups
        widen(look, "q_proj", lanes, queries, x=True, begun=True)
        widen(look, "k_proj", lanes, size, x=True, begun=True)
        widen(look, "v_proj", lanes, size, x=False, begun=True)
        widen(look, "o_proj", queries, lanes, x=False, begun=False)
        widen(mlp, "gate_proj", lanes, neurons, x=False, begun=True)
        widen(mlp, "up_proj", lanes, neurons, x=True, begun=True)
        widen(mlp, "down_proj", neurons, lanes, x=False, begun=False)
        for name in ("input_layernorm", "post_attention_layernorm"):
            setattr(block, name, WideNorm(getattr(block, name), lanes, last=False))
    copied.body.norm = WideNorm(copied.body.norm, lanes, last=True)
    own = [name for name, held in model.named_parameters() if id(held) not in shared]
    student = base.student(model, own, Laned)
    assert isinstance(student, Laned)
    return student


def _lanes(width: int, heads: int, groups: int, least: int) -> int:
    """The least number of lanes, at least as many, with which a width suits heads and GPUs.

    There are so many `heads`, and `groups` more that share the new key.
    """
    unit = math.lcm(heads + groups, _ALIGNED)
    return -(-(width + least) // unit) * unit - width


def count_added(config: Mapping[str, Any], adapting: Adapting) -> int:
    """How many numbers a model's blocks have more with lanes, by its config alone."""
    width, heads, old = (
        config[name] for name in ("hidden_size", "num_attention_heads", "intermediate_size")
    )
    keys = config.get("num_key_value_heads") or heads
    size = config.get("head_dim") or width // heads
    lanes = _lanes(width, heads, heads // keys, adapting.lanes)

    def more(outputs: int, inputs: int, new_outputs: int, new_inputs: int) -> int:
        return (outputs + new_outputs) * (inputs + new_inputs) - outputs * inputs

    queries = size * (heads // keys)
    block = 2 * more(heads * size, width, queries, lanes)  # q, and o with inputs as outputs
    block += 2 * more(keys * size, width, size, lanes)
    block += 3 * more(old, width, adapting.neurons, lanes)
    return int(config["num_hidden_layers"] * block)


def begin(tokens: int, phi: torch.Tensor | None, lanes: int, seed: int = 0) -> torch.Tensor:
    """Lanes of size 1 for new tokens to begin with (tokens, lanes).

    They are the principal components of the tokens' features `phi`, so that lanes are alike where
    tokens are; random numbers where there are not as many, or no features.
    """
    begun = torch.randn(tokens, lanes, generator=torch.Generator().manual_seed(seed))
    if phi is None:
        return begun
    begun = begun.to(phi)
    parts, sizes, _ = torch.linalg.svd(phi - phi.mean(0), full_matrices=False)
    count = min(lanes, int((sizes > _COMPONENT * sizes[:1]).sum()))
    begun[:, :count] = parts[:, :count] * tokens**0.5
    return begun


def go_on(student: FrozenModel, wider: Callable[[str], NDArray[np.float32]]) -> None:
    """Let a student begin with the wider layers that were learned before.

    `wider` gives a tensor of the plain model by its name. UsageError if sizes differ.
    """
    for name, module in student.model.named_modules():
        if isinstance(module, Wide):
            module.take(wider(f"{name}.weight"))


def settle(student: Laned, rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows as the base has them; what they have beyond becomes the student's `new_lanes`."""
    width = student.dimensions
    student.model.register_buffer(_TABLE, torch.from_numpy(rows[:, width:].copy()))
    return rows[:, :width]


def widened(student: FrozenModel) -> dict[str, Wider]:
    """Every tensor of the body that is wider in the plain model, by its name there."""
    named: dict[str, Wider] = {}
    for name, module in student.model.named_modules():
        if isinstance(module, WideNorm):
            named[f"{name}.weight"] = Wider(module.shape, module.weight)
        elif isinstance(module, Wide):
            more = Wider(module.shape, module.bias, module.right, module.below)
            named[f"{name}.weight"] = more
            if module.old.bias is not None:
                named[f"{name}.bias"] = replace(more, shape=module.shape[:1])
    return named


def growth(student: FrozenModel) -> float:
    """By what share of their size the blocks' matrices are larger in the plain model."""
    wide = [module for module in student.model.modules() if isinstance(module, Wide)]
    before = sum(one.old.weight.numel() for one in wide)
    return sum(math.prod(one.shape) for one in wide) / before - 1


def new_lanes(student: FrozenModel) -> NDArray[np.float32]:
    """The lanes that were learned for new tokens (new tokens, k)."""
    return _array(getattr(student.model, _TABLE))


def wider_config(config: Mapping[str, Any], student: FrozenModel) -> dict[str, Any]:
    """The config of the plain model, from that of the base."""
    old, block = student.model.config, student.blocks[0]
    look, width = block.self_attn, old.hidden_size + student.body.norm.lanes
    return {
        **config,
        "hidden_size": width,
        "intermediate_size": block.mlp.up_proj.shape[0],
        "num_attention_heads": look.q_proj.shape[0] // look.head_dim,
        "num_key_value_heads": look.k_proj.shape[0] // look.head_dim,
        "head_dim": look.head_dim,
        "rms_norm_eps": old.rms_norm_eps * old.hidden_size / width,
    }


def _array(held: torch.Tensor) -> NDArray[np.float32]:
    values: NDArray[np.float32] = held.detach().float().cpu().numpy()
    return values
