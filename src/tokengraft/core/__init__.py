"""What every floor above stands on: errors, whole files, wording, a cache, lazy exports."""

#: The one place that names it: pyproject.toml reads it here, so that a checkout installed in
#: place does not sign its figures with the version of the day it was installed.
__version__ = "0.7.0"
