"""Rows trained until the frozen model reads the new tokens as it read the old ones."""
