"""Every figure of an audit by name, and writing them all."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from tokengraft.core.errors import look_up
from tokengraft.render.figures.bars import apart, cost, vocabulary
from tokengraft.render.figures.heatmap import containment, coverage, jaccard, premiums, premiums_all
from tokengraft.render.figures.speakers import speakers
from tokengraft.render.figures.style import DPI, save_figure, styled

if TYPE_CHECKING:
    from tokengraft.auditing.audit_tables import AuditTables

FIGURES: dict[str, Callable[[AuditTables], Figure | None]] = {
    "premiums": premiums,
    "premiums_all": premiums_all,
    "apart": apart,
    "speakers": speakers,
    "cost": cost,
    "coverage": coverage,
    "vocabulary": vocabulary,
    "jaccard": jaccard,
    "containment": containment,
}


def draw(audit: AuditTables, name: str) -> Figure | None:
    """The figure called `name`, or None if the audit lacks the data for it."""
    with styled():
        return look_up("figure", name, FIGURES)(audit)


@dataclass(frozen=True, repr=False)
class Picture:
    """A figure that a notebook shows; `figure` is matplotlib's own, to change or to save."""

    name: str
    figure: Figure

    def __repr__(self) -> str:
        return f"Picture({self.name!r})"

    def _repr_png_(self) -> bytes:
        held = io.BytesIO()
        with styled():
            self.figure.savefig(held, format="png", dpi=DPI / 2, metadata={"Software": None})
        return held.getvalue()


def save_figures(audit: AuditTables, folder: Path) -> list[Path]:
    """Write every figure the audit has data for as `folder`/NAME.svg and .png."""
    paths: list[Path] = []
    for name in FIGURES:
        if name in audit.NAMES and name not in audit.frames:
            continue  # a streamed corpus has no vocabularies, only sums
        figure = draw(audit, name)
        if figure is not None:
            paths += save_figure(figure, folder / name)
    return paths
