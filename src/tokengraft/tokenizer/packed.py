"""Tokenizers to send to workers: files as bytes, so that a worker needs no disk and no network."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, field
from typing import Any

from tokengraft.tokenizer import Located, Tokenizer
from tokengraft.tokenizer.file_kinds import open_files, used_files
from tokengraft.tokenizer.openai import TikToken
from tokengraft.tokenizer.sources import Source

THREAD_SETTINGS = ("TOKENIZERS_PARALLELISM", "RAYON_NUM_THREADS")


@dataclass(frozen=True)
class Packed:
    """A tokenizer as plain data; `open` gives the same tokenizer on any machine."""

    name: str
    label: str
    fingerprint: str
    where: str
    kind: str | None
    files: dict[str, bytes] = field(repr=False)
    #: tiktoken's own description, for a tokenizer that tiktoken itself provides.
    encoding: dict[str, Any] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, located: Located) -> Packed:
        """Pack a tokenizer that was found on this machine."""
        about = located.name, located.label, located.fingerprint, located.where
        if located.source is None or located.kind is None:
            opened = located.open()
            assert isinstance(opened, TikToken)
            names = ("pat_str", "mergeable_ranks", "special_tokens")
            parts = {name: getattr(opened.encoding, f"_{name}") for name in names}
            return cls(*about, None, {}, {"name": opened.encoding.name, **parts})
        used = used_files(located.source, located.kind)
        files = {name: located.source.read(name) for name in sorted(used)}
        return cls(*about, located.kind, files)

    def open(self) -> Tokenizer:
        """The working tokenizer."""
        if self.encoding is not None:
            import tiktoken

            return TikToken(self.name, self.fingerprint, tiktoken.Encoding(**self.encoding))
        assert self.kind is not None
        readers = {name: functools.partial(bytes, data) for name, data in self.files.items()}
        return open_files(self.name, self.fingerprint, Source(self.where, readers), self.kind)


def limit_threads(threads: int) -> None:
    """Keep the Rust tokenizers of this process to `threads`; call before any is used."""
    parallelism, number = THREAD_SETTINGS
    if threads == 1:
        os.environ[parallelism] = "false"
    os.environ[number] = str(threads)
