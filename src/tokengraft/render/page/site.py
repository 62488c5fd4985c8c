"""A folder for static hosting: the page, a page per language, preview cards.

Nothing in it needs a server that computes: the browser itself tokenizes what is typed into the
playground (`browser_tokenizers`).
"""

from __future__ import annotations

import html
import io
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tokengraft.core.progress import OnProgress, Progress
from tokengraft.languages.codes import well_formed
from tokengraft.render.colours import GROUND, ground_css
from tokengraft.render.page.build import Page
from tokengraft.render.page.document import CARD, CARD_SIZE, font_css, hashed, preview

PAGE = 3000  # characters of a page in the pivot language
_STYLE = (
    ground_css()
    + """
:root { color-scheme: light dark; }
body { font: 1.05rem/1.6 system-ui, sans-serif; max-width: 44rem; margin: 3rem auto;
  padding: 0 1rem; color: var(--ink); background: var(--paper); }
h1 { font-family: Charter, Georgia, serif; line-height: 1.2; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 0.35rem 0.6rem; border-bottom: 1px solid var(--line);
  text-align: right; }
th:first-child { text-align: left; }
a { color: var(--link); }
.quiet { color: var(--quiet); }
img { width: 100%; height: auto; border: 1px solid var(--line); }
@media (max-width: 40rem) {
  table { font-size: 0.85rem; }
  th, td { padding: 0.35rem 0.3rem; }
}
ul { columns: 14rem; padding-left: 1.2rem; }
"""
)


def site_files(
    page: Page, base: str | None = None, progress: OnProgress | None = None
) -> dict[str, bytes]:
    """A site's files beside its page, except tokenizers: a page and a card per language, fonts.

    `base` is the site's future address (https://…/): link previews need absolute addresses, and so
    does the sitemap, which is left out without one.
    """
    texts: dict[str, str] = {}
    cards = {CARD: card(page.title, _worst(page), _credit(page))}
    places = [""]
    for audit in page.data["audits"][:1]:
        entries = [entry for entry in audit["languages"] if well_formed(entry["code"])]
        texts["lang/index.html"] = _list(entries, page)
        places.append("lang/")
        for script in sorted({entry["script"] for entry in entries}):
            texts[f"fonts/{script}.css"] = font_css([script])
        for done, entry in enumerate(entries):
            if progress:
                progress(Progress("Pages of languages", done, len(entries), "languages"))
            place = f"lang/{entry['code']}/"
            rows = language_rows(audit, entry["code"])
            title = language_title(audit, entry, rows)
            texts[f"{place}index.html"] = _language(audit, entry, rows, title, page, base)
            cards[place + CARD] = card(title, _bars(rows), _credit(page))
            places.append(place)
    if base is not None:
        texts["sitemap.xml"] = _sitemap(base, places)
    return {name: text.encode() for name, text in texts.items()} | cards


def _worst(page: Page) -> list[tuple[str, float]]:
    """What each tokenizer makes the language of the title pay; nothing without an audit."""
    for audit in page.data["audits"][:1]:
        place = audit["headline"].get("worst")
        if place is not None:
            return _bars(language_rows(audit, audit["languages"][place]["code"]))
    return []


def _bars(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, float]]:
    return [(row["label"], row["premium"]) for row in rows if not row["bad"]]


def language_rows(audit: Mapping[str, Any], code: str) -> list[dict[str, Any]]:
    """What each tokenizer makes a language pay, cheapest first, those that lose text last."""
    place = next(n for n, entry in enumerate(audit["languages"]) if entry["code"] == code)
    cells = audit["cells"]
    rows = [
        {
            "label": tokenizer["label"],
            "use": audit["byUse"].index(t),
            "premium": cells["premium"][t][place],
            "low": cells["low"][t][place],
            "high": cells["high"][t][place],
            "unk": cells["unk"][t][place],
            "page": _page_tokens(audit, t, place),
            "pivot_page": _page_tokens(audit, t, audit["pivot"]),
            "bad": audit["bad"][t][place] == "1" or cells["premium"][t][place] is None,
        }
        for t, tokenizer in enumerate(audit["tokenizers"])
    ]
    return sorted(rows, key=lambda row: (row["bad"], row["premium"] or 0.0))


def _page_tokens(audit: Mapping[str, Any], tokenizer: int, place: int) -> float | None:
    """Tokens for the content of one page in the pivot language, by the ratio of sums."""
    a_character = audit["perCharacter"][tokenizer][audit["pivot"]]
    ratio = audit["cells"]["sums"][tokenizer][place]
    return None if ratio is None or a_character is None else PAGE * a_character * ratio


def language_title(
    audit: Mapping[str, Any], entry: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> str:
    """The answer to “how much does my language pay”, in a sentence."""
    pivot = audit["languages"][audit["pivot"]]
    kept = [row for row in rows if not row["bad"]]
    if entry["code"] == pivot["code"]:
        return f"{entry['name']} is what every other language is measured against"
    if not kept:
        return _no_title(audit, entry["name"], pivot["name"], rows)
    first = min(kept, key=lambda row: int(row["use"]))
    low, high = (f"{row['premium']:.1f}" for row in (kept[0], kept[-1]))
    many = f"{first['premium']:.1f} times the tokens of"
    if f"{first['premium']:.1f}" == "1.0":
        many = "about as many tokens as"
    title = f"{entry['name']} takes {many} {pivot['name']} on {first['label']}"
    return title if low == high else f"{title}; {low} to {high} times on all that write it"


def _no_title(
    audit: Mapping[str, Any], name: str, pivot: str, rows: Sequence[Mapping[str, Any]]
) -> str:
    """Why a language has no premium: no text in common, or text that every tokenizer loses."""
    if all(row["premium"] is None for row in rows):
        return f"No text here is in both {name} and {pivot}"
    lost = [row["unk"] > audit["unkLimit"] for row in rows if row["premium"] is not None]
    whose = name if all(lost) else f"both {name} and {pivot}" if any(lost) else pivot
    return f"No tokenizer measured here writes all of {whose}"


def card(title: str, bars: Sequence[tuple[str, float]], credit: str) -> bytes:
    """A picture for link previews: the title, a bar per tokenizer, the source."""
    from matplotlib import get_data_path
    from PIL import Image, ImageDraw, ImageFont

    fonts = Path(get_data_path()) / "fonts" / "ttf"
    paper, ink, quiet, more = (GROUND[name][0] for name in ("paper", "ink", "quiet", "more"))
    picture = Image.new("RGB", CARD_SIZE, paper)
    pen = ImageDraw.Draw(picture)

    def font(size: int, bold: bool = False) -> Any:
        return ImageFont.truetype(fonts / f"DejaVuSans{'-Bold' * bold}.ttf", size)

    y = 56
    for line in _folded(title, font(52, bold=True), CARD_SIZE[0] - 128)[:4]:
        pen.text((64, y), line, ink, font(52, bold=True))
        y += 66
    shown, y = list(bars) if len(bars) <= 6 else [bars[0], *bars[-5:]], y + 24
    most = max([1.0, *(value for _, value in shown)])
    step = min(56, (CARD_SIZE[1] - 84 - y) // max(1, len(shown)))
    for label, value in shown:
        size, end = font(min(26, step - 10)), 330 + 660 * value / most
        pen.text((64, y), label, quiet, size)
        pen.rectangle((330, y, end, y + step - 14), fill=more)
        pen.text((end + 14, y), f"{value:.1f}×", ink, size)
        y += step
    pen.text((64, CARD_SIZE[1] - 58), credit, quiet, font(22))
    data = io.BytesIO()
    # A seventh of the time that median cut and `optimize` take, for 1% more bytes.
    picture.quantize(64, Image.Quantize.FASTOCTREE).save(data, "PNG")
    return data.getvalue()


def _folded(text: str, font: Any, room: int) -> list[str]:
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if font.getlength(longer) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _credit(page: Page) -> str:
    audits = page.data["audits"]
    source = f"Text: {audits[0]['title']}. " if audits else ""
    return f"{source}tokengraft {page.data['version']}, {date.today().isoformat()}"


def _language(
    audit: Mapping[str, Any],
    entry: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    title: str,
    page: Page,
    base: str | None,
) -> str:
    say = html.escape
    about = [entry["code"], f"{entry['scriptName']} script", entry.get("family")]
    if entry.get("speakers"):
        about.append(f"about {_rounded(entry['speakers'])} speakers")
    cells = "".join(
        f"<tr><th scope=row>{say(row['label'])}</th>"
        + (
            f"<td colspan=3>{_why_none(audit, row)}</td>"
            if row["bad"] and row["premium"] is not None
            else "<td colspan=3>no line in common</td>"
            if row["bad"]
            else f"<td>{row['premium']:.2f}</td><td>{_interval(row)}</td>"
            f"<td>{row['page'] or 0:,.0f} "
            f"<span class=quiet>({row['pivot_page'] or 0:,.0f})</span></td>"
        )
        + "</tr>"
        for row in rows
    )
    pivot = say(audit["languages"][audit["pivot"]]["name"])
    own = entry.get("autonym") or entry["name"]
    code = say(entry["code"], quote=True)
    body = (
        "<p><a href='../../index.html'>tokengraft</a> · <a href='../index.html'>languages</a></p>"
        f"<p lang='{code[:3]}' dir='{entry['dir']}' data-script='{entry['script']}'>{say(own)}</p>"
        f"<h1>{say(title)}</h1>"
        f"<p class=quiet>{say(' · '.join(filter(None, about)))}</p>"
        "<table><thead><tr><th scope=col>Tokenizer</th><th scope=col>Premium</th>"
        "<th scope=col>95% interval</th><th scope=col>Tokens per page</th></tr></thead>"
        f"<tbody>{cells}</tbody></table>"
        "<p>A premium of 2 means that the same content takes twice the tokens it takes in "
        f"{pivot} (mean over passages). Tokens per page are for what {PAGE:,} characters of "
        f"{pivot} say; in brackets, for {pivot} itself.</p>"
        f"<p><a href='../../index.html#lang={code}'>All about it: tokens, cost, missing "
        "characters</a></p>"
        f"<p><img src='{CARD}' alt='{say(title, quote=True)}' width=1200 height=630></p>"
        f"<p class=quiet>{say(_credit(page))}</p>"
    )
    place = None if base is None else f"{base}lang/{quote(entry['code'])}/"
    return _document(title, body, place, style=f"../../fonts/{entry['script']}.css")


def _rounded(number: int) -> str:
    """`91 million`, `3.7 million`, `84,000`: a number of people to two digits."""
    for size, word in ((10**9, " billion"), (10**6, " million")):
        if number >= size:
            return f"{float(f'{number / size:.2g}'):,g}{word}"
    return f"{float(f'{number:.2g}'):,.0f}"


def _why_none(audit: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    if row["unk"] > audit["unkLimit"]:
        return f"loses text: {row['unk']:.1%} UNK"
    return f"loses text of {html.escape(audit['languages'][audit['pivot']]['name'])} itself"


def _interval(row: Mapping[str, Any]) -> str:
    return "" if row["low"] is None else f"{row['low']:.2f} to {row['high']:.2f}"


def _list(entries: Sequence[Mapping[str, Any]], page: Page) -> str:
    items = "".join(
        f"<li><a href='{html.escape(entry['code'], quote=True)}/index.html'>"
        f"{html.escape(entry['name'])}</a></li>"
        for entry in sorted(entries, key=lambda entry: str(entry["name"]))
    )
    title = "How much does my language pay?"
    body = (
        f"<p><a href='../index.html'>tokengraft</a></p><h1>{title}</h1><ul>{items}</ul>"
        f"<p class=quiet>{html.escape(_credit(page))}</p>"
    )
    return _document(title, body, None, card_="../card.png")


def _document(
    title: str, body: str, place: str | None, card_: str = CARD, style: str | None = None
) -> str:
    policy = (
        f"default-src 'none'; style-src 'self' '{hashed(_STYLE)}'; font-src data:; "
        "img-src 'self' data:; base-uri 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="generator" content="tokengraft"><link rel="icon" href="data:,">'
        + (f'<link rel="stylesheet" href="{style}">' if style else "")
        + f"{preview(title, place, card_)}<title>{html.escape(title)}</title>"
        f"<style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )


def _sitemap(base: str, places: Sequence[str]) -> str:
    urls = "".join(f"<url><loc>{html.escape(base + quote(p))}</loc></url>" for p in places)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f'{head}<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{urls}</urlset>\n'
