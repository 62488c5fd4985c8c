"""`distil` as a method: makes a `Distiller` from a task, runs it, and reports in the task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tokengraft.core.errors import UsageError
from tokengraft.core.progress import Progress
from tokengraft.deriving.distil import lanes
from tokengraft.deriving.distil.distiller import Distiller
from tokengraft.deriving.distil.own_text import go_on
from tokengraft.deriving.distil.passages import HELD_OUT, Lots, Rest, is_held_out, mix
from tokengraft.deriving.distil.recipe import Adapting, Distillation, Recipe
from tokengraft.deriving.distil.replay import Replay
from tokengraft.deriving.distil.silent_text import silent_passages
from tokengraft.deriving.distil.student import memory_needed, save_memory, scarce
from tokengraft.deriving.distil.writer import Writer
from tokengraft.deriving.methods import Rows
from tokengraft.deriving.task import Start, Task
from tokengraft.model.frozen import FrozenModel
from tokengraft.model.libraries import memory_taken
from tokengraft.model.reading import Reader
from tokengraft.tokenizer.align import Aligner, Ints

_OWN = 320  # tokens of a passage that the base writes
# Factors of the recipe if only rows learn, and only for reading (rootstock, FLORES dev of amh, tam
# and hin, 600 steps): KL .204 and continuation excess 2.15 % instead of .207 and 2.33 %; with twice
# as many mixtures .217 and 2.09 %.
_KL = 4.0
_MIXED = 2.0
_BY_TEXT = 0.5
# The same on a CPU that has some minutes: less time for the teacher, whose passages are then cut in
# more ways and read more often, short rests, and twice as many steps with fewer passages each. In
# ten minutes on two cores (FLORES dev; amh, tam): KL .137 and .151, excess 3.4 and 2.9 % instead of
# .165 and .260, 3.9 and 3.8 %. Adapters too (amh): .213 and 3.7 % instead of .244 and 4.0 %. (Twice
# as many mixtures helped then. Now that their beginnings are matched they do not: lanes, four
# minutes of one core, held-out text of hin and amh, KL .445 and .116 instead of .418 and .117.)
_HURRIED: dict[str, Any] = {"teaching": 0.1, "enough": 400, "rest": 48}
_SOME = 5.0  # minutes; fewer were not measured


def distil(task: Task) -> Rows:
    """Rows trained from the task's start on its text; scores and curve are left in the task."""
    if task.model.kind == "encoder":
        if task.options.recipe.own:
            raise UsageError("an encoder writes no text of its own: graft without --own")
        if task.options.recipe.by_text is not None:
            raise UsageError(
                "an encoder does not predict what follows, so the text cannot teach it that: graft "
                "without --by-text (by_text)"
            )
        from tokengraft.deriving.distil.encoders import distil_encoder

        return distil_encoder(task)
    adapting, taught = task.options.adapting, _taught(task)
    start, recipe = task.start(task), _recipe(task)
    reader, lots = task.passages(_own(task))
    lots = _mixed(task, lots, recipe)
    writer = _writer(task, reader)
    replay = _replay(task, reader, writer)
    run = Distiller(
        reader, lots, start, recipe, task.parts, _checkpoints(task), writer, replay,
        keep_states=task.options.keep_states,
    )  # fmt: skip
    task.checkpoint = run.folder
    if taught is not None:
        run.teach(*taught)

    since, first = time.monotonic(), 0

    def report(out: Distillation) -> None:
        nonlocal since, first
        if not run.tokens:  # training begins, or goes on
            since, first = time.monotonic(), out.steps
        score = out.curve[-1].score if out.curve else out.start
        words = [f"held-out KL {score.kl:.3f}"]
        if score.kept is not None:
            words.append(f"protected {score.kept:.4f}")
        if (seconds := time.monotonic() - since) > 1 and run.tokens:
            steps = (out.steps - first) / seconds
            words += [f"{steps:.1f} steps/s", f"{run.tokens / seconds:,.0f} tokens/s"]
        words.append(memory_taken(task.model.device))
        share = 100 * run.done(out.steps, out.seconds)
        if task.progress is not None:
            task.progress(Progress("training", share, 100, detail=", ".join(words)))

    if adapting is not None:
        needed = memory_needed(task.model, run.student.model, adapting)
        size, what = (needed + run.teacher.size) / 1e9, adapting.train
        if adapting.grows:
            larger = f"{lanes.growth(run.student.model):.0%} larger"
            what += f" (blocks {larger})"
            task.notes.append(f"lanes make the blocks {larger}, for every text")
        task.tell(f"training {what}, about {size:.1f} GB")
    out = run.run(teaching=task.tell("reading held-out text"), stepping=report)
    if out.stopped != "steps":
        over = out.stopped == "max_minutes"
        why = "the time given was up; rows trained longer are read better" if over else out.stopped
        task.notes.append(f"stopped after {out.steps:,} of {recipe.steps:,} steps: {why}")
    if replay is not None and out.score.kept is not None and out.score.kept_top1 is not None:
        kept = out.score.kept, out.score.kept_top1
        task.notes.append(
            f"held-out protected text: KL {kept[0]:.4f}, top-1 {kept[1]:.3f}; its weight in the "
            f"loss ended at {replay.weight:.0f}"
        )
        if replay.strained(*kept) > 1:
            task.notes.append(
                f"that is more than was promised (KL {replay.adapting.keep_kl:g}, top-1 "
                f"{replay.adapting.keep_top1:g}): train longer, or protect more text"
            )
    if out.unseen:
        task.notes.append(
            f"{out.unseen} tokens are in no passage that was trained on: only the shared map "
            "moved their rows"
        )
    begun = task.options.start
    task.params = {
        **asdict(recipe), "start": begun if isinstance(begun, str) else "an earlier graft",
        "passages": out.passages, "steps_done": out.steps, "stopped": out.stopped,
        "training_passages": len(lots.train),
    }  # fmt: skip
    score = replace(out.score, excess=run.excess(out.rows))
    task.scores = {"held_out": score, "start": out.start, "floor": run.floor()}
    task.curve, task.head = tuple(out.curve), out.head
    student = run.student.model
    if run.weights is not None:
        task.student = student
    return lanes.settle(student, out.rows) if isinstance(student, lanes.Laned) else out.rows


def _own(task: Task) -> list[str]:
    """Lines that the base writes to be trained on, begun like training lines (`own_text`)."""
    recipe = task.options.recipe
    begun = [line for line in task.text or () if not is_held_out(line.strip(), HELD_OUT)]
    tokens = min(_OWN, task.model.window)
    return go_on(task.model, begun, recipe.own, tokens, recipe.seed, task.tell("own text"))


def _with_lanes(task: Task, adapting: Adapting) -> FrozenModel:
    """The model with lanes: those of the start, or such as do nothing yet."""
    start = task.options.start
    student = lanes.with_lanes(task.model, adapting, task.options.recipe.seed)
    if isinstance(start, Start) and start.wider is not None:
        lanes.go_on(student, start.wider)
    if scarce(task.model, student, adapting):
        save_memory(student)
    return student


def _taught(task: Task) -> tuple[FrozenModel, float] | None:
    """A student that learns beside the rows and needs no replay, and its rate; None without one."""
    adapting = task.options.adapting
    if task.options.student is not None:
        return task.options.student(task)
    if adapting is not None and adapting.grows:
        return _with_lanes(task, adapting), adapting.lanes_rate / task.model.dimensions
    return None


def _checkpoints(task: Task) -> Path | str | None:
    """The folder for checkpoints, whose key knows all but what a `Distiller` is told to teach."""
    folder, adapting = task.options.checkpoint_dir, task.options.adapting
    if folder is None or adapting is None or not adapting.grows:
        return folder
    return Path(folder) / f"lanes-{adapting.lanes}-{adapting.neurons}-{adapting.lanes_rate:g}"


def _recipe(task: Task) -> Recipe:
    """The recipe that is actually used.

    If only rows (and lanes) learn, and only for reading, KL and mixtures count for more, and the
    text itself teaches too (`Recipe.by_text`); otherwise it does not. On a CPU under a time limit,
    what is trained for reading is trained in more and smaller steps.
    """
    recipe, minutes = task.options.recipe, task.options.recipe.max_minutes
    reads = task.options.writing is None and task.options.student is None
    if reads and task.model.device.type == "cpu" and minutes is not None and minutes >= _SOME:
        plain = Recipe()
        unset = [name for name in _HURRIED if getattr(recipe, name) == getattr(plain, name)]
        recipe = replace(recipe, **{name: _HURRIED[name] for name in unset})
    if not task.options.only_rows:
        return replace(recipe, by_text=0.0)
    if recipe.by_text is None:
        recipe = replace(recipe, by_text=_BY_TEXT)
    return replace(recipe, kl=_KL * recipe.kl, mixed=_MIXED * recipe.mixed)


def _mixed(task: Task, lots: Lots, recipe: Recipe) -> Lots:
    """The lots with mixtures of their passages (`passages.mix`)."""
    writes = task.options.writing is not None
    if not recipe.mixed:
        return lots
    tokens = min(512, task.model.window) - len(task.model.prefix)
    rest = Rest(recipe.rest, recipe.places, recipe.near)
    mixed = recipe.mixed if writes else 2 * recipe.mixed  # new read, old written
    more, judged = (
        mix(lot, task.first_new, share, recipe.seed, writes=writes, rest=where, tokens=tokens)
        for lot, share, where in (
            (lots.train, mixed, replace(rest, beginning=True)),
            (lots.held_out, 0.5, rest),
        )
    )
    whose = lots.languages and (*lots.languages, *(lots.languages[one.source] for one in more))
    return Lots((*lots.train, *more), lots.held_out, tuple(judged), whose)


def _writer(task: Task, reader: Reader) -> Writer | None:
    """What writing needs; None if only reading is trained."""
    writing = task.options.writing
    if writing is None:
        return None
    # If old weights learn, `Replay` covers such text.
    quiet = () if task.options.replays else _quiet(task, writing.protect)
    start = task.options.start
    head = start.head if isinstance(start, Start) and not writing.shared else None
    return Writer(reader, task.parts, quiet, writing.shared, head)


def _replay(task: Task, reader: Reader, writer: Writer | None) -> Replay | None:
    """What holds protected text in place while the body learns; None if it cannot move."""
    adapting = task.options.adapting
    if adapting is None or not task.options.replays:
        return None
    return Replay(reader, _quiet(task, adapting.protect, adapting.protected), adapting, writer)


def _quiet(task: Task, given: Sequence[str], most: int = 1200) -> list[Ints]:
    assert task.new is not None
    room = task.model.window - len(task.model.prefix)
    passages = silent_passages(
        given, Aligner(task.old, task.new), len(task.model.weight), task.options.characters,
        task.options.recipe.seed, most,
    )  # fmt: skip
    return [ids[:room] for ids in passages]
