"""Every figure and claim of one run is the same wherever a reader meets it."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from rich.console import Console
from test_verdict import GOOD, evaluation

from helpers.tiny_models import make, new_rows, plan, texts
from tokengraft.api.compare import compare
from tokengraft.api.report import page_of
from tokengraft.api.results import Planned
from tokengraft.api.verbs import audit
from tokengraft.grafting.graft import Finishing, graft
from tokengraft.render.page.site import language_rows, language_title
from tokengraft.render.terminal import show_audit, show_comparison, show_plans

LANGUAGES = ["shn_Mymr", "tam_Taml", "hin_Deva", "zul_Latn", "deu_Latn"]
Said = dict[tuple[str, ...], str]


@pytest.fixture(scope="module")
def renderings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each reader of the same results sees, as text."""
    out = tmp_path_factory.mktemp("same")
    found = audit("udhr", ["gpt-4o", "llama-3", "t5"], LANGUAGES, resamples=20)
    found.save(out / "audit", figures=False)
    compared = compare("llama-3", "gpt-4o", languages=LANGUAGES, resamples=0)
    compared.save(out / "compare", figures=False)
    measured = evaluation(GOOD)
    measured.save(out / "evaluation", figures=False)
    base, lines = make(out / "base", "llama-tied"), [x for own in texts().values() for x in own]
    planned = Planned(plan(), "this text", "that text")
    planned.save(out / "plan", figures=False)
    graft(base, plan(), out / "graft", new_rows(), options=Finishing(lines, verified=False))
    console = Console(file=io.StringIO(), width=220, record=True)
    show_audit(console, found)
    show_comparison(console, compared.facts, compared.languages, compared.summary)
    show_plans(console, {"total": planned}, planned)
    page = page_of([out / n for n in ("audit", "compare", "evaluation", "plan", "graft")]).data
    shown = page["audits"][0]
    worst = shown["languages"][shown["headline"]["worst"]]
    tables = out / "audit" / "tables"
    return {
        "terminal": console.export_text(),
        "readme": (out / "audit" / "README.md").read_text(encoding="utf-8"),
        "page": json.dumps({**page, "live": None}, ensure_ascii=False),
        "card": language_title(shown, worst, language_rows(shown, worst["code"])),
        "latex": (tables / "premiums.tex").read_text(encoding="utf-8"),
        "compact latex": (tables / "premiums_compact.tex").read_text(encoding="utf-8"),
        "markdown": (tables / "premiums.md").read_text(encoding="utf-8"),
        "json": (tables / "premiums.json").read_text(encoding="utf-8"),
        "summary json": (tables / "summary.json").read_text(encoding="utf-8"),
        "compare readme": (out / "compare" / "README.md").read_text(encoding="utf-8"),
        "plan readme": (out / "plan" / "README.md").read_text(encoding="utf-8"),
        "graft card": (out / "graft" / "README.md").read_text(encoding="utf-8"),
        "evaluation readme": (out / "evaluation" / "README.md").read_text(encoding="utf-8"),
        "evaluation json": json.dumps({"verdict": measured.verdict.sentence}),
    }


def _lead(text: str) -> Said:
    words = re.search(
        r"On ([^(;]+?)(?: \(.*?\))?, (\w+) takes ([\d.]+) times the tokens of English"
        r"(?: \(.*?\))?; on all that write it, ([\d.]+) to ([\d.]+) times",
        text,
    )
    assert words is not None, text[-900:]
    label, language, *numbers = words.groups()
    return {("lead",): " ".join([label, language, *(f"{float(n):.1f}" for n in numbers)])}


def _cells(header: list[str], rows: list[list[str]]) -> Said:
    """Premiums of a printed table, whose first columns are a language's name and code."""
    said = {}
    for row in rows:
        for label, cell in zip(header[2:], row[2:], strict=True):
            number = re.match(r"(?:.*\} )?(\d+\.\d+)", cell)
            if number and "dag" not in cell and "†" not in cell:
                said["premium", label, row[0]] = number[1]
    return said


def _summary(label: str, row: Mapping[str, Any]) -> Said:
    if not row["compared"]:
        return {}
    figures = f"{row['median_premium']:.2f} {row['gini']:.3f}"
    said = {("summary", label): figures, ("worst", label): f"{row['worst_premium']:.2f}"}
    return said | {("above", label): f"{row['above_2x']} of {row['compared']}"}


def _terminal(text: str) -> Said:
    said = _lead(text)
    for line in re.finditer(
        r"^(.+?): worst .+? ([\d.]+), median ([\d.]+), Gini ([\d.]+), (\d+ of \d+)", text, re.M
    ):
        label, worst, median, gini, above = line.groups()
        said |= {("worst", label): worst, ("summary", label): f"{median} {gini}"}
        said["above", label] = above
    lines = [line for line in text.splitlines() if "tokens of English" not in line]
    header = next(line for line in lines if line.startswith("┃ language"))
    titles = [cell.strip() for cell in header.split("┃")[1:-1]]
    for line in lines[lines.index(header) :]:
        cells = [cell.strip() for cell in line.split("│")[1:-1]]
        if len(cells) != len(titles):
            if line.startswith("└"):
                break
        elif cells[0]:
            said |= _cells(titles, [[cells[1], cells[0], *cells[2:]]])
    said |= _compared(text)
    for row in re.finditer(r"│ (\w{3}_\w{4}) +│ \w+ +│ +([\d.]+) │ +([\d.]+) │", text):
        said["plan", row[1]] = f"{row[2]} {row[3]}"
    return said


def _compared(text: str) -> Said:
    total = re.search(r"it takes ([\d,]+) tokens for what took ([\d,]+) \((.*?%)\)", text)
    most = re.search(r"Most gained: (\w+), ([\d,]+) → ([\d,]+) tokens \((.*?%)\)", text)
    assert total is not None and most is not None, text
    return {("compared",): " ".join(total.groups()), ("gained",): " ".join(most.groups())}


def _page(text: str) -> Said:
    page = json.loads(text)
    shown, lead = page["audits"][0], page["audits"][0]["headline"]
    first = re.fullmatch(
        r"(\w+) on (.+); ([\d.]+) to ([\d.]+) times.*", lead["figures"][0]["words"]
    )
    assert first is not None
    number = lead["figures"][0]["number"].removesuffix("×")
    said: Said = {("lead",): " ".join([first[2], first[1], number, first[3], first[4]])}
    titled = re.search(r"cost ([\d.]+) times as many tokens in (\w+)", lead["title"])
    assert titled is not None and titled[2] == first[1]
    said["title",] = titled[1]
    said["number",] = number
    fair = re.search(r"Even (.+?), the fairest .*? makes (\d+ of \d+)", lead["lead"])
    assert fair is not None
    said |= {("fairest",): fair[1], ("above", fair[1]): fair[2]}
    said["passages",] = shown["units"]
    said["unk",] = next(f["number"] for f in lead["figures"] if "thrown away" in f["words"])
    for t, tokenizer in enumerate(shown["tokenizers"]):
        for n, entry in enumerate(shown["languages"]):
            if shown["bad"][t][n] == "0":
                value = shown["cells"]["premium"][t][n]
                said["premium", tokenizer["label"], entry["name"]] = f"{value:.2f}"
    for row in shown["summary"]:
        said = _summary(row["label"], row) | said
    said |= _compared(" ".join(page["comparisons"][0]["pairs"][0]["words"]))
    for made in (*page["plans"], {"languages": page["grafts"][0]["premiums"]}):
        for entry in made["languages"]:
            both = (f"{entry[f'premium_{side}']:.2f}" for side in ("before", "after"))
            pair = " ".join(both)
            assert said.setdefault(("plan", entry["code"]), pair) == pair
    said["verdict",] = page["evaluations"][0]["verdict"]
    return said


def _readme(text: str) -> Said:
    said = _lead(text)
    fair = re.search(r"(\S[^,]*?) is the fairest", text)
    said |= _passages(text, r"(\d[\d to]* passages) of parallel text")
    unk = re.search(r"(\d+) of \d+ cells have no premium because of UNK", text)
    said |= {("unk",): unk[1]} if unk else {}
    if fair:
        said["fairest",] = fair[1].split(", ")[-1].strip()
    for row in re.findall(r"^\| (.+) \|$", text, re.M):
        cells = row.split(" | ")
        if len(cells) == 8 and re.fullmatch(r"[\d.]+", cells[3]):
            said |= {("worst", cells[0]): cells[2], ("summary", cells[0]): f"{cells[3]} {cells[4]}"}
            said["above", cells[0]] = cells[5]
    return said


def _passages(text: str, pattern: str = r"mean over (\d[\d to]* passages)") -> Said:
    found = re.search(pattern, text)
    assert found is not None
    return {("passages",): found[1]}


def _latex(text: str) -> Said:
    rows = [line.removesuffix(r" \\").split(" & ") for line in text.splitlines() if " & " in line]
    header = [re.sub(r"\\textbf\{(.*)\}", r"\1", cell) for cell in rows[0]]
    return _cells(header, rows[1:]) | _passages(text)


def _markdown(text: str) -> Said:
    rows = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return _cells(rows[0], rows[2:]) | _passages(text)


def _json(text: str) -> Said:
    return {
        ("premium", row["label"], row["name"]): f"{row['premium']:.2f}"
        for row in json.loads(text)
        if not row["meaningless"]
    }


def _card(text: str) -> Said:
    words = re.fullmatch(
        r"(\w+) takes ([\d.]+) times the tokens of English on (.+); ([\d.]+) to ([\d.]+) times.*",
        text,
    )
    assert words is not None, text
    return {("lead",): " ".join(words[n] for n in (3, 1, 2, 4, 5))}


def _plan(text: str) -> Said:
    rows = re.findall(r"^\| (\w{3}_\w{4}) [^|]*\| ([\d.]+) \| ([\d.]+) \|", text, re.M)
    assert rows
    return {("plan", code): f"{before} {after}" for code, before, after in rows}


def _graft(text: str) -> Said:
    rows = re.findall(r"^\| .+?\((\w{3}_\w{4})\) \| ([\d.]+) \| ([\d.]+) \|", text, re.M)
    assert rows
    return {("plan", code): f"{before} {after}" for code, before, after in rows}


def _verdict(text: str) -> Said:
    found = re.search(r"\*\*(This graft.*?)\*\*", text)
    return {("verdict",): found[1] if found else json.loads(text)["verdict"]}


def _summaries(text: str) -> Said:
    return {k: v for row in json.loads(text) for k, v in _summary(row["label"], row).items()}


READ = {
    "terminal": _terminal, "readme": _readme, "page": _page, "card": _card, "latex": _latex,
    "compact latex": _latex, "markdown": _markdown, "json": _json, "summary json": _summaries,
    "compare readme": _compared, "plan readme": _plan, "graft card": _graft,
    "evaluation readme": _verdict, "evaluation json": _verdict,
}  # fmt: skip


def differing(renderings: Mapping[str, str]) -> Iterator[str]:
    """Each figure or claim on which two renderings do not agree."""
    every: dict[tuple[str, ...], dict[str, str]] = {}
    for name, text in renderings.items():
        for claim, value in READ[name](text).items():
            every.setdefault(claim, {})[name] = value
    every["title",]["number"] = every.pop(("number",))["page"]
    for claim, values in every.items():
        if len(set(values.values())) > 1:
            yield f"{claim}: {values}"


def test_all_renderings_of_a_run_agree(renderings: dict[str, str]) -> None:
    assert list(differing(renderings)) == []
    said = {name: READ[name](text) for name, text in renderings.items()}
    shared = [claim for one in said.values() for claim in one]
    for claim in (("lead",), ("fairest",), ("passages",), ("compared",), ("verdict",), ("unk",)):
        assert shared.count(claim) > 1, claim
    for label in ("GPT-4o", "Llama 3"):
        assert shared.count(("summary", label)) == 4 and shared.count(("above", label)) >= 4
        assert shared.count(("premium", label, "Tamil")) == 6
    assert shared.count(("plan", "amh_Ethi")) == 4


@pytest.mark.parametrize(
    ("where", "old", "new"),
    [
        ("terminal", r"Shan takes [\d.]+ times", "Shan takes 8.8 times"),
        ("terminal", r"median [\d.]+, Gini", "median 7.77, Gini"),
        ("readme", r"GPT-4o is the fairest", "Llama 3 is the fairest"),
        ("readme", r"\d[\d to]* passages of parallel", "61 passages of parallel"),
        ("page", r"Even GPT-4o, the fairest", "Even Llama 3, the fairest"),
        ("page", r"makes \d+ of (\d+) languages", r"makes 0 of \1 languages"),
        ("page", r"cost [\d.]+ times as many", "cost 18.3 times as many"),
        ("card", r"on GPT-4o", "on Llama 3"),
        ("latex", r"(Tamil & .*?\} )\d+\.\d+", r"\g<1>4.44"),
        ("compact latex", r"mean over \d+", "mean over 3"),
        ("json", r'("premium": )9\.\d+', r"\g<1>9.99"),
        ("compare readme", r"(tokens \(.)\d", r"\g<1>9"),
        ("graft card", r"(Amharic \(amh.Ethi\) \| )[\d.]+", r"\g<1>99.00"),
        ("evaluation json", r"73%", "37%"),
    ],
)  # fmt: skip
def test_a_planted_disagreement_is_found(
    renderings: dict[str, str], where: str, old: str, new: str
) -> None:
    changed = re.sub(old, new, renderings[where], count=1)
    assert changed != renderings[where]
    assert list(differing({**renderings, where: changed}))
