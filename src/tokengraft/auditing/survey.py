"""The audit of a large corpus: files × tokenizers → sums → data frames, on any engine."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import polars as pl

from tokengraft.auditing import frames
from tokengraft.auditing.audit import find_all
from tokengraft.auditing.audit_tables import (
    ENCODERS,
    AuditTables,
    Frames,
    library_versions,
    tokenizer_facts,
)
from tokengraft.auditing.cost import PriceList, read_prices
from tokengraft.auditing.frames import UNK_LIMIT, about, against_first, spoilt_by_pivot
from tokengraft.auditing.premium import CONFIDENCE
from tokengraft.auditing.token_counter import TokenWork
from tokengraft.core import __version__
from tokengraft.core.errors import CorpusError, EncoderDiffers, UsageError
from tokengraft.core.options import PIVOT
from tokengraft.core.progress import OnProgress
from tokengraft.corpus.archive import Broken, bounded_lines, decompressed
from tokengraft.corpus.parallel import choose
from tokengraft.corpus.rows import UNKNOWN, BadRow, Layout, parse_record
from tokengraft.corpus.shards import (
    File,
    Format,
    Shard,
    cut,
    cut_aligned,
    find_files,
    parquet_module,
)
from tokengraft.corpus.table_layout import ABOUT, by_code
from tokengraft.engine import Counting
from tokengraft.engine.count_shards import Payload, Total, Work, count_all
from tokengraft.languages.codes import canonical, known, language_name, meanings, resolve, suggest
from tokengraft.tokenizer.packed import Packed


@dataclass(frozen=True)
class Surveying:
    """How a large corpus is read.

    With `parallel`, the sources are tables with a column per language, or `code=path` pairs of
    aligned files, and the result holds premiums. `format_` overrides the format that a file's
    suffix implies; `search` lists folders and archives in which tokenizers are looked up. With
    `reference`, only the libraries that tokenizers come with encode.
    """

    layout: Layout = field(default_factory=Layout)
    parallel: bool = False
    pivot: str = PIVOT
    format_: Format | None = None
    search: Sequence[Path | str] = ()
    reference: bool = False


def survey(
    sources: str | Path | Iterable[str | Path],
    tokenizers: Iterable[str],
    options: Surveying,
    *,
    counting: Counting,
    progress: OnProgress | None = None,
    beside: Work | None = None,
) -> AuditTables:
    """Count a corpus of any size, streamed in shards.

    `sources` are paths, folders, globs or URLs of JSONL, text or Parquet, plain or compressed. All
    engines and shard sizes give the same integers. Languages are named as everywhere (`shn`,
    `Shan`); `layout.only` may also name any label found in the data. A name in it that is neither a
    language nor a label of any row is an error. `beside` is counted in the same pass, of files of
    one language each (`count_all`).
    """
    chosen, shard_bytes = counting.open(), counting.shard_bytes
    layout, parallel, format_ = options.layout, options.parallel, options.format_
    sources = [sources] if isinstance(sources, str | Path) else list(sources)
    if shard_bytes < 1:
        raise UsageError("--shard-bytes must be at least 1.")
    rest = replace(layout, language=None, language_from_path=None)
    if beside is not None and (rest == layout or rest != beside.layout):
        raise UsageError(
            "--words counts files of one language each, whole: name it with -l or find it with "
            "--language-from-path, and choose no rows."
        )
    if parallel:
        pivot = resolve(options.pivot)
        layout, shards = _parallel([str(s) for s in sources], layout, pivot, format_, shard_bytes)
    else:
        pivot = canonical(options.pivot)
        if layout.language:
            named = layout.language
            layout = replace(layout, language=named if named == UNKNOWN else resolve(named))
        files = find_files(sources, format_)
        layout.row_maker(cut(files[:1])[0].spans[0])  # so that options that cannot work fail now
        shards = [s for f in files for s in cut([f], shard_bytes, layout.language_of(f))]
    prices = read_prices(None)
    located, _ = find_all(tokenizers, [Path(place) for place in options.search])
    packed = tuple(Packed.of(one) for one in located)
    reference = frozenset(one.name for one in packed) if options.reference else frozenset()
    while True:
        work = TokenWork(layout, packed, pivot if parallel else None, reference)
        total = count_all(
            work, shards, chosen, skip_bad=counting.skip_bad, state=counting.state,
            progress=progress, beside=beside,
        )  # fmt: skip
        encoders, wrong = total.payload.pop("encoders", {}), total.payload.pop("refuted", {})
        if not wrong:
            break
        warnings.warn(
            f"a faster encoder gives other ids than the library of {', '.join(wrong)}: all is "
            "counted again with the latter",
            EncoderDiffers,
            stacklevel=2,
        )
        reference |= set(wrong)
    if layout.only:
        _require_rows(layout.only, total.payload.get("text", {}))
    shown = _without_folders(total)
    return AuditTables(
        _facts(sources, layout, pivot, packed, shown, counting.engine, prices.as_of)
        | {ENCODERS: {name: ", ".join(sorted(by)) for name, by in encoders.items()}},
        _frames(packed, shown, pivot, prices, parallel),
        total,
    )


def _without_folders(total: Total) -> Total:
    """The same with file names relative to their common folder: results name no machine's path."""
    files = [*(str(shard["file"]) for shard in total.shards), *total.broken]
    local = {file: file.removeprefix("file://") for file in files}
    paths = {file: Path(path) for file, path in local.items() if "://" not in path}
    top = os.path.commonpath([str(path.parent) for path in paths.values()] or ["/"])
    names = {**local, **{file: path.relative_to(top).as_posix() for file, path in paths.items()}}
    return replace(
        total,
        shards=tuple({**shard, "file": names[str(shard["file"])]} for shard in total.shards),
        broken={names[file]: reason for file, reason in total.broken.items()},
        bad_rows=tuple(replace(row, file=names[row.file]) for row in total.bad_rows),
    )


def _frames(
    packed: Sequence[Packed], total: Total, pivot: str, prices: PriceList, parallel: bool
) -> Frames:
    """The tables that follow from sums: premiums of parallel text, counts of any other."""
    main: dict[str, Callable[[], pl.DataFrame]] = {
        "counts": lambda: counts(total.payload, packed, pivot)
    }
    if parallel:
        main = {
            "premiums": lambda: premiums(total.payload, packed, pivot),
            "summary": lambda: frames.summary(made["premiums"], pivot),
            "cost": lambda: frames.cost(made["premiums"], prices),
        }
    schema = {"file": pl.String, "line": pl.Int64, "reason": pl.String}
    made = Frames(
        {
            **main,
            "shards": lambda: pl.DataFrame(total.shards),
            "bad_rows": lambda: pl.DataFrame(_left_out(total), schema),
        }
    )
    return made


def _left_out(total: Total) -> list[dict[str, Any]]:
    """What was left out: first the broken files, of which no row counts, then single rows."""
    broken = [
        {"file": file, "line": None, "reason": f"the whole file: {reason}"}
        for file, reason in total.broken.items()
    ]
    return [*broken, *(asdict(row) for row in total.bad_rows)]


def _facts(
    sources: Sequence[str | Path],
    layout: Layout,
    pivot: str,
    packed: Sequence[Packed],
    total: Total,
    engine: str,
    prices_as_of: str,
) -> dict[str, Any]:
    """What went into the run, and what was left out; shards have their own hashes."""
    names = sorted({Path(str(source).partition("=")[2] or source).name for source in sources})
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    languages = sorted(total.payload.get("text", {}))
    return {
        "tokengraft": __version__,
        "corpus": {
            "name": shown,
            "source": f"own text files: {shown}",
            "units": total.lines,
            "languages": dict.fromkeys(languages),
        },
        "engine": engine,
        "pivot": pivot,
        "layout": json.loads(json.dumps(asdict(layout))),
        "tokenizers": tokenizer_facts(packed),
        "skipped": {},
        "prices_as_of": prices_as_of,
        "lines": total.lines,
        "blank_lines": total.blank,
        "bad_rows": total.bad,
        "broken_files": total.broken,
        "shards": len(total.shards),
        "libraries": library_versions(),
    }


def _parallel(
    sources: Sequence[str], layout: Layout, pivot: str, format_: Format | None, shard_bytes: int
) -> tuple[Layout, list[Shard]]:
    """The layout and shards of a parallel corpus: tables, or `code=path` pairs."""
    if any("=" in source and not Path(source).exists() for source in sources):
        pairs = [_pair(source, format_) for source in sources]
        codes = [code for code, _ in pairs]
        _require(codes, pivot)
        if layout.only is not None:
            keep = {*choose(layout.only, codes, "the pairs"), pivot}
            pairs = [pair for pair in pairs if pair[0] in keep]
        return _with(layout, aligned=True), cut_aligned(pairs, shard_bytes)
    files = find_files(sources, format_)
    if any(file.format == "text" for file in files):
        raise UsageError("Parallel text files are given as CODE=FILE, two or more.")
    columns = _columns(files[0], every=layout.only is None)
    # A column that the first row of JSONL lacks may still occur later.
    wanted = {_code(name, columns) for name in layout.only or columns} | {pivot}
    _require(sorted(wanted), pivot)
    chosen = tuple((code, columns.get(code, code)) for code in sorted(wanted))
    return _with(layout, columns=chosen), cut(files, shard_bytes)


def _code(name: str, columns: Mapping[str, str]) -> str:
    return resolve(name, columns) if meanings(name, columns) else resolve(name)


def _with(layout: Layout, **changes: Any) -> Layout:
    return Layout(**{**asdict(layout), "only": None, **changes})


def _pair(source: str, format_: Format | None) -> tuple[str, File]:
    code, sign, path = source.partition("=")
    if not sign or not code or not path:
        raise UsageError(f"{source!r} is not code=path, like eng_Latn=english.txt.gz.")
    files = find_files([path], format_ or "text")
    if len(files) != 1:
        raise UsageError(f"{source}: one file per language is needed, not {len(files)}.")
    return resolve(code), files[0]


def _columns(file: File, every: bool) -> dict[str, str]:
    """Language code → column, for those columns of a table that name a language.

    A column whose name is ambiguous is a CorpusError if `every` column is wanted, else left out.
    """
    try:
        with file.open() as raw:
            if file.format == "parquet":
                names = list(parquet_module().ParquetFile(raw).schema_arrow.names)
            else:
                stream = decompressed(raw, file.compression)
                _, line = next(iter(bounded_lines(stream, 64 << 20)), (0, b""))
                names = list(parse_record(line or b""))
    except (BadRow, Broken, ValueError, OSError) as error:
        raise CorpusError(f"{file.url}: no columns can be read ({error}).") from error
    meant = {name: meanings(name) for name in names if name not in ABOUT}
    named = [name for name, codes in meant.items() if len(codes) == 1 or (codes and every)]
    return by_code(named, file.url, UsageError)


def _require_rows(only: Sequence[str], labels: Collection[str]) -> None:
    """CorpusError if no row is left, or if a name is neither a language nor any row's label."""
    missing = [name for name in only if canonical(name) not in labels]
    unknown = [name for name in missing if not meanings(name)]
    if unknown or len(missing) == len(only):
        name = (unknown or missing)[0]
        hint = suggest(name, known()) if unknown else ""
        raise CorpusError(
            f"No row is in the language {name!r}.{hint} Without -l all languages are counted."
        )


def _require(codes: Sequence[str], pivot: str) -> None:
    if len(set(codes)) != len(codes):
        twice = next(code for code in codes if codes.count(code) > 1)
        raise UsageError(f"{twice} is given twice: keep one of the two.")
    if pivot not in codes or len(codes) < 2:
        raise UsageError(
            f"Parallel text needs the pivot {pivot} and at least one more language; there are "
            f"{', '.join(codes) or 'none'}. Choose another --pivot or add it."
        )


_Z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("tokenizer", "label", "language", "name"), pl.String),
    **dict.fromkeys(("rows", "bytes", "characters", "tokens"), pl.Int64),
    **dict.fromkeys(("bytes_per_token", "characters_per_token"), pl.Float64),
    **dict.fromkeys(("tokens_per_byte", "tokens_per_character"), pl.Float64),
    **dict.fromkeys(("unk_share", "inside_share"), pl.Float64),
    "meaningless": pl.Boolean,
}
_RELATIVE = dict.fromkeys(("relative_tokens_per_byte", "relative_tokens_per_character"), pl.Float64)
_PREMIUM: dict[str, Any] = {
    "n": pl.Int64,
    **dict.fromkeys(("premium", "premium_low", "premium_high"), pl.Float64),
    **dict.fromkeys(("ratio_of_sums", "ratio_of_sums_low", "ratio_of_sums_high"), pl.Float64),
    **dict.fromkeys(("missing_characters", "tokens_per_unit"), pl.Float64),
}
# Further columns of an audit in memory: about the language, and what sums cannot give (null).
_BESIDES: dict[str, Any] = {
    **dict.fromkeys(("script", "family"), pl.String),
    "speakers_total": pl.Int64,
    **dict.fromkeys(("lossless_share", "utf8", "floor", "missing_tokens"), pl.Float64),
    "floor_lines": pl.Int64,
}


def counts(payload: Payload, tokenizers: Sequence[Packed], pivot: str) -> pl.DataFrame:
    """What each language's text costs; texts differ between languages, so this is no premium.

    The `relative_` columns divide by the pivot's figure; null if the corpus has no pivot text.
    """
    rows = []
    for packed in tokenizers:
        cells = _cells(payload, packed)
        base = cells.get(pivot)
        for cell in cells.values():
            for name in ("tokens_per_byte", "tokens_per_character"):
                value, other = cell[name], base[name] if base else None
                cell[f"relative_{name}"] = value / other if value is not None and other else None
            rows.append(cell)
    return pl.DataFrame(rows, schema=_SCHEMA | _RELATIVE)


def premiums(payload: Payload, tokenizers: Sequence[Packed], pivot: str) -> pl.DataFrame:
    """Premiums of a parallel corpus, both definitions, with normal 95% intervals over units."""
    rows = []
    for packed in tokenizers:
        pairs = payload.get("pairs", {}).get(packed.name, {})
        for code, cell in _cells(payload, packed).items():
            absolute = {"tokens_per_unit": _ratio(cell["tokens"], cell["rows"])}
            rows.append(cell | absolute | _premium(pairs.get(code, {})) | about(code))
    table = pl.DataFrame(rows, schema=_SCHEMA | _PREMIUM | _BESIDES)
    return spoilt_by_pivot(against_first(table), pivot)


def _cells(payload: Payload, packed: Packed) -> dict[str, dict[str, Any]]:
    """Language → the figures that need no other language, sorted."""
    cells = {}
    for code in sorted(payload.get("text", {})):
        rows, size, characters = payload["text"][code]
        tokens, unks, inside = payload["tokens"][packed.name][code]
        cells[code] = {
            "tokenizer": packed.name,
            "label": packed.label,
            "language": code,
            "name": language_name(code),
            "rows": rows,
            "bytes": size,
            "characters": characters,
            "tokens": tokens,
            "bytes_per_token": _ratio(size, tokens),
            "characters_per_token": _ratio(characters, tokens),
            "tokens_per_byte": _ratio(tokens, size),
            "tokens_per_character": _ratio(tokens, characters),
            "unk_share": unks / max(1, tokens, unks),
            "inside_share": _ratio(inside, tokens),
            "meaningless": unks > UNK_LIMIT * tokens,
        }
    return cells


def _premium(pairs: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Both premiums from the sums by pivot tokens p: [units, Σc, Σc², Σ inside].

    Intervals by the central limit theorem: the mean's standard error, and for the ratio of sums
    that of the residuals c - R·p (the delta method).
    """
    by_pivot = sorted((int(p), sums) for p, sums in pairs.items())
    n = sum(sums[0] for _, sums in by_pivot)
    if not n:
        return {name: 0 if name == "n" else None for name in _PREMIUM}
    mean = math.fsum(sums[1] / p for p, sums in by_pivot) / n
    squares = math.fsum(sums[2] / p**2 for p, sums in by_pivot)
    tokens = sum(sums[1] for _, sums in by_pivot)
    pivots = sum(p * sums[0] for p, sums in by_pivot)
    ratio = tokens / pivots
    products = sum(p * sums[1] for p, sums in by_pivot)
    rest = (
        sum(sums[2] for _, sums in by_pivot)
        - 2 * ratio * products
        + ratio**2 * sum(p * p * sums[0] for p, sums in by_pivot)
    )
    within = {"premium": (mean, squares - n * mean**2), "ratio_of_sums": (ratio, rest)}
    result: dict[str, Any] = {"n": n}
    for name, (value, spread) in within.items():
        error = math.sqrt(max(0.0, spread) / max(1, n - 1) / n) if n > 1 else math.nan
        error *= 1.0 if name == "premium" else n / pivots
        result[name] = value
        result[f"{name}_low"] = value - _Z * error if n > 1 else None
        result[f"{name}_high"] = value + _Z * error if n > 1 else None
    result["missing_characters"] = math.fsum(sums[3] / p for p, sums in by_pivot) / n
    return result


def _ratio(top: int, bottom: int) -> float | None:
    return top / bottom if bottom else None
