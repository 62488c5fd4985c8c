"""Auditing tokenizers over languages: counts, premiums, vocabularies, coverage, cost."""
