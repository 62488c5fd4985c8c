"""The verbs, from `audit` to `evaluate`.

Each takes names, paths or earlier results and returns a result (`tokengraft.api.results`). What
needs torch is imported only when used, so `audit` and `plan` never load it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokengraft.api.results import Audit, Evaluation, Grafted, Place, Planned, Verified
from tokengraft.auditing.audit import Auditing
from tokengraft.auditing.audit import audit as audit_corpus
from tokengraft.auditing.survey import Surveying
from tokengraft.auditing.survey import survey as survey_files
from tokengraft.core.errors import ModelError, UsageError
from tokengraft.core.options import MOST_POSITIONS, PIVOT, RESAMPLES
from tokengraft.core.progress import OnProgress, Progress
from tokengraft.corpus import load as load_corpus
from tokengraft.corpus import load_pairs
from tokengraft.corpus.lines_of import Sources, lines_of, texts_of
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.corpus.rows import Layout
from tokengraft.corpus.shards import SHARD_BYTES, Format
from tokengraft.engine import Counting, make_engine
from tokengraft.grafting.output_policies import DEFAULT, named
from tokengraft.languages.codes import listed
from tokengraft.planning.count_words import CountedTexts, WordWork
from tokengraft.planning.count_words import count_words as count_files
from tokengraft.planning.plan import Boundaries, Objective, Plan, Planning
from tokengraft.planning.plan_files import TestedPlan, read_plan
from tokengraft.planning.plan_files import plan as plan_tokens
from tokengraft.planning.protect import insert_proved
from tokengraft.tokenizer.catalog import BUNDLED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tokengraft.core.cache import Store
    from tokengraft.deriving.derive import Derived
    from tokengraft.engine.protocol import Engine
    from tokengraft.model.frozen import FrozenModel
    from tokengraft.serving.export_gguf import Exported

#: Parallel text: a name, a path, `code=file` pairs, files by language, or a loaded corpus.
Corpus = str | Path | Sequence[str] | Mapping[str, Place] | ParallelCorpus
#: A tokenizer or model: a name, a path, or a graft.
Named = str | Path | Grafted
#: A plan: as made, as loaded, or its path.
AnyPlan = Planned | TestedPlan | Plan | str | Path


def audit(
    corpus: Corpus = "udhr",
    tokenizers: Named | Iterable[Named] = BUNDLED,
    languages: str | Iterable[str] | None = None,
    *,
    split: str | None = None,
    skip_empty: bool = False,
    pivot: str = PIVOT,
    search: Place | Iterable[Place] = (),
    prices: Place | None = None,
    resamples: int = RESAMPLES,
    skip_missing: bool = False,
    reference: bool = False,
    store: Store | None = None,
    engine: Engine | str | None = None,
    progress: OnProgress | None = None,
) -> Audit:
    """Measure what each language pays under each tokenizer, over a parallel corpus.

    `corpus` is a name, a path, `code=file` pairs or a mapping of them; `split` is FLORES's. With
    `skip_empty`, lines that are empty in one language are left out in all, instead of an error.
    `search` are folders in which tokenizers are looked up; see `Auditing` for the other options. An
    `engine` ("local", "ray" or one made by `make_engine`) counts in other processes or on other
    machines, with the same result; counts are kept in `store` (default: the cache). All inputs are
    checked before anything is encoded.
    """
    options = Auditing(
        pivot, folders(search), None if prices is None else Path(prices), resamples,
        skip_missing, reference,
    )  # fmt: skip
    tables = audit_corpus(
        open_corpus(corpus, split, skip_empty), _names(tokenizers), languages, options, store=store,
        progress=progress,
        engine=make_engine(engine) if isinstance(engine, str) else engine,
    )  # fmt: skip
    return Audit.of(tables)


def folders(search: Place | Iterable[Place]) -> tuple[Path, ...]:
    """One folder or several, as paths: a string is one, not its letters."""
    several = [search] if isinstance(search, str | Path) else search
    return tuple(Path(one) for one in several)


def survey(
    sources: Place | Iterable[Place],
    tokenizers: Named | Iterable[Named] = BUNDLED,
    *,
    layout: Layout | None = None,
    parallel: bool = False,
    pivot: str = PIVOT,
    format_: Format | None = None,
    search: Place | Iterable[Place] = (),
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    skip_bad: bool = False,
    state: Place | None = None,
    words: bool = False,
    reference: bool = False,
    progress: OnProgress | None = None,
) -> Audit:
    """Audit a corpus of any size, streamed in shards.

    Text that is not parallel (the default) gives `counts`; with `parallel=True` it gives premiums.
    `layout` says which column holds what; see `Surveying` for how text is read and `Counting` for
    how it is counted. With `words`, files of one language each are counted for `plan` in the same
    pass: `count_words` finds the result in the same `state`.
    """
    layout = layout or Layout()
    tables = survey_files(
        sources, _names(tokenizers),
        Surveying(layout, parallel, pivot, format_, folders(search), reference),
        counting=Counting(engine, workers, address, shard_bytes, skip_bad, state),
        progress=progress,
        beside=WordWork(Layout(text_column=layout.text_column)) if words else None,
    )  # fmt: skip
    return Audit.of(tables)


def count_words(
    texts: Mapping[str, Place | Sequence[Place]],
    *,
    text_column: str = "text",
    format_: Format | None = None,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    skip_bad: bool = False,
    state: Place | None = None,
    progress: OnProgress | None = None,
) -> CountedTexts:
    """Each language's text from its files, counted for `plan`; files may be larger than memory.

    See `Counting` for how it is counted; memory grows with the number of distinct words.
    """
    counting = Counting(engine, workers, address, shard_bytes, skip_bad, state)
    return count_files(
        texts, text_column=text_column, format_=format_, counting=counting, progress=progress
    )


def plan(
    tokenizer: Named,
    languages: str | Iterable[str],
    text: Sources | None = None,
    *,
    budget: int | None = None,
    mode: str = "merges",
    boundaries: Boundaries = "auto",
    objective: Objective = "total",
    protect: Place | Iterable[Place] = (),
    keep_names: bool = False,
    same_size: bool = False,
    test: Corpus = "udhr",
    split: str | None = None,
    pivot: str = PIVOT,
    chosen_on: str | None = None,
    search: Place | Iterable[Place] = (),
    progress: OnProgress | None = None,
) -> Planned:
    """Choose new tokens for `languages`, and measure the premium they lead to; no model is touched.

    `text` is what to choose on, by language if there are several (`chosen_on` names it); premiums
    are measured on `test`, so use text that is not in it. The default `budget` is 2000. The ids of
    `protect` stay as they are, and with `keep_names` also those of words that begin with a capital;
    with `same_size` new tokens take the ids of old ones that none of the text uses, and the
    vocabulary does not grow. See `planning.plan_files.plan` and `Planning` for more.
    """
    corpus, codes = open_corpus(test, split), listed(languages)
    if progress is not None:
        progress(Progress(f"Choosing tokens for {', '.join(codes)} ({objective})", 0))
    options = Planning(
        budget, mode, boundaries, objective, pivot, same_size=same_size, keep_names=keep_names
    )
    made = plan_tokens(
        _name(tokenizer), codes, text, options, chosen_on=chosen_on, test=corpus,
        search=folders(search), protect=protect,
    )  # fmt: skip
    return Planned.of(made)


def derive(
    model: Named,
    plan: AnyPlan,
    method: str = "auto",
    *,
    text: Sources | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    checkpoint_dir: Place | None = None,
    device: str = "auto",
    dtype: str = "auto",
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    derive_options: Mapping[str, Any] | None = None,
    progress: OnProgress | None = None,
) -> Derived:
    """Input rows for a plan's tokens, as `graft` takes them (`rows=`).

    `auto` distils if `text` is given, otherwise it takes the best method that needs none. `minutes`
    and `steps` limit training; in `checkpoint_dir` a second call goes on from the first. `device`
    and `dtype` are those of `Reading`; `options` are those of a plugin's method, by name, and
    `derive_options` further fields of `Deriving` or of the options in it, such as `by_text`.
    """
    from tokengraft.grafting.graft import derive_for
    from tokengraft.model.folder import resolve
    from tokengraft.model.tokenizer_files import base_tokenizer

    base, plan = resolve(_name(model)), _plan(plan)
    extended = insert_proved(base_tokenizer(base.path), plan, base.name)
    settings = {
        "max_minutes": minutes, "steps": steps, "checkpoint_dir": checkpoint_dir,
        "device": device, "dtype": dtype, "seed": seed, "progress": progress,
        "more": options, **(derive_options or {}),
    }  # fmt: skip
    texts = None if text is None else texts_of(text)
    return derive_for(base.path, plan, extended, method, texts, settings)


def graft(
    model: Named,
    plan: AnyPlan,
    out: Place,
    *,
    rows: Derived | NDArray[np.float32] | None = None,
    method: str = "auto",
    text: Sources | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    checkpoint_dir: Place | None = None,
    device: str = "auto",
    dtype: str = "auto",
    translation: Sources | None = None,
    options: Mapping[str, Any] | None = None,
    derive_options: Mapping[str, Any] | None = None,
    policy: str = DEFAULT,
    protect: Sources | None = None,
    untie: bool = True,
    train: str = "auto",
    keep: float | None = None,
    lanes: int | None = None,
    start: Place | None = None,
    adapter_only: bool = False,
    check: Sources | None = None,
    verified: bool = True,
    license: str | None = None,
    sign: Place | None = None,
    seed: int = 0,
    command: Sequence[str] = (),
    force: bool = False,
    progress: OnProgress | None = None,
) -> Grafted:
    """Write `model` with the plan's tokens to the folder `out`, verified.

    Rows are taken from `rows`, or derived by `method`, from `text` if given (for `minutes` to
    `derive_options` see `derive`). An encoder can learn from a `translation` of the text, line by
    line, into a language that it reads. `policy` and its options (`protect`, `untie`) are explained
    by `Output`; `options` are those of a plugin's method or policy, by name. `train` says what
    learns: `rows`, `lanes` or `lora`; `auto` is lanes if text is given and the model can have them,
    else rows. `lanes` is by how many dimensions at least the model gets wider for lanes (a sixth of
    its width, 64 to 256); with `lora`, `keep` is the share of positions in English and code at
    which the likeliest token must stay the same (0.97). Training goes on from `start`, an earlier
    graft of the same plan into the same model, if given: from its rows, and its lanes if they are
    trained again. `adapter_only` writes what adapters learned, without the base. Until the folder
    is verified, what was learned is kept in `checkpoint_dir`, by default `OUT.training`, from which
    the same call goes on after a failure. `check` is text to verify on, by default the bundled
    UDHR. `sign` is a private key: the folder gets a signature that `verify` checks by the public
    `key`. A folder at `out` that is not a graft is replaced only with `force`. Raises GraftError if
    verification fails; then `out` is as it was.
    """
    from tokengraft.grafting.graft import Derivation, Finishing, Output
    from tokengraft.grafting.graft import graft as write_graft
    from tokengraft.model.folder import resolve

    if rows is not None and train not in ("auto", "rows"):
        raise UsageError(f"train {train!r} trains rows and body together: leave rows out")
    if rows is not None and any(one is not None for one in (start, keep, lanes)):
        raise UsageError("start, keep and lanes say how to train: leave them out, or rows")
    settings = {
        "max_minutes": minutes, "steps": steps, "checkpoint_dir": checkpoint_dir,
        "device": device, "dtype": dtype, "progress": progress,
        "translation": None if translation is None else list(lines_of(translation)),
        **(derive_options or {}),
    }  # fmt: skip
    taken = named(policy).takes
    given = dict(options or {})
    more = {name: given.pop(name) for name in taken if name in given}
    settings["more"] = given
    if given and rows is not None:
        raise UsageError(
            f"options {', '.join(given)} say how to make rows: leave them out, or rows"
        )
    name = _name(model)
    made = write_graft(
        name, _plan(plan), out,
        Derivation(method, text, settings, train, keep, start, lanes) if rows is None else rows,
        output=Output(policy, more, protect, untie),
        options=Finishing(
            check, verified, license, seed, command, force, adapter_only, sign, device, progress
        ),
    )  # fmt: skip
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
    key: Place | None = None,
) -> Verified:
    """Prove a grafted folder sound against its base by loading it afresh.

    Each program in `served_by` (`serving.SERVERS`) is then actually run on it: its ids are checked
    and, if it generates, that greedy English is the base's and that barred ids never appear. The
    outcome goes into the model's card, unless that is signed. With a public `key`, every file must
    be as the owner of its private key signed it.

    `text` is what to check on: files or lines (`lines_of`); by default the bundled UDHR in the
    planned languages and others.
    """
    from tokengraft.grafting.card import write_served
    from tokengraft.grafting.signature import signature_difference
    from tokengraft.grafting.verify.invariants import Check
    from tokengraft.grafting.verify.invariants import verify as prove
    from tokengraft.model.folder import CONFIG, MANIFEST, SIGNATURE, resolve
    from tokengraft.serving import named
    from tokengraft.serving.export_gguf import check_corpus
    from tokengraft.serving.in_programs import refuse_missing

    base, path = resolve(_name(model)), Path(_name(folder))
    if not any((path / name).is_file() for name in (MANIFEST, CONFIG)):
        raise ModelError(f"{path} is no model's folder: it holds neither {MANIFEST} nor {CONFIG}")
    programs = [named(name) for name in served_by]
    refuse_missing([program.name for program in programs])
    lines = None if text is None else list(lines_of(text))
    checks = []
    if key is not None:
        wrong = signature_difference(path, key)
        signed = f"every file is as the owner of {Path(key).name} signed it"
        checks.append(Check("signature", wrong is None, wrong or signed))
    checks += prove(path, base.path, lines).checks
    served = []
    for program in programs:
        served += program.run(path, base.path, check_corpus(path, lines))
    if served and not (path / SIGNATURE).is_file():
        write_served(path, served)
    return Verified((*checks, *served), path.resolve().name, base.name)


def export(
    graft: Named,
    out: Place,
    *,
    base: Place | None = None,
    quantize: str | None = None,
    text: Sources | None = None,
    pattern: str | None = None,
    unchecked: bool = False,
    force: bool = False,
) -> Exported:
    """Write a graft for llama.cpp and Ollama (GGUF), with the same ids or not at all.

    `text` is what llama.cpp must encode as the folder's tokenizer does; by default the bundled UDHR
    in the planned languages and others. See `serving.export_gguf.export` for the other options.
    """
    from tokengraft.serving.export_gguf import export as write

    return write(
        _name(graft), out, base=base, quantize=quantize,
        texts=None if text is None else lines_of(text), pattern=pattern, unchecked=unchecked,
        force=force,
    )  # fmt: skip


def evaluate(
    base: Named | FrozenModel,
    graft: Named | FrozenModel,
    corpus: Corpus = "udhr",
    languages: str | Iterable[str] | None = None,
    lines: int | None = None,
    *,
    split: str | None = None,
    text: Sources | None = None,
    against: bool = True,
    continuation: bool = True,
    shared: bool | None = None,
    prompts: int = 0,
    tasks: Sequence[str] = (),
    tasks_include: Place | None = None,
    tasks_limit: int | None = None,
    probe: Place | None = None,
    ask: str | None = None,
    most_positions: int = MOST_POSITIONS,
    resamples: int = RESAMPLES,
    seed: int = 0,
    device: str = "auto",
    dtype: str = "auto",
    window: int | None = None,
    progress: OnProgress | None = None,
) -> Evaluation:
    """Measure how much of `base` survived in `graft`, on a corpus it was not trained on.

    Languages default to those the graft was made for; `text` is what the rows were trained on, to
    check that it holds no line of the corpus. `tasks` are names of lm-evaluation-harness tasks;
    `probe` is a file of labels that a linear probe has to find from either model's states; `ask` is
    a question about a line ({} in it) that a model which follows prompts answers with a label. See
    `Measuring` for what is measured, and `Reading` for `device`, `dtype` and `window`.
    """
    from tokengraft.evaluating.evaluate import Measuring
    from tokengraft.evaluating.evaluate import evaluate as measure
    from tokengraft.evaluating.harness_tasks import Tasks
    from tokengraft.model.frozen import Reading

    if not isinstance(corpus, str | Path | ParallelCorpus):
        corpus = open_corpus(corpus)
    named = Tasks(tasks, tasks_include, tasks_limit)
    measurements = measure(
        _subject(base), _subject(graft), corpus, languages, text=text,
        reading=Reading(device, dtype, window),
        options=Measuring(
            split, lines, against, continuation, shared, prompts, most_positions, resamples, seed,
            named, probe, ask,
        ),
        progress=progress,
    )  # fmt: skip
    return Evaluation.of(measurements)


def open_corpus(
    given: Corpus, split: str | None = None, skip_empty: bool = False
) -> ParallelCorpus:
    """A parallel corpus, however it was given."""
    if isinstance(given, ParallelCorpus):
        return given
    if isinstance(given, Mapping):
        given = [f"{code}={path}" for code, path in given.items()]
    if isinstance(given, str | Path):
        given = [str(given)]
    one = len(given) == 1 and ("=" not in given[0] or Path(given[0]).exists())
    if one:
        return load_corpus(given[0], split, skip_empty=skip_empty)
    return load_pairs(list(given), skip_empty)


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
