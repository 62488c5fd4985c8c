"""Premium against number of speakers: the fork between Latin and other scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from tokengraft.languages.codes import script_group
from tokengraft.render.colours import SCRIPTS, rgb
from tokengraft.render.figures.style import BESIDE, INK, LINE, QUIET, dots, sheet, write
from tokengraft.render.selection import (
    comparable_note,
    labels,
    pivot_name,
    units,
    without_unk,
)

if TYPE_CHECKING:
    from tokengraft.auditing.audit_tables import AuditTables

# Each group of scripts by colour, and by shape for those who cannot tell colours apart.
MARKS = {
    group: (day, marker)
    for (group, (day, _)), marker in zip(SCRIPTS.items(), "os^DdPvXh", strict=True)
}
ENOUGH = 5  # languages on each side for a title that compares their medians
LABELLED = 80  # label every language up to this many, beyond that only notable ones
_FRACTION = 0.6  # of the languages that each point of a trend line is fitted to
Floats = NDArray[np.float64]


def speakers(audit: AuditTables) -> Figure | None:
    """Premium (mean over tokenizers free of UNK) against speakers; None below five languages."""
    points, who = _points(audit)
    if points.height < 5:
        return None
    others = points.filter(pl.col("language") != audit.pivot)
    sides = [
        others.filter((pl.col("script") == "Latn") == latin)["cost"] for latin in (True, False)
    ]
    latin, rest = (side.median() for side in sides)
    pivot = pivot_name(audit)
    enough = min(map(len, sides)) >= ENOUGH
    if enough and isinstance(latin, float) and isinstance(rest, float) and rest > latin:
        title = (
            f"Outside the Latin script the typical language pays {rest:.1f} times {pivot}, "
            f"within it {latin:.1f} times"
        )
    else:
        title = f"What languages pay for the same text, relative to {pivot}"
    subtitle = (
        f"Premium (tokens ÷ tokens of the same passage in {pivot}, mean over {units(audit)}) "
        f"against speakers, first and second language together. {who}. The speakers of "
        f"{points.height} of {len(audit.corpus.languages)} languages are known; a language "
        f"written in two scripts is counted in both. {comparable_note(audit)}"
    ).strip()
    note = "Speakers: Unicode CLDR and the sources named in the language table."
    page = sheet(10, 6.6, title, subtitle, f"Text: {audit.corpus.title}. {note}")
    axes = page.axes(0.45, 0.45, 9.5, 5.65)
    xs, ys = points["speakers_total"].to_numpy(), points["cost"].to_numpy()
    _axes(axes, xs, ys, pivot)
    for group, (colour, marker) in MARKS.items():
        here = points["group"].to_numpy() == group
        size = 26 if group == "Latin" else 40
        axes.scatter(xs[here], ys[here], s=size, c=colour, marker=marker, linewidths=0.6,
                     edgecolors="white", alpha=0.9, zorder=3)  # fmt: skip
    taken = boxes(axes, xs, ys)
    latin_script = pl.col("script") == "Latn"
    _trend(axes, points.filter(~latin_script), INK, "other scripts", taken)
    _trend(axes, points.filter(latin_script), QUIET, "Latin script", taken)
    _legend(axes, points["group"].to_list())
    place(axes, _codes(points, audit.pivot), taken)
    return page.figure


def _points(audit: AuditTables) -> tuple[pl.DataFrame, str]:
    """One row per language with known speakers, and in words what `cost` is."""
    cells = audit.premiums.filter(
        ~pl.col("meaningless") & pl.col("premium").is_finite() & (pl.col("speakers_total") > 0)
    )
    if honest := without_unk(audit):
        cells = cells.filter(pl.col("tokenizer").is_in(honest))
        names = [labels(audit)[name] for name in honest]
        who = f"Mean over the tokenizers that encode every language ({', '.join(names)})"
        who = who if len(names) > 1 else f"Tokenizer: {names[0]}"
    else:
        who = "Mean over each language’s tokenizers, those with UNK left out"
    about = (pl.col(name).first() for name in ("speakers_total", "script", "name"))
    cost = pl.col("premium").mean().alias("cost")
    points = cells.group_by("language", maintain_order=True).agg(cost, *about)
    group = pl.col("script").map_elements(script_group, return_dtype=pl.String)
    return points.with_columns(group.alias("group")).sort("language"), who


def _axes(axes: Axes, xs: Floats, ys: Floats, pivot: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(xs.min() / 1.6, xs.max() * 1.8)
    axes.set_ylim(min(0.9, ys.min() / 1.1), ys.max() * 1.18)
    axes.spines[["top", "right", "left"]].set_visible(False)
    names = ["100", "1,000", "10,000", "100,000", "1 million", "10 million", "100 million"]
    names += ["1 billion", "10 billion"]
    speakers = {10 ** (n + 2): name for n, name in enumerate(names)}
    heights = {h: f"{h:g}×" for h in (0.5, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30)}
    for axis, named in ((axes.xaxis, speakers), (axes.yaxis, heights)):
        axis.set_major_locator(FixedLocator(list(named)))
        axis.set_major_formatter(FixedFormatter(list(named.values())))
        axis.set_minor_locator(NullLocator())
    axes.grid(axis="y", color=LINE, linewidth=0.7)
    axes.axhline(1, color=QUIET, linewidth=1)
    write(axes, f"{pivot} = 1", (1, 1), (0, 3), BESIDE, ha="right", fontsize=8, color=QUIET)
    axes.set_xlabel("Speakers (logarithmic)", fontsize=8.5)
    axes.tick_params(length=0, labelsize=8.5)


def _trend(axes: Axes, points: pl.DataFrame, colour: str, name: str, taken: list[Bbox]) -> None:
    """Local linear regression of the logarithms with tricube weights (lowess, not iterated)."""
    if points.height < 10:
        return
    x, y = np.log(points["speakers_total"].to_numpy()), np.log(points["cost"].to_numpy())
    reach = max(8, int(_FRACTION * len(x)))
    at = np.linspace(float(np.quantile(x, 0.02)), float(np.quantile(x, 0.98)), 80)
    curve = np.empty(len(at))
    for n, here in enumerate(at):
        distance = np.abs(x - here)
        weight = (1 - np.clip(distance / np.sort(distance)[reach - 1], 0, 1) ** 3) ** 3
        slope = np.polyfit(x - here, y, 1, w=np.sqrt(weight))
        curve[n] = slope[1]
    axes.plot(np.exp(at), np.exp(curve), color=colour, linewidth=2, zorder=2.5)
    name_curve(axes, np.exp(at), np.exp(curve), name, colour, taken)


def _legend(axes: Axes, groups: Sequence[str]) -> None:
    shown = {group: look for group, look in MARKS.items() if group in groups}
    handles = [
        Line2D([], [], linestyle="none", marker=marker, color=colour, label=group, markersize=6)
        for group, (colour, marker) in shown.items()
    ]
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(-0.03, 1.0), ncols=5, fontsize=8,
                frameon=False, handletextpad=0.2, columnspacing=1.2, borderaxespad=0)  # fmt: skip


def _codes(points: pl.DataFrame, pivot: str) -> list[Label]:
    """Labels with languages' codes, most notable first; the pivot's dot is named already."""
    iso = [code[:3] for code in points["language"]]
    wanted = []
    for n in _notable(points):
        code, group = points["language"][n], points["group"][n]
        text = code.replace("_", " ") if iso.count(code[:3]) > 1 else code[:3]
        if code != pivot:
            x, y = points["speakers_total"][n], points["cost"][n]
            darker = "#" + "".join(f"{int(255 * part * 0.72):02x}" for part in rgb(MARKS[group][0]))
            wanted.append(Label(text, x, y, darker))
    return wanted


def _notable(points: pl.DataFrame) -> list[int]:
    """Rows in the order in which they deserve a label."""
    by_speakers, by_cost = (
        np.argsort(-points[name].to_numpy(), kind="stable").tolist()
        for name in ("speakers_total", "cost")
    )
    if points.height <= LABELLED:
        return list(by_cost)
    latin = [n for n in by_cost if points["script"][n] == "Latn"]
    others = [n for n in by_cost if n not in set(latin)]
    first = [*by_cost[:18], *by_speakers[:28], *latin[:8], *by_speakers[::-1][:8]]
    return list(dict.fromkeys([*first, *others]))


# Labels beside dots never overlap: candidate places in a fixed order, the first free one wins.
# Unlike an iterative relaxation this needs no time limit and no random numbers, so that the same
# data always give the same figure; a label that finds no free place is left out.

# Offsets in points from the dot to the near edge of its label, nearest first.
_AROUND = [(5, 0), (-5, 0), (0, 8), (0, -8), (4, 7), (-4, 7), (4, -7), (-4, -7)]
_AROUND += [(9, 0), (-9, 0), (0, 14), (0, -14), (8, 11), (-8, 11), (8, -11), (-8, -11)]
_WIDTH, _HEIGHT = 0.62, 0.95  # of a character, in sizes of type


@dataclass(frozen=True)
class Label:
    """A text that belongs to a dot at `x`, `y` (data coordinates)."""

    text: str
    x: float
    y: float
    colour: str


def boxes(axes: Axes, xs: Floats, ys: Floats) -> list[Bbox]:
    """The dots' squares of six points, in pixels."""
    side = 6 * dots(axes) / 72
    spots = axes.transData.transform(np.stack([xs, ys], axis=1))
    return [Bbox.from_bounds(x - side / 2, y - side / 2, side, side) for x, y in spots]


def place(axes: Axes, labels: Iterable[Label], taken: Sequence[Bbox]) -> int:
    """Write as many labels as find a place, in the given order; returns how many."""
    size, scale = 7.5, dots(axes) / 72
    frame = axes.get_window_extent()
    full = list(taken)
    written = 0
    for label in labels:
        at = axes.transData.transform((label.x, label.y))
        width, height = _WIDTH * len(label.text) * size * scale, _HEIGHT * size * scale
        for dx, dy in _AROUND:
            left = dx * scale - (width if dx < 0 else width / 2 if dx == 0 else 0)
            down = dy * scale - height / 2
            box = Bbox.from_bounds(at[0] + left, at[1] + down, width, height)
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0
            if not inside or box.y1 > frame.y1 or any(box.overlaps(other) for other in full):
                continue
            full.append(box)
            _write(axes, label, (left / scale, down / scale), size)
            written += 1
            break
    return written


def name_curve(
    axes: Axes, xs: Floats, ys: Floats, name: str, colour: str, taken: list[Bbox]
) -> None:
    """Write a curve's name beside it where it hides the fewest of `taken`; then it is taken too."""
    scale = dots(axes) / 72
    size = 9.5
    width, height = 0.68 * len(name) * size * scale, 1.1 * size * scale
    spots = axes.transData.transform(np.stack([xs, ys], axis=1))
    best: tuple[int, float, float, Bbox] | None = None
    for x, y in spots[: -len(spots) // 5]:
        # Clear of the curve over the whole width of the name.
        under = spots[(spots[:, 0] >= x) & (spots[:, 0] <= x + width), 1]
        for bottom in (under.max() + 4 * scale, under.min() - 4 * scale - height):
            box = Bbox.from_bounds(x, bottom, width, height)
            hidden = sum(box.overlaps(other) for other in taken)
            if best is None or hidden < best[0]:
                best = (hidden, x, y, box)
    if best is None:
        return
    _, x, y, box = best
    where = axes.transData.inverted().transform((x, y))
    label = Label(name, float(where[0]), float(where[1]), colour)
    _write(axes, label, (0, (box.y0 - y) / scale), size, "bold")
    taken.append(box)


def _write(
    axes: Axes, label: Label, offset: tuple[float, float], size: float, weight: str = "normal"
) -> None:
    halo = [withStroke(linewidth=1.8, foreground="white")]
    write(axes, label.text, (label.x, label.y), offset, fontsize=size, color=label.colour,
          weight=weight, va="bottom", zorder=5, path_effects=halo)  # fmt: skip
