"""Attack what lanes promise: text without new tokens cannot meet what was learned.

    python tools/fuzz_lanes.py --minutes 10 --out lanes.json

Every seed makes a tiny random model (architecture, sizes, groups of heads, biases, tying, windows,
activations and types at random) and grafts it twice: once with nothing learned, once with large
random numbers wherever lanes learn. Plain transformers then reads both and the base.

    read     old ids (long, padded, written with a cache, or followed by new tokens) give the two
             grafts the same logits to the last bit, and the base's but for rounding
    broken   numbers, bits, rows, names, types or settings of the graft are changed: if old ids then
             give other logits, `verify` must fail, without hashes and before it reads any text

A failing case is told by its seed. Nothing here is used by training, writing or `verify`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

from fuzz import BASE, LINES, PLAN
from tokengraft.deriving.distil.lanes import settle, with_lanes
from tokengraft.deriving.distil.recipe import Adapting
from tokengraft.grafting.verify.invariants import Verification, checked, verify
from tokengraft.grafting.write_folder import Learned, write_model
from tokengraft.model.frozen import FrozenModel
from tokengraft.model.libraries import quiet
from tokengraft.planning.plan import with_plan

OLD, NEW = 258, len(PLAN.tokens)
TEXT = [*LINES, "क का कि की"]
KINDS = ("Llama", "Mistral", "Qwen2", "Qwen3")
MUTATIONS_A_MODEL = 12
_NORMS = re.compile(r"(layernorm|^model\.norm)\.weight$")


def make(folder: Path, draw: random.Random) -> None:
    """A random model with its tokenizer."""
    kind, heads = draw.choice(KINDS), draw.choice((1, 2, 3))
    groups, size = draw.choice((1, 2, 3)), draw.choice((4, 8))
    width = heads * groups * (size if kind == "Qwen2" else draw.choice((4, 6, 10)))
    more: dict[str, Any] = {} if kind == "Qwen2" and draw.random() < 0.5 else {"head_dim": size}
    if kind in ("Llama", "Qwen3"):
        more["attention_bias"] = draw.random() < 0.5
    if kind == "Llama":
        more["mlp_bias"] = draw.random() < 0.5
    elif draw.random() < 0.5:
        more |= {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}
    config = getattr(transformers, f"{kind}Config")(
        hidden_size=width, num_attention_heads=heads * groups, num_key_value_heads=heads,
        num_hidden_layers=draw.choice((1, 2, 3)), intermediate_size=draw.choice((8, 20, 33)),
        vocab_size=OLD + draw.choice((0, 3, 20)), tie_word_embeddings=draw.random() < 0.5,
        # Qwen 3 takes the same ε for queries and keys, where it is not undone: as small as its own.
        rms_norm_eps=1e-6 if kind == "Qwen3" else draw.choice((1e-6, 1e-5, 1e-2)),
        max_position_embeddings=512,
        hidden_act=draw.choice(("silu", "silu", "gelu", "relu")),
        bos_token_id=257, eos_token_id=257, pad_token_id=None, **more,
    )  # fmt: skip
    torch.manual_seed(draw.randrange(2**32))
    model = getattr(transformers, f"{kind}ForCausalLM")(config).float()
    scale = draw.choice((0.1, 0.3))
    with torch.no_grad():
        for name, held in model.named_parameters():
            drawn = torch.randn_like(held) * scale
            held.copy_(1 + drawn if "norm" in name else drawn)
    dtype = getattr(torch, draw.choice(("float32", "float32", "bfloat16", "float16")))
    model.to(dtype).save_pretrained(folder, max_shard_size=draw.choice(("1GB", "6KB")))
    (folder / "tokenizer.json").write_text(json.dumps(BASE), encoding="utf-8")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    settings |= dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), "<s>")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


@dataclass(frozen=True)
class Grafting:
    """How a model is grafted, whatever is learned."""

    lanes: int
    neurons: int
    policy: str
    rows: Any
    head: Any

    @classmethod
    def drawn(cls, folder: Path, draw: random.Random) -> Grafting:
        """One that fits the model in `folder`."""
        width = json.loads((folder / "config.json").read_text(encoding="utf-8"))["hidden_size"]
        numbers = np.random.default_rng(draw.randrange(2**32))
        rows, head = numbers.normal(0, 0.3, (2, NEW, width)).astype(np.float32)
        policy = draw.choice(("input-only", "write"))
        lanes, neurons = draw.choice((1, 5, 12)), draw.choice((1, 6, 16))
        return cls(lanes, neurons, policy, rows, head if policy == "write" else None)

    def write(self, base: Path, out: Path, size: float, seed: int = 0) -> Path:
        """The graft with learned numbers of that size."""
        student = with_lanes(
            FrozenModel.load(base),
            Adapting(train="lanes", lanes=self.lanes, neurons=self.neurons),
        )
        torch.manual_seed(seed)
        for held in student.learning.values():
            held.data = size * torch.randn_like(held)
        lanes = size * torch.randn(NEW, student.lanes).numpy()
        settle(student, np.concatenate([self.rows, lanes], 1))
        out.mkdir()
        write_model(
            base, with_plan(BASE, PLAN), self.rows, out, policy=self.policy,
            parts=[token.parts for token in PLAN.tokens],
            learned=Learned(head=self.head, laned=student),
        )  # fmt: skip
        return out


def load(folder: Path, dtype: Any = torch.float32, attention: str = "sdpa") -> Any:
    """A folder in plain transformers."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, local_files_only=True, dtype=dtype, attn_implementation=attention
    )


def logits(model: Any, ids: Any, **more: Any) -> Any:
    """Those of old ids: new ones and spare rows are not compared."""
    with torch.no_grad():
        return model(ids, **more).logits[..., :OLD]


def read(draw: random.Random) -> Counter[str]:
    """Old ids are read alike by the base and by grafts that learned nothing or anything."""
    with tempfile.TemporaryDirectory() as place:
        base = Path(place) / "base"
        make(base, draw)
        how, size = Grafting.drawn(base, draw), draw.choice((1.0, 10.0, 100.0))
        if load(base, "auto").dtype == torch.float16:
            size = 0.1  # a score below -16 is infinite where it is masked, as in any head
        folders = [how.write(base, Path(place) / f"{n}", n * size) for n in range(2)]
        attention = draw.choice(("sdpa", "eager"))
        plain = load(base, attention=attention)
        exact = [
            [load(one, kind, attention) for one in folders] for kind in ("auto", torch.float32)
        ]
    unscale(plain, exact[1][1])
    generator = torch.Generator().manual_seed(draw.randrange(2**32))
    tried = 0
    for length, count in ((1, 30), (12, 20), (90, 6), (400, 1)):
        ids = torch.randint(0, OLD, (count, length), generator=generator)
        begun = torch.arange(length) >= torch.randint(0, length, (count, 1), generator=generator)
        new = torch.randint(OLD, OLD + NEW, (count, 5), generator=generator)
        whole = torch.ones_like(begun)
        for given, compared, more in (
            (ids, whole, {}),
            (ids, begun, {"attention_mask": begun.long()}),
            (torch.cat([ids, new], 1), torch.cat([whole, new < 0], 1), {}),
        ):
            for nothing, anything in exact:
                a, b = (logits(one, given, **more)[compared] for one in (nothing, anything))
                assert torch.equal(a, b), f"learned numbers move {given.tolist()}: {apart(a, b)}"
            if given is ids:  # the base knows no others
                near = apart(logits(plain, ids, **more)[compared], b)
                assert near < 1e-3, f"the base reads {ids.tolist()} otherwise: {near}"
            tried += count
    for nothing, anything in exact:
        a, b = (generated(one, ids[:, :20]) for one in (nothing, anything))
        assert torch.equal(a, b), f"learned numbers change what follows {ids[:, :20].tolist()}"
    return Counter(sequences=2 * tried + 2)


def unscale(plain: Any, wide: Any) -> None:
    """Give a base its graft's norms, as they are before scaling: rounding is then no excuse."""
    theirs = dict(wide.named_parameters())
    with torch.no_grad():
        for name, held in plain.named_parameters():
            if _NORMS.search(name):
                new, old = theirs[name], held.clone()
                held.copy_(new[: len(held)] * (len(new) / len(held)) ** 0.5)
                assert torch.allclose(held, old, rtol=2**-8, atol=1e-6), f"{name} was not scaled"


def apart(a: Any, b: Any) -> float:
    """The most that logits differ, of their size; infinite if one is not finite."""
    most = float((a.float() - b.float()).abs().max() / max(1.0, float(a.float().abs().max())))
    return float("inf") if math.isnan(most) else most


def generated(model: Any, ids: Any) -> Any:
    """What follows, with a cache; new tokens are barred, since they are no old text."""
    return model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False,
        eos_token_id=None, pad_token_id=0, suppress_tokens=list(range(OLD, OLD + NEW)),
    )  # fmt: skip


@dataclass
class Folder:
    """A graft's files, to be changed."""

    path: Path
    narrow: dict[str, tuple[int, ...]]  # the base's shapes
    config: dict[str, Any]
    tensors: dict[str, dict[str, Any]]  # by file

    @classmethod
    def opened(cls, path: Path, base: Path) -> Folder:
        """With everything in memory."""
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
        narrow = {name: tuple(one.shape) for held in _weights(base).values()
                  for name, one in held.items()}  # fmt: skip
        return cls(path, narrow, config, _weights(path))

    def drawn(self, draw: random.Random) -> tuple[dict[str, Any], str, tuple[bool, ...]]:
        """A tensor (its file's tensors and its name) and the axes along which to go beyond the old.

        Every kind of layer and all its parts, old and new, are as likely: each has its own proof.
        """
        found: dict[Any, list[Any]] = {}
        for held in self.tensors.values():
            for name, values in held.items():
                shapes = zip(self.narrow.get(name, values.shape), values.shape, strict=True)
                for beyond in itertools.product(*((False, True)[: 1 + (a < b)] for a, b in shapes)):
                    found.setdefault((re.sub(r"\d+", "", name), beyond), []).append((held, name))
        (_, beyond), ones = draw.choice(list(found.items()))
        return *draw.choice(ones), beyond

    def save(self) -> None:
        """As it is now; an index is made to fit."""
        (self.path / "config.json").write_text(json.dumps(self.config), encoding="utf-8")
        for name, held in self.tensors.items():
            whole = {key: one.contiguous() for key, one in held.items()}
            save_file(whole, self.path / name, metadata={"format": "pt"})
        index = self.path / "model.safetensors.index.json"
        if index.is_file():
            told = json.loads(index.read_text(encoding="utf-8"))
            told["weight_map"] = {key: name for name, held in self.tensors.items() for key in held}
            index.write_text(json.dumps(told), encoding="utf-8")


def _weights(folder: Path) -> dict[str, dict[str, Any]]:
    held = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            held[path.name] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return held


def numbers(folder: Folder, draw: random.Random) -> str:
    """Some numbers in one place of a tensor."""
    held, name, beyond = folder.drawn(draw)
    values, said = held[name], []
    was = folder.narrow.get(name, values.shape)
    for _ in range(draw.choice((1, 1, 1, 4))):
        at = tuple(
            draw.randrange(a, b) if new else draw.randrange(a)
            for a, b, new in zip(was, values.shape, beyond, strict=True)
        )
        old, size = float(values[at]), 10.0 ** draw.randint(-3, 3)
        now = draw.choice((old + size, old - size, -old, 0.0, size, 3e4, 1e30, 3e38, math.nan,
                           math.inf))  # fmt: skip
        values[at] = now
        said.append(f"{at}: {old} → {now}")
    return f"{name} {'; '.join(said)}"


def lines(folder: Folder, draw: random.Random) -> str:
    """Two rows or columns of a tensor change places, or one is 0 or repeated."""
    held, name, _ = folder.drawn(draw)
    axis = draw.randrange(held[name].ndim)
    values = held[name].movedim(axis, 0)
    a, b = (draw.randrange(len(values)) for _ in range(2))
    way = draw.choice(("swapped", "copied", "zero"))
    if way == "zero":
        values[a] = 0
    else:
        values[[a, b]] = values[[b, a] if way == "swapped" else [b, b]]
    return f"{name} along axis {axis}: {a} and {b} {way}"


def names(folder: Folder, draw: random.Random) -> str:
    """A tensor is missing, renamed, of another type, turned, or one more is there."""
    held, name, _ = folder.drawn(draw)
    way = draw.choice(("gone", "swapped", "type", "turned", "bias", "again", "reshaped"))
    values = held[name]
    if way == "gone":
        del held[name]
    elif way == "swapped":
        same = [one for one in held if held[one].shape == values.shape]
        other = draw.choice(same)
        held[name], held[other] = held[other], values
        return f"{name} and {other} swapped"
    elif way == "type":
        held[name] = values.to(draw.choice((torch.float32, torch.bfloat16, torch.float16)))
    elif way == "turned" and values.ndim == 2:
        held[name] = values.T.contiguous().reshape(values.shape)
    elif way == "bias":
        held[re.sub(r"weight$", "bias", name)] = torch.randn(len(values)).to(values.dtype)
    elif way == "again":
        elsewhere = draw.choice(list(folder.tensors.values()))
        elsewhere[name] = values + torch.randn(values.shape).to(values.dtype)
    elif way == "reshaped":
        held[name] = values[: draw.randrange(len(values)) + 1].clone()
    return f"{name} {way}"


def settings(folder: Folder, draw: random.Random) -> str:
    """A value of config.json."""
    more = ("attention_bias", "mlp_bias", "rms_norm_eps", "hidden_act", "num_key_value_heads",
            "head_dim", "rope_theta", "rope_scaling")  # fmt: skip
    key = draw.choice(draw.choice((list(folder.config), more)))
    was = folder.config.get(key)
    now: Any = draw.choice((None, True, 0, 1, -1, 2, 1e-3, "x", "gelu", "sigmoid", "bfloat16"))
    if isinstance(was, bool):
        now = not was
    elif isinstance(was, int | float):
        now = draw.choice((was + 1, was - 1, was * 2, was // 2, was * 1.001, now))
    if draw.random() < 0.1:
        folder.config.pop(key, None)
    else:
        folder.config[key] = now
    return f"config.json: {key} {was} → {folder.config.get(key, 'gone')}"


def bits(folder: Folder, draw: random.Random) -> str:
    """One bit of a weight file, header included."""
    path = folder.path / draw.choice(list(folder.tensors))
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    at = draw.randrange(start) if draw.random() < 0.2 else draw.randrange(start, len(data))
    data[at] ^= 1 << draw.randrange(8)
    path.write_bytes(data)
    return f"{path.name}, byte {at} (header to {start})"


MUTATIONS: tuple[Callable[[Folder, random.Random], str], ...] = (
    numbers, numbers, numbers, lines, names, settings, bits,
)  # fmt: skip


def broken(draw: random.Random) -> Counter[str]:
    """Whatever changes what old ids give, `verify` sees."""
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        base, whole, changed = (Path(place) / name for name in ("base", "whole", "changed"))
        make(base, draw)
        how, size = Grafting.drawn(base, draw), draw.choice((0.1, 1.0))
        if load(base).config.tie_word_embeddings:  # only a manifest can say that a head is new
            how = replace(how, policy="input-only", head=None)
        how.write(base, whole, size)
        sound = verify(whole, base, TEXT)
        assert sound.passed, f"a sound graft fails: {sound.lines()}"
        generator = torch.Generator().manual_seed(draw.randrange(2**32))
        texts = [
            torch.randint(0, OLD, (n, m), generator=generator) for n, m in ((40, 24), (1, 300))
        ]
        every = torch.arange(OLD)[:, None]
        expected = [logits(load(whole), ids) for ids in (*texts, every)]
        for _ in range(MUTATIONS_A_MODEL):
            shutil.copytree(whole, changed)
            folder, change = Folder.opened(changed, base), draw.choice(MUTATIONS)
            what = change(folder, draw)
            if change is not bits:
                folder.save()
            moved = _moved(changed, [*texts, every], expected)
            end = "harmless" if moved is False else "does not load"
            if moved:
                seen = _seen(changed, base)
                assert seen, f"not seen: {what}"
                end = f"seen by {seen}"
            ends[f"{change.__name__}: {end}"] += 1
            shutil.rmtree(changed)
    return ends


def _moved(folder: Path, texts: list[Any], expected: list[Any]) -> bool | None:
    """Whether old ids give other logits; None if transformers cannot read the folder."""
    try:
        model = load(folder)
        found = [logits(model, ids) for ids in texts]
    except Exception:
        return None
    return any(not apart(a, b) < 1e-3 for a, b in zip(expected, found, strict=True))


def _seen(folder: Path, base: Path) -> str | None:
    """The check that fails, of those that read no text: by text it could be seen by chance."""
    proof = Verification(folder, base, TEXT)
    for name, step in (("old weights", proof._weights), ("preserved", proof._preserved)):
        if not checked(name, step).passed:
            return name
    return None


ATTACKS: dict[str, Callable[[random.Random], Counter[str]]] = {"read": read, "broken": broken}


def main() -> int:
    """Attack until time is up; exit 1 if something was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="how long to go on")
    parser.add_argument("--start", type=int, default=0, help="first seed")
    parser.add_argument("--only", choices=ATTACKS, help="one attack")
    parser.add_argument("--out", type=Path, help="counts and findings as JSON")
    given = parser.parse_args()
    totals: dict[str, Counter[str]] = {name: Counter() for name in ATTACKS}
    told: dict[str, Any] = {"start": given.start, "findings": []}
    torch.set_num_threads(1)
    until, number = time.monotonic() + 60 * given.minutes, given.start
    with quiet(warnings=False):
        while time.monotonic() < until:
            for name in [given.only] if given.only else ATTACKS:
                totals[name]["models"] += 1
                try:
                    totals[name] += ATTACKS[name](random.Random(number))
                except Exception as error:
                    found = "".join(traceback.format_exception(error))
                    told["findings"].append({"attack": name, "seed": number, "traceback": found})
                    print(f"{name}, seed {number}: {found[-600:]}", flush=True)
            number += 1
    told |= {
        "seeds": number - given.start,
        "cpu_seconds": round(time.process_time(), 1),
        "ends": {name: dict(sorted(ends.items())) for name, ends in totals.items()},
    }
    if given.out:
        given.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(told["ends"], indent=1))
    return 1 if told["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
