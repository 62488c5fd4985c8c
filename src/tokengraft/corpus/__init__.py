"""Parallel text: loaded from any of the usual layouts, validated, aligned by position."""

from tokengraft.corpus.catalog import available, load
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.corpus.plain_layout import load_pairs

__all__ = ["ParallelCorpus", "available", "load", "load_pairs"]
