"""Split anchors: whole tokens read as their bytes, with their true rows as ground truth."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tokengraft.core.errors import UsageError  # noqa: E402
from tokengraft.model.frozen import FrozenModel  # noqa: E402
from tokengraft.paper import split_anchor  # noqa: E402

GREEK = [chr(code) for code in range(0x3B1, 0x3C9)]
HEBREW = [chr(code) for code in range(0x5D0, 0x5EA)]
CYRILLIC = [chr(code) for code in range(0x430, 0x450)]
PIECES = [
    *(bytes([byte]) for byte in range(256)),
    *(letter.encode() for letter in (*GREEK, *HEBREW, *CYRILLIC)),
    *(f" {letter}".encode() for letter in GREEK),
    *(b"word", b" the", "é".encode()[:1] + b"a", "αβ".encode()),
]


@pytest.fixture
def model() -> FrozenModel:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(PIECES), hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, head_dim=8,
    )  # fmt: skip
    return FrozenModel(transformers.AutoModelForCausalLM.from_config(config))


def test_anchors_are_whole_tokens_outside_ascii() -> None:
    found = split_anchor.split_anchors(PIECES)
    texts = {PIECES[number].decode() for number in found.ids}
    spaced = {f" {letter}" for letter in GREEK}
    assert texts == {*GREEK, *HEBREW, *CYRILLIC, *spaced, "αβ"}
    for number, parts, name in zip(found.ids, found.parts, found.scripts, strict=True):
        assert b"".join(PIECES[part] for part in parts) == PIECES[number]
        assert name in ("GREEK", "HEBREW", "CYRILLIC")


def test_spelling_goes_down_to_bytes() -> None:
    alpha, beta = PIECES.index("α".encode()), PIECES.index("β".encode())
    (spelled,) = split_anchor.spell(PIECES, [(alpha, beta)])
    assert bytes(spelled) == "αβ".encode()
    with pytest.raises(UsageError, match="no token for the byte 0xce"):
        split_anchor.spell([b"a", "α".encode()], [(1,)])
    with pytest.raises(UsageError, match="can be split"):
        split_anchor.split_anchors([b"a", b"b", b"ab"])


def test_error_of_a_script_left_out() -> None:
    rng = np.random.default_rng(0)
    scripts = ["a"] * 60 + ["b"] * 60 + ["rare"] * 3
    features = rng.standard_normal((len(scripts), 5))
    learnable = features @ rng.standard_normal((5, 4)) + 1
    errors = split_anchor.leave_one_script_out(features, learnable, scripts, 1e-6)
    assert set(errors) == {"a", "b"}  # three anchors are too few to tell
    assert all(error < 1e-6 and count == 60 for error, count in errors.values())
    noise = rng.standard_normal((len(scripts), 4))
    assert all(
        error > 0.9
        for error, _ in split_anchor.leave_one_script_out(features, noise, scripts, 1e-6).values()
    )


def test_a_rule_that_whole_tokens_follow_is_found_and_applied(model: FrozenModel) -> None:
    """Where every anchor's row is -2 × the mean of its bytes' rows, so are the new rows."""
    anchors = split_anchor.split_anchors(PIECES)
    rows = model.weight
    with torch.no_grad():
        for number, parts in zip(anchors.ids, anchors.parts, strict=True):
            rows[number] = -2 * rows[list(parts)].mean(dim=0)
    fit = split_anchor.fit(model, PIECES)
    assert fit.ridge == 0.001  # nothing to shrink for
    assert max(error for error, _ in fit.errors.values()) < 0.3
    new = [tuple("פδ".encode()), (PIECES.index("ж".encode()), PIECES.index("я".encode()))]
    derived = fit.derive(model, new)
    for row, parts in zip(derived, split_anchor.spell(PIECES, new), strict=True):
        expected = (-2 * rows[list(parts)].mean(dim=0)).detach().numpy()
        assert np.linalg.norm(row - expected) < 0.1 * np.linalg.norm(expected)
