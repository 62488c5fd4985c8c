"""What every floor above stands on: errors, whole files, wording, a cache, lazy exports."""
