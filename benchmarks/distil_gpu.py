r"""Fidelity of derived and distilled rows, many languages at once on one GPU.

Each job is one language under one variant of the recipe, in its own process (a model of this size
leaves a GPU idle between kernel launches, so jobs run side by side). A job plans the tokens on the
language's text, scores training-free rows and the paper's 40 (`--grid`) and distils, all judged on
FLORES-200 devtest at aligned positions; the text never holds FLORES. Written to --out as they
finish: results.json and rows-N.safetensors, one tensor a job.

    python benchmarks/distil_gpu.py --model DIR --text DIR --flores DIR --out DIR \
        --languages shn_Mymr hin_Deva --variants base kl4 --jobs 12 --minutes 3 --grid
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LANGUAGES = (
    "amh_Ethi", "ben_Beng", "heb_Hebr", "hin_Deva", "hye_Armn", "shn_Mymr",
    "tam_Taml", "tel_Telu", "urd_Arab", "vie_Latn", "ydd_Hebr", "zho_Hant",
)  # fmt: skip
# Changes to the recipe; `characters` and `pool` are the driver's own.
VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "noshare": {"share": 0.0},
    "share3": {"share": 1.0},
    "kl4": {"kl": 4.0},
    "klonly": {"mse": 0.0, "cosine": 0.1, "kl": 1.0},
    "lr2": {"learning_rate": 0.09},
    "lrhalf": {"learning_rate": 0.022},
    "long": {"characters": 320},
    "small": {"passages": 48},
    "mean": {"pool": "mean"},
}
_ROWS_PER_FILE = 14 << 20


def main() -> None:
    """Run all jobs, or the one job a child process is for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True, help="folder of <language>.txt")
    parser.add_argument("--flores", type=Path, required=True, help="folder with devtest/")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--languages", nargs="+", default=list(LANGUAGES))
    parser.add_argument("--variants", nargs="+", default=["base"], choices=list(VARIANTS))
    parser.add_argument("--budget", type=int, default=2000)
    parser.add_argument("--lines", type=int, default=1012, help="FLORES lines to judge by")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--passages", type=int, default=192)
    parser.add_argument("--minutes", type=float, default=3.0, help="of training, for each job")
    parser.add_argument("--wall", type=float, default=9.3, help="minutes until the driver stops")
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--grid", action="store_true", help="score every training-free method too")
    parser.add_argument("--no-rows", action="store_true", help="keep the figures only")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--one", nargs=2, metavar=("LANGUAGE", "VARIANT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run_job(options, *options.one)
    else:
        run_all(options)


def run_all(options: argparse.Namespace) -> None:
    """Start jobs until none is left or the time is up; pack what is there after each one."""
    begun = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="distil-"))
    waiting = [(code, variant) for variant in options.variants for code in options.languages]
    running: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    while waiting or running:
        late = time.monotonic() - begun > 60 * options.wall
        if late:
            print(f"time is up: {len(running)} jobs stopped, {len(waiting)} not begun", flush=True)
            for process in running.values():
                process.terminate()
            break
        while waiting and len(running) < options.jobs:
            job = waiting.pop(0)
            command = [sys.executable, __file__, *sys.argv[1:], "--work", str(work), "--one", *job]
            running[job] = subprocess.Popen(command, env=environment)
        for job, process in list(running.items()):
            if process.poll() is not None:
                del running[job]
                if process.returncode:
                    print(f"{job}: FAILED with {process.returncode}", flush=True)
                pack(options.out, work, options.no_rows)
        time.sleep(0.5)
    pack(options.out, work, options.no_rows)
    print(f"done in {(time.monotonic() - begun) / 60:.1f} min", flush=True)


def pack(out: Path, work: Path, no_rows: bool) -> None:
    """All finished jobs as results.json and as few tensor files as the size limit allows."""
    from safetensors.numpy import load_file, save_file

    results = [json.loads(file.read_text()) for file in sorted(work.glob("*.json"))]
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    if no_rows:
        return
    bundles: list[dict[str, Any]] = [{}]
    size = 0
    for file in sorted(work.glob("*.safetensors")):
        for tensor in load_file(file).values():
            if size + tensor.nbytes > _ROWS_PER_FILE:
                bundles.append({})
                size = 0
            bundles[-1][file.stem] = tensor
            size += tensor.nbytes
    for number, bundle in enumerate(bundles):
        if bundle:
            save_file(bundle, out / f"rows-{number}.safetensors")


def run_job(options: argparse.Namespace, language: str, variant: str) -> None:
    """One language under one variant."""
    import torch
    from safetensors.numpy import save_file

    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    begun = time.monotonic()
    job = Job(options, language, variant)
    name = f"{language}.{variant}"

    def say(text: str) -> None:
        print(f"[{time.monotonic() - begun:5.0f} s] {name}: {text}", flush=True)

    found: dict[str, Any] = {"language": language, "variant": variant, **job.facts}
    if options.grid and variant == options.variants[0]:
        found["training_free"] = job.training_free(say)
        found["grid"] = job.grid(say)
    found["distil"], rows = job.distil(say)
    found["seconds"] = time.monotonic() - begun
    work = options.work
    save_file({name: rows}, work / f"{name}.safetensors")
    temporary = work / f"{name}.part"
    temporary.write_text(json.dumps(found))
    temporary.rename(work / f"{name}.json")


class Job:
    """What a language's methods share: plan, model, readers, FLORES."""

    def __init__(self, options: argparse.Namespace, language: str, variant: str) -> None:
        from tokengraft.deriving.distil.passages import shorten
        from tokengraft.deriving.distil.teacher import Teacher
        from tokengraft.model.frozen import FrozenModel, Reading
        from tokengraft.model.reading import Reader
        from tokengraft.planning.choose import plan_tokens
        from tokengraft.planning.plan import Planning, insert
        from tokengraft.tokenizer import load
        from tokengraft.tokenizer.align import Aligner
        from tokengraft.tokenizer.huggingface import HuggingFace

        self.options, self.language = options, language
        self.changes = dict(VARIANTS[variant])
        self.lines = _lines(options.text / f"{language}.txt")
        source = json.loads((options.model / "tokenizer.json").read_text(encoding="utf-8"))
        plan = plan_tokens(source, {language: self.lines}, Planning(budget=options.budget))
        self.parts = [token.parts for token in plan.tokens]
        data = json.dumps(insert(source, plan)).encode()
        self.old = load(options.model)
        self.aligner = Aligner(self.old, HuggingFace.from_json(language, "", data))
        self.model = FrozenModel.load(options.model, Reading(options.device, "float32"))
        self.first_new = len(self.old.vocabulary)
        self.reader = Reader(self.model, self.first_new, self.model.prefix)
        flores = _lines(options.flores / "devtest" / f"{language}.devtest")
        step = max(1, len(flores) // options.lines)
        judged = [shorten(one, 512) for one in self.aligner(flores[::step][: options.lines])]
        self.flores = Teacher(self.reader, [one for one in judged if len(one)])
        self.flores.fill()
        self.facts = {
            "tokens": len(self.parts),
            "old_tokens": sum(len(one.old) for one in judged),
            "new_tokens": sum(len(one.new) for one in judged),
            "device": str(self.model.device),
        }

    def score(self, rows: Any) -> dict[str, float]:
        """FLORES devtest: KL, agreement, cosine."""
        import torch

        from tokengraft.deriving.distil.matching import judge

        tensor = torch.as_tensor(rows, dtype=torch.float32).to(self.model.device)
        return dataclasses.asdict(judge(self.reader, self.flores, tensor))

    def training_free(self, say: Any) -> dict[str, Any]:
        """Every registered method that needs no text."""
        from tokengraft.deriving.methods import split_anchor
        from tokengraft.deriving.registry import METHODS, FromStates
        from tokengraft.deriving.states import part_states, vocabulary_states

        pieces = self.old.vocabulary.pieces
        middle = self.model.layers // 2
        layers = [0, 1, middle, self.model.layers]
        known = vocabulary_states(self.model, layers, self.first_new)
        lengths = [len(piece) for piece in pieces]
        found: dict[str, Any] = {}
        for method in METHODS.values():
            way = method.derive
            if not isinstance(way, FromStates) or method.name in ("knn", "linear", "local-linear"):
                continue
            for layer in layers[1:] if way.layered else [0]:
                made = way.make(5, "cpu").fit(known[layer], known[0])
                hidden = part_states(self.model, self.parts, [layer], way.pool, lengths)
                found[f"{method.name}@{layer}"] = self.score(made.derive(hidden[layer]))
        fit = split_anchor.fit(self.model, pieces)
        found["split-anchor"] = self.score(fit.derive(self.model, self.parts))
        found["split-anchor"]["left_out"] = {k: v[0] for k, v in fit.errors.items()}
        best = min(found, key=lambda name: found[name]["kl"])
        say(f"mean KL {found['mean@0']['kl']:.3f}; best free {best} {found[best]['kl']:.3f}")
        return found

    def grid(self, say: Any) -> dict[str, Any]:
        """The paper's 40."""
        from tokengraft.reproduce.grid import paper_rows

        device = str(self.model.device)
        cells = paper_rows(self.model, self.parts, anchors=self.first_new, device=device)
        found = {str(cell): self.score(rows) for cell, rows in cells}
        best = min(found, key=lambda name: found[name]["kl"])
        say(f"best of {len(found)}: {best}, KL {found[best]['kl']:.3f}")
        return found

    def distil(self, say: Any) -> tuple[dict[str, Any], Any]:
        """Train, then judge by FLORES."""
        from tokengraft.deriving.distil.distiller import Distiller
        from tokengraft.deriving.distil.passages import read_lots
        from tokengraft.deriving.distil.recipe import Recipe
        from tokengraft.deriving.states import part_states

        changes = dict(self.changes)
        characters = changes.pop("characters", 160)
        start = part_states(self.model, self.parts, [0], changes.pop("pool", "late"))[0]
        lots = read_lots(self.lines, self.aligner, self.first_new, characters)
        settings = {
            "steps": self.options.steps,
            "passages": self.options.passages,
            "max_minutes": self.options.minutes,
            **changes,
        }
        recipe = Recipe(**settings)
        distiller = Distiller(self.reader, lots, start, recipe, self.parts)
        distiller.teacher.batch_tokens = 1 << 15
        before = time.monotonic()
        distiller.teacher.fill()
        taught = time.monotonic() - before

        def report(check: Any) -> None:
            if check.step % 500 == 0:
                say(f"step {check.step}: held-out KL {check.score.kl:.3f}")

        out = distiller.run(report)
        flores = self.score(out.rows)
        say(
            f"FLORES KL {flores['kl']:.3f}, agreement {flores['agreement']:.3f} after {out.steps} "
            f"steps, {out.seconds:.0f} s (teacher {taught:.0f} s); {out.stopped}"
        )
        result = {
            "flores": flores, "held_out": dataclasses.asdict(out.score), "steps": out.steps,
            "start": dataclasses.asdict(out.start), "seconds": out.seconds, "stopped": out.stopped,
            "teacher_seconds": taught, "unseen": out.unseen, "passages": len(lots.train),
            "recipe": dataclasses.asdict(recipe), "characters": characters,
            "curve": [[c.step, c.seconds, c.score.kl, c.score.agreement] for c in out.curve],
        }  # fmt: skip
        return result, out.rows


def _lines(path: Path) -> Sequence[str]:
    return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


if __name__ == "__main__":
    main()
