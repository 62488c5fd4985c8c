"""Downstream use, of base and graft alike: harness tasks, a probe, a question, translations.

**Tasks** of EleutherAI's lm-evaluation-harness, https://github.com/EleutherAI/lm-evaluation-harness
(the extra `tasks`). A grafted folder is a plain Hugging Face model, so the harness's own `hf` model
reads it. Tasks have the harness's names (`belebele_shn_Mymr`, `global_mmlu_full_am`, …); `include`
is a folder of your own task files (YAML).

**Probe**: does what a model knows about a text survive in its new reading?

    accuracy = share of lines whose label a linear classifier finds from their pooled states

Logistic regression on standardised states (means over positions common to both tokenizations, last
layer), cross-validated: each line is labelled by a probe that never saw it. There are three
accuracies: of a probe for the base's states, of one for the graft's, and of the base's probe on the
graft's states, which asks for more: that things are still where they were. The floor of all is the
share of the commonest label.

Reference: Alain & Bengio 2017 (https://arxiv.org/abs/1610.01644). SIB-200 (Adelani et al. 2024,
https://arxiv.org/abs/2309.07445) labels FLORES lines with topics in all of its languages.

**Question**: a model that follows prompts can be asked for the label and needs no probe:

    answer = the label for which log p(label | question about the line) − log p(label | the same
             question about nothing) is largest

Labels are in old tokens and over the old vocabulary for both models; the line is in each model's
own tokens. Reference: Holtzman et al. 2021, domain-conditional PMI
(https://arxiv.org/abs/2104.08315).

**Translations**: does a sentence find its translation, which is what encoders are used for?

    right = share of lines whose vector is nearest, of all English lines, to its own translation's

Vectors are means of last hidden states, special tokens included, as sentence-transformers pools by
default; nearest by cosine. English is read by the base in both cases. Chance is 1 / lines, which is
where a language of UNKs starts.
"""

from __future__ import annotations

import csv
import functools
import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokengraft.core.errors import CorpusError, MissingExtra, UsageError
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.deriving.distil.passages import shorten
from tokengraft.evaluating.fidelity import ranks
from tokengraft.evaluating.lines import prepare
from tokengraft.evaluating.score import Metric, Score, Sums, score
from tokengraft.model.divergence import likelihoods
from tokengraft.model.folder import resolve
from tokengraft.model.frozen import FrozenModel
from tokengraft.model.reading import Progress, read
from tokengraft.tokenizer.align import Aligner, Floats, Ints


@dataclass(frozen=True)
class Tasks:
    """Which tasks to run: at most `limit` documents of each, with `shots` examples."""

    names: Sequence[str] = ()
    include: Path | str | None = None
    limit: int | None = None
    shots: int | None = None
    batch: int | str = 8


def run_tasks(
    base: str | Path, graft: str | Path, tasks: Tasks, *, device: str | None = None, seed: int = 0
) -> list[dict[str, Any]]:
    """One row for each task, metric and model, with the harness's value and standard error.

    The harness fetches datasets from a hub; code that comes with a dataset is not run. Raises
    MissingExtra without lm_eval and UsageError for an unknown task.
    """
    try:
        harness = importlib.import_module("lm_eval")
        importlib.import_module("lm_eval.models.huggingface")  # has its own requirements
        importlib.import_module("lm_eval.tasks")
    except ImportError as error:
        raise MissingExtra("Running downstream tasks", "tasks") from error
    own = None if tasks.include is None else str(tasks.include)
    manager = _index(own, own is None)
    # Names that are not tasks of the folder may be the harness's, or groups that contain these.
    if own is not None and not set(tasks.names) <= set(manager.all_subtasks):
        manager = _index(own, True)  # slow: the harness has thousands of files
    unknown = [task for task in tasks.names if task not in manager.all_tasks]
    if unknown:
        raise UsageError(
            f"lm-evaluation-harness knows no task {unknown[0]!r}; `lm_eval --tasks list` shows all "
            "that it knows, --task-files (tasks_include) names a folder of your own"
        )
    rows = []
    for name, model in (("base", base), ("graft", graft)):
        folder = resolve(model).path
        report = harness.simple_evaluate(
            model="hf",
            model_args={"pretrained": str(folder), "trust_remote_code": False},
            tasks=list(tasks.names), num_fewshot=tasks.shots, limit=tasks.limit,
            batch_size=tasks.batch, device=device,
            task_manager=manager, random_seed=seed, numpy_random_seed=seed, torch_random_seed=seed,
            fewshot_random_seed=seed, log_samples=False,
        )  # fmt: skip
        rows += _rows(name, report["results"], report.get("n-samples", {}))
    return rows


@functools.cache
def _index(include: str | None, defaults: bool) -> Any:
    """The harness's index of tasks, which takes seconds to make."""
    manager = importlib.import_module("lm_eval.tasks").TaskManager
    return manager(include_path=include, include_defaults=defaults)


def _rows(
    model: str, results: dict[str, dict[str, Any]], counts: dict[str, Any]
) -> list[dict[str, Any]]:
    rows = []
    for task, values in results.items():
        for key, value in values.items():
            metric, _, chosen = key.partition(",")
            if not isinstance(value, (int, float)) or metric.endswith("_stderr") or "," not in key:
                continue
            error = values.get(f"{metric}_stderr,{chosen}")
            rows.append(
                {
                    "task": task, "metric": metric, "filter": chosen, "model": model,
                    "value": float(value),
                    "standard_error": error if isinstance(error, float) else None,
                    "n": counts.get(task, {}).get("effective"),
                }
            )  # fmt: skip
    return rows


_HOW = "lines whose label a linear probe, cross-validated, finds from states at common positions"
PROBED = Metric("probe_accuracy", f"share of {_HOW}, graft; the ceiling is the base's own")
BASE_PROBED = Metric("base_probe_accuracy", f"share of {_HOW}, base model")
CARRIED_PROBE = Metric(
    "carried_probe_accuracy",
    f"share of {_HOW}: the probe is trained on the base's states and judged on the graft's",
)
_FOLDS = 5
_C = 0.01  # best for the base's own states: rootstock in twelve languages, Qwen in three
_LEAST = 2 * _FOLDS  # lines that a label needs


def read_labels(file: Path | str) -> dict[str, str]:
    """Labels by unit of the corpus (`dev.1`), from a CSV file.

    Its columns are `category` or `label`, and `unit` or `line`; with `line` also `flores_split` or
    `split` if the corpus has several splits.
    """
    try:
        with Path(file).open(encoding="utf-8", newline="") as opened:
            rows = list(csv.DictReader(opened))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    columns = set(rows[0]) if rows else set()
    label = next((name for name in ("category", "label") if name in columns), None)
    if label is None or not columns & {"unit", "line"}:
        raise UsageError(
            f"{file} has the columns {', '.join(sorted(columns)) or 'none'}; needed are category "
            "(or label), and unit or line (with flores_split)"
        )
    part = next((name for name in ("flores_split", "split") if name in columns), None)
    if "unit" in columns:
        return {row["unit"]: row[label] for row in rows}
    return {f"{row[part]}.{row['line']}" if part else row["line"]: row[label] for row in rows}


def probe_scores(
    base: FrozenModel,
    graft: FrozenModel,
    corpus: ParallelCorpus,
    code: str,
    labels: Mapping[str, str],
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Score]:
    """The three accuracies over the corpus's labelled lines in one language."""
    lines, every = _labelled(corpus, code, labels)
    states, kept = pooled_states(base, graft, lines)
    names = np.array(every)[kept]
    hits = accuracies(states, names, seed)
    one = np.ones(len(names))
    options: dict[str, Any] = {"unrelated": _share(names), "resamples": resamples, "seed": seed}
    ceiling = float(hits["base"].mean())
    return {
        BASE_PROBED.name: score(BASE_PROBED, Sums(hits["base"], one), **options),
        PROBED.name: score(PROBED, Sums(hits["graft"], one), ceiling=ceiling, **options),
        CARRIED_PROBE.name: score(
            CARRIED_PROBE, Sums(hits["carried"], one), ceiling=ceiling, **options
        ),
    }


def _labelled(
    corpus: ParallelCorpus, code: str, labels: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """The corpus's lines whose label at least `_LEAST` lines have, and these labels."""
    texts = dict(zip(corpus.units, corpus.texts[code], strict=True))
    known = [(line, labels[unit]) for unit, line in texts.items() if line and unit in labels]
    common = Counter(label for _, label in known)
    known = [(line, label) for line, label in known if common[label] >= _LEAST]
    if len({label for _, label in known}) < 2:
        raise CorpusError(
            f"{code}: a probe needs two labels that {_LEAST} lines each have; {len(known)} lines "
            f"have such a label. The corpus names its lines like {next(iter(texts), '')!r}, the "
            f"labels like {next(iter(labels), '')!r}: do they belong together?"
        )
    return [line for line, _ in known], [label for _, label in known]


def _share(names: Sequence[str]) -> float:
    """The share of the commonest name."""
    return max(Counter(names).values()) / len(names)


def pooled_states(
    base: FrozenModel, graft: FrozenModel, lines: Sequence[str]
) -> tuple[dict[str, Floats], Any]:
    """States of both readings, pooled line by line; and which lines have a common position."""
    window = min(base.window, graft.window)
    room = window - len(base.prefix) - len(base.suffix)
    pairs = Aligner(base.tokenizer, graft.tokenizer)(list(lines))
    kept = np.array([len(shorten(pair, room)) > 0 for pair in pairs])  # as `prepare` keeps them
    case = prepare("probe", lines, base, graft.tokenizer, window)
    before = read(base, case.old, [pair.old_at for pair in case.pairs], same=case.same)
    after = read(graft, case.new, [pair.new_at for pair in case.pairs], same=case.same)
    return {"base": before.means(), "graft": after.means()}, kept


def accuracies(states: Mapping[str, Floats], labels: Any, seed: int) -> dict[str, Floats]:
    """1 for every line whose label was found, else 0: base, graft, and base's probe on graft."""
    try:
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    except ImportError as error:
        raise MissingExtra("A probe", "probe") from error
    hits = {name: np.zeros(len(labels)) for name in ("base", "graft", "carried")}
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    for train, test in folds.split(states["base"], labels):
        for name, own in states.items():
            probe = make_pipeline(StandardScaler(), LogisticRegression(C=_C, max_iter=2000))
            probe.fit(own[train], labels[train])
            hits[name][test] = probe.predict(own[test]) == labels[test]
            if name == "base":
                hits["carried"][test] = probe.predict(states["graft"][test]) == labels[test]
    return hits


_ANSWERED = "lines whose label gains most, as the answer to a question, by the line in it"
ASKED = Metric("asked_accuracy", f"share of {_ANSWERED}, graft; the ceiling is the base's own")
BASE_ASKED = Metric("base_asked_accuracy", f"share of {_ANSWERED}, base model")
HERE = "{}"  # stands for the line in a question


def asked_scores(
    base: FrozenModel,
    graft: FrozenModel,
    corpus: ParallelCorpus,
    code: str,
    labels: Mapping[str, str],
    question: str,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Score]:
    """How often each model answers a question about a line with its label.

    The `question` has {} in place of the line and ends where the label is to follow. A line that is
    too long for either model is cut at its end.
    """
    if HERE not in question:
        raise UsageError(f"the question {question!r} has no {HERE} for the line")
    lines, names = _labelled(corpus, code, labels)
    options: dict[str, Any] = {"unrelated": _share(names), "resamples": resamples, "seed": seed}
    known = sorted(set(names))
    answers = _tails(base, question, known)
    rows = min(len(base.tokenizer.vocabulary), len(base.weight))
    prompts = [_fitting(question, line, (base, graft), max(map(len, answers))) for line in lines]
    prompts.append(question.replace(HERE, ""))
    hits = {}
    for side, model in (("base", base), ("graft", graft)):
        likely = _likelihoods(model, prompts, answers, rows)
        best = (likely[:-1] - likely[-1]).argmax(1)
        hits[side] = Sums.of(
            np.array([known[n] == name for n, name in zip(best, names, strict=True)], float)
        )
    ceiling = hits["base"].value
    return {
        BASE_ASKED.name: score(BASE_ASKED, hits["base"], **options),
        ASKED.name: score(ASKED, hits["graft"], ceiling=ceiling, **options),
    }


def _tails(base: FrozenModel, question: str, names: Sequence[str]) -> list[Ints]:
    """Old ids of every name as the continuation of the question."""
    end = question.rpartition(HERE)[2]
    begun, *whole = base.tokenizer.encode([end, *(f"{end} {name}" for name in names)])
    tails = []
    for ids in whole:
        same = [a == b for a, b in zip(begun, ids, strict=False)]
        tails.append(np.asarray(ids[(*same, False).index(False) :], np.int64))
    return tails


def _fitting(question: str, line: str, models: Sequence[FrozenModel], answer: int) -> str:
    """The question about a line that is cut to leave room for `answer` tokens."""
    while True:
        prompt = question.replace(HERE, line)
        left = [
            one.window - len(one.prefix) - len(one.suffix) - answer - len(ids)
            for one in models
            for ids in one.tokenizer.encode([prompt])
        ]
        if min(left) >= 0 or not line:
            return prompt
        line = line[: len(line) * 9 // 10]


def _likelihoods(
    model: FrozenModel, prompts: Sequence[str], answers: Sequence[Ints], rows: int
) -> Floats:
    """Log p in nats of every answer after every prompt (prompts, answers)."""
    begun = [np.asarray(ids, np.int64) for ids in model.tokenizer.encode(list(prompts))]
    pairs = [(front, answer) for front in begun for answer in answers]
    before = [len(front) - 1 + np.arange(len(answer)) for front, answer in pairs]
    states = read(model, [np.concatenate(pair) for pair in pairs], before)
    targets = np.concatenate([answer for _, answer in pairs])
    logs = likelihoods(states.states, targets, model.head(rows).exact())
    starts = np.cumsum(states.counts) - states.counts
    sums: Floats = np.add.reduceat(logs, starts).reshape(len(prompts), len(answers))
    return sums


RETRIEVED = Metric(
    "translation_retrieval",
    "share of lines that find their English translation first among all English lines, by the "
    "graft's mean states; the floor is chance",
)
BASE_RETRIEVED = Metric("base_translation_retrieval", "the same by the base's reading")


def translation_scores(
    base: FrozenModel,
    graft: FrozenModel,
    lines: Sequence[str],
    english: Sequence[str],
    *,
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress | None = None,
) -> dict[str, Score]:
    """Both figures for lines and their English translations."""
    there = _vectors(base, english, None)
    figures = {}
    for metric, model in ((RETRIEVED, graft), (BASE_RETRIEVED, base)):
        first = ranks(there, _vectors(model, lines, progress)).first
        chance = 1 / max(1, len(lines))
        figures[metric.name] = score(
            metric, Sums.of(first), unrelated=chance, resamples=resamples, seed=seed
        )
    return figures


def _vectors(model: FrozenModel, lines: Sequence[str], progress: Progress | None) -> Floats:
    room = model.window - len(model.prefix) - len(model.suffix)
    ids = [np.asarray(one[:room], np.int64) for one in model.tokenizer.encode(list(lines))]
    nowhere = np.zeros(0, np.int64)
    return read(model, ids, [nowhere] * len(ids), progress=progress).pooled
