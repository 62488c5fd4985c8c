"""A body that grows for new tokens and cannot change for anything else: lanes.

A block of a Llama gets k more dimensions, a head and some neurons. A state is (x, l): x as before,
l zero unless a new token has been read.

    old layers      read x and l, write x
    the new head    queries and keys from x and l, values from l alone; writes x and l
    new neurons     silu(G l) * U (x, l); write x and l
    norms           (x, l) / sqrt((|x|² + |l|²) / d + eps), with d the old width

l begins as k numbers per new token. Without a new token l is 0 in every block: values, gates and so
all that is added are 0, and x is the base's, whatever has been learned. No text has to be replayed
to protect it. `widened` writes the same as plain weights: a Llama of width d + k, whose norms'
weights are scaled by sqrt(d / (d + k)), for transformers as it is.

`adapt_input.py` compares it with rows alone and with LoRA (`--ways rows lanes lora`).
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.nn import functional

LANES, NEURONS = 32, 128


def with_lanes(base: Any, count: int, first: int) -> Any:
    """The base with lanes to be learned, for `count` new tokens with ids from `first` on."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    student, body = base.around(base.model), base.body
    width, size = base.dimensions, base.model.config.head_dim
    learning: dict[str, torch.Tensor] = {}

    def learned(name: str, rows: int, columns: int, scale: float) -> torch.Tensor:
        made = torch.randn(rows, columns) * scale / columns**0.5
        learning[name] = made.to(base.device).requires_grad_()
        return learning[name]

    unit = float(base.weight[:first].float().square().mean().sqrt())
    table = learned("table", count, LANES, unit * LANES**0.5)
    for n, block in enumerate(base.blocks):
        for name, layer in _read_by(block).items():
            learned(f"{n}.{name}", layer.out_features, LANES, 0.0)
        for name, rows, columns, scale in (
            ("head_q", size, width + LANES, 1.0),
            ("head_k", size, width + LANES, 1.0),
            ("head_v", size, LANES, 1.0),
            ("head_o", width + LANES, size, 0.0),
            ("own_gate", NEURONS, LANES, 1.0),
            ("own_up", NEURONS, width + LANES, 1.0),
            ("own_down", width + LANES, NEURONS, 0.0),
        ):
            learned(f"{n}.{name}", rows, columns, scale)

    def normed(norm: Any, x: torch.Tensor, lane: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        power = (x.square().sum(-1, keepdim=True) + lane.square().sum(-1, keepdim=True)) / width
        by = torch.rsqrt(power + norm.variance_epsilon)
        return x * by * norm.weight, lane * by

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], -1, size).transpose(1, 2)

    def states(ids: torch.Tensor, mask: Any = None, new: Any = None) -> torch.Tensor:
        x = base.embedding(ids) if new is None else base.embed(ids, new)
        is_new = (ids >= first)[..., None]
        lane = functional.embedding((ids - first).clamp(min=0), table) * is_new
        turned = body.rotary_emb(x, torch.arange(ids.shape[1], device=x.device)[None])
        for n, block in enumerate(base.blocks):
            my = _of_block(learning, n)
            read, side = normed(block.input_layernorm, x, lane)
            both, look = torch.cat([read, side], -1), block.self_attn
            q, k, v = (
                torch.cat([layer(read) + side @ my[name].T, given @ my[f"head_{name}"].T], -1)
                for name, layer, given in (
                    ("q", look.q_proj, both),
                    ("k", look.k_proj, both),
                    ("v", look.v_proj, side),
                )
            )
            q, k = apply_rotary_pos_emb(heads(q), heads(k), *turned)
            seen = functional.scaled_dot_product_attention(q, k, heads(v), is_causal=True)
            seen = seen.transpose(1, 2).flatten(2)
            more = seen[..., -size:] @ my["head_o"].T
            x = x + look.o_proj(seen[..., :-size]) + more[..., :width]
            lane = lane + more[..., width:]
            read, side = normed(block.post_attention_layernorm, x, lane)
            both, mlp = torch.cat([read, side], -1), block.mlp
            gate = functional.silu(mlp.gate_proj(read) + side @ my["gate"].T)
            inner = mlp.down_proj(gate * (mlp.up_proj(read) + side @ my["up"].T))
            beside = functional.silu(side @ my["own_gate"].T) * (both @ my["own_up"].T)
            more = beside @ my["own_down"].T
            x, lane = x + inner + more[..., :width], lane + more[..., width:]
        return normed(body.norm, x, lane)[0]

    student.states, student.learning, student.first = states, learning, first
    return student


def _of_block(learning: dict[str, torch.Tensor], number: int) -> dict[str, torch.Tensor]:
    """What is learned in a block, by its name there."""
    start = f"{number}."
    return {name.removeprefix(start): w for name, w in learning.items() if name.startswith(start)}


def _read_by(block: Any) -> dict[str, Any]:
    """The old layers that read lanes."""
    look, mlp = block.self_attn, block.mlp
    return {"q": look.q_proj, "k": look.k_proj, "v": look.v_proj,
            "gate": mlp.gate_proj, "up": mlp.up_proj}  # fmt: skip


@torch.no_grad()
def widened(base: Any, student: Any, rows: torch.Tensor) -> Any:
    """What was learned as a plain Llama of transformers, new rows in its tables."""
    learning, old = student.learning, base.model.config
    width, wide = old.hidden_size, old.hidden_size + LANES
    config = copy.deepcopy(old)
    config.update({
        "hidden_size": wide, "intermediate_size": old.intermediate_size + NEURONS,
        "num_attention_heads": old.num_attention_heads + 1,
        "num_key_value_heads": old.num_key_value_heads + 1,
        "rms_norm_eps": old.rms_norm_eps * width / wide,
        "vocab_size": student.first + len(rows), "tie_word_embeddings": False,
    })  # fmt: skip
    model = type(base.model)(config).eval().requires_grad_(False)

    def beside(left: torch.Tensor, right: torch.Tensor | None = None) -> torch.Tensor:
        """Columns for x and for l; none are 0."""
        none = left.new_zeros(len(left), LANES)
        return torch.cat([left, none if right is None else right.to(left)], 1)

    def norm(to: Any, of: Any) -> None:
        ones = of.weight.new_ones(LANES)
        to.weight.copy_(torch.cat([of.weight, ones]) * (width / wide) ** 0.5)

    def below(of: torch.Tensor) -> torch.Tensor:
        """Rows for l that are 0."""
        return torch.cat([of, of.new_zeros(LANES, of.shape[1])])

    tables = [base.weight[: student.first], base.head().weight[: student.first]]
    lanes = [learning["table"], None]
    for to, table, lane in zip(
        (model.get_input_embeddings(), model.get_output_embeddings()), tables, lanes, strict=True
    ):
        to.weight.copy_(torch.cat([beside(table), beside(rows.to(table), lane)]))
    norm(model.model.norm, base.body.norm)
    for n, (to, of) in enumerate(zip(model.model.layers, base.blocks, strict=True)):
        my = _of_block(learning, n)
        norm(to.input_layernorm, of.input_layernorm)
        norm(to.post_attention_layernorm, of.post_attention_layernorm)
        nothing = my["head_v"].new_zeros(len(my["head_v"]), width)
        none = my["own_gate"].new_zeros(NEURONS, width)
        added = {"q": my["head_q"], "k": my["head_k"],
                 "v": torch.cat([nothing, my["head_v"]], 1),
                 "gate": torch.cat([none, my["own_gate"]], 1), "up": my["own_up"]}  # fmt: skip
        for name, layer in _read_by(to).items():
            was = _read_by(of)[name].weight
            layer.weight.copy_(torch.cat([beside(was, my[name]), added[name].to(was)]))
        for layer, was, more in (
            (to.self_attn.o_proj, of.self_attn.o_proj, my["head_o"]),
            (to.mlp.down_proj, of.mlp.down_proj, my["own_down"]),
        ):
            layer.weight.copy_(torch.cat([below(was.weight), more.to(was.weight)], 1))
    return model


@torch.no_grad()
def english_kept(base: Any, student: Any, rows: torch.Tensor, texts: Any) -> dict[str, float]:
    """How far the plain, wider model is from the base on texts without a new token.

    `logits` is the largest difference in float32, which is rounding alone; KL and top-1 are of the
    weights rounded to bfloat16, as a folder holds them, since scaled norms cannot be kept exactly.
    """
    model = widened(base, student, rows).to(base.device)
    rounded = copy.deepcopy(model).bfloat16().float()
    most, sums = 0.0, torch.zeros(3, dtype=torch.float64)
    for ids in texts:
        given = torch.tensor([[*base.prefix, *ids.tolist()]], device=base.device)
        logits = [one(given).logits[0, :, : student.first] for one in (base.model, model, rounded)]
        most = max(most, float((logits[0] - logits[1]).abs().max()))
        p, q = (one.double().log_softmax(-1) for one in (logits[0], logits[2]))
        sums[0] += (p.exp() * (p - q)).sum().cpu()
        sums[1] += (p.argmax(-1) == q.argmax(-1)).sum().cpu()
        sums[2] += given.shape[1]
    kl, same, count = sums.tolist()
    return {"logits": most, "kl": kl / count, "top1": same / count}
