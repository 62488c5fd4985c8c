r"""Published ways to extend a vocabulary, trained on the same text for as many steps as ours.

    python benchmarks/peers.py MODEL PLANS TEXT FLORES OUT -l hin_Deva tam_Taml --steps 600 --jobs 6

The folders are those of `write_gpu.py`. A row of `PEERS` is a start for the new rows, what is
trained, and a loss:

- starts (Yamaguchi et al. 2025, https://arxiv.org/abs/2406.11477): `mean` of the parts; `merge`,
  the two halves of each merge averaged, merge by merge; `align`, old tokens at the same place in
  the text, by frequency; `focus` (Dobler & de Melo 2023, https://arxiv.org/abs/2305.14481),
  neighbours in a space learned from the text, weighted by sparsemax. Changed: that space is an SVD
  of co-occurrences, not fastText; `nearest`, the single nearest old token there (TokAlign++,
  https://arxiv.org/abs/2605.13429). Changed: one space of one tokenization, where theirs aligns
  GloVe vectors of two.
- trained: `lora` of rank 32 at every linear layer and both tables; `later`, the same, but only the
  tables in the first third of the steps; or `2x2`, the two lowest and the two highest blocks and
  both tables.
- losses: `lm`, the next new token; `mtp`, also the one after it, by an additional block (and with
  short passages); `alm`, likelihoods of chunks that both tokenizations have in common (Minixhofer
  et al. 2025, https://arxiv.org/abs/2503.20083, binarised, temperature 100). Changed: all chunks
  count, even if their ends differ in what may follow; states are not matched.

Token Distillation (https://arxiv.org/abs/2505.20133, rows from the states of old tokens) and our
own methods are trained by `tokengraft` itself. OUT gets one JSON file per run, with figures on dev,
by which the learning rate is chosen, and on devtest.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections import Counter
from typing import Any

import numpy as np

import adapt_gpu
import write_gpu
from gpu_jobs import arguments, lines_in, share_out
from write_gpu import _grown, _save

#: By name: start, what is trained, loss, longest passage in characters.
PEERS = {
    "mean": ("mean", "lora", "lm", 400), "merge": ("merge", "lora", "lm", 400),
    "align": ("align", "lora", "lm", 400), "focus": ("focus", "lora", "lm", 400),
    "tokalign": ("nearest", "later", "lm", 400), "alm": ("mean", "lora", "alm", 400),
    "2x2": ("mean", "2x2", "lm", 400), "2x2-mtp-short": ("mean", "2x2", "mtp", 160),
    "mtp-short": ("mean", "lora", "mtp", 160),
}  # fmt: skip
#: Ours, and Token Distillation: settings of `write_gpu`.
OURS: dict[str, dict[str, Any]] = {
    "token-distillation": {"way": "input-only", "recipe": {
        "start": "mean", "mse": 1.0, "cosine": 0.0, "kl": 0.0, "share": 0.0, "mixed": 0.0}},
    "rows": {"way": "write", "recipe": {}},
    "lora": {"way": "write", "recipe": {}, "adapting": {}},
}  # fmt: skip
LANES = "lanes"  # ours too, judged as the folder that `graft --train lanes` writes
_ALL = [*OURS, LANES, *PEERS]
_RANK, _TEMPERATURE = 32, 100.0


def main() -> None:
    """Distribute the runs over processes."""
    options = parse()
    ours, peers = ([name for name in names if name in options.only] for names in (OURS, PEERS))
    ours += [LANES] if LANES in options.only else []
    jobs = [(name, code, 0.0) for code in options.language for name in ours]
    jobs += [(name, code, r) for r in options.rates for name in peers for code in options.language]
    share_out(one, options, jobs)


def one(options: argparse.Namespace, name: str, code: str, rate: float) -> None:
    """One run, ours or a peer's."""
    (lanes if name == LANES else ours if name in OURS else run)(options, name, code, rate)


def lanes(options: argparse.Namespace, name: str, code: str, _: float) -> None:
    """Rows and lanes, trained for as many steps, written and read back."""
    import tokengraft as tg
    from tokengraft.model.frozen import FrozenModel, Reading

    begun = time.monotonic()
    base = FrozenModel.load(options.model, Reading(dtype="float32"))
    made = tg.graft(
        str(options.model), options.plans / f"{code}.json", options.out / f"{name}-{code}",
        text=str(options.text / f"{code}.txt"), train="lanes", policy="write", steps=options.steps,
        protect=str(options.text / "eng_Latn.txt"), force=True,
        derive_options={"passages": options.passages, "patience": 0},
    )  # fmt: skip
    seconds = time.monotonic() - begun
    graft = FrozenModel.load(made.folder, Reading(dtype="float32")).narrow(base.dimensions)
    facts = {"setting": name, "language": code, "steps": options.steps, "seconds": seconds}
    facts |= write_gpu.judge(base, graft, code, options, True)
    _save(facts, options.out / f"{name}-{code}.json")
    shown = {key: round(one["value"], 4) for key, one in facts["scores"].items()}
    print(name, code, round(seconds), json.dumps(shown), flush=True)


def ours(options: argparse.Namespace, name: str, code: str, _: float) -> None:
    """One of our own methods, trained for as many steps."""
    setting = {"name": name, **copy.deepcopy(OURS[name])}
    setting["recipe"] |= {"steps": options.steps, "patience": 0, "passages": options.passages}
    setting["recipe"] |= {"check_every": max(1, options.steps // 2)}
    if options.small and "adapting" in setting:
        setting["adapting"] = {"protected": 60, "replayed": 4}
    write_gpu.run(options, setting, code)


def run(options: argparse.Namespace, name: str, code: str, rate: float) -> None:
    """Train a peer, judge it and write the results."""
    import torch

    from tokengraft.deriving.distil.passages import read_lots, shuffled_batches
    from tokengraft.model.frozen import FrozenModel, Reading
    from tokengraft.planning.plan import Plan, with_plan
    from tokengraft.tokenizer.align import Aligner
    from tokengraft.tokenizer.huggingface import HuggingFace

    begun = time.monotonic()
    start, trained, loss, characters = PEERS[name]
    plan = Plan.from_json(json.loads((options.plans / f"{code}.json").read_text("utf-8")))
    spec = with_plan(json.loads((options.model / "tokenizer.json").read_text("utf-8")), plan)
    base = FrozenModel.load(options.model, Reading(dtype="float32"))
    new = HuggingFace.from_parsed("new", spec)
    first = len(base.tokenizer.vocabulary)
    lots = read_lots(
        lines_in(options.text / f"{code}.txt"), Aligner(base.tokenizer, new), first, characters, 500
    )
    shares = begin(start, plan, lots.train, first, spec["model"]["vocab"])
    old = base.weight[:first].float().cpu().numpy()
    rows = torch.from_numpy((shares @ old).astype(np.float32))
    model = _grown(base.model, {"rows": rows, "head": rows.clone()}, first).float()
    model.config.tie_word_embeddings = False
    torch.manual_seed(0)
    parameters = learning(model, trained)
    further = copy.deepcopy(base.blocks[-1]).requires_grad_(True) if loss == "mtp" else None
    if further is not None:
        parameters += list(further.parameters())
    adam = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    sizes = np.fromiter((len(one.new) for one in lots.train), np.int64)
    order: list[Any] = []
    trained_at = time.monotonic()
    for step in range(options.steps):
        if not order:
            order = shuffled_batches(sizes, options.passages, np.random.default_rng([0, step]))
        passages = [lots.train[n] for n in order.pop()]
        here = 0.5 * (1 + np.cos(np.pi * step / options.steps)) * min(1.0, (step + 1) / 20)
        adam.param_groups[0]["lr"] = rate * float(here)
        value = losses(loss, base, model, further, passages)
        adam.zero_grad()
        value.backward()
        if trained == "later" and step < options.steps // 3:
            for held in parameters[2:]:
                held.grad = None
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        adam.step()
    seconds = time.monotonic() - trained_at
    merge(model)
    graft = FrozenModel(model, name=f"{name}-{code}", folder=base.folder, tokenizer=new)
    graft.__dict__["manifest"] = {"output": {"policy": "write"}}
    torch.backends.cuda.matmul.allow_tf32 = False
    write_gpu._greedy_by_text(graft.name, new, plan)
    facts = {
        "peer": name, "start": start, "trained": trained, "loss": loss, "language": code,
        "rate": rate, "steps": options.steps, "passages": options.passages,
        "train_seconds": seconds, "seconds": time.monotonic() - begun,
        "dev": {k: v.value for k, v in adapt_gpu.brief(base, graft, code, options).items()},
    }  # fmt: skip
    facts |= write_gpu.judge(base, graft, code, options, True)
    _save(facts, options.out / f"{name}-{rate:g}-{code}.json")
    shown = {key: round(one["value"], 4) for key, one in facts["scores"].items()}
    print(name, code, rate, round(seconds), json.dumps(shown), flush=True)


def begin(start: str, plan: Any, passages: Any, first: int, ids: dict[str, int]) -> Any:
    """The weights of old rows in each new row (new tokens, old tokens)."""
    mean = np.zeros((len(plan.tokens), first), np.float32)
    for row, token in zip(mean, plan.tokens, strict=True):
        np.add.at(row, list(token.parts), 1 / len(token.parts))
    if start == "merge":

        def share(token: str) -> Any:
            n = ids[token]
            return mean[n - first] if n >= first else np.eye(1, first, n, dtype=np.float32)[0]

        for left, right in plan.merges:  # halves come before what they make
            if (n := ids.get(left + right, 0)) >= first:
                mean[n - first] = (share(left) + share(right)) / 2
    if start == "align":
        counts = np.zeros_like(mean)
        for one in passages:
            ends = zip([-1, *one.old_at[:-1]], one.old_at, [-1, *one.new_at[:-1]], one.new_at,
                       strict=True)  # fmt: skip
            for a, b, c, d in ends:
                for token in one.new[c + 1 : d + 1]:
                    if token >= first:
                        np.add.at(counts[token - first], one.old[a + 1 : b + 1], 1)
        seen = counts.sum(1) > 0
        mean[seen] = counts[seen] / counts[seen].sum(1, keepdims=True)
    if start in ("focus", "nearest"):
        vectors, known = space(passages, first + len(mean))
        anchors = np.flatnonzero(known[:first])
        for token in np.flatnonzero(known[first:]):
            near = vectors[anchors] @ vectors[first + token]
            mean[token] = 0
            mean[token, anchors] = sparsemax(near) if start == "focus" else near == near.max()
    return mean


def space(passages: Any, size: int, width: int = 5, dimensions: int = 100) -> Any:
    """Unit vectors of tokens from their co-occurrences, and which tokens have one."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.linalg import svds

    pairs: Counter[tuple[int, int]] = Counter()
    for one in passages:
        ids = one.new.tolist()
        for gap in range(1, width + 1):
            pairs.update(zip(ids, ids[gap:], strict=False))
    rows, columns = np.array(list(pairs)).T
    values = np.fromiter(pairs.values(), np.float64)
    counts = coo_matrix((values, (rows, columns)), (size, size)).tocsr()
    counts = (counts + counts.T).tocoo()
    sums = np.asarray(counts.sum(1)).ravel()
    high = np.log(counts.data * sums.sum() / (sums[counts.row] * sums[counts.col]))
    near = coo_matrix((np.maximum(high, 0), (counts.row, counts.col)), (size, size)).tocsr()
    left, weights, _ = svds(near, k=dimensions, random_state=0)
    vectors = left * np.sqrt(weights)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-9), lengths[:, 0] > 1e-9


def sparsemax(scores: Any) -> Any:
    """The nearest point of the simplex (Martins & Astudillo 2016)."""
    ordered = np.sort(scores)[::-1]
    sums = np.cumsum(ordered) - 1
    last = np.flatnonzero(ordered * np.arange(1, len(ordered) + 1) > sums)[-1]
    return np.maximum(scores - sums[last] / (last + 1), 0)


def learning(model: Any, trained: str) -> list[Any]:
    """The weights that a peer trains; adds its adapters to the model."""
    import peft

    model.requires_grad_(False)
    tables = [model.get_input_embeddings().weight, model.get_output_embeddings().weight]
    if trained != "2x2":
        kinds = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
        settings = peft.LoraConfig(r=_RANK, lora_alpha=_RANK, target_modules=kinds)
        peft.inject_adapter_in_model(settings, model)
        body = [held for name, held in model.named_parameters() if "lora_" in name]
    else:
        blocks = model.model.layers
        body = [held for n in (0, 1, -2, -1) for held in blocks[n].parameters()]
    return [held.requires_grad_(True) for held in (*tables, *body)]


def losses(loss: str, base: Any, model: Any, further: Any, passages: Any) -> Any:
    """The loss of a step."""
    import torch

    from tokengraft.model.libraries import quick_in_half
    from tokengraft.model.reading import fill

    ids, mask = fill(base, [one.new for one in passages], base.prefix)
    seen = mask.bool()
    half = ids.device.type == "cpu" and quick_in_half(ids.device)  # as our own methods do
    with torch.autocast(ids.device.type, torch.bfloat16, enabled=half):
        states = model.model(input_ids=ids, use_cache=False).last_hidden_state
        logits = model.get_output_embeddings()(states[:, :-1])
    logs = torch.log_softmax(logits.float(), -1)
    said = logs.gather(2, ids[:, 1:, None])[..., 0]  # (passages, length − 1)
    if loss != "alm":
        value = -said[seen[:, 1:]].mean()
        if further is not None:
            where = torch.arange(ids.shape[1], device=ids.device)[None]
            turned = model.model.rotary_emb(states, where)
            beyond = seen[:, 2:]
            with torch.autocast(ids.device.type, torch.bfloat16, enabled=half):
                after = model.model.norm(further(states, position_embeddings=turned))
                logits = model.get_output_embeddings()(after[:, :-2][beyond]).float()
            value = value + torch.nn.functional.cross_entropy(logits, ids[:, 2:][beyond])
        return value
    prefix = len(base.prefix)
    ours = _chunks(said, [one.new_at for one in passages], prefix)
    with torch.no_grad():
        old, _ = fill(base, [one.old for one in passages], base.prefix)
        read = torch.log_softmax(base.head().logits(base.states(old)[:, :-1]).float(), -1)
        said = read.gather(2, old[:, 1:, None])[..., 0]
        theirs = _chunks(said, [one.old_at for one in passages], prefix)
    a, b = (torch.exp(x / _TEMPERATURE).clamp(1e-6, 1 - 1e-6) for x in (theirs, ours))
    return (a * (a / b).log() + (1 - a) * ((1 - a) / (1 - b)).log()).mean()


def _chunks(said: Any, ends: Any, prefix: int) -> Any:
    """Log-likelihoods of the chunks between common positions, passage by passage."""
    import torch

    sums = torch.nn.functional.pad(said.cumsum(1), (1, 0))  # before each position
    values = []
    for row, at in zip(sums, ends, strict=True):
        upto = row[torch.from_numpy(at + prefix).to(row.device)]
        values.append(upto[1:] - upto[:-1])
    return torch.cat(values)


def merge(model: Any) -> None:
    """Merge adapters into the weights and put plain layers in their place."""
    for name, module in list(model.named_modules()):
        if hasattr(module, "get_delta_weight"):
            module.base_layer.weight.data += module.get_delta_weight("default").detach()
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], module.base_layer)


def parse() -> argparse.Namespace:
    """Command line."""
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", default=_ALL, choices=_ALL)
    parser.add_argument("--rates", nargs="+", type=float, default=[5e-4, 2e-3])
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--passages", type=int, default=48)
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--written", type=int, default=150)
    parser.add_argument("--dev-lines", type=int, default=60)
    parser.add_argument("--small", action="store_true", help="a trial: hardly any replay")
    fixed = {"split": "devtest", "greedy": 4, "against": False, "dtype": "float32", "prompts": 0}
    fixed |= {"recipe": "{}", "protect": 8000, "labelled": None}
    parser.set_defaults(**fixed)
    return parser.parse_args()


if __name__ == "__main__":
    main()
