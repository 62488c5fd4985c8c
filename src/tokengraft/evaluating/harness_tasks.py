"""Tasks of EleutherAI's lm-evaluation-harness, run by base and graft alike.

The harness (https://github.com/EleutherAI/lm-evaluation-harness) comes with the extra `tasks`. A
grafted folder is a plain Hugging Face model, so the harness's own `hf` model reads it. Tasks have
the harness's names (`belebele_shn_Mymr`, `global_mmlu_full_am`, …); `include` is a folder of your
own task files (YAML).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokengraft.core.errors import MissingExtra, UsageError
from tokengraft.model.folder import resolve


@dataclass(frozen=True)
class Tasks:
    """Which tasks to run, at most `limit` documents of each."""

    names: Sequence[str] = ()
    include: Path | str | None = None
    limit: int | None = None


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
            tasks=list(tasks.names), limit=tasks.limit, batch_size=8, device=device,
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
