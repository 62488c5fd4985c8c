"""Published tables as claims: inputs with hashes, a command, expected values, a tolerance."""
