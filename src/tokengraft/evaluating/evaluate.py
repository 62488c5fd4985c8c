"""`evaluate`: a grafted model against its base, language by language."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from tokengraft.core.errors import CorpusError, UsageError
from tokengraft.core.options import MOST_POSITIONS, PIVOT, RESAMPLES
from tokengraft.core.progress import OnProgress, Progress
from tokengraft.corpus import load as load_corpus
from tokengraft.corpus import udhr
from tokengraft.corpus.lines_of import Sources, lines_of
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.deriving.distil.silent_text import untrained
from tokengraft.evaluating.both_spellings import shared_scores
from tokengraft.evaluating.continuation import Continuation
from tokengraft.evaluating.fidelity import BaseReading
from tokengraft.evaluating.fidelity import scores as fidelity_scores
from tokengraft.evaluating.generation import measure_generation, write_samples
from tokengraft.evaluating.harness_tasks import Tasks, run_tasks
from tokengraft.evaluating.labels import read_labels
from tokengraft.evaluating.lines import Case, assert_disjoint, prepare
from tokengraft.evaluating.probe import probe_scores
from tokengraft.evaluating.protected import protected_scores
from tokengraft.evaluating.question import asked_scores
from tokengraft.evaluating.score import SCORES, Bootstrap, Measurements, Score
from tokengraft.evaluating.translations import translation_scores
from tokengraft.evaluating.writing import english_greedy, written_scores
from tokengraft.grafting.manifest import done
from tokengraft.grafting.output_policies import recorded
from tokengraft.grafting.same_size import grown, is_same_size
from tokengraft.languages.codes import listed
from tokengraft.model.checkpoint import read_json
from tokengraft.model.folder import CONFIG, resolve
from tokengraft.model.frozen import FrozenModel, Reading

Teller: TypeAlias = Callable[[str], Callable[[int], None] | None]


@dataclass(frozen=True)
class Measuring:
    """What is measured, and on how much.

    `split` is FLORES's. `lines` is the most lines per language, `most_positions` the most positions
    at which distributions are compared (0: all). `against=False` leaves out floors and ceilings (a
    third of the time). `shared` asks for bits per byte with new tokens written too (default: if the
    graft's output policy lets it write them; then what it writes and its greedy English are
    measured as well). English and code are measured if the graft writes new tokens or its body was
    trained. `prompts` is the number of lines for costs and samples of generation. `probe` is a file
    of labels (`labels.read_labels`) for a linear probe to find; `ask` is a question about a line,
    with {} in its place, whose possible answers are these labels.
    """

    split: str | None = None
    lines: int | None = None
    against: bool = True
    continuation: bool = True
    shared: bool | None = None
    prompts: int = 0
    most_positions: int = MOST_POSITIONS
    resamples: int = RESAMPLES
    seed: int = 0
    tasks: Tasks = field(default_factory=Tasks)
    probe: Path | str | None = None
    ask: str | None = None

    @property
    def drawn(self) -> Bootstrap:
        """How intervals are made."""
        return Bootstrap(self.resamples, self.seed)

    def __post_init__(self) -> None:
        if self.ask is not None and self.probe is None:
            raise UsageError(
                "a question (--ask) needs labels to choose its answer from: give them with --probe"
            )


def evaluate(
    base: str | Path | FrozenModel,
    graft: str | Path | FrozenModel,
    corpus: str | Path | ParallelCorpus = "udhr",
    languages: Iterable[str] | None = None,
    *,
    text: Sources | None = None,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    options: Measuring = Measuring(),  # noqa: B008 - frozen
    progress: OnProgress | None = None,
) -> Measurements:
    """Measure how much of `base` survived in `graft`, on a corpus it was not trained on.

    Languages default to those the graft was made for. `text` is what the rows were trained on
    (files or lines, `corpus.lines_of`); it is checked to hold no line of the corpus.

    A graft that changes nothing gives exactly 1.0, KL 0 and rank 1, since lines with the same ids
    are read in the same batches. For encoders there are no distributions and likelihoods. A graft
    of its base's size is first turned back into a larger one, in which old ids keep their meaning.
    """
    old = FrozenModel.load(base, reading)
    if isinstance(graft, FrozenModel) or not is_same_size(resolve(graft).path):
        new = FrozenModel.load(graft, reading)
        return _measure(old, new, corpus, languages, text, options, progress)
    with grown(resolve(graft).path, old.folder) as folder:
        new = FrozenModel.load(folder, reading)
        return _measure(old, new, corpus, languages, text, options, progress)


def _measure(
    old: FrozenModel,
    new: FrozenModel,
    corpus: str | Path | ParallelCorpus,
    languages: Iterable[str] | None,
    text: Sources | None,
    options: Measuring,
    progress: OnProgress | None,
) -> Measurements:
    if old.kind != new.kind:
        raise UsageError(
            f"{old.name} is {old.kind}, {new.name} is {new.kind}: it is no graft of {old.name}"
        )
    if (old.prefix, old.suffix) != (new.prefix, new.suffix):
        raise UsageError(
            f"{old.name} puts {[*old.prefix]} before and {[*old.suffix]} after every text, "
            f"{new.name} {[*new.prefix]} and {[*new.suffix]}: it is no graft of {old.name}"
        )
    new = new.narrow(old.dimensions)
    chosen = _languages(languages, new)
    kept: dict[str, Score] = {}
    if old.kind == "causal" and ("trained" in new.manifest or recorded(new.policy).writes):
        kept = _protected(old, new, corpus, options)
    given = corpus
    if not isinstance(corpus, ParallelCorpus):
        corpus = load_corpus(corpus, options.split, chosen)
    corpus = corpus.select(chosen)
    if text is not None:
        assert_disjoint(lines_of(text), corpus)
    drawn, room = options.drawn, min(old.window, new.window)
    writes = recorded(new.policy).writes
    labels = None if options.probe is None else read_labels(options.probe)
    measured: dict[tuple[str, str], Score] = {}
    unread: list[str] = []
    english: dict[str, Score] = {}
    tables: dict[str, list[dict[str, Any]]] = {"sizes": [], "generation": [], "samples": []}
    for code in corpus.languages:
        case = prepare(code, corpus.lines(code)[: options.lines], old, new.tokenizer, room)
        tables["sizes"].append(case.sizes(len(old.prefix)))
        tell = partial(_tell, progress, case)
        scores = _fidelity(old, new, case, options, tell)
        if old.kind == "encoder":
            scores |= _translation(old, new, given, code, options)
        if old.kind == "causal":
            if options.continuation:
                scores |= _continuation(old, new, case, options, tell)
            if writes if options.shared is None else options.shared:
                both = shared_scores(old, new, case, drawn, progress=tell("both spellings"))
                unread += [] if both else [code]
                scores |= both
                if writes:
                    english = english or _english(old, new, corpus, drawn)
                    scores |= written_scores(old, new, case, drawn) | english
            if options.prompts:
                lines = corpus.lines(code)[: options.prompts]
                half = [line[: max(1, len(line) // 2)] for line in lines[:2]]
                tables["generation"] += measure_generation(
                    old, new, code, lines, progress=tell("generation")
                )
                tables["samples"] += write_samples(old, new, code, half, seed=options.seed)
        scores |= kept
        if labels is not None:
            scores |= probe_scores(old, new, corpus, code, labels, drawn)
            if options.ask is not None and old.kind == "causal":
                scores |= asked_scores(old, new, corpus, code, labels, options.ask, drawn)
        measured |= {(code, name): value for name, value in scores.items()}
    if options.tasks.names:
        tables["tasks"] = run_tasks(
            old.folder, new.folder, options.tasks, seed=options.seed, device=str(old.device)
        )
    flat = [
        {"language": code, "metric": name, **asdict(value)}
        for (code, name), value in measured.items()
    ]
    settings = {
        "lines": options.lines, "window": room, "seed": options.seed,
        "resamples": options.resamples, "most_positions": options.most_positions,
        "policy": new.policy, "done": _done(new),
        "dtype": str(old.weight.dtype).removeprefix("torch."), "device": old.device.type,
        "digests": {code: corpus.digest(code)[:16] for code in corpus.languages},
    }  # fmt: skip
    optional = {name: pl.DataFrame(t) for name, t in tables.items() if t and name != "sizes"}
    return Measurements(
        old.name, new.name, old.kind, corpus.title, settings,
        pl.DataFrame(flat, schema=SCORES, orient="row"), pl.DataFrame(tables["sizes"]),
        **optional, notes=_notes(measured if options.against else {}, unread),
    )  # fmt: skip


def _done(graft: FrozenModel) -> dict[str, Any] | None:
    """How the graft was made, for advice; None if its manifest does not say."""
    if "rows" not in graft.manifest:
        return None
    found = done(graft.manifest, read_json(graft.folder / CONFIG))
    return None if found is None else asdict(found)


def _fidelity(
    old: FrozenModel, new: FrozenModel, case: Case, options: Measuring, tell: Teller
) -> dict[str, Score]:
    # With floors and ceiling, the base's distributions are needed four times.
    base = BaseReading(
        old, case, most_positions=options.most_positions, seed=options.seed,
        keep_bytes=1 << 30 if options.against else 0, progress=tell("base"),
    )  # fmt: skip
    head = new.head(case.rows).exact() if old.kind == "causal" else None
    sums = base.compare(base.read_new(new, progress=tell("graft")), head)
    if not options.against:
        return fidelity_scores(sums, {}, {}, {}, options.drawn)
    floors = base.unrelated(), base.mean_row(tell("mean row"))
    return fidelity_scores(sums, *floors, base.ceiling(tell("ceiling")), options.drawn)


def _continuation(
    old: FrozenModel, new: FrozenModel, case: Case, options: Measuring, tell: Teller
) -> dict[str, Score]:
    halves = Continuation(old, case, options.seed, progress=tell("continuation"))
    if not len(halves.base):
        return {}
    head = new.head(case.rows).exact()
    bits = halves.measure(new, head=head, progress=tell("continuation, graft"))
    return halves.scores(bits, options.drawn, options.against)


def _tell(progress: OnProgress | None, case: Case, what: str) -> Callable[[int], None] | None:
    """A function that is told how many more lines are done."""
    if progress is None:
        return None
    done = 0

    def report(count: int) -> None:
        nonlocal done
        done += count
        progress(Progress(f"{case.language} · {what}", done, len(case.pairs), "lines"))

    return report


def _translation(
    base: FrozenModel,
    graft: FrozenModel,
    corpus: str | Path | ParallelCorpus,
    code: str,
    options: Measuring,
) -> dict[str, Score]:
    """Whether lines find their English translation; empty if the corpus has none of them."""
    both = [code, PIVOT]
    with contextlib.suppress(CorpusError):
        if not isinstance(corpus, ParallelCorpus):
            corpus = load_corpus(corpus, options.split, both)
        texts = corpus.select(both).texts
        units = zip(texts[code], texts[PIVOT], strict=True)
        pairs = [(line, other) for line, other in units if line and other][: options.lines]
        if pairs:
            lines, english = zip(*pairs, strict=True)
            return translation_scores(base, graft, lines, english, options.drawn)
    return {}


def _english(
    base: FrozenModel, graft: FrozenModel, corpus: ParallelCorpus, drawn: Bootstrap
) -> dict[str, Score]:
    """Greedy continuations of English, from the corpus if it has any, else from the UDHR."""
    source = corpus if PIVOT in corpus.languages else udhr.load([PIVOT])
    return english_greedy(base, graft, source.lines(PIVOT), drawn)


def _protected(
    base: FrozenModel, graft: FrozenModel, corpus: str | Path | ParallelCorpus, options: Measuring
) -> dict[str, Score]:
    """What became of English and code that `distil` never trains on.

    English is the corpus's, unless it has none or is the UDHR, which may have been trained on.
    """
    texts = untrained()
    with contextlib.suppress(CorpusError):
        if not isinstance(corpus, ParallelCorpus):
            corpus = load_corpus(corpus, options.split, [PIVOT])
        if corpus.name != udhr.NAME and PIVOT in corpus.languages:
            texts["English"] = list(corpus.lines(PIVOT))
    return protected_scores(base, graft, texts, options.drawn)


def _notes(measured: Mapping[tuple[str, str], Score], unread: Sequence[str]) -> tuple[str, ...]:
    codes = dict.fromkeys(
        c for (c, name), s in measured.items() if name == "aligned_cosine" and s.ceiling is None
    )
    notes = []
    if codes:
        notes.append(
            f"no ceiling for {', '.join(codes)}: the old vocabulary spells the text in single "
            "bytes or the like, so it cannot be cut in another way"
        )
    if unread:
        notes.append(
            f"no shared_bpb for {', '.join(unread)}: this model cannot read both spellings of a "
            "stretch at once, or no line has two common positions"
        )
    return tuple(notes)


def _languages(languages: Iterable[str] | None, graft: FrozenModel) -> list[str]:
    if languages is not None:
        return listed(languages)
    codes = list(graft.manifest.get("languages", ()))
    if not codes:
        raise UsageError(
            f"{graft.name} does not say which languages it is for: name them (languages=, -l)"
        )
    return codes
