"""Results as people look at them: tables, LaTeX, figures, one page."""
