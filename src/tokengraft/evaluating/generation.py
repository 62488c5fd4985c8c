"""What generation costs and writes, with base and graft, on the same machine in one run.

The models take turns at every prompt (batch 1), so that a machine that slows down slows down both.
Prefill is one pass over the prompt. Decoding is greedy, token by token, without the ids that the
folder's generation config suppresses, and with the logits processor if the output policy has one.
"Per character" refers to the prompt for prefill and cache, and to the text written for decode.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokengraft.grafting.graft import logits_processor
from tokengraft.model.folder import MANIFEST
from tokengraft.model.frozen import FrozenModel
from tokengraft.model.libraries import require_torch
from tokengraft.model.reading import OnRead


@dataclass
class _Tally:
    prompts: int = 0
    tokens: int = 0
    characters: int = 0
    prefill: float = 0.0
    decode: float = 0.0
    written: int = 0
    steps: int = 0
    cache: int = 0


def measure_generation(
    base: FrozenModel,
    graft: FrozenModel,
    language: str,
    prompts: Sequence[str],
    *,
    steps: int = 32,
    progress: OnRead | None = None,
) -> list[dict[str, Any]]:
    """Costs of both models as table rows, after a run of the first prompt to warm up."""
    tallies = {"base": _Tally(), "graft": _Tally()}
    sides = {"base": base, "graft": graft}
    for model in sides.values():
        _decode(model, prompts[0], steps, _Tally())
    for prompt in prompts:
        for name, model in sides.items():
            _decode(model, prompt, steps, tallies[name])
        if progress is not None:
            progress(1)
    return [
        {"language": language, "model": name, **_cost(tally)} for name, tally in tallies.items()
    ]


def fewer_steps(costs: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """By language, how many times fewer steps the graft takes per character, if both wrote any."""
    sides: dict[str, dict[str, float]] = {}
    for row in costs:
        written = row.get("characters_per_token_out")
        if isinstance(written, int | float) and written > 0:
            sides.setdefault(str(row["language"]), {})[str(row["model"])] = float(written)
    return {code: side["graft"] / side["base"] for code, side in sides.items() if len(side) == 2}


def write_samples(
    base: FrozenModel,
    graft: FrozenModel,
    language: str,
    prompts: Sequence[str],
    *,
    tokens: int = 48,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Greedy and sampled continuations by both models, which get the same seed."""
    samples = []
    for number, prompt in enumerate(prompts):
        for way, options in (
            ("greedy", {"do_sample": False}),
            ("sampled", {"do_sample": True, "temperature": 0.8, "top_p": 0.95, "top_k": 0}),
        ):
            texts = [
                _generate(model, prompt, tokens, seed + number, options) for model in (base, graft)
            ]
            about = {"language": language, "way": way, "prompt": prompt}
            samples.append({**about, "base": texts[0], "graft": texts[1]})
    return samples


def _decode(model: FrozenModel, prompt: str, steps: int, tally: _Tally) -> None:
    torch = require_torch()
    ids, characters, steps = _prompt(model, prompt, steps)
    barred, switched = _barred(model), _processors(model, greedy=True)
    written: list[int] = []
    seen = ids
    with torch.inference_mode():
        begun = _now(model)
        out = model.model(input_ids=ids, use_cache=True)
        scores = out.logits[:, -1].float()
        read = _now(model)
        tally.cache += cache_bytes(out.past_key_values)
        for _ in range(steps):
            if len(barred):
                scores[:, barred] = -torch.inf
            scores = switched(seen, scores) if switched else scores
            token = scores.argmax(-1, keepdim=True)
            seen = torch.cat([seen, token], -1)
            written.append(int(token))
            out = model.model(input_ids=token, past_key_values=out.past_key_values, use_cache=True)
            scores = out.logits[:, -1].float()
        done = _now(model)
    tally.prompts += 1
    tally.tokens += ids.shape[1]
    tally.characters += characters
    tally.prefill += read - begun
    tally.decode += done - read
    tally.steps += steps
    tally.written += len(model.tokenizer.decode([written])[0].replace("\ufffd", ""))


def cache_bytes(cache: Any) -> int:
    """Bytes of all keys and values in a KV cache."""
    layers = getattr(cache, "layers", None)
    if layers is not None:
        held = [part for layer in layers for part in (layer.keys, layer.values)]
    else:
        held = [part for layer in cache for part in layer[:2]]
    return sum(part.numel() * part.element_size() for part in held if part is not None)


def _generate(
    model: FrozenModel, prompt: str, tokens: int, seed: int, options: dict[str, Any]
) -> str:
    ids, _, tokens = _prompt(model, prompt, tokens)
    require_torch().manual_seed(seed)
    text: str = model.tokenizer.decode(generated(model, ids, tokens, options).tolist())[0]
    return text.rstrip("\ufffd")  # the token limit may fall inside a character


def generated(model: FrozenModel, ids: Any, tokens: int, options: dict[str, Any]) -> Any:
    """Ids that the model writes after prompts of one length, (prompts, at most `tokens`)."""
    torch = require_torch()
    with torch.inference_mode():
        out = model.model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens,
            pad_token_id=model.pad, **options,
            logits_processor=_processors(model, greedy=not options["do_sample"]),
        )  # fmt: skip
    return out[:, ids.shape[1] :]


def _processors(model: FrozenModel, *, greedy: bool) -> Any:
    """The logits processors that the graft's output policy needs; None for a base model."""
    grafted = (model.folder / MANIFEST).is_file()
    return logits_processor(model.folder, greedy=greedy) if grafted else None


def _prompt(model: FrozenModel, prompt: str, more: int) -> tuple[Any, int, int]:
    """Ids to read, how many characters they spell, and how many tokens to write after them.

    The prompt is cut so that both fit into the window, of which at most half is for writing.
    """
    torch = require_torch()
    more = min(more, model.window // 2)
    whole = model.tokenizer.encode([prompt])[0]
    ids = whole[: model.window - len(model.prefix) - more]
    read = prompt if len(ids) == len(whole) else model.tokenizer.decode([ids])[0]
    batch = torch.tensor([[*model.prefix, *ids]], device=model.device)
    return batch, len(read.rstrip("\ufffd")), more


def _barred(model: FrozenModel) -> Any:
    torch = require_torch()
    ids = getattr(model.model.generation_config, "suppress_tokens", None) or []
    return torch.tensor(ids, dtype=torch.long, device=model.device)


def _now(model: FrozenModel) -> float:
    if model.device.type == "cuda":
        require_torch().cuda.synchronize(model.device)
    return time.perf_counter()


def _cost(tally: _Tally) -> dict[str, float | None]:
    """Ratios of sums over all prompts of one language, for one model."""
    decode, steps = 1000 * tally.decode, max(1, tally.steps)
    return {
        "prompts": tally.prompts,
        "tokens_per_prompt": tally.tokens / tally.prompts,
        "prefill_ms_per_character": 1000 * tally.prefill / tally.characters,
        "decode_ms_per_character": decode / tally.written if tally.written else None,
        "decode_ms_per_token": decode / steps,
        "characters_per_token_out": tally.written / steps,
        "cache_bytes_per_character": tally.cache / tally.characters,
    }
