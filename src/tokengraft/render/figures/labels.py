"""Labels beside dots that never overlap: candidate places in a fixed order, first free one wins.

Unlike an iterative relaxation this needs no time limit and no random numbers, so that the same
data always give the same figure; a label that finds no free place is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox
from numpy.typing import NDArray

from tokengraft.render.figures.style import dots, write

Floats = NDArray[np.float64]

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


def boxes(axes: Axes, xs: Floats, ys: Floats, size: float = 6) -> list[Bbox]:
    """The dots' squares of `size` points, in pixels."""
    side = size * dots(axes) / 72
    spots = axes.transData.transform(np.stack([xs, ys], axis=1))
    return [Bbox.from_bounds(x - side / 2, y - side / 2, side, side) for x, y in spots]


def place(axes: Axes, labels: Iterable[Label], taken: Sequence[Bbox], size: float = 7.5) -> int:
    """Write as many labels as find a place, in the given order; returns how many."""
    scale = dots(axes) / 72
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


def name_curve(axes: Axes, xs: Floats, ys: Floats, name: Label, taken: list[Bbox]) -> None:
    """Name a curve beside itself where it hides the fewest of `taken`, and take that place."""
    scale = dots(axes) / 72
    size = 9.5
    width, height = 0.68 * len(name.text) * size * scale, 1.1 * size * scale
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
    label = Label(name.text, float(where[0]), float(where[1]), name.colour)
    _write(axes, label, (0, (box.y0 - y) / scale), size, "bold")
    taken.append(box)


def _write(
    axes: Axes, label: Label, offset: tuple[float, float], size: float, weight: str = "normal"
) -> None:
    write(
        axes,
        label.text,
        (label.x, label.y),
        offset,
        fontsize=size,
        color=label.colour,
        weight=weight,
        va="bottom",
        zorder=5,
        path_effects=[withStroke(linewidth=1.8, foreground="white")],
    )
