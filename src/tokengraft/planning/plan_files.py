"""`plan`: from names and files to a plan, and to the new tokenizer on disk.

Languages are named one by one, or as a group. A group is `all`, a script (`Latn`), a family of the
language table (`Niger-Congo`), or `premium>2`: every language whose premium under the tokenizer, on
the test corpus, is above that. A group holds only languages for which there is text, and never the
pivot.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tokengraft.core.errors import CorpusError, TokengraftError, UsageError, did_you_mean
from tokengraft.core.files import read_json, write_json, writing_folder
from tokengraft.core.wording import one_line
from tokengraft.corpus import load as load_corpus
from tokengraft.corpus import udhr
from tokengraft.corpus.lines_of import CountedText, Source, Sources, files_named, lines_of
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.languages.codes import (
    known,
    language,
    listed,
    meanings,
    resolve,
    script_of,
    well_formed,
)
from tokengraft.model.tokenizer_files import TOKENIZER_CONFIG, write_tokenizer_json
from tokengraft.planning import mode_named
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.curve import mean_ratio
from tokengraft.planning.permitted import shares_letters
from tokengraft.planning.plan import Plan, Planning, folded
from tokengraft.planning.protect import insert_proved, protected_text, unprotected_code
from tokengraft.tokenizer.catalog import Located, as_json, find, side_files
from tokengraft.tokenizer.file_shape import settings
from tokengraft.tokenizer.insert import family, replaced, without_entries
from tokengraft.tokenizer.pipeline import lengths, load
from tokengraft.tokenizer.sentence_piece import SENTENCEPIECE, checked_file
from tokengraft.tokenizer.transformers_classes import PLAIN, taken_as_it_is, tokenizer_config

INSERTED = "tokengraft_insert.json"  # marks a folder that `insert_plan` wrote


@dataclass(frozen=True, repr=False)
class TestedPlan:
    """A plan, the text it was chosen on and the text its premiums were measured on."""

    plan: Plan
    chosen_on: str
    tested_on: str
    base: dict[str, Any] = field(default_factory=dict, compare=False)  # of a plan just made


def plan(
    tokenizer: str | Path,
    languages: str | Iterable[str],
    text: Sources | None = None,
    options: Planning = Planning(),  # noqa: B008 - frozen
    *,
    chosen_on: str | None = None,
    test: str | Path | ParallelCorpus = "udhr",
    search: Sequence[Path] = (),
    protect: str | Path | Iterable[str | Path] = (),
) -> TestedPlan:
    """Choose tokens for `languages`, and measure the premium they lead to.

    `languages` may be groups of those with text (`planning.plan_files`): "all", a script, a family,
    "premium>2". `text` gives the text to choose on for each language: files or lines
    (`corpus.lines_of`), or text counted beforehand (`count_words`). With one language no mapping is
    needed; with several, a folder with one file for each language will do. `chosen_on` names where
    the text is from. Premiums are measured on `test`, a parallel corpus, so use text that is not in
    it. Without `text`, tokens are chosen on the odd units of `test` and tested on the even ones.
    If boundaries are relaxed, every line of `test` and of the bundled UDHR in a planned script is
    checked: none may get longer.

    `protect` names files, or languages of the bundled UDHR, no line of which may change its ids.
    If a planned language is in Latin script, a bundled sample of English and source code is
    protected as well, unless `protect` is "nothing". With `options.keep_names` so are a dictionary
    and every word that begins with a capital. How much of other English changes is measured on the
    pivot's side of `test`, how much of other code on bundled lines.
    """
    corpus = test if isinstance(test, ParallelCorpus) else load_corpus(test)
    pivot = corpus.require(options.pivot)
    asked = listed(languages)
    folder = text if isinstance(text, str | Path) and Path(text).is_dir() else None
    if folder is not None and (len(asked) > 1 or any(map(is_group, asked))):
        text = {**texts_of_folder(Path(folder))}
    codes = languages_for(
        asked,
        [resolve(code) for code in text] if isinstance(text, Mapping) else corpus.languages,
        pivot,
        lambda code: premium_before(tokenizer, corpus, code, pivot, search),
    )
    if not codes:
        raise UsageError("no language to plan for: name at least one (--language)")
    base = find(str(tokenizer), search)
    parsed = as_json(base)
    if text is None:
        lines: dict[str, Iterable[str] | CountedText] = {
            code: _units(corpus, code, 0) for code in codes
        }
        tested = {code: list(pair) for code, pair in _pairs(corpus, codes, pivot, 1).items()}
        chosen_on = f"{corpus.title}, every other passage"
        tested_on = f"{corpus.title}, the other passages"
    else:
        texts = _by_language(text, codes)
        lines = {c: t if isinstance(t, CountedText) else lines_of(t) for c, t in texts.items()}
        tested = {code: list(pair) for code, pair in _pairs(corpus, codes, pivot).items()}
        chosen_on = chosen_on or ", ".join(sorted({n for t in texts.values() for n in _names(t)}))
        tested_on = corpus.title
    kept = [protect] if isinstance(protect, str | Path) else list(protect)
    options = replace(options, pivot=pivot, rows=options.rows or _rows(base))
    if options.keep_names and family(parsed) in ("unigram", "wordpiece"):
        raise UsageError("names are kept by a rule for BPE: leave keep_names (--keep-names) out")
    notes: list[str] = []
    if options.objective == "speakers":
        speakers, notes = _speakers(codes)
        options = replace(options, speakers=speakers)
    result = plan_tokens(
        parsed,
        lines,
        options,
        test=tested or None,
        check=[*_same_script(codes, corpus), *_same_script(codes, udhr.load())],
        protect=protected_text(
            kept, shares_letters(codes) and not mode_named(options.mode).literal, options.keep_names
        ),
        elsewhere={
            f"{pivot} of {one_line(corpus.name)}": corpus.lines(pivot),
            "source code": unprotected_code(),
        },
    )
    result = replace(result, label=one_line(base.label), notes=(*result.notes, *notes))
    return TestedPlan(result, one_line(chosen_on), one_line(tested_on), parsed)


def premium_before(
    tokenizer: str | Path,
    corpus: ParallelCorpus,
    code: str,
    pivot: str,
    search: Sequence[Path] = (),
) -> float | None:
    """The premium of a language under the tokenizer as it is; None if the corpus lacks it."""
    if code not in corpus.texts:
        return None
    pairs = _pairs(corpus, [code], pivot)
    if not pairs:
        return None
    pipeline = _pipeline(str(tokenizer), tuple(search))
    return mean_ratio(lengths(pipeline, pairs[code]), lengths(pipeline, pairs[pivot]))


@functools.lru_cache(maxsize=1)
def _pipeline(tokenizer: str, search: tuple[Path, ...]) -> Tokenizer:
    return load(as_json(find(tokenizer, search)))


def insert_plan(
    tokenizer: str | Path,
    plan_file: Path,
    out: Path,
    search: Sequence[Path] = (),
    force: bool = False,
) -> Path:
    """Write the tokenizer with the plan's tokens as a folder that `AutoTokenizer` loads.

    A SentencePiece tokenizer is also written as `tokenizer.model`, if SentencePiece then encodes
    the UDHR alike; otherwise `tokengraft_insert.json` says why not. For a plan of the same size
    that file also names the old tokens whose ids have a new meaning.
    `out` may be missing, empty or what an earlier call wrote; with `force` any other folder is
    replaced, with everything in it.
    """
    base = find(str(tokenizer), search)
    chosen = read_plan(plan_file)
    grown = insert_proved(as_json(base), chosen, base.label)
    extended = folded(grown, chosen)
    own = out.is_dir() and (force or (out / INSERTED).is_file() or not any(out.iterdir()))
    if out.exists() and not own:
        raise UsageError(f"{out} exists already: name a new folder, or replace it (force)")
    source = base.source
    old = source.read(SENTENCEPIECE) if source and SENTENCEPIECE in source.files else None
    pieces, note = None, ""
    if chosen.places is None:
        pieces, note = checked_file(extended, _udhr_lines({*chosen.languages, "eng_Latn"}), old)
    with writing_folder(out) as folder:
        beside = side_files(base)
        for name, data in beside.items():
            (folder / name).write_bytes(data)
        said = settings(beside.get(TOKENIZER_CONFIG, b"{}"), base.name)
        config = without_entries(tokenizer_config(said, {}, extended), chosen.places or ())
        if not taken_as_it_is(said, extended):
            config["tokenizer_class"] = PLAIN
        write_json(folder / TOKENIZER_CONFIG, config)
        facts = {"tokenizer": base.label, "new_tokens": len(chosen.tokens)}
        if chosen.places is not None:
            facts["replaced"] = replaced(grown, chosen.places)
        write_json(folder / INSERTED, {**facts, **({"note": note} if note else {})})
        if pieces is not None:
            (folder / SENTENCEPIECE).write_bytes(pieces)
        write_tokenizer_json(folder, extended)
    return out


def _rows(base: Located) -> int | None:
    """Rows of the embedding table of the model in the tokenizer's folder; None if there is none."""
    if base.source is None or "config.json" not in base.source.files:
        return None
    config = json.loads(base.source.read("config.json"))
    said = (config.get("text_config") or config).get("vocab_size")
    return said if isinstance(said, int) else None


def read_plan(path: Path) -> Plan:
    """The plan in a file, or in a folder that `plan --out` wrote."""
    path = path / "plan.json" if path.is_dir() else path
    if not path.is_file():
        raise TokengraftError(
            f"cannot read this plan: there is no file {path}. Give plan.json, or the folder that "
            "`tokengraft plan --out` wrote."
        )
    return Plan.from_json(read_json(path, what="plan"))


def _by_language(text: Sources, codes: Sequence[str]) -> dict[str, Source]:
    """The text of each planned language, in whichever way it was given."""
    form = f"text={{{codes[0]!r}: [FILE, …], …}} (--text {codes[0]}=FILE)"
    if not isinstance(text, Mapping):
        if len(codes) > 1:
            raise UsageError(f"several languages are planned for, so say whose text it is: {form}")
        text = {codes[0]: text}
    texts: dict[str, Source] = {}
    for key, given in text.items():
        code = resolve(key)
        if code in texts:
            raise UsageError(f"the text of {code} is given twice: put all its files into one list")
        texts[code] = given
    missing = [code for code in codes if not texts.get(code)]
    if missing:
        raise UsageError(f"no text for {', '.join(missing)}: give it as {form}")
    return {code: texts[code] for code in codes}


def _names(given: Source) -> list[str]:
    if isinstance(given, CountedText):
        return ["counted text"]
    named = files_named(given)
    return ["given lines"] if named is None else [Path(one).name for one in named]


def _units(corpus: ParallelCorpus, code: str, offset: int) -> list[str]:
    if code not in corpus.texts:
        raise CorpusError(
            f"{corpus.name} has no {code}, so there is no text to choose on: give text (--text)"
        )
    return [text for text in corpus.texts[code][offset::2] if text is not None]


def _pairs(
    corpus: ParallelCorpus, codes: Sequence[str], pivot: str, offset: int | None = None
) -> dict[str, list[str]]:
    """The test corpus: the units that the pivot and all planned languages in it share."""
    kept = [code for code in (pivot, *codes) if code in corpus.texts]
    rows = list(zip(*(corpus.texts[code] for code in kept), strict=True))
    rows = rows if offset is None else rows[offset::2]
    whole = [[text for text in row if text is not None] for row in rows if None not in row]
    if len(kept) < 2 or not whole:
        return {}
    return {code: [row[n] for row in whole] for n, code in enumerate(kept)}


def _udhr_lines(codes: Collection[str]) -> Iterator[str]:
    corpus = udhr.load()
    yield from corpus.lines(*(code for code in corpus.languages if code in codes))


def _same_script(codes: Iterable[str], corpus: ParallelCorpus) -> list[str]:
    scripts = set(map(script_of, codes))
    return corpus.lines(*(code for code in corpus.languages if script_of(code) in scripts))


def _speakers(codes: Iterable[str]) -> tuple[dict[str, float], list[str]]:
    """The number of speakers of each language, native or not, and a note that says so."""
    speakers = {code: float(language(code).speakers_total or 0) for code in codes}
    none = [code for code, number in speakers.items() if not number]
    known = [number for number in speakers.values() if number]
    if not known:
        raise UsageError(
            f"no number of speakers is known for {', '.join(none)}: use another objective "
            "(--objective)"
        )
    notes = ["speakers: everyone who uses the language, as a first or a later one (CLDR)"]
    if none:
        few = "counted as the fewest of the others"
        notes.append(f"speakers: no number is known for {', '.join(none)}, {few}")
    return {code: number or min(known) for code, number in speakers.items()}, notes


ALL = "all"
_SCRIPT = re.compile("[A-Z][a-z]{3}")
_ABOVE = re.compile(r"premium\s*>\s*(\d+(?:\.\d+)?)")


def is_group(asked: str) -> bool:
    """Whether `asked` names several languages, not one."""
    if asked == ALL or _ABOVE.fullmatch(asked):
        return True
    return not meanings(asked) and bool(_SCRIPT.fullmatch(asked) or _family(asked))


def languages_for(
    asked: Iterable[str],
    available: Collection[str],
    pivot: str,
    premium_of: Callable[[str], float | None],
) -> list[str]:
    """The codes that `asked` means, each once; UsageError for a group with none `available`."""
    codes: dict[str, None] = {}
    for one in asked:
        if not is_group(one):
            codes[resolve(one)] = None
            continue
        group = [code for code in available if code != pivot and well_formed(code)]
        if (above := _ABOVE.fullmatch(one)) is not None:
            limit = float(above[1])
            group = [code for code in group if (premium_of(code) or 0) > limit]
        elif one != ALL and _SCRIPT.fullmatch(one):
            group = [code for code in group if script_of(code) == one]
        elif one != ALL:
            group = [code for code in group if language(code).family == _family(one)]
        if not group:
            hint = did_you_mean(one, sorted({script_of(code) for code in available}))
            raise UsageError(
                f"{one}: none of the {len(available)} languages with text is in it.{hint}"
            )
        codes.update(dict.fromkeys(group))
    return list(codes)


def texts_of_folder(folder: Path) -> dict[str, Path]:
    """The files of a folder that are named after a language (`swh_Latn.txt`, `shn.jsonl.zst`)."""
    files: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        label = path.name.partition(".")[0]
        try:
            code = resolve(label) if path.is_file() and label else None
        except CorpusError:
            continue
        if code is not None and code in files:
            raise UsageError(f"{folder} has two files for {code}: {files[code].name}, {path.name}")
        if code is not None:
            files[code] = path
    if not files:
        raise UsageError(f"{folder}: no file in it is named after a language, like swh_Latn.txt")
    return files


def _family(said: str) -> str | None:
    families = {row.family.casefold(): row.family for row in known().values() if row.family}
    return families.get(said.casefold())
