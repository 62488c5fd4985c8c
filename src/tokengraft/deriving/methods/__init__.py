"""Array methods: anchors' states and rows in, rows for new states out."""
