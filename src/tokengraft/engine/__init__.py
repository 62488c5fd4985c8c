"""One map over shards, here or on a Ray cluster; sums of integers do the rest."""
