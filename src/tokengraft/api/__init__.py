"""The verbs as functions: names, paths or earlier results in, results out."""
