"""Parallel text: loaded from any of the usual layouts, validated, aligned by position."""

from tokengraft.corpus.catalog import CorpusInfo, available, load
from tokengraft.corpus.languages import Language, known, language, resolve
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.corpus.plain import load_pairs

__all__ = [
    "CorpusInfo",
    "Language",
    "ParallelCorpus",
    "available",
    "known",
    "language",
    "load",
    "load_pairs",
    "resolve",
]
