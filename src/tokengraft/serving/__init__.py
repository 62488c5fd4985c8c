"""Where people run models: export for other programs, and proof by running them."""
