"""`tokengraft audit`, and its checks: what makes it exit with 4, and where that is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokengraft.cli import options
from tokengraft.cli.console import drawing, print_json, say_written, stderr, stdout, warn
from tokengraft.cli.options import ForceOption, check_out, holds_audit, panel
from tokengraft.core.errors import UsageError
from tokengraft.core.files import write_text
from tokengraft.core.options import PIVOT
from tokengraft.core.wording import counted
from tokengraft.tokenizer.catalog import BUNDLED, canonical, shown_as

if TYPE_CHECKING:
    from tokengraft.api.results import Audit
    from tokengraft.engine.count_shards import Total


_option = panel("Checks for CI (docs/ci.md)")
FailAboveOption = Annotated[
    list[str] | None,
    _option(
        "--fail-above",
        metavar="LANGUAGE=PREMIUM",
        help="Exit with 4 if a premium is higher, or if text is lost to UNK so that there is none: "
        "tam=3, Tamil=3, or '*=10' for every language without a limit of its own; repeat for more.",
    ),
]
BaselineOption = Annotated[
    Path | None,
    _option(
        "--baseline",
        metavar="FOLDER",
        help="An earlier audit (its --out) of the same text. Exit with 4 if a language takes more "
        "tokens than it did then, or loses text to UNK that it did not lose then.",
    ),
]
MaxRegressionOption = Annotated[
    str | None,
    _option(
        "--max-regression",
        metavar="SHARE",
        help="How many more tokens than in --baseline are allowed, such as 2%. Default: none.",
    ),
]
JunitOption = Annotated[
    Path | None,
    _option("--junit", metavar="FILE", help="Write every check as JUnit XML for CI systems."),
]
SummaryOption = Annotated[
    Path | None,
    _option("--summary", metavar="FILE", help="Write what failed as Markdown, for a pull request."),
]


def audit(
    corpus: Annotated[
        list[str] | None,
        typer.Argument(
            help="A corpus by name (`udhr`, the default, is bundled; see [bold]tokengraft "
            "corpora[/bold]), a folder, an archive or a table; or two or more text files with the "
            "same lines, as `eng_Latn=a.txt shn_Mymr=b.txt`."
        ),
    ] = None,
    tokenizer: Annotated[
        list[str] | None,
        typer.Option(
            "--tokenizer",
            "-t",
            help="A catalog name, hub id, path or tiktoken encoding; repeat for more. Default: the "
            "nine bundled ones.",
        ),
    ] = None,
    tokenizers: options.TokenizersOption = None,
    language: options.LanguageOption = None,
    pivot: options.PivotOption = PIVOT,
    split: options.SplitOption = None,
    skip_empty: options.SkipEmptyOption = False,
    prices: Annotated[
        Path | None, typer.Option(help="Your own price file (YAML); see docs/audit.md.")
    ] = None,
    out: options.ResultsOption = None,
    force: ForceOption = False,
    figures: Annotated[bool, options.output(help="Draw figures (with --out).")] = True,
    plain: options.PlainOption = False,
    json: Annotated[bool, options.output("--json", help="Print the premiums as JSON.")] = False,
    fail_above: FailAboveOption = None,
    baseline: BaselineOption = None,
    max_regression: MaxRegressionOption = None,
    junit: JunitOption = None,
    summary: SummaryOption = None,
    engine: options.EngineOption = "local",
    address: options.AddressOption = None,
    workers: options.WorkersOption = None,
    stream: options.StreamOption = False,
    monolingual: options.MonolingualOption = False,
    text_column: options.TextColumnOption = None,
    language_column: options.LanguageColumnOption = None,
    language_from_path: options.LanguageFromPathOption = None,
    detector: options.DetectorOption = None,
    format_: options.FormatOption = None,
    skip_bad: options.SkipBadOption = False,
    max_row_bytes: options.MaxRowOption = None,
    shard_bytes: options.ShardOption = None,
    state: options.StateOption = None,
    words: options.WordsOption = False,
    reference: options.ReferenceOption = False,
) -> None:
    r"""Measure what each language pays: premiums, UNK, split floor, vocabularies, coverage, cost.

    A premium of 2 means that the same text takes twice the tokens it takes in
    English (or another --pivot): the mean over passages of the ratio of tokens.
    Counts are cached, so a second run encodes nothing and an interrupted one
    resumes where it stopped.

    [bold]Examples[/bold]

      tokengraft audit -o audit/

      tokengraft audit flores200.tar.xz -t llama-3 -l shn -l tam -o audit/

      tokengraft audit eng_Latn=en.txt quy_Latn=quechua.txt

      tokengraft audit 'web/*.jsonl.zst' --language-column lang \
        -t llama-3 --engine ray -o counts/

      tokengraft audit -t ./my-model --fail-above 'tam=3' --fail-above '*=10' \
        --baseline audit/ --max-regression 2% --junit audit.xml
    """
    check = _asked(fail_above, baseline, max_regression, junit, summary)
    check_out(out, holds_audit, force)
    ways = (text_column, language_column, language_from_path, detector)
    monolingual = monolingual or any(ways)
    if monolingual and stream:
        raise UsageError("--stream is for parallel text and --monolingual for any other; keep one.")
    if check is not None and monolingual:
        raise UsageError("--fail-above and --baseline need parallel text: no other has premiums.")
    if words and shard_bytes:
        raise UsageError("--words goes without --shard-bytes: plan cuts text in its own way.")
    if skip_empty and (monolingual or stream):
        raise UsageError("--skip-empty is for parallel text that is loaded whole; use --skip-bad.")
    if not (monolingual or stream):
        streamed = {
            "format": format_, "skip-bad": skip_bad, "max-row-bytes": max_row_bytes,
            "shard-bytes": shard_bytes, "state": state, "words": words,
        }  # fmt: skip
        if idle := [name for name, value in streamed.items() if value]:
            raise UsageError(f"--{idle[0]} goes with --monolingual or --stream.")
    elif not corpus:
        raise UsageError("Name the files to count: paths, folders, globs or URLs.")
    from tokengraft.api import verbs
    from tokengraft.auditing.cost import age_note, read_prices
    from tokengraft.corpus.rows import MAX_ROW_BYTES, Layout
    from tokengraft.corpus.shards import SHARD_BYTES
    from tokengraft.engine import make_engine
    from tokengraft.render.terminal import show_audit

    with drawing() as progress:
        if monolingual or stream:
            # If nothing in the data names the language, a single -l does.
            fixed = language[0] if language and len(language) == 1 and not any(ways[1:]) else None
            layout = Layout(
                text_column or "text", language_column, language_from_path, detector,
                None if stream else fixed,
                tuple(language) if language and (stream or fixed is None) else None,
                max_row_bytes=max_row_bytes or MAX_ROW_BYTES,
            )  # fmt: skip
            result = verbs.survey(
                corpus or (), tokenizer or BUNDLED, layout=layout, parallel=stream, pivot=pivot,
                format_=format_, search=tokenizers or (),
                engine=engine, workers=workers, address=address,
                shard_bytes=shard_bytes or SHARD_BYTES, skip_bad=skip_bad, state=state,
                words=words, reference=reference, progress=progress,
            )  # fmt: skip
        else:
            # None: this process, whose tokenizers use all cores.
            here = engine == "local" and workers is None and address is None
            result = verbs.audit(
                corpus or "udhr", tokenizer or BUNDLED, language or None, split=split,
                skip_empty=skip_empty, pivot=pivot, search=tokenizers or (), prices=prices,
                reference=reference, progress=progress,
                engine=None if here else make_engine(engine, workers, address),
            )  # fmt: skip
    options.tell_empty(result.facts["corpus"].get("left_out", 0))
    for name in tokenizer or ():
        if label := shown_as(name):
            warn(f"{name} has the tokenizer {canonical(name)}, shown as {label}.")
    if prices:
        audited = {known.name for known in result.tokenizers}
        if idle := sorted({one.tokenizer for one in read_prices(prices).models} - audited):
            warn(f"{prices}: its prices for {', '.join(idle)} are not used: -t would audit these.")
    as_of = str(result.facts.get("prices_as_of"))
    if out and "cost" in result.frames and (note := age_note(as_of)):
        warn(f"The price list of {as_of} is {note}.")
    if result.total is not None:
        tell_left_out(result.total)
    written = result.save(out, figures="plain" if plain and figures else figures) if out else []
    if json:
        print_json((result.premiums if result.parallel else result.counts).to_dicts())
    else:
        show_audit(stdout, result)
        say_written(written, out)
    if check is not None:
        check(result)


def tell_left_out(total: Total) -> None:
    """Warn about every broken file and the first bad rows."""
    for file, reason in total.broken.items():
        warn(f"{file}: {reason}. None of its rows is counted.")
    if total.bad:
        first = total.bad_rows[0]
        warn(
            f"{counted(total.bad, 'bad row')} left out, the first in {first.file}, line "
            f"{first.line}: {first.reason}. --out lists them."
        )


def _asked(
    fail_above: list[str] | None,
    baseline: Path | None,
    max_regression: str | None,
    junit: Path | None,
    summary: Path | None,
) -> Callable[[Audit], None] | None:
    """A function that checks an audit against its limits; None without a limit or a baseline.

    Limits are read before anything is counted; UsageError if they contradict each other.
    """
    from tokengraft.api.results import Audit
    from tokengraft.auditing.side_by_side import named, pairs, read_limits, read_share

    if max_regression is not None and baseline is None:
        raise UsageError("--max-regression goes with --baseline.")
    if not fail_above and baseline is None:
        for name, file in {"junit": junit, "summary": summary}.items():
            if file is not None:
                raise UsageError(f"--{name} goes with --fail-above or --baseline.")
        return None
    limits, most = read_limits(fail_above or ()), read_share(max_regression or 0.0)
    before = None if baseline is None else Audit.load(baseline)

    def check(audit: Audit) -> None:
        """Write what was asked for and print what failed; CheckFailed if anything did."""
        checked = audit.check(limits, baseline=before, max_regression=most)
        for then, now in () if before is None else pairs(before, audit):
            if then != now:
                warn(f"{now} is compared with {then}, the only tokenizer of the baseline.")
        if junit is not None:
            write_text(junit, checked.junit())
        if summary is not None:
            write_text(summary, checked.markdown())
        for finding in checked.failures:
            label = checked.labels.get(finding.tokenizer, finding.tokenizer)
            said = f"{label}, {named(finding)}: {finding.detail}, wanted {finding.limit}"
            stderr.print("[bold red]FAIL[/bold red]", end=" ")
            stderr.print(said, markup=False)
        checked.require()
        stderr.print(checked.verdict, markup=False)

    return check
