r"""Speed of hidden states and of the array methods, against the hardware's limit and faiss.

GPU part: a randomly initialised model of Llama 3.2 1B's shape (16 layers × 2,048, 128,256 rows).
Seconds for the vocabulary's states V_l at four layers, and for kNN, linear and local linear
regression of 2,600 new tokens, each beside a floor measured on the same card in the same run:
- V_l: 2 · parameters · tokens operations at the rate of a large bfloat16 product, plus the bytes of
  the four float32 results at the measured speed of copies from the card;
- kNN: the bare distance product in float32 plus one read of the anchors from host memory.

CPU part: exact kNN against faiss-cpu's IndexFlatL2 with as many threads, and peak memory; attention
in bfloat16 as in training (16 passages, 6 heads of 64), against torch's own kernel.

    python benchmarks/derive.py --part cpu --json cpu.json
    python benchmarks/derive.py --part gpu --json gpu.json
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

NEW, ANCHORS, WIDTH = 2600, 128_256, 2048
SMALL = {"new": 300, "anchors": 8000, "width": 256}


def main() -> None:
    """Run the parts asked for and print, or write, what was measured."""
    parser = argparse.ArgumentParser(description="Speed of tokengraft.deriving")
    parser.add_argument("--part", choices=["cpu", "gpu", "all"], default="all")
    parser.add_argument("--small", action="store_true", help="a quick run, to see that it works")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.part in ("cpu", "all"):
        found["cpu"] = cpu(options.small, options.repeat)
        found["cpu_attention"] = attention(options.repeat)
    if options.part in ("gpu", "all"):
        found["gpu"] = gpu(options.small, options.repeat)
    text = json.dumps(found, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


def best_of(repeat: int, run: Callable[[], Any]) -> float:
    """Seconds of the fastest of `repeat` runs."""
    times = []
    for _ in range(repeat):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return min(times)


def cpu(small: bool, repeat: int) -> dict[str, Any]:
    """KNN and faiss in turns, so that a busy machine slows both."""
    from tokengraft.paper.neighbours import nearest

    new, anchors, width = SMALL.values() if small else (NEW, ANCHORS, WIDTH)
    generator = np.random.default_rng(0)
    known = generator.standard_normal((anchors, width), np.float32)
    hidden = generator.standard_normal((new, width), np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ours, theirs = [], []
    _, index = nearest(hidden, known, 10)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result: dict[str, Any] = {
        "new": new, "anchors": anchors, "width": width, "k": 10, "cores": os.cpu_count(),
        "extra_peak_mib": (after - before) // 1024,
    }  # fmt: skip
    try:
        import faiss
    except ImportError:
        result["faiss"] = "not installed: pip install faiss-cpu"
        result["knn_seconds"] = best_of(repeat, lambda: nearest(hidden, known, 10))
        return result
    flat = faiss.IndexFlatL2(width)
    flat.add(known)
    for _ in range(repeat):
        theirs.append(best_of(1, lambda: flat.search(hidden, 10)))
        ours.append(best_of(1, lambda: nearest(hidden, known, 10)))
    _, expected = flat.search(hidden, 10)
    result["same_neighbours"] = float((np.sort(expected, 1) == np.sort(index, 1)).mean())
    result["knn_seconds"], result["faiss_seconds"] = min(ours), min(theirs)
    result["ratio"] = min(ours) / min(theirs)
    return result


def attention(repeat: int) -> list[dict[str, float]]:
    """Plain products and torch's kernel in turns: milliseconds and their ratio by length."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    from tokengraft.model.cpu_attention import causal

    def kernel(query: Any, key: Any, value: Any) -> Any:
        return scaled_dot_product_attention(query, key, value, is_causal=True)

    def seconds(attend: Callable[..., Any], given: list[Any], pull: Any) -> float:
        return best_of(1, lambda: torch.autograd.grad(attend(*given), given, pull))

    rows = []
    for length in (60, 140, 256, 512):
        made = [torch.randn(16, 6, length, 64).bfloat16() for _ in range(4)]
        given, pull = [one.requires_grad_() for one in made[:3]], made[3]
        ours, theirs = [], []
        for _ in range(repeat + 1):
            ours.append(seconds(causal, given, pull))
            theirs.append(seconds(kernel, given, pull))
        ratio = min(ours) / min(theirs)
        rows.append({"length": length, "ms": 1e3 * min(ours), "torch_ms": 1e3 * min(theirs),
                     "ratio": ratio})  # fmt: skip
    return rows


def gpu(small: bool, repeat: int) -> dict[str, Any]:
    """V_l and the methods on a model of Llama 3.2 1B's shape, against the card's floor."""
    import torch
    import transformers

    from tokengraft.model.frozen import FrozenModel
    from tokengraft.paper.linear import Linear
    from tokengraft.paper.neighbours import KNN, LocalLinear
    from tokengraft.paper.states import vocabulary_states

    device = "cuda" if torch.cuda.is_available() else "cpu"
    new, anchors, width = SMALL.values() if small else (NEW, ANCHORS, WIDTH)
    depth = 4 if small else 16
    config = transformers.LlamaConfig(
        vocab_size=anchors, hidden_size=width, intermediate_size=4 * width,
        num_hidden_layers=depth, num_attention_heads=width // 64,
        num_key_value_heads=max(1, width // 256), head_dim=64, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    with torch.device(device):
        torch.set_default_dtype(kind)
        auto: Any = transformers.AutoModelForCausalLM
        model = auto.from_config(config)
        torch.set_default_dtype(torch.float32)
    model = FrozenModel(model)
    layers = [0, 1, depth - 1, depth]

    def settle() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def states() -> Any:
        found = vocabulary_states(model, layers)
        settle()
        return found

    states()
    result: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "layers": depth, "width": width, "anchors": anchors, "new": new,
        "states_seconds": best_of(repeat, states),
    }  # fmt: skip
    body = sum(p.numel() for block in model.blocks for p in block.parameters())
    rate = _product_rate(device, kind, settle, repeat)
    copy = _copy_rate(device, settle, repeat)
    result["product_tflops"], result["copy_gb_per_second"] = rate / 1e12, copy / 1e9
    floor = 2 * body * anchors / rate + 4 * anchors * width * len(layers) / copy
    result["states_floor"] = floor
    result["states_ratio"] = result["states_seconds"] / floor
    known = states()
    hidden = np.random.default_rng(0).standard_normal((new, width), np.float32)
    hidden *= float(known[depth].std())

    def timed(name: str, deriver: Any) -> None:
        deriver.fit(known[depth], known[0]).derive(hidden)
        fit = best_of(repeat, lambda: deriver.fit(known[depth], known[0]).derive(hidden))
        result[f"{name}_seconds"] = fit

    timed("knn", KNN(10, device=device))
    timed("linear", Linear())
    timed("local_linear", LocalLinear(10, device=device))
    queries = torch.from_numpy(hidden).to(device)
    pinned = torch.from_numpy(known[depth])

    def bare() -> None:
        (queries @ pinned.to(device).T).topk(10, dim=1, largest=False)
        settle()

    bare()
    result["knn_floor"] = best_of(repeat, bare)
    result["knn_ratio"] = result["knn_seconds"] / result["knn_floor"]
    return result


def _product_rate(device: str, kind: Any, settle: Callable[[], None], repeat: int) -> float:
    import torch

    size = 8192 if device == "cuda" else 1024
    a = torch.randn(size, size, device=device, dtype=kind)

    def run() -> None:
        for _ in range(8):
            a @ a
        settle()

    run()
    return 8 * 2 * size**3 / best_of(repeat, run)


def _copy_rate(device: str, settle: Callable[[], None], repeat: int) -> float:
    import torch

    source = torch.zeros(1 << 26, device=device)
    target = np.empty(1 << 26, np.float32)

    def run() -> None:
        torch.from_numpy(target).copy_(source)  # straight into memory that is there already
        settle()

    run()
    return target.nbytes / best_of(repeat, run)


if __name__ == "__main__":
    main()
