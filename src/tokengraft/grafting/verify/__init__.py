"""The invariants of a grafted folder, each proved by loading it afresh."""
