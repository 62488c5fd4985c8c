"""Generate a large multilingual corpus from the bundled UDHR, for tests of scale.

    python tools/make_corpus.py OUT --bytes 5e9 --format jsonl,jsonl.zst,parquet

Each row has 1 to 8 sentences of one language drawn at random; the words of some sentences are
shuffled so that rows differ. The same seed, size and formats always give the same text. Formats:
jsonl, jsonl.gz, jsonl.zst, parquet; the size is in bytes of text, divided evenly among formats.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tokengraft.core.files import writing
from tokengraft.corpus import load

FORMATS = ("jsonl", "jsonl.gz", "jsonl.zst", "parquet")
SHUFFLED = 0.2  # share of sentences whose words change places


def rows(seed: str, size: int) -> Iterator[tuple[str, str]]:
    """Yield (language, text) until there are `size` bytes of text."""
    corpus = load("udhr")
    lines = {code: corpus.lines(code) for code in corpus.languages}
    codes = sorted(lines)
    draw = random.Random(seed)
    while size > 0:
        code = draw.choice(codes)
        parts = draw.choices(lines[code], k=draw.randint(1, 8))
        for place, part in enumerate(parts):
            if draw.random() < SHUFFLED:
                words = part.split(" ")
                draw.shuffle(words)
                parts[place] = " ".join(words)
        text = " ".join(parts)
        size -= len(text.encode())
        yield code, text


@contextlib.contextmanager
def writer(path: Path, kind: str) -> Iterator[Callable[[str, str], None]]:
    """A function that appends a row to the file, which appears when it is complete."""
    with writing(path) as temporary, contextlib.ExitStack() as stack:
        if kind == "parquet":
            yield stack.enter_context(_parquet(temporary))
            return
        if kind == "jsonl.gz":
            stream: Any = stack.enter_context(gzip.open(temporary, "wb", 3))
        elif kind == "jsonl.zst":
            import zstandard

            raw = stack.enter_context(temporary.open("wb"))
            stream = stack.enter_context(zstandard.ZstdCompressor(3).stream_writer(raw))
        else:
            stream = stack.enter_context(temporary.open("wb"))

        def append(code: str, text: str) -> None:
            record = json.dumps({"lang": code, "text": text}, ensure_ascii=False)
            stream.write(record.encode() + b"\n")

        yield append


@contextlib.contextmanager
def _parquet(path: Path) -> Iterator[Callable[[str, str], None]]:
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([("lang", pyarrow.string()), ("text", pyarrow.string())])
    held: dict[str, list[Any]] = {"lang": [], "text": []}
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as file:

        def flush() -> None:
            file.write_table(pyarrow.table(held, schema), row_group_size=len(held["lang"]) or 1)
            held["lang"].clear()
            held["text"].clear()

        def append(code: str, text: str) -> None:
            held["lang"].append(code)
            held["text"].append(text)
            if len(held["lang"]) == 16_384:
                flush()

        yield append
        flush()


def make(out: Path, size: int, formats: list[str], files: int, seed: int = 0) -> list[Path]:
    """Write `files` files of each format, `size` bytes of text in all."""
    paths = []
    share = size // (len(formats) * files)
    for kind in formats:
        for number in range(files):
            path = out / f"part-{number:04}.{kind}"
            with writer(path, kind) as append:
                for code, text in rows(f"{seed}/{kind}/{number}", share):
                    append(code, text)
            paths.append(path)
    return paths


def main() -> None:
    """Read the options and write the corpus."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--bytes", type=float, default=5e9)
    parser.add_argument("--format", default="jsonl,jsonl.zst,parquet")
    parser.add_argument("--files", type=int, default=4, help="files of each format")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    formats = options.format.split(",")
    unknown = set(formats) - set(FORMATS)
    if unknown:
        parser.error(f"no format {', '.join(unknown)}: choose from {', '.join(FORMATS)}")
    for path in make(options.out, int(options.bytes), formats, options.files, options.seed):
        print(f"{path.stat().st_size:>14,} {path}")


if __name__ == "__main__":
    main()
