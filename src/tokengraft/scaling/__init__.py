"""The same counts on corpora and clusters larger than one machine.

One function counts a shard (`shard.count_shard`); engines only map it over shards, and sums of
integers do the rest, so every engine gives the same result in any order. Nothing here is imported
until it is used, and neither Ray, pyarrow, zstandard nor fsspec is needed for plain or gzip text.
"""
