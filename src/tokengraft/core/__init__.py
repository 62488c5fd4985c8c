"""The bottom layer, used by all others: errors, atomic files, options, wording, a cache."""

#: The single source; pyproject.toml reads it here. The metadata of an editable install would go
#: stale: results would carry the version of the day of installation.
__version__ = "0.15.0"
