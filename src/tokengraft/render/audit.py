"""What an audit looks like on disk: tables, figures, a manifest and a README.

Nothing here imports matplotlib until figures are asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tokengraft.core.files import adding, write_json, write_text
from tokengraft.render.audit_readme import write_up
from tokengraft.render.latex import latex
from tokengraft.render.tables import markdown, matrix, printed, write_data

if TYPE_CHECKING:
    from tokengraft.auditing.results import Tables

__all__ = ["save_audit"]


def save_audit(audit: Tables, folder: Path, figures: bool = True) -> list[Path]:
    """Write the audit under `folder` and return every path written, in a fixed order.

    `tables/NAME` as csv, parquet, json (all columns, full precision), md and tex (as printed),
    `figures/NAME` as svg and png, `manifest.json` and `README.md`. All files appear or none does,
    and the same audit always gives the same bytes.
    """
    folder = Path(folder)
    with adding(folder) as new:
        paths = _write(audit, new, figures)
    return [folder / path.relative_to(new) for path in paths]


def _write(audit: Tables, folder: Path, figures: bool) -> list[Path]:
    paths: list[Path] = []
    forms = printed(audit)
    for name, frame in audit.tables().items():
        stem = folder / "tables" / name
        paths += write_data(frame, stem)
        paths.append(write_text(stem.with_suffix(".md"), markdown(forms[name])))
        paths.append(write_text(stem.with_suffix(".tex"), latex(forms[name])))
    paths += write_data(matrix(audit), folder / "tables" / "premium_matrix")
    if figures:
        from tokengraft.render.figures.registry import save_figures

        paths += save_figures(audit, folder / "figures")
    paths.append(write_json(folder / "manifest.json", audit.manifest()))
    paths.append(write_text(folder / "README.md", write_up(audit, folder, paths)))
    return paths
