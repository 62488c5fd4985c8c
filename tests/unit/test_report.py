"""A small real audit written to disk: every file, exact, deterministic, readable."""

from __future__ import annotations

import io
import itertools
import json
import re
import resource
import shutil
import subprocess
import sys
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from matplotlib.figure import Figure
from polars.testing import assert_frame_equal
from rich.console import Console

from tokengraft.api.report import page_of
from tokengraft.api.results import Audit
from tokengraft.api.verbs import audit
from tokengraft.core.errors import UsageError
from tokengraft.corpus import load as load_corpus
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.languages.codes import known
from tokengraft.render.audit_folder import COLUMNS, findings
from tokengraft.render.audit_printed import matrix, printed
from tokengraft.render.colours import PLAIN
from tokengraft.render.figures import draw
from tokengraft.render.latex import colours, in_latex, latex
from tokengraft.render.page.build import Page, save_page
from tokengraft.render.selection import PAPER_ORDER, column_order, disagreements, lead, one_a_script
from tokengraft.render.tables import Cell, Printed, markdown
from tokengraft.render.terminal import show_audit

LANGUAGES = ["shn_Mymr", "hin_Deva", "amh_Ethi", "arb_Arab", "zho_Hans", "vie_Latn", "khm_Khmr"]
TABLES = ("premiums", "summary", "vocabulary", "jaccard", "containment", "coverage", "cost")
FIGURES = ("premiums", "premiums_all", "apart", "speakers", "cost", "coverage", "vocabulary")
FIGURES += ("jaccard", "containment")


@pytest.fixture(scope="module")
def small() -> Audit:
    names = ["t5", "llama-3", "o200k_base"]
    return audit("udhr", names, LANGUAGES, resamples=20)


@pytest.fixture(scope="module")
def folder(small: Audit, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("report")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Glyph")
        paths = small.save(where)
    assert len(set(paths)) == len(paths) and all(path.stat().st_size for path in paths)
    there = {path for path in where.rglob("*") if path.is_file()}
    assert there == set(paths)  # nothing temporary is left behind
    return where


def test_everything_is_written(folder: Path) -> None:
    for name in TABLES:
        for suffix in ("csv", "parquet", "json", "md", "tex"):
            assert (folder / "tables" / f"{name}.{suffix}").is_file()
    assert (folder / "tables" / "premium_matrix.csv").is_file()
    for name in FIGURES:
        for suffix in ("svg", "png"):
            assert (folder / "figures" / f"{name}.{suffix}").is_file()
    assert json.loads((folder / "manifest.json").read_text("utf-8"))["pivot"] == "eng_Latn"


def test_the_matrix_gives_no_number_for_lost_text(small: Audit) -> None:
    long = small.premiums.filter(pl.col("meaningless"))
    wide = {row["language"]: row for row in matrix(small).iter_rows(named=True)}
    assert long.height and all(wide[r["language"]][r["label"]] is None for r in long.to_dicts())
    kept = small.premiums.filter(~pl.col("meaningless")).to_dicts()
    assert all(wide[row["language"]][row["label"]] == row["premium"] for row in kept)


def test_data_files_hold_the_frames_exactly(small: Audit, folder: Path) -> None:
    for name, frame in small.tables().items():
        stem = folder / "tables" / name
        assert_frame_equal(
            pl.read_csv(stem.with_suffix(".csv"), schema=frame.schema), frame, check_exact=True
        )
        assert_frame_equal(pl.read_parquet(stem.with_suffix(".parquet")), frame, check_exact=True)
        records = json.loads(
            stem.with_suffix(".json").read_text("utf-8"), parse_constant=pytest.fail
        )
        assert_frame_equal(
            pl.DataFrame(records, schema=frame.schema),
            frame.with_columns(pl.selectors.float().fill_nan(None)),
            check_exact=True,
        )


def test_json_has_null_for_nan(tmp_path: Path) -> None:
    from tokengraft.render.tables import write_data

    frame = pl.DataFrame(
        {"a": [1.5, float("nan"), float("inf"), None], "b": ["", None, '"', "x\n"]}
    )
    paths = write_data(frame, tmp_path / "t")
    read = json.loads(paths[2].read_text("utf-8"))
    assert [row["a"] for row in read] == [1.5, None, None, None]
    assert_frame_equal(pl.read_csv(paths[0], schema=frame.schema), frame)


def test_same_audit_gives_same_bytes(small: Audit, folder: Path, tmp_path: Path) -> None:
    for path in small.save(tmp_path):
        assert path.read_bytes() == (folder / path.relative_to(tmp_path)).read_bytes(), path.name


def test_svgs_are_xml_without_dates(folder: Path) -> None:
    for path in sorted((folder / "figures").glob("*.svg")):
        text = path.read_text("utf-8")
        ElementTree.fromstring(text)
        assert "<dc:date>" not in text and "<image" not in text


def test_unk_is_marked_and_explained(folder: Path) -> None:
    tex = (folder / "tables" / "premiums.tex").read_text("utf-8")
    assert r"\textsuperscript{\dag}" in tex and "thrown away" in tex
    assert r"\cellcolor[HTML]{E3E3E3}" in tex
    text = (folder / "tables" / "premiums.md").read_text("utf-8")
    assert re.search(r"Shan \| shn \(Mymr\) \| .*†", text) and "thrown away" in text


def test_a_little_unk_is_not_called_all_of_the_text() -> None:
    found = some(["bert-multilingual", "gpt2"], ["yor"])  # 1.1 % of the Yoruba tokens are UNK
    tables = printed(found)
    note = tables["premiums"].notes[0]
    assert "(here 1.1%)" in note and "says too little" in note
    assert "the text was thrown away" not in note and "no premium" not in note
    assert tables["summary"].header[-2:] == ["UNK > 1%", "Exact %"]
    said = " ".join([*findings(found), tables["summary"].caption])
    assert "meaning" not in said and "lost to UNK" not in said
    figure = draw(found, "premiums")
    assert figure is not None
    assert "the text was thrown away" not in words(figure) and "what they stood" in words(figure)
    ends = [text.get_window_extent().x1 for axes in figure.axes for text in axes.texts]
    assert max(ends) <= figure.bbox.x1


def test_models_without_a_price_are_not_counted_in_dollars() -> None:
    table = printed(some(["llama-3", "o200k_base"], ["shn"]))["cost"]
    assert "Llama 3.2 1B" in table.header and "dollar" not in table.caption
    assert table.notes[-1] == "Without a price on that list, so the factor only: Llama 3.2 1B."
    priced = printed(some(["o200k_base"], ["shn"]))["cost"]
    assert priced.notes == []


LINE = 345.0  # points: a line of LaTeX's article class


def natural_width(table: Printed) -> float:
    """Points that the printed table takes, by Computer Modern's own widths."""
    from matplotlib import get_data_path
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    size = 7 if len(table.header) > 9 else 8
    fonts = Path(get_data_path()) / "fonts" / "ttf"

    def width(text: str, face: str) -> float:
        path = TextPath(
            (0, 0), text.replace("—", "--") or "i", size, FontProperties(fname=fonts / face)
        )
        # The cuts for 7 and 8 points are wider than the one for 10 points made smaller.
        return float(path.get_extents().x1) * {7: 1.14, 8: 1.06}[size]

    columns = [
        max(width(title, "cmb10.ttf"), *(width(row[n].text, "cmr10.ttf") for row in table.rows))
        for n, title in enumerate(table.header)
    ]
    return sum(columns) + 6 * len(columns)


def test_tables_fit_the_line() -> None:
    names = ["gpt2", "cl100k_base", "o200k_base", "llama-3", "mistral-v0.3", "bert-multilingual"]
    tables = printed(some(names, ["shn", "zgh"]))
    assert natural_width(tables["summary"]) <= LINE
    # What is still wider is shrunk, but not to letters that nobody can read.
    assert natural_width(tables["vocabulary"]) <= 1.2 * LINE
    for table in tables.values():
        tex = latex(table)
        assert "graphicx" in tex.split("\n")[0]
        inside = re.search(r"\\resizebox\{(.*?)\}\{!\}\{%\n\\begin\{tabular\}", tex)
        assert inside and inside[1] == r"\ifdim\width>\linewidth\linewidth\else\width\fi"
        assert "\\end{tabular}}\n" in tex


def test_columns_stand_in_the_papers_order(small: Audit) -> None:
    assert column_order(small) == ["llama-3", "t5", "o200k_base"]
    assert matrix(small).columns == ["language", "name", "Llama 3", "T5", "GPT-4o"]
    assert matrix(small)["language"][0] == "eng_Latn"
    assert len(PAPER_ORDER) == 10


def test_every_column_is_explained(small: Audit, folder: Path) -> None:
    readme = (folder / "README.md").read_text("utf-8")
    for name, frame in small.tables().items():
        if name not in ("jaccard", "containment"):
            assert set(frame.columns) <= COLUMNS.keys()
            assert all(f"`{column}`" in readme for column in frame.columns)
    assert "{pivot}" not in readme
    for link in re.findall(r"\]\(([^)]+)\)", readme):
        assert (folder / link).is_file()


def test_findings_come_from_the_tables(small: Audit) -> None:
    said = " ".join(findings(small))
    led = lead(small.premiums, small.pivot)
    assert led is not None and f"takes {led.premium:.2f} times the tokens of English" in said
    spoilt = small.premiums["meaningless"].sum()
    assert f"{spoilt} of {small.premiums.height} cells have no premium because of UNK" in said


def test_latex_escapes() -> None:
    assert in_latex(r"a_b & 50% of $#{x}~^\y") == (
        r"a\_b \& 50\% of \$\#\{x\}\textasciitilde{}\textasciicircum{}\textbackslash{}y"
    )
    assert in_latex("−3.1 % → 4 …").isascii()  # what pdfLaTeX does not know by itself
    table = Printed("x", "A & B", ["L_1", "50%"], [[Cell(r"\Kʼ_&"), Cell("1.00", 1.0)]])
    assert r"\textbackslash{}K'\_\& & 1.00 \\" in latex(table)
    assert r"\caption{A \& B.}" in latex(table)


def test_markdown_escapes() -> None:
    table = Printed("x", "c", ["a|b"], [[Cell("*x*\n_y_", spoilt=True)]])
    assert "| a\\|b |" in markdown(table) and r"\*x\* \_y\_†" in markdown(table)


@pytest.mark.parametrize(("value", "colour"), [(1.0, "FFEEE7"), (4.60, "FCC1A8"), (0.24, "FFF5F0")])
def test_colours_are_the_papers(value: float, colour: str) -> None:
    assert colours((value - 0.24) / (19.09 - 0.24)) == (colour, "000000")


def test_dark_cells_have_light_text() -> None:
    assert colours(1.0) == ("67000D", "F1F1F1")


def test_latex_is_well_formed(small: Audit, folder: Path) -> None:
    for name, table in printed(small).items():
        tex = (folder / "tables" / f"{name}.tex").read_text("utf-8")
        bare = re.sub(r"\\[{}&%$#_\\]", "", re.sub(r"(?m)^%.*$", "", tex).replace(r"\\", "\n"))
        assert bare.count("{") == bare.count("}")
        rows = [line for line in tex.split("\n") if line.endswith(r"\\") and " & " in line]
        assert len(rows) == len(table.rows) + 1
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(table.header) - 1}
        begun, ended = (re.findall(rf"\\{word}{{(\w+\*?)}}", tex) for word in ("begin", "end"))
        assert begun == ended[::-1]


def test_long_tables_break_over_pages() -> None:
    table = Printed("x", "c", ["a", "b"], [[Cell("r"), Cell("1", 1.0)]] * 41, notes=["n_1"])
    tex = latex(table)
    assert r"\begin{longtable}{lr}" in tex and r"\endlastfoot" in tex and r"n\_1" in tex
    assert "longtable}" not in latex(Printed("x", "c", ["a"], [[Cell("r")]] * 40)).split("\n", 1)[1]


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no pdflatex here")
def test_latex_compiles(folder: Path, tmp_path: Path) -> None:
    inputs = "\n".join(rf"\input{{{folder / 'tables' / name}.tex}}" for name in TABLES)
    (tmp_path / "all.tex").write_text(
        "\\documentclass{article}\\usepackage[T1]{fontenc}\\usepackage{booktabs,graphicx,longtable}"
        f"\\usepackage[table]{{xcolor}}\\begin{{document}}{inputs}\\end{{document}}"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)


def test_every_autonym_has_its_glyphs() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from tokengraft.render.figures import style

    with style.styled(), warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = Figure()
        FigureCanvasAgg(figure)
        drawn = {}
        for code in known():
            own = style.autonym(code)
            if own is not None:
                drawn[code] = figure.text(0, 0, own, family=style.family(code)).get_window_extent()
    scripts = {code[4:8] for code in drawn}
    assert {"Hans", "Jpan", "Hang", "Ethi", "Cyrl"} <= scripts
    if style._SHAPES:
        assert {"Arab", "Deva", "Mymr", "Khmr", "Taml", "Telu", "Tibt"} <= scripts


def test_titles_take_dollars_literally(small: Audit) -> None:
    from tokengraft.render.figures import draw

    figure = draw(small, "cost")
    assert figure is not None
    title = figure.texts[0]
    assert "$1" in title.get_text() and not title.get_parse_math()


def test_labels_never_overlap() -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from tokengraft.render.figures.speakers import Label, place
    from tokengraft.render.figures.style import styled

    with styled():
        figure = Figure(figsize=(4, 3))
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        labels = [Label(f"l{n:02}", 0.5 + n % 7 / 50, 0.5 + n % 5 / 50, "black") for n in range(35)]
        written = place(axes, labels, [])
        boxes = [text.get_window_extent() for text in axes.texts]
    assert 5 < written == len(boxes) < 35
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])


def test_an_unknown_figure_is_a_usage_error(small: Audit) -> None:
    from tokengraft.render.figures import draw

    with pytest.raises(UsageError, match="Did you mean premiums"):
        draw(small, "premium")


def test_one_a_script_keeps_the_costliest(small: Audit) -> None:
    chosen = one_a_script(small, "llama-3", 4, 1)
    assert chosen[0] == "shn_Mymr" and len(chosen) == 4 and "zho_Hans" in chosen


def test_an_audit_of_almost_nothing(tmp_path: Path) -> None:
    lone = audit("udhr", ["t5"], ["deu_Latn"], resamples=2)
    paths = lone.save(tmp_path / "out")
    stems = {path.stem for path in paths if path.parent.name == "figures"}
    assert stems == {"premiums", "premiums_all", "coverage", "vocabulary"}
    for name in TABLES:
        json.loads((tmp_path / "out" / "tables" / f"{name}.json").read_text("utf-8"))


def test_tables_need_no_matplotlib() -> None:
    code = "import tokengraft.api.verbs, sys; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_language_without_a_line_in_common_is_named_as_such(tmp_path: Path) -> None:
    whole = load_corpus("udhr").select([*LANGUAGES, "eng_Latn"])
    english = whole.texts["eng_Latn"]
    # Shan keeps only what English lacks; a unit is added so that it has something.
    texts = {code: (*lines, None) for code, lines in whole.texts.items()}
    texts["shn_Mymr"] = (*(None for _ in english), "ၵူၼ်းၵူႈၵေႃႉ")
    corpus = ParallelCorpus("own", "own text files: a, b", (*whole.units, "last"), texts)
    found = audit(corpus, ["o200k_base", "t5"], resamples=10)
    paths = found.save(tmp_path / "out")
    note = "No lines in common with English, so no premium: Shan."
    for name in ("premiums.md", "premiums.tex", "cost.md", "cost.tex", "summary.md"):
        assert note in (tmp_path / "out" / "tables" / name).read_text(encoding="utf-8"), name
    assert "| Shan | shn (Mymr) | — |" in (tmp_path / "out" / "tables" / "premiums.md").read_text()
    assert "NaN" not in (tmp_path / "out" / "tables" / "premiums.csv").read_text()
    assert note in findings(found)
    drawn = {path.stem for path in paths if path.suffix == ".svg"}
    assert {"premiums", "premiums_all", "apart", "speakers", "cost"} <= drawn
    for name in ("premiums", "apart", "cost"):
        assert draw(found, name) is not None
    data = page_of([tmp_path / "out"]).data["audits"][0]
    place = [entry["code"] for entry in data["languages"]].index("shn_Mymr")
    assert data["languages"][place]["n"] == 0
    assert {row[place] for row in data["cells"]["premium"]} == {None}
    assert "Shan" not in data["headline"]["title"]


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file can grow beyond 20 kB: writes fail midway, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_no_half_audit(small: Audit, tmp_path: Path, full_disk: None) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "README.md").write_text("mine")
    for out in (tmp_path / "new" / "audit", tmp_path / "mine"):
        with pytest.raises(OSError, match="File too large"):
            small.save(out)
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "README.md"]
    assert (tmp_path / "mine" / "README.md").read_text() == "mine"


def test_a_full_disk_leaves_no_half_page(small: Audit, tmp_path: Path, full_disk: None) -> None:
    page = Page("x" * 30_000, "title")
    with pytest.raises(OSError, match="File too large"):
        save_page(page, tmp_path / "new" / "site")
    assert not list(tmp_path.iterdir())


def some(tokenizers: list[str], languages: list[str]) -> Audit:
    return audit("udhr", tokenizers, languages, resamples=0)


def words(figure: Figure) -> str:
    texts = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
    return " ".join(" ".join(text.get_text().split()) for text in texts)


def test_few_or_equal_languages_give_no_inequality() -> None:
    few = findings(some(["llama-3", "o200k_base"], ["shn", "tam"]))
    assert not any("Gini" in finding for finding in few)
    # OLMo 2 took over GPT-4's vocabulary: the two are equally uneven.
    equal = findings(some(["olmo-2", "cl100k_base"], LANGUAGES))
    assert not any("Gini" in finding for finding in equal)
    apart = findings(some(["llama-3", "o200k_base"], LANGUAGES))
    assert any("GPT-4o is the fairest" in finding for finding in apart)
    lost = findings(some(["t5"], ["shn"]))
    assert lost[0] == "No language but English has a premium free of UNK."


def test_a_small_premium_is_not_rounded_away() -> None:
    figure = draw(some(["o200k_base"], ["deu"]), "premiums")
    assert figure is not None
    assert "up to 1.3 times the tokens in German" in words(figure)
    assert "1 language." in words(figure)
    assert figure.get_size_inches()[0] < 6


def test_languages_asked_for_are_in_the_cost_figure() -> None:
    figure = draw(some(["o200k_base"], ["shn", "deu", "fra"]), "cost")
    assert figure is not None
    assert all(name in words(figure) for name in ("Shan", "German", "French"))
    assert "million speakers" not in words(figure)


def test_the_full_map_counts_other_languages_than_the_pivot() -> None:
    figure = draw(some(["gpt2"], ["shn", "tam", "deu"]), "premiums_all")
    assert figure is not None and "3 of 3 languages typically cost" in words(figure)
    figure = draw(some(["o200k_base"], ["shn", "deu"]), "premiums_all")
    assert figure is not None and "1 of 2 languages typically costs" in words(figure)


def test_long_names_are_folded_and_do_not_overlap() -> None:
    found = some(["gpt2", "o200k_base", "llama-3", "t5"], ["deu", "fra"])
    long = {
        name: {**about, "label": f"my-long-tokenizer-name-number-{n}-of-four"}
        for n, (name, about) in enumerate(found.facts["tokenizers"].items())
    }
    figure = draw(replace(found, facts={**found.facts, "tokenizers": long}), "premiums")
    assert figure is not None
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    names = figure.axes[0].get_xticklabels()
    boxes = [text.get_window_extent(renderer) for text in names]
    assert all(a.x1 <= b.x0 for a, b in itertools.pairwise(boxes))
    top = min(text.get_window_extent(renderer).y0 for text in figure.texts[:2])
    assert max(box.y1 for box in boxes) <= top


def test_the_legend_of_parts_fits_the_sheet() -> None:
    figure = draw(some(["gpt2"], ["shn"]), "apart")
    assert figure is not None
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    ends = [text.get_window_extent(renderer).x1 for axes in figure.axes for text in axes.texts]
    assert max(ends) <= figure.bbox.x1


def test_a_better_tokenizer_with_a_higher_premium_is_told(tmp_path: Path) -> None:

    corpus = load_corpus("udhr").select(["eng_Latn", "deu_Latn", "fra_Latn"])
    found = audit(corpus, ["gpt2", "o200k_base"], resamples=10)
    told = [line for line in findings(found) if line.startswith("Premiums mislead here")]
    assert told == []
    first = pl.col("tokenizer") == "gpt2"
    paid = pl.when(pl.col("language") == "eng_Latn").then(1.0)
    cells = found.premiums.with_columns(
        tokens=pl.when(first).then(100).otherwise(90),
        premium=paid.otherwise(pl.when(first).then(1.5).otherwise(1.8)),
    )
    names = {"gpt2": "GPT-2/3", "o200k_base": "GPT-4o"}
    (line,) = disagreements(cells, names, "eng_Latn")
    console = Console(width=200, file=io.StringIO())
    show_audit(console, replace(found, frames={**found.frames, "premiums": cells}))
    assert line in " ".join(console.file.getvalue().split())
    assert "GPT-4o needs fewer tokens than GPT-2/3 in every language (10% fewer in all)" in line
    assert "1.80 against 1.50" in line


def test_figures_for_print_have_no_headline_and_no_mark(tmp_path: Path) -> None:
    found = some(["gpt2"], ["shn", "deu"])
    written = {path.name: path for path in found.save(tmp_path / "print", figures="plain")}
    assert written["premiums.pdf"].read_bytes().startswith(b"%PDF")
    again = found.save(tmp_path / "again", figures="plain")
    assert next(p for p in again if p.name == "premiums.pdf").read_bytes() == (
        written["premiums.pdf"].read_bytes()
    )
    before = PLAIN.set(True)
    try:
        figure = draw(found, "premiums")
    finally:
        PLAIN.reset(before)
    assert figure is not None and not figure.texts
    titled = draw(found, "premiums")
    assert titled is not None and "Made with tokengraft" in words(titled)
    assert "premiums.pdf" not in {path.name for path in found.save(tmp_path / "screen")}
    assert figure.get_size_inches()[1] < titled.get_size_inches()[1]


def test_a_figure_shows_itself_in_a_notebook() -> None:
    found = some(["gpt2"], ["shn"])
    picture = found.figure("premiums")
    assert picture is not None and picture._repr_png_().startswith(b"\x89PNG")
    assert repr(picture) == "Picture('premiums')"
    assert found.figure("speakers") is None
    shown = repr(found.premium("gpt2", "shn"))
    assert re.match(r"\d+\.\d\d \(mean of ratios, n=", shown)


def test_intervals_stand_beside_premiums_unless_compact(small: Audit, folder: Path) -> None:
    honest = small.premiums.filter(~pl.col("meaningless"), pl.col("language") != small.pivot)
    row = honest.row(0, named=True)
    figure = f"{row['premium']:.2f}"
    interval = f"[{row['premium_low']:.2f}, {row['premium_high']:.2f}]"
    tables = folder / "tables"
    assert rf"{figure} {{\tiny {interval}}}" in (tables / "premiums.tex").read_text("utf-8")
    shown = interval.replace("[", "\\[").replace("]", "\\]")
    assert f"{figure} {shown}" in (tables / "premiums.md").read_text("utf-8")
    for form in ("tex", "md"):
        compact = (tables / f"premiums_compact.{form}").read_text("utf-8")
        assert interval not in compact and shown not in compact and figure in compact


def test_apart_names_what_it_leaves_out(tmp_path: Path) -> None:
    figure = draw(
        some(["t5", "gpt2", "llama-3", "o200k_base", "cl100k_base", "olmo-2"], ["shn"]), "apart"
    )
    assert figure is not None
    said = words(figure)
    assert "cut nothing in advance: T5." in said and "No room for GPT-2/3." in said


def test_a_tokenizer_that_changes_text_is_told(tmp_path: Path) -> None:
    found = some(["gpt2", "llama-3"], ["shn", "deu"])
    cells = found.premiums.with_columns(
        lossless_share=pl.when(pl.col("tokenizer") == "gpt2").then(0.0).otherwise(1.0)
    )
    changed = replace(found, frames={**found.frames, "premiums": cells})
    told = [line for line in findings(changed) if "gives back" in line]
    assert len(told) == 1 and told[0].startswith("GPT-2/3 gives back 0% of the passages exactly")
    assert "English" in told[0]
    assert not any("gives back" in line for line in findings(found))
    console = Console(file=io.StringIO(), width=200)
    show_audit(console, changed)
    assert "gives back 0%" in console.file.getvalue()  # type: ignore[attr-defined]
