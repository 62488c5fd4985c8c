"""Rows for new tokens of a frozen model: the paper's methods, better ones, and distillation."""
