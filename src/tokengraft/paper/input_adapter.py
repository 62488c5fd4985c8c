"""A small map in front of a frozen model, and how to load it: this file needs no tokengraft.

    e'_i = e_i + g_i A(e_1 … e_i)        g_i = 1 from the first new token on, else 0

e are the rows of a text, A is one of `KINDS`. Text without a new token is read exactly as the base
reads it, to the bit. `load(FOLDER, BASE)` returns the base as a plain transformers model, with the
map between its embedding table and its first block. There is no KV cache, because A looks back:
`generate` reads the whole text again for every token. Batches must be padded on the right.

Reference: the paper's "pseudo-translation", from sequences of a language's embeddings to sequences
of the model's; `Tag` is its language embedding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

FILE = "input_adapter.safetensors"


class Convolution(nn.Module):
    """W₂ silu(conv₄(W₁ e)): each place sees itself and the three before it (for `reach` 4)."""

    def __init__(self, width: int, reach: int = 4) -> None:
        super().__init__()
        inner, self.reach = 2 * width, reach
        self.into = nn.Linear(width, inner, bias=False)
        self.along = nn.Conv1d(inner, inner, reach, groups=inner)
        self.out = nn.Linear(inner, width, bias=False)
        nn.init.zeros_(self.out.weight)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(texts, places, width) in and out."""
        inner = functional.pad(self.into(rows).transpose(1, 2), (self.reach - 1, 0))
        mixed: torch.Tensor = self.out(functional.silu(self.along(inner).transpose(1, 2)))
        return mixed


class Attention(nn.Module):
    """One layer of causal attention, in which distance lowers scores (ALiBi), and a small MLP."""

    def __init__(self, width: int, heads: int = 5) -> None:
        super().__init__()
        inner, self.heads = -(-width // (2 * heads)) * heads, heads
        self.norm = nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * inner, bias=False)
        self.out = nn.Linear(inner, width, bias=False)
        self.then = nn.RMSNorm(width)
        self.into = nn.Linear(width, width, bias=False)
        self.last = nn.Linear(width, width, bias=False)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.last.weight)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(texts, places, width) in and out."""
        size, length, _ = rows.shape
        qkv = self.qkv(self.norm(rows)).view(size, length, 3, self.heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        places = torch.arange(length, device=rows.device)
        gap = (places[:, None] - places).float()
        slopes = 2.0 ** -torch.arange(1, self.heads + 1, device=rows.device)
        mask = (-gap * slopes[:, None, None]).masked_fill(gap < 0, -torch.inf)
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask[None])
        step = self.out(seen.transpose(1, 2).reshape(size, length, -1))
        hidden = functional.silu(self.into(self.then(rows + step)))
        whole: torch.Tensor = step + self.last(hidden)
        return whole


class Tag(nn.Module):
    """One learned row for the language, added at every place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.row = nn.Parameter(torch.zeros(width))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """(texts, places, width) in and out."""
        return self.row.expand_as(rows)


KINDS: dict[str, type[nn.Module]] = {"attention": Attention, "convolution": Convolution, "tag": Tag}


def adapted(adapter: nn.Module, rows: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """`rows` (texts, places, width) after the adapter; `new` (texts, places) marks new tokens."""
    from_there = (new.cumsum(1) > 0)[..., None]
    return torch.where(from_there, rows + adapter(rows.float()).to(rows), rows)


class InFront(nn.Module):
    """A model's input table, extended by new rows and followed by the adapter."""

    def __init__(
        self, table: nn.Module, rows: torch.Tensor, first: int, adapter: nn.Module
    ) -> None:
        super().__init__()
        self.table, self.first, self.adapter = table, first, adapter
        self.rows = nn.Parameter(rows)  # of ids from `first` on

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Rows of `ids` (texts, places, width)."""
        new = ids >= self.first
        known: torch.Tensor = self.table(ids.masked_fill(new, 0))
        added = functional.embedding((ids - self.first).clamp(min=0), self.rows).to(known)
        added = added * known.new_tensor(float(getattr(self.table, "embed_scale", 1.0)))
        return adapted(self.adapter, torch.where(new[..., None], added, known), new)


def load(folder: str | Path, base: str | Path, **how: Any) -> tuple[Any, Any]:
    """The base with the folder's adapter, and the tokenizer; `how` is passed to from_pretrained."""
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(base, **how)
    with safe_open(Path(folder) / FILE, "pt") as file:
        about = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    rows = tensors.pop("rows")
    adapter = KINDS[about["kind"]](rows.shape[1])
    adapter.load_state_dict(tensors)
    front = InFront(model.get_input_embeddings(), rows, int(about["first"]), adapter)
    model.set_input_embeddings(front.requires_grad_(False).to(model.device))
    model.config.use_cache = model.generation_config.use_cache = False
    return model.eval(), AutoTokenizer.from_pretrained(folder)
