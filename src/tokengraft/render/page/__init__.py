"""One self-contained HTML page from a run, and a local playground around it."""
