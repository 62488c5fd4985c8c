"""Adapters over tokenizer libraries, a catalog of names, and vocabularies as bytes."""

from tokengraft.tokenizer.adapters import Tokenizer
from tokengraft.tokenizer.catalog import Located, find, load
from tokengraft.tokenizer.vocabulary import Vocabulary

__all__ = ["Located", "Tokenizer", "Vocabulary", "find", "load"]
