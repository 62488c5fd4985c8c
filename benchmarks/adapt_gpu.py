r"""Training the body too (`--train lora`): settings compared on dev, the best for all languages.

    python benchmarks/adapt_gpu.py MODEL PLANS TEXT FLORES OUT --choose A.json --then B.json -l …

The folders and settings are those of `write_gpu.py`. Settings in `--choose` are trained first and
judged on FLORES dev; the one with the least mean KL (of what it would save, that is with English
as promised) gives its recipe and adapters to every setting of `--then`. At every check in training
the graft as it would be saved is also judged on lines of FLORES dev: OUT/on-the-way-*.jsonl has KL,
top-1, bits in the new spelling, English and code against steps and seconds. In a setting with
`"by_dev": true`, English of FLORES dev, which is never replayed, steers the weight of protected
text and decides what may be kept, instead of a tenth of that text.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import write_gpu
from gpu_jobs import lines_in, share_out
from write_gpu import grown

whole = write_gpu.judge
_KEPT = ("kl", "top1", "writing_ratio", "english_kl", "english_top1", "english_bits", "code_top1")


def main() -> None:
    """Choose, then train all."""
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--choose", type=Path)
    own.add_argument("--then", type=Path)
    own.add_argument("--until", type=float, help="seconds after which all is to be judged")
    own.add_argument("--dev-lines", type=int, default=100, help="judged at every check")
    given, rest = own.parse_known_args()
    sys.argv[1:] = rest
    options = write_gpu.parse()
    options.dev_lines, begun = given.dev_lines, time.monotonic()
    best: dict[str, Any] = {}
    if given.choose is not None:
        settings = json.loads(given.choose.read_text("utf-8"))
        share_out(run, options, write_gpu.every(settings, options.language))
        best = choose(options.out, settings)
        (options.out / "chosen.json").write_text(json.dumps(best), encoding="utf-8")
        print("chosen", best, flush=True)
    if given.then is not None:
        settings = json.loads(given.then.read_text("utf-8"))
        for setting in settings:
            for part in ("recipe", "adapting"):
                theirs = {k: v for k, v in best.get(part, {}).items() if k not in _OF_RUN}
                if theirs.get("own"):  # as much as the longer run has use for
                    theirs["own"] = setting[part].get("own", theirs["own"])
                setting[part] = {**setting[part], **theirs}
            if given.until is not None:
                left = given.until - (time.monotonic() - begun) - _BESIDE
                most = setting["recipe"].get("max_minutes", 60.0)
                setting["recipe"]["max_minutes"] = max(0.2, min(most, left / 60))
        share_out(run, options, write_gpu.every(settings, options.language))


_BESIDE = 165  # seconds that a run takes besides training: own text before, judging after
_OF_RUN = ("steps", "max_minutes", "check_every")


def choose(out: Path, settings: list[dict[str, Any]]) -> dict[str, Any]:
    """The setting with the best mean reading on dev, at its last check."""
    means: dict[str, float] = {}
    for setting in settings:
        files = [
            out / f"on-the-way-{setting['name']}-{code}.jsonl" for code in setting["languages"]
        ]
        ends = [
            json.loads(one.read_text("utf-8").splitlines()[-1]) for one in files if one.exists()
        ]
        values = [end["kl"] for end in ends if "kl" in end]
        if len(values) == len(files):
            means[setting["name"]] = sum(values) / len(values)
    print("mean KL on dev", means, flush=True)
    if not means:
        return {}
    name = min(means, key=means.__getitem__)
    return next(one for one in settings if one["name"] == name)


def run(options: argparse.Namespace, setting: dict[str, Any], code: str) -> None:
    """One run, judged on dev during training, and at its end if its setting asks for that."""
    from tokengraft.deriving.distil import replay

    follow(options, setting, code)
    by_dev(options, setting.get("by_dev", False))
    vars(replay).update(setting.get("replay", {}))
    vars(write_gpu)["judge"] = whole if setting.get("judged", True) else nothing
    write_gpu.run(options, setting, code)


def by_dev(options: argparse.Namespace, wanted: bool) -> None:
    """Let every second line of FLORES dev's English be watched, and let the others judge."""
    import numpy as np

    from tokengraft.deriving.distil.replay import Replay
    from tokengraft.tokenizer.align import Alignment

    plain = vars(Replay).get("_plain_open", Replay.open)

    def opened(self: Any, folder: Path | None) -> None:
        if wanted:
            lines = lines_in(options.flores / "dev" / "eng_Latn.dev")
            ids = [np.array(one[:256]) for one in self.reader.model.tokenizer.encode(lines)]
            whole = [Alignment(one, one, at, at) for one in ids if len(at := np.arange(len(one)))]
            self.watched, self.judged = whole[1::2], whole[::2]
        plain(self, folder)

    Replay._plain_open, Replay.open = plain, opened  # type: ignore


def nothing(*_: Any) -> dict[str, Any]:
    """The final judgement of a run that is judged during training only."""
    return {"scores": {}}


def follow(options: argparse.Namespace, setting: dict[str, Any], code: str) -> None:
    """Make every check of the next distillation also judge on FLORES dev."""
    from tokengraft.deriving.distil.distiller import Distiller

    plain = vars(Distiller).get("_plain", (Distiller._check, Distiller._within))
    file = options.out / f"on-the-way-{setting['name']}-{code}.jsonl"
    file.unlink(missing_ok=True)

    def check(self: Any, ends: Any, out: Any) -> None:
        self.now = {"step": out.steps, "seconds": out.seconds}
        plain[0](self, ends, out)

    def within(self: Any, ends: Any) -> Any:
        score = plain[1](self, ends)
        begun = time.monotonic()
        try:
            figures = on_the_way(self, ends, options, setting, code)
        except Exception:  # a figure on the way is not worth the run
            print(traceback.format_exc(), flush=True)
            figures = {}
        weight = None if self.replay is None else self.replay.weight
        held = {"held_out_kl": score.kl, "kept": score.kept, "kept_top1": score.kept_top1}
        line = self.now | figures | held | {"weight": weight, "took": time.monotonic() - begun}
        with file.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(line) + "\n")
        return score

    Distiller._plain, Distiller._check, Distiller._within = plain, check, within  # type: ignore


def on_the_way(
    self: Any, ends: Any, options: argparse.Namespace, setting: dict[str, Any], code: str
) -> dict[str, float]:
    """Figures on FLORES dev of the graft as it would be saved now."""
    import torch

    from tokengraft.model.frozen import FrozenModel
    from tokengraft.planning.plan import Plan, with_plan
    from tokengraft.tokenizer.huggingface import HuggingFace

    base, head = self.reader.model, ends.head()
    plan = Plan.from_json(json.loads((options.plans / f"{code}.json").read_text("utf-8")))
    spec = with_plan(json.loads((options.model / "tokenizer.json").read_text("utf-8")), plan)
    tables = {"rows": ends.rows().detach().bfloat16()}
    if head is not None:
        tables["head"] = head.detach().bfloat16()
    student = None if self.weights is None else self.student.model
    graft = FrozenModel(
        grown(base, student, tables),
        name="way", folder=base.folder, tokenizer=HuggingFace.from_parsed("new", spec),
    ).narrow(base.dimensions)  # fmt: skip
    graft.__dict__["manifest"] = {"output": {"policy": setting["way"]}}
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        scores = brief(base, graft, code, options)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = True
    return {name: scores[name].value for name in _KEPT if name in scores}


def brief(base: Any, graft: Any, code: str, options: argparse.Namespace) -> dict[str, Any]:
    """Reading, bits and English on the first lines of FLORES dev."""
    from tokengraft.deriving.distil.silent_text import untrained
    from tokengraft.evaluating.both_spellings import shared_scores
    from tokengraft.evaluating.fidelity import BaseReading, scores
    from tokengraft.evaluating.lines import prepare
    from tokengraft.evaluating.protected import protected_scores
    from tokengraft.evaluating.score import Bootstrap

    most = options.dev_lines
    lines = lines_in(options.flores / "dev" / f"{code}.dev")[:most]
    case = prepare(code, lines, base, graft.tokenizer, min(512, base.window) - 2)
    reading = BaseReading(base, case, most_positions=0, keep_bytes=0)
    none: dict[str, float] = {}
    apart = reading.compare(reading.read_new(graft), graft.head(case.rows).exact())
    figures = scores(apart, none, none, none, Bootstrap(2))
    texts = {
        "English": lines_in(options.flores / "dev" / "eng_Latn.dev")[: 2 * most],
        "code": untrained()["code"][:most],
    }
    figures |= protected_scores(base, graft, texts, Bootstrap(2), most=2 * most)
    if graft.policy == "write":
        figures |= shared_scores(base, graft, case, Bootstrap(2), most_lines=most // 2)
    return figures


if __name__ == "__main__":
    main()
