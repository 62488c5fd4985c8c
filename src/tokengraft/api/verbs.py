"""The verbs: audit, survey, plan, derive, graft, verify, export, evaluate.

Each takes names, paths or earlier results and gives a result (`tokengraft.api.results`). What needs
torch is imported when it is used, so that `audit` and `plan` never load it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokengraft.api.results import Audit, Evaluation, Grafted, Place, Planned, Verified
from tokengraft.auditing.audit import audit as audit_corpus
from tokengraft.auditing.survey import survey as survey_files
from tokengraft.core.progress import OnProgress, Progress, by_lines, by_stages
from tokengraft.corpus import load as load_corpus
from tokengraft.corpus import load_pairs
from tokengraft.corpus.lines_of import Sources, lines_of
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.engine.registry import Counting, make_engine
from tokengraft.languages.codes import listed
from tokengraft.planning.plan import Plan, insert
from tokengraft.planning.plan_files import Given, TestedPlan, read_plan
from tokengraft.planning.plan_files import plan as plan_tokens
from tokengraft.tokenizer.catalog import BUNDLED

if TYPE_CHECKING:
    from tokengraft.engine.count_shards import Meter, OnMeter
    from tokengraft.engine.protocol import Engine
    from tokengraft.grafting.graft import Rows
    from tokengraft.model.frozen import FrozenModel
    from tokengraft.serving.export_gguf import Exported

#: Parallel text: a name, a path, `code=file` pairs, files by language, or what was loaded.
Corpus = str | Path | Sequence[str] | Mapping[str, Place] | ParallelCorpus
#: A tokenizer or model: a name, a path, or a graft.
Named = str | Path | Grafted
#: A plan: as made, as loaded, or where it lies.
AnyPlan = Planned | TestedPlan | Plan | str | Path


def audit(
    corpus: Corpus = "udhr",
    tokenizers: Named | Iterable[Named] = BUNDLED,
    languages: str | Iterable[str] | None = None,
    *,
    split: str | None = None,
    engine: Engine | str | None = None,
    progress: OnProgress | None = None,
    **options: Any,
) -> Audit:
    """Measure what each language pays under each tokenizer, over a parallel corpus.

    `corpus` is a name, a path, `code=file` pairs or a mapping of them; `split` is FLORES's. An
    `engine` ("local", "ray" or one made by `make_engine`) counts on other processes or machines, to
    the same result. Other options go to `auditing.audit.audit`: `pivot`, `search`, `prices`,
    `sample_lines`, `resamples`, `store`, `skip_missing`. Everything that can be wrong with the
    inputs is checked before anything is encoded.
    """
    options.setdefault("on_count", by_lines(progress))
    counting = make_engine(engine) if isinstance(engine, str) else engine
    tables = audit_corpus(
        open_corpus(corpus, split), _names(tokenizers), languages, engine=counting, **options
    )
    return Audit.of(tables)


def survey(
    sources: Place | Iterable[Place],
    tokenizers: Named | Iterable[Named] = BUNDLED,
    *,
    progress: OnProgress | None = None,
    **options: Any,
) -> Audit:
    """Audit a corpus of any size, streamed in shards; see `auditing.survey.survey` for `options`.

    Text that is not parallel (the default) gives `counts`, with `parallel=True` it gives premiums.
    How it is counted (`Counting`) may also be said word by word: `workers=4`, `skip_bad=True`.
    """
    on_meter = options.pop("on_meter", None) or metered(progress)
    alone = {one.name: options.pop(one.name) for one in fields(Counting) if one.name in options}
    if alone:
        options["counting"] = replace(options.get("counting", Counting()), **alone)
    return Audit.of(survey_files(sources, _names(tokenizers), on_meter=on_meter, **options))


def plan(
    tokenizer: Named,
    languages: str | Iterable[str],
    text: Mapping[str, Given] | Given | None = None,
    *,
    test: Corpus = "udhr",
    split: str | None = None,
    progress: OnProgress | None = None,
    **options: Any,
) -> Planned:
    """Choose new tokens for `languages`, and say what premium they buy; no model is touched.

    `text` is what to choose on, by language where there are several; premiums are measured on
    `test`, so use text that is not in it. Other options go to `planning.plan_files.plan`: `budget`
    (2000), `mode`, `boundaries`, `objective`, `pivot`, `search`, `chosen_on`,
    `protect`.
    """
    corpus, codes = open_corpus(test, split), listed(languages)
    if progress is not None:
        goal = options.get("objective", "total")
        progress(Progress(f"Choosing tokens for {', '.join(codes)} ({goal})", 0))
    return Planned.of(plan_tokens(_name(tokenizer), codes, text, test=corpus, **options))


def derive(
    model: Named,
    plan: AnyPlan,
    method: str = "auto",
    *,
    text: Sources | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    device: str = "auto",
    seed: int = 0,
    progress: OnProgress | None = None,
    **options: Any,
) -> Rows:
    """Input rows for a plan's tokens, as `graft` takes them (`rows=`).

    `auto` distils where `text` is given, else takes the best method that needs none. `minutes` and
    `steps` bound the training; other options go to `deriving.derive.derive_rows`.
    """
    from tokengraft.grafting.graft import derive_for
    from tokengraft.model.folder import resolve
    from tokengraft.model.tokenizer_files import base_tokenizer

    base, steps_in = resolve(_name(model)), _plan(plan)
    extended = insert(base_tokenizer(base.path), steps_in, base.name)
    settings = _deriving(minutes, steps, device, progress, options)
    lines = None if text is None else list(lines_of(text))
    return derive_for(base.path, steps_in, extended, method, lines, seed, settings)


def graft(
    model: Named,
    plan: AnyPlan,
    out: Place,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    device: str = "auto",
    progress: OnProgress | None = None,
    derive_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Grafted:
    """Write `model` with the plan's tokens to the folder `out`, verified.

    Rows are derived by `method` ("auto"), from `text` where it is given, or taken from `rows`;
    `minutes`, `steps` and `device` are for the training. Other options go to
    `grafting.graft.graft`: `policy`, `bias`, `check`, `license`, `seed`, `verified`, `force`.
    Raises GraftError where verification fails; then `out` is as it was.
    """
    from tokengraft.grafting.graft import graft as write_graft
    from tokengraft.model.folder import resolve

    settings = _deriving(minutes, steps, device, progress, derive_options or {})
    name = _name(model)
    made = write_graft(name, _plan(plan), out, derive_options=settings, **options)
    grafted = Grafted.load(made.folder)
    report = made.report
    if report is None:
        return grafted
    proved = Verified(report.checks, grafted.name, resolve(name).name)
    return Grafted(grafted.folder, grafted.facts, proved)


def verify(
    folder: Named,
    model: Named,
    text: Sources | None = None,
    *,
    served_by: Sequence[str] = (),
) -> Verified:
    """Prove a grafted folder sound against its base by loading it afresh.

    Each program in `served_by` (transformers, llama.cpp, vllm) is then really run on it: ids,
    greedy English beside the base, barred ids. The outcome goes into the model's card.

    `text` is what to check on: files or lines (`lines_of`); by default the bundled UDHR in the
    planned languages and others.
    """
    from tokengraft.grafting.card import write_served
    from tokengraft.grafting.verify.invariants import verify as prove
    from tokengraft.model.folder import resolve
    from tokengraft.serving.export_gguf import check_corpus
    from tokengraft.serving.servers import named

    base, path = resolve(_name(model)), Path(_name(folder))
    programs = [named(name) for name in served_by]
    lines = None if text is None else list(lines_of(text))
    checks = [*prove(path, base.path, lines).checks]
    served = []
    for program in programs:
        served += program.run(path, base.path, check_corpus(path, lines))
    if served:
        write_served(path, served)
    return Verified((*checks, *served), path.resolve().name, base.name)


def export(
    graft: Named, out: Path | str, *, text: Sources | None = None, **options: Any
) -> Exported:
    """Write a graft for llama.cpp and Ollama (GGUF), with the same ids or not at all.

    `text` is what llama.cpp must read as the folder does; by default the bundled UDHR in the
    planned languages and others. Other options go to `serving.export_gguf.export`:
    `base`, `quantize`, `pattern`, `unchecked`, `force`.
    """
    from tokengraft.serving.export_gguf import export as write

    lines = None if text is None else lines_of(text)
    return write(_name(graft), out, texts=lines, **options)


def evaluate(
    base: Named | FrozenModel,
    graft: Named | FrozenModel,
    corpus: Corpus = "udhr",
    languages: str | Iterable[str] | None = None,
    lines: int | None = None,
    *,
    progress: OnProgress | None = None,
    **options: Any,
) -> Evaluation:
    """Measure how much of `base` survived in `graft`, on a corpus it was not trained on.

    See `evaluating.evaluate.evaluate` for `options`: `split`, `text`, `device`, `window`,
    `against`, `prompts`, `tasks`, `resamples`, `seed` and others.
    """
    from tokengraft.evaluating.evaluate import evaluate as measure

    if not isinstance(corpus, str | Path | ParallelCorpus):
        corpus = open_corpus(corpus)
    measurements = measure(
        _subject(base),
        _subject(graft),
        corpus,
        languages,
        lines,
        progress=by_lines(progress),
        **options,
    )
    return Evaluation.of(measurements)


def open_corpus(given: Corpus, split: str | None = None) -> ParallelCorpus:
    """A parallel corpus, however it was given."""
    if isinstance(given, ParallelCorpus):
        return given
    if isinstance(given, Mapping):
        given = [f"{code}={path}" for code, path in given.items()]
    if isinstance(given, str | Path):
        given = [str(given)]
    return load_corpus(given[0], split) if _is_one(given) else load_pairs(list(given))


def metered(progress: OnProgress | None) -> OnMeter | None:
    """A meter of shards as progress: bytes on disk, rows and text so far."""
    if progress is None:
        return None

    def on_meter(meter: Meter) -> None:
        rows, size, tokens, done = meter.read()
        detail = f"{rows:,} rows  {size / 1e6:,.1f} MB" + (f"  {tokens:,} tokens" if tokens else "")
        progress(Progress("Counting", done, meter.total, "bytes", detail))

    return on_meter


def _deriving(
    minutes: float | None,
    steps: int | None,
    device: str,
    progress: OnProgress | None,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """The options of `derive_rows`."""
    settings: dict[str, Any] = {"device": device, "max_minutes": minutes, "steps": steps, **options}
    if progress is not None:
        settings["progress"] = by_stages(progress)
    return settings


def _is_one(given: Sequence[str]) -> bool:
    return len(given) == 1 and ("=" not in given[0] or Path(given[0]).exists())


def _plan(given: AnyPlan) -> Plan:
    if isinstance(given, TestedPlan):
        return given.plan
    return given if isinstance(given, Plan) else read_plan(Path(given))


def _name(given: Named) -> str:
    return str(given.folder if isinstance(given, Grafted) else given)


def _names(given: Named | Iterable[Named]) -> list[str]:
    one = isinstance(given, str | Path | Grafted)
    return [_name(given)] if one else [_name(name) for name in given]  # type: ignore


def _subject(given: Named | FrozenModel) -> Any:
    return given.folder if isinstance(given, Grafted) else given
