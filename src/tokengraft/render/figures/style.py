"""How every figure looks: fonts for all scripts, colours, the sheet with title and credit."""

from __future__ import annotations

import contextlib
import functools
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager
from matplotlib.text import Annotation

from tokengraft.core import __version__
from tokengraft.core.files import ASSETS, writing
from tokengraft.languages.codes import language, language_name, well_formed
from tokengraft.render import colours

INK, QUIET, LINE, LESS, MORE, UNK_FACE, UNK_EDGE = (
    colours.GROUND[name][0]
    for name in ("ink", "quiet", "line", "less", "more", "unk", "strong-line")
)
FAINT, PAPER_WHITE = "#9aa3ab", "#ffffff"
PREMIUM = LinearSegmentedColormap.from_list("premium", colours.PREMIUM[0])
SHARE = LinearSegmentedColormap.from_list("share", colours.SHARE[0])

DPI = 200
_MARGIN = 0.28  # inches around the sheet
_SHAPES = tuple(int(p) for p in mpl.__version__.split(".")[:2]) >= (3, 11)
# Scripts whose letters do not change shape beside others; the rest need a matplotlib that shapes.
_UNSHAPED = {
    *("Cyrl", "Grek", "Armn", "Geor", "Hans", "Hant", "Hani", "Jpan", "Hang"),
    *("Ethi", "Cher", "Cans", "Tfng", "Olck", "Vaii", "Yiii"),
}


@functools.cache
def fonts() -> dict[str, str]:
    """Script → family of the bundled font for it, registered with matplotlib once."""
    families = {}
    for file in sorted((ASSETS / "fonts").glob("*.ttf")):  # NotoSansMyanmar-Mymr.ttf
        fontManager.addfont(str(file))
        families[file.stem.rpartition("-")[2]] = FontProperties(fname=str(file)).get_name()
    return families


@contextlib.contextmanager
def styled() -> Iterator[None]:
    """Settings under which figures are drawn and saved; equal input then gives equal bytes."""
    settings: dict[str, Any] = {
        "font.family": ["DejaVu Sans"],
        "font.size": 9,
        "text.color": INK,
        "text.parse_math": False,  # a dollar sign is only that
        "axes.labelcolor": QUIET,
        "axes.edgecolor": LINE,
        "axes.linewidth": 0.8,
        "axes.axisbelow": True,
        "xtick.color": QUIET,
        "ytick.color": QUIET,
        "hatch.linewidth": 0.6,
        "figure.facecolor": PAPER_WHITE,
        "savefig.facecolor": PAPER_WHITE,
        "svg.fonttype": "path",  # outlines: readers need none of the fonts
        "svg.hashsalt": "tokengraft",
        "pdf.fonttype": 42,  # as TrueType, which journals ask for
    }
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever the user's own matplotlibrc says
        parameters: Any = mpl.rcParams
        parameters.update(settings)
        yield


def autonym(code: str) -> str | None:
    """The language's own name, if it is not in Latin letters and can be drawn properly."""
    entry = language(code) if well_formed(code) else None
    if entry is None or entry.autonym is None or _is_latin(entry.autonym):
        return None
    return entry.autonym if _SHAPES or entry.script in _UNSHAPED else None


def family(code: str) -> list[str]:
    """Font families for an autonym, its script's own first."""
    own = fonts().get(language(code).script)
    return [own, "DejaVu Sans"] if own else ["DejaVu Sans"]


def _is_latin(text: str) -> bool:
    return all("LATIN" in unicodedata.name(c, "") for c in text if c.isalpha())


@dataclass(frozen=True)
class Sheet:
    """A figure with a title, a subtitle and a credit line around a body measured in inches."""

    figure: Figure
    width: float
    height: float
    below: float  # height of the credit under the body

    @property
    def body(self) -> float:
        """Width of the body in inches."""
        return self.width - 2 * _MARGIN

    def axes(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """Axes at a place of the body, all in inches from its lower left corner."""
        box = (
            (_MARGIN + left) / self.width,
            (self.below + bottom) / self.height,
            width / self.width,
            height / self.height,
        )
        axes: Axes = self.figure.add_axes(box)
        return axes


def sheet(width: float, height: float, title: str, subtitle: str, note: str) -> Sheet:
    """An empty sheet whose body is `width` × `height` inches; `note` credits the data.

    For print (`colours.PLAIN`) all three texts are left out: a paper has its own captions.
    """
    titles = _balanced(title, width)
    subtitles = _wrapped(subtitle, width, 9.5)
    credits = _wrapped(f"{note} Made with tokengraft {__version__}.", width, 7.5)
    if colours.PLAIN.get():
        titles, subtitles, credits = [], [], []
    head = _MARGIN + 0.27 * len(titles) + 0.175 * len(subtitles) + 0.16
    below = _MARGIN + 0.135 * len(credits) + 0.12
    total, across = head + height + below, width + 2 * _MARGIN
    figure = Figure(figsize=(across, total))
    FigureCanvasAgg(figure)

    def say(lines: list[str], at: float, **look: Any) -> None:
        if lines:
            figure.text(_MARGIN / across, at / total, "\n".join(lines), **look)

    top = total - _MARGIN + 0.04
    under = top - 0.27 * len(titles) - 0.02
    say(titles, top, size=15, weight="bold", va="top", linespacing=1.15)
    say(subtitles, under, size=9.5, color=QUIET, va="top", linespacing=1.3)
    say(credits, _MARGIN - 0.06, size=7.5, color=QUIET, va="bottom", linespacing=1.3)
    return Sheet(figure, across, total, below)


def _wrapped(text: str, width: float, size: float) -> list[str]:
    return textwrap.wrap(text, int(width * 72 / (size * 0.53)))


def _balanced(title: str, width: float) -> list[str]:
    """The title wrapped as narrowly as its number of lines allows: no last line of one word."""
    columns = int(width * 72 / (15 * 0.61))
    lines = textwrap.wrap(title, columns)
    while columns > 20 and len(textwrap.wrap(title, columns - 1)) == len(lines):
        columns -= 1
    return textwrap.wrap(title, columns)


Place = tuple[float, float]
BESIDE = ("axes fraction", "data")  # x from the axes' left edge, y a row
ABOVE = "axes fraction"


def write(
    axes: Axes, text: str, at: Place, offset: Place, where: Any = "data", **look: Any
) -> Annotation:
    """Write `text` at `offset` points from `at`, even outside the axes."""
    return axes.annotate(text, at, offset, where, "offset points", annotation_clip=False, **look)


def dots(axes: Axes) -> float:
    """Pixels per inch of the figure that holds the axes."""
    figure = axes.get_figure(root=True)
    return figure.dpi if figure is not None else 72.0


def text_width(axes: Axes, text: Annotation) -> float:
    """Width of a written text in points."""
    return text.get_window_extent().width * 72 / dots(axes)


def row_labels(axes: Axes, codes: Sequence[str], gap: float = 6) -> None:
    """Name each row (y = 0, 1, …) left of the axes: the autonym, then the English name.

    A name too long for the sheet is set smaller; an autonym that does not fit is left out.
    """
    size = 9
    down = -0.36 * size  # from the middle of a row to its baseline
    room = axes.get_window_extent().x0 * 72 / dots(axes) - gap - 6  # points up to the sheet's edge
    for y, code in enumerate(codes):
        name = language_name(code)
        first = write(axes, name, (0, y), (-gap, down), BESIDE, ha="right", fontsize=size)
        width = text_width(axes, first)
        if width > room:
            first.set_fontsize(size * room / width)
        own = autonym(code)
        if own is None:
            continue
        look = {"color": QUIET, "family": family(code), "fontsize": size, "ha": "right"}
        second = write(axes, own, (0, y), (-gap - width - 6, down), BESIDE, **look)
        if width + 6 + text_width(axes, second) > room:
            second.remove()


def bare(axes: Axes, ticks: bool = True) -> None:
    """Remove spines and tick marks; without `ticks`, tick labels too."""
    axes.set_frame_on(False)
    axes.tick_params(length=0)
    if not ticks:
        axes.set_xticks([])
        axes.set_yticks([])


def contrasting(rgba: Sequence[float]) -> str:
    """Ink or white, whichever reads better on `rgba`."""
    return INK if colours.luminance(rgba[:3]) > 0.3 else PAPER_WHITE


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write `stem`.svg and .png (200 dpi), for print .pdf too, without dates or versions."""
    svg, png, pdf = (stem.with_name(f"{stem.name}.{form}") for form in ("svg", "png", "pdf"))
    with styled():
        with writing(svg) as temporary:
            figure.savefig(
                temporary, format="svg", metadata={"Date": None, "Creator": "tokengraft"}
            )
        with writing(png) as temporary:
            figure.savefig(temporary, format="png", dpi=DPI, metadata={"Software": None})
        if colours.PLAIN.get():
            with writing(pdf) as temporary:
                about = {"CreationDate": None, "Creator": None, "Producer": None}
                figure.savefig(temporary, format="pdf", metadata=about)
    return [svg, png, *([pdf] if colours.PLAIN.get() else [])]
