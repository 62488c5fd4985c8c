"""The six invariants of a grafted folder, proved by loading it afresh beside its base."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokengraft.corpus import udhr
from tokengraft.errors import MissingExtra
from tokengraft.files import sha256_file
from tokengraft.grafting import side_files, verify_load, verify_tensors, verify_tokens
from tokengraft.grafting.layout import Layout, find_layout, is_tied, refuse_code, text_config
from tokengraft.grafting.tokenizer_files import CONFIG as TOKENIZER_CONFIG
from tokengraft.grafting.tokenizer_files import TOKENIZER, base_tokenizer
from tokengraft.grafting.weights import Checkpoint, read_checkpoint, read_json
from tokengraft.tokenizer.insert import first_free_id

#: Languages of many scripts that every check includes, planned for or not.
_WORLD = ("eng_Latn", "fra_Latn", "rus_Cyrl", "arb_Arab", "hin_Deva", "zho_Hans", "jpn_Jpan")


@dataclass(frozen=True)
class Check:
    """One invariant: whether it holds, and what was seen."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class Report:
    """Every check that was made, in the order of the invariants."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether all of them hold."""
        return all(check.passed for check in self.checks)

    def lines(self) -> list[str]:
        """One line a check, for people."""
        return [f"{'ok  ' if c.passed else 'FAIL'}  {c.name}: {c.detail}" for c in self.checks]


def verify(folder: Path, base: Path, texts: Iterable[str] | None = None) -> Report:
    """Check `folder` against the `base` model it was grafted from.

    1 old weights, 2 round trip, 3 untouched text, 4 no dead rows, 5 preserved, 6 loads; then the
    output policy and the manifest's hashes where there is a manifest. `texts` are lines to check
    on (the planning text is best); without them the bundled UDHR is used in the planned languages
    and a few others. A folder that cannot be read at all raises ModelError.
    """
    return _Verification(folder, base, texts).report()


def check_lines(languages: Iterable[str]) -> list[str]:
    """UDHR lines in these languages, in all that share a script with one, and in a few others."""
    corpus = udhr.load()
    wanted = {*languages, *_WORLD}
    scripts = {code[4:8] for code in languages} - {"Latn"}
    codes = [c for c in corpus.languages if c in wanted or c[4:8] in scripts]
    return [line for code in codes for line in corpus.lines(code)]


class _Verification:
    def __init__(self, folder: Path, base: Path, texts: Iterable[str] | None) -> None:
        self.folder, self.base = folder, base
        path = folder / side_files.MANIFEST
        self.manifest: Mapping[str, Any] = read_json(path) if path.is_file() else {}
        self.old_config = read_json(base / side_files.CONFIG)
        self.config = read_json(folder / side_files.CONFIG)
        self.old: Checkpoint = read_checkpoint(base)
        self.layout: Layout = find_layout(self.old_config, self.old)
        self.checkpoint = read_checkpoint(folder)
        self.pair = verify_tokens.Pair(base_tokenizer(base), read_json(folder / TOKENIZER))
        self.new = range(first_free_id(self.pair.base), first_free_id(self.pair.new))
        lines = check_lines(self.manifest.get("languages") or ()) if texts is None else list(texts)
        # Words that emitted the new tokens when they were planned; the proof is still made here.
        examples = [text for text in self.manifest.get("examples") or () if isinstance(text, str)]
        self.encoded = self.pair.encode([*lines, *examples])
        table = self.checkpoint.tensors.get(self.layout.input.name)
        self.rows = table.shape[0] if table else 0

    def report(self) -> Report:
        steps: list[tuple[str, Callable[[], tuple[bool, str]]]] = [
            ("old weights", self._weights),
            ("round trip", lambda: verify_tokens.round_trip(self.pair, self.encoded)),
            ("untouched text", self._untouched),
            ("no dead rows", self._dead),
            ("preserved", self._preserved),
            ("loads", self._loads),
        ]
        if self.manifest:
            steps += [("output policy", self._output), ("manifest", self._hashes)]
        return Report(tuple(Check(name, *step()) for name, step in steps))

    def _weights(self) -> tuple[bool, str]:
        found = verify_tensors.other_weights(self.old, self.checkpoint, self.layout, self.new.start)
        count = len(self.old.tensors)
        return found is None, found or f"{count} tensors, every old row and byte the same"

    def _untouched(self) -> tuple[bool, str]:
        old, new = ({**_ids(one)} for one in (self.pair.base, self.pair.new))
        moved = [token for token, number in old.items() if new.get(token) != number]
        if moved:
            return False, f"the token {moved[0]!r} had id {old[moved[0]]}, has {new.get(moved[0])}"
        return verify_tokens.untouched(self.pair, self.encoded, self.new)

    def _dead(self) -> tuple[bool, str]:
        if not len(self.new):
            return False, "there is no new token"
        dead = verify_tensors.dead_rows(self.checkpoint, self.layout, self.new)
        if dead:
            return False, f"{len(dead)} new tokens have no usable row, first id {dead[0]}"
        seen = {i for ids in self.encoded.new for i in ids if i in self.new}
        left = verify_tokens.unproven(self.pair, self.new, self.encoded.lines, seen)
        if left:
            return False, (
                f"{len(left)} of {len(self.new)} new tokens were emitted nowhere, first ids "
                f"{left[:5]}; if the check text is small, give the planning text"
            )
        built = len(self.new) - len(seen)
        return True, (
            f"{len(self.new)} new tokens: {len(seen)} emitted on the check text, "
            f"{built} on text built around them"
        )

    def _preserved(self) -> tuple[bool, str]:
        found = self._config_difference() or self._table_difference() or self._file_difference()
        if found:
            return False, found
        spare = max(0, self.layout.rows - self.new.stop)
        kind = "tied" if self.layout.tied else "untied"
        return True, f"{kind}, {self.layout.rows} rows to {self.rows}, {spare} padding rows kept"

    def _config_difference(self) -> str | None:
        refuse = {"vocab_size", "text_config"}
        old = {k: v for k, v in self.old_config.items() if k not in refuse}
        new = {k: v for k, v in self.config.items() if k not in refuse}
        inner_old, inner_new = dict(text_config(self.old_config)), dict(text_config(self.config))
        said = inner_new.pop("vocab_size", self.config.get("vocab_size"))
        inner_old.pop("vocab_size", None)
        has_head = self.layout.head is not None
        if is_tied(self.config, has_head) != self.layout.tied:
            return "the tables are tied otherwise than the base's"
        if found := verify_load.first_difference(old, new):
            return f"config.json: {found}"
        if self.config.get("text_config") and inner_old != inner_new:
            return f"config.json: {verify_load.first_difference(inner_old, inner_new)}"
        return None if said == self.rows else f"vocab_size is {said} for {self.rows} rows"

    def _table_difference(self) -> str | None:
        tensors = self.checkpoint.tensors
        for table in self.layout.tables:
            copy = tensors.get(table.name)
            if copy is None or copy.shape[0] < table.shape[0]:
                return f"{table.name} shrank from {table.shape[0]} rows"
            if copy.shape[0] != max(self.layout.rows, self.new.stop):
                return f"{table.name} has {copy.shape[0]} rows for ids up to {self.new.stop - 1}"
            row = verify_tensors.different_row(
                self.old, table, self.checkpoint, copy,
                min(self.new.stop, table.shape[0]), table.shape[0],
            )  # fmt: skip
            if row is not None:
                return f"padding row {row} of {table.name} differs"
        return None

    def _file_difference(self) -> str | None:
        ignored = {"suppress_tokens", "renormalize_logits", "_from_model_config"}
        old, new = (_json(d / side_files.GENERATION) for d in (self.base, self.folder))
        if old:
            kept = [{k: v for k, v in one.items() if k not in ignored} for one in (old, new)]
            if found := verify_load.first_difference(*kept):
                return f"{side_files.GENERATION}: {found}"
        for name in ("chat_template.jinja", "chat_template.json", "special_tokens_map.json"):
            texts = [(d / name).read_bytes() if (d / name).is_file() else None
                     for d in (self.base, self.folder)]  # fmt: skip
            if texts[0] != texts[1]:
                return f"{name} is not the base's"
        names = ("chat_template", "bos_token", "eos_token", "added_tokens_decoder", "add_bos_token")
        before, after = (_json(d / TOKENIZER_CONFIG) for d in (self.base, self.folder))
        said = [{k: one.get(k) for k in names if k in before} for one in (before, after)]
        if found := verify_load.first_difference(*said):
            return f"{TOKENIZER_CONFIG}: {found}"
        try:
            base = verify_load.load_tokenizer(self.base)
        except MissingExtra:
            raise
        except Exception:
            return None  # some bases load only with their slow tokenizer; their files were compared
        had, has = (verify_load.tokenizer_traits(t) for t in (base, self._tokenizer))
        # A class's default tokens are written out; one transformers had them, another had not.
        had = {name: value for name, value in had.items() if value is not None}
        return verify_load.first_difference(had, {name: has[name] for name in had})

    @functools.cached_property
    def _tokenizer(self) -> Any:
        return verify_load.load_tokenizer(self.folder)

    def _loads(self) -> tuple[bool, str]:
        whole = verify_load.fits_memory(self.checkpoint.size)
        try:
            refuse_code(self.config, side_files.CONFIG)
            refuse_code(_json(self.folder / TOKENIZER_CONFIG), TOKENIZER_CONFIG)
            tokenizer = self._tokenizer
            if found := verify_load.same_ids(tokenizer, self.encoded.lines, self.encoded.new):
                return False, found
            ids = [self.new.start, *self.new[-1:], 0]
            if found := verify_load.examine(self.folder, self.layout, self.rows, ids, whole):
                return False, found
        except MissingExtra:
            raise
        except Exception as error:  # whatever keeps it from loading is the finding
            return False, f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
        import transformers

        how = "" if whole else " (frame only: the weights exceed the free memory)"
        return True, f"transformers {transformers.__version__}, no remote code{how}"

    def _output(self) -> tuple[bool, str]:
        policy = self.manifest["output"]["policy"]
        barred = set(self.manifest["output"]["barred"])
        said = set(_json(self.folder / side_files.GENERATION).get("suppress_tokens") or ())
        if policy == "input-only":
            barred |= set(self.new)
        if missing := sorted(barred - said):
            return False, f"generation config does not bar {len(missing)} ids, first {missing[0]}"
        if policy != "input-only" or not verify_load.fits_memory(2 * self.checkpoint.size):
            return True, f"{policy}: {len(said)} ids barred from generation"
        try:
            tokenizer = self._tokenizer
            # The base may emit its spare rows, which new tokens have taken over.
            spare = [i for i in said if i < self.layout.rows]
            outputs = [
                verify_load.greedy(self.base, tokenizer, spare),
                verify_load.greedy(self.folder, tokenizer),
            ]
        except Exception as error:
            return False, f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"
        if outputs[0] != outputs[1]:
            return False, f"greedy English gives ids {outputs[1][:12]}, the base {outputs[0][:12]}"
        return True, "input-only: greedy English output equals the base's"

    def _hashes(self) -> tuple[bool, str]:
        files: Mapping[str, str] = self.manifest["files"]
        for name, expected in files.items():
            path = self.folder / name
            if not path.is_file() or sha256_file(path) != expected:
                return False, f"{name} is not the file that was written"
        return True, f"{len(files)} files as written"


def _ids(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    vocab = tokenizer["model"]["vocab"]
    if isinstance(vocab, list):
        vocab = {piece: number for number, (piece, _) in enumerate(vocab)}
    added = {t["content"]: t["id"] for t in tokenizer.get("added_tokens") or ()}
    return {**vocab, **added}


def _json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}
