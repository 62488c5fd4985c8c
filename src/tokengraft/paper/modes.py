"""Plan modes that lost to `merges`, as further rows of `planning`."""

from __future__ import annotations

from tokengraft.core.options import Later
from tokengraft.planning import MODES, PlanMode


def register() -> None:
    """Add the modes to the registry."""
    for mode in (
        PlanMode(
            "paper",
            "the paper's procedure (makes many languages longer)",
            "Churchill and Skiena",
            literal=Later("tokengraft.paper.literals:plan_literals"),
        ),
        PlanMode(
            "paper.likelihood",
            "a baseline, pairs likelier than their parts (WordPiece's rule)",
            "Schuster and Nakajima 2012",
            Later("tokengraft.paper.baselines:by_likelihood"),
        ),
        PlanMode(
            "paper.unigram",
            "a baseline, the likeliest pieces of a Unigram model",
            "Kudo 2018",
            Later("tokengraft.paper.baselines:by_unigram"),
        ),
        PlanMode(
            "paper.prefix-free",
            "a baseline, the paper's ideal of equiprobable strings",
            "Tunstall 1967",
            Later("tokengraft.paper.baselines:by_prefix_free"),
        ),
    ):
        MODES[mode.name] = mode
