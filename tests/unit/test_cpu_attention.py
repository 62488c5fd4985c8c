"""Attention by plain products gives what torch's own gives, and only where it should."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from tokengraft.model import cpu_attention
from tokengraft.model.cpu_attention import CpuAttention, causal
from tokengraft.model.frozen import FrozenModel


def drawn(heads=4, keys=4, length=30, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, count, length, 16) for count in (heads, keys, keys)]
    made = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return [one.requires_grad_() for one in made]


@pytest.mark.parametrize(("heads", "keys", "length"), [(4, 4, 30), (6, 2, 17), (4, 1, 1)])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("scores", [1 << 22, 100])
def test_products_are_attention(heads, keys, length, scale, scores, monkeypatch):
    """In float32 to rounding; values, gradients, and whatever is computed at a time."""
    monkeypatch.setattr(cpu_attention, "_SCORES", scores)
    given = drawn(heads, keys, length, torch.float32)
    ours = causal(*given, scale)
    theirs = scaled_dot_product_attention(
        *given, is_causal=True, scale=scale, enable_gqa=heads != keys
    )
    assert torch.allclose(ours, theirs, atol=1e-5)
    pull = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1))
    for mine, other in zip(
        torch.autograd.grad(ours, given, pull),
        torch.autograd.grad(theirs, given, pull),
        strict=True,
    ):
        assert torch.allclose(mine, other, atol=1e-5)


def test_it_takes_over_only_where_it_is_the_same_and_faster(monkeypatch):
    calls = []
    plain = cpu_attention.causal
    monkeypatch.setattr(cpu_attention, "causal", lambda *given: (calls.append(1), plain(*given))[1])

    def taken(*given, **more):
        calls.clear()
        with CpuAttention():
            scaled_dot_product_attention(*given, **more)
        return bool(calls)

    query, key, value = drawn()
    assert taken(query, key, value, is_causal=True)
    assert taken(query, key, value, is_causal=True, scale=0.2)
    assert not taken(query, key, value)
    assert not taken(query, key, value, attn_mask=torch.ones(30, 30).tril().bool())
    assert not taken(query[:, :, -1:], key, value, is_causal=True)
    assert not taken(*(one.float() for one in (query, key, value)), is_causal=True)
    monkeypatch.setattr(cpu_attention, "MOST_SCORES", 1000)  # too many to keep,
    assert not taken(query, key, value, is_causal=True)
    with torch.no_grad():  # unless none have to be kept
        assert taken(query, key, value, is_causal=True)


def test_a_model_in_half_precision_reads_with_it(monkeypatch):
    """Its states are as far from those in float32 as with torch's attention, not further."""
    ids = torch.randint(0, 16000, (2, 40), generator=torch.Generator().manual_seed(0))
    exact, half = (FrozenModel.load("rootstock") for _ in range(2))
    half.model.bfloat16()
    with torch.no_grad():
        wanted, ours = exact.states(ids), half.states(ids).float()
        monkeypatch.setattr(cpu_attention, "_suits", lambda *_, **__: False)
        theirs = half.states(ids).float()
    far = [float((one - wanted).square().mean()) for one in (ours, theirs)]
    assert not torch.equal(ours, theirs)
    assert far[0] < 1.2 * far[1]
