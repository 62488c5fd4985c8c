"""Every figure of an audit by name, and writing them all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from tokengraft.core.errors import look_up
from tokengraft.render.figures.bars import apart, cost, vocabulary
from tokengraft.render.figures.heatmap import containment, coverage, jaccard, premiums, premiums_all
from tokengraft.render.figures.speakers import speakers
from tokengraft.render.figures.style import save_figure, styled

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
