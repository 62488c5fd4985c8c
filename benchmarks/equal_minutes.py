r"""Rows, lanes and adapters in equal processor minutes of one CPU core, by the product's own verbs.

    python benchmarks/equal_minutes.py rootstock PLANS TEXT FLORES OUT --minutes 5 -l hin_Deva …

The folders are those of `write_gpu.py`. Each way of training is given so many minutes of processor
time, whatever else the machine does, and the graft that it writes is judged on FLORES devtest by
`evaluate`. OUT gets the grafts and `minutes.json`.
"""

from __future__ import annotations

import json
import time
import types

from gpu_jobs import arguments

KEPT = ("kl", "top1", "continuation_excess", "writing_ratio", "english_kl", "english_top1")


def main() -> None:
    """Train and judge every way in every language."""
    import torch

    import tokengraft as tg
    from tokengraft.deriving.distil import distiller

    parser = arguments(__doc__)
    parser.add_argument("--train", nargs="+", default=["rows", "lanes", "lora"])
    parser.add_argument("--policy", default="input-only")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--lines", type=int, default=200)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    vars(distiller)["time"] = types.SimpleNamespace(monotonic=time.process_time)
    runs = []
    for code in options.language:
        for train in options.train:
            begun = time.process_time()
            graft = tg.graft(
                str(options.model), options.plans / f"{code}.json", options.out / f"{train}-{code}",
                text=str(options.text / f"{code}.txt"), minutes=options.minutes, train=train,
                policy=options.policy,
            )  # fmt: skip
            run = {
                "language": code, "train": train, "minutes": options.minutes,
                "seconds": time.process_time() - begun, "notes": list(graft.notes),
            }  # fmt: skip
            judged = tg.evaluate(
                str(options.model), graft, options.flores, [code], options.lines, split="devtest",
                against=False, resamples=100,
            )  # fmt: skip
            scores = {row["metric"]: row["value"] for row in judged.scores.to_dicts()}
            run |= {name: scores[name] for name in KEPT if name in scores}
            runs.append(run)
            print(json.dumps(run, ensure_ascii=False), flush=True)
    text = json.dumps(runs, ensure_ascii=False, indent=1)
    (options.out / "minutes.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
