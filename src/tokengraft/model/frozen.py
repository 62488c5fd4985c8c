"""A frozen model that only reads: token ids or rows in, hidden states out.

`FrozenModel` hides what differs between models: causal or encoder, where the blocks are, whether
the embedding module scales its rows (Gemma), which special tokens surround a text. Weights come
from safetensors only, and a model's custom code is never run.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tokengraft.core.errors import ModelError, UsageError, look_up
from tokengraft.core.untrusted import refuse_code
from tokengraft.model.checkpoint import read_if_there, read_json
from tokengraft.model.divergence import Head
from tokengraft.model.folder import CONFIG, MANIFEST, resolve
from tokengraft.model.libraries import body, load_frozen, pick_devices, require_torch
from tokengraft.model.tokenizer_files import TOKENIZER_CONFIG, model_tokenizer, surroundings
from tokengraft.tokenizer.adapters import Tokenizer

if TYPE_CHECKING:
    import torch

Kind: TypeAlias = Literal["causal", "encoder"]
_HASHED = 64 << 20  # bytes of a weight that are copied to the CPU at a time for hashing
_MOST_WINDOW = 4096
_SANE = 1 << 20  # no larger limit is believed: tokenizer configs write 10^30 for "no limit"


@dataclass(frozen=True)
class Reading:
    """How to run a model.

    `device`: `auto` is every visible GPU, else the CPU; separate several by commas
    (`cuda:0,cuda:1`). The first one reads; work that can be divided runs on all, with a copy of the
    model on each. `dtype`: `auto` is the weights' own type on a GPU, and on a CPU float32, which is
    exact (gradients may be in bfloat16: `quick_in_half`). `window`: the most tokens read of one
    line (default: the limit in config and tokenizer_config, at most 4096).
    """

    device: str = "auto"
    dtype: str = "auto"
    window: int | None = None


@dataclass(frozen=True)
class NewRows:
    """Input rows for ids from `first` on, used instead of the model's own table."""

    first: int
    rows: torch.Tensor  # (new tokens, dimensions), unscaled


class FrozenModel:
    """A loaded model without dropout, and the tokenizer of its folder if it has one.

    Every weight is frozen except the parameters named in `learning`, which a student has.
    """

    can_be_halved = True  # to bfloat16, for training

    def __init__(
        self,
        model: Any,
        *,
        kind: Kind = "causal",
        name: str = "",
        folder: Path | None = None,
        tokenizer: Tokenizer | None = None,
        window: int | None = None,
        others: Sequence[torch.device] = (),
        learning: Collection[str] = (),
    ) -> None:
        self.model = model.eval().requires_grad_(False)
        named = model.named_parameters() if learning else ()
        self.learning: dict[str, torch.Tensor] = {
            name: weight.requires_grad_() for name, weight in named if name in learning
        }
        self.kind, self.name, self._folder = kind, name, folder
        self._cut: int | None = None
        self._tokenizer, self._window, self._others = tokenizer, window, tuple(others)
        self.body = body(model) if kind == "causal" else model

    @classmethod
    def load(cls, model: str | Path | FrozenModel, reading: Reading | None = None) -> FrozenModel:
        """Load a model by name, folder or hub id; a FrozenModel is returned as it is.

        Raises UsageError for encoder-decoder models, ModelError for damaged weights or custom code.
        """
        if isinstance(model, FrozenModel):
            return model
        reading = reading or Reading()
        require_torch()
        source = resolve(model)
        config = read_json(source.path / CONFIG)
        refuse_code(config, f"{CONFIG} of {source.name}")
        if config.get("is_encoder_decoder"):
            raise UsageError(
                f"{source.name} is an encoder-decoder; supported are causal models and encoders"
            )
        kind = kind_of(config)
        first, *others = pick_devices(reading.device)
        loaded = load_frozen(source.path, _dtype(reading.dtype, first), kind == "causal", first)
        return cls(
            loaded.to(first), kind=kind, name=source.name, folder=source.path,
            window=reading.window, others=others,
        )  # fmt: skip

    @functools.cached_property
    def team(self) -> tuple[FrozenModel, ...]:
        """The model itself and its copies on the other devices, made on first use."""
        copies = (copy.deepcopy(self.model).to(where) for where in self._others)
        return (self, *(self.around(one, self.learning) for one in copies))

    def around(
        self, model: Any, learning: Collection[str] = (), others: Sequence[torch.device] = (),
        of: type[FrozenModel] | None = None,
    ) -> FrozenModel:  # fmt: skip
        """Another `model` of this architecture, with this one's folder, tokenizer and window.

        It is read as this one is, or as class `of` reads.
        """
        return (of or type(self))(
            model, kind=self.kind, name=self.name, folder=self._folder, tokenizer=self._tokenizer,
            window=self._window, others=others, learning=learning,
        )  # fmt: skip

    def student(
        self, model: Any, learning: Collection[str], of: type[FrozenModel] | None = None
    ) -> FrozenModel:
        """Like `around`, with copies on the same devices as this model."""
        return self.around(model, learning, self._others, of)

    def narrow(self, width: int) -> FrozenModel:
        """The same model with states and output rows of no more than `width` dimensions.

        Further ones are lanes (`deriving.distil.lanes`), which are 0 in every state it returns.
        """
        if self.dimensions <= width:
            return self
        narrow = copy.copy(self)
        narrow._cut = width
        return narrow

    @property
    def folder(self) -> Path:
        """Where it was loaded from."""
        if self._folder is None:
            raise UsageError(f"{self.name or 'this model'} was not loaded from a folder")
        return self._folder

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer, adding the special tokens that a graft's tokenizer adds too."""
        return self._tokenizer or model_tokenizer(self.folder)

    @functools.cached_property
    def _around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return surroundings(self.tokenizer)

    @property
    def prefix(self) -> tuple[int, ...]:
        """Ids that its tokenizer puts before every text."""
        return self._around[0]

    @property
    def suffix(self) -> tuple[int, ...]:
        """Ids that its tokenizer puts after every text."""
        return self._around[1]

    @property
    def room(self) -> int:
        """How many tokens of a text it can read, not counting those put around every text."""
        return self.window - len(self.prefix) - len(self.suffix)

    @functools.cached_property
    def manifest(self) -> dict[str, Any]:
        """The graft's manifest; empty for a model that is no graft."""
        return read_if_there(self.folder / MANIFEST)

    @property
    def policy(self) -> str:
        """The graft's output policy; `input-only` if it states none."""
        return str(self.manifest.get("output", {}).get("policy", "input-only"))

    @functools.cached_property
    def window(self) -> int:
        """The most tokens read at once."""
        limits = [_MOST_WINDOW, getattr(self._config, "max_position_embeddings", None)]
        if self._folder is not None:
            limits.append(read_if_there(self._folder / TOKENIZER_CONFIG).get("model_max_length"))
        known = [limit for limit in limits if isinstance(limit, int) and 0 < limit < _SANE]
        return self._window or min(known)

    @property
    def _config(self) -> Any:
        return getattr(self.model.config, "text_config", self.model.config)

    @property
    def layers(self) -> int:
        """How many blocks there are."""
        return int(self._config.num_hidden_layers)

    @property
    def dimensions(self) -> int:
        """Width of a state."""
        return int(self._config.hidden_size)

    @functools.cached_property
    def blocks(self) -> list[Any]:
        """The transformer blocks in order; ModelError if the architecture has no such list."""
        for module in self.body.modules():
            if isinstance(module, require_torch().nn.ModuleList) and len(module) == self.layers:
                return list(module)
        raise ModelError(
            f"{type(self.body).__name__}: no list of {self.layers} blocks found in this "
            "architecture"
        )

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.weight.device

    @property
    def embedding(self) -> Any:
        """The input embedding module."""
        return self.model.get_input_embeddings()

    @property
    def weight(self) -> torch.Tensor:
        """Input rows as they are stored, unscaled (vocabulary, dimensions)."""
        weight: torch.Tensor = self.embedding.weight
        return weight

    @property
    def scale(self) -> float:
        """What the embedding module multiplies its rows by (Gemma 3: √dimensions)."""
        scale: Any = getattr(self.embedding, "embed_scale", 1.0)
        return float(scale)

    @property
    def pad(self) -> int:
        """The id to pad with (0 if there is none); no position that counts ever sees it."""
        pad = getattr(self._config, "pad_token_id", None)
        return pad if isinstance(pad, int) and pad >= 0 else 0

    def head(self, size: int | None = None) -> Head:
        """Its first `size` output rows (all by default), in the weights' type."""
        head = Head.of(self.model, size)
        return head if self._cut is None else replace(head, weight=head.weight[:, : self._cut])

    def fingerprint(self) -> str:
        """sha256 over the config and every weight as loaded, with its name, type and shape.

        Models with the same fingerprint give the same states up to rounding. Takes 0.5 s per GB.
        """
        config = self.model.config.to_dict()
        config.pop("_name_or_path", None)  # where it was loaded from does not matter
        digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
        for name, tensor in (*self.model.named_parameters(), *self.model.named_buffers()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            flat = tensor.detach().reshape(-1).view(require_torch().uint8)
            for start in range(0, len(flat), _HASHED):
                digest.update(flat[start : start + _HASHED].cpu().numpy())
        return digest.hexdigest()

    def embed(self, ids: torch.Tensor, new: NewRows) -> torch.Tensor:
        """Rows of `ids` as the embedding module returns them (scaled); new ids' come from `new`.

        Differentiable in `new.rows`, which are rounded and scaled as the module would do it.
        """
        is_new = ids >= new.first
        known: torch.Tensor = self.embedding(ids.masked_fill(is_new, 0))
        if not len(new.rows):
            return known
        # The gradient of `rows[ids]` is summed in arbitrary order; that of `embedding` is not.
        numbers = (ids - new.first).clamp_(min=0)
        added = require_torch().nn.functional.embedding(numbers, new.rows).to(known.dtype)
        if self.scale != 1.0:
            added = added * known.new_tensor(self.scale)
        rows: torch.Tensor = require_torch().where(is_new[..., None], added, known)
        return rows

    def states(
        self, ids: torch.Tensor, mask: Any = None, new: NewRows | None = None, **more: Any
    ) -> torch.Tensor:
        """Last hidden states after the final norm (batch, length, dimensions).

        Shorter sequences are padded on the right, where causal attention cannot see the padding:
        only encoders get the `mask`. `more` is passed on to the model.
        """
        given = {"input_ids": ids} if new is None else {"inputs_embeds": self.embed(ids, new)}
        way = {"use_cache": False} if self.kind == "causal" else {"attention_mask": mask}
        with self._attention():
            states: torch.Tensor = self.body(**given, **way, **more).last_hidden_state
        return states[..., : self._cut]

    def _attention(self) -> AbstractContextManager[Any]:
        """The way in which this model attends: torch's own but for half precision on a CPU.

        On a GPU not by cuDNN, which makes a plan for every shape: longer than a batch takes.
        """
        if self.device.type == "cuda":
            from torch.nn.attention import SDPBackend, sdpa_kernel

            kinds = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH
            attention: AbstractContextManager[Any] = sdpa_kernel(list(kinds))
            return attention
        if self.weight.dtype != require_torch().bfloat16:
            return nullcontext()
        from tokengraft.model.cpu_attention import CpuAttention

        return CpuAttention()


def kind_of(config: dict[str, Any]) -> Kind:
    """`causal` if the architecture named in the config predicts the next token, else `encoder`."""
    name = str(next(iter(config.get("architectures") or ()), ""))
    causal = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
    return "causal" if name.endswith(causal) else "encoder"


def _dtype(name: str, device: torch.device) -> Any:
    torch = require_torch()
    own = "auto" if device.type == "cuda" else torch.float32
    known = {"auto": own, **{n: getattr(torch, n) for n in ("float32", "bfloat16", "float16")}}
    return look_up("dtype", name, known)
