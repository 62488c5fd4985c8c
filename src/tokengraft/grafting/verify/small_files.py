"""Settings and small files compared with the base's, and files that do not belong in a graft."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tokengraft.core.files import sha256_file
from tokengraft.grafting import output_policies, small_files
from tokengraft.grafting.verify.tokens import frames
from tokengraft.model import tokenizer_files
from tokengraft.model.checkpoint import INDEX, read_if_there, read_json
from tokengraft.model.embedding_tables import Tables, is_tied, text_config
from tokengraft.model.folder import CARD, CONFIG, MANIFEST, SIGNATURE
from tokengraft.planning.permitted import shares_letters, territory
from tokengraft.tokenizer import sentence_piece
from tokengraft.tokenizer import transformers_classes as classes
from tokengraft.tokenizer.insert import added_ids, family, merge_pairs, repeated, settle, vocabulary
from tokengraft.tokenizer.pre_tokenizer import (
    RELAXABLE,
    relaxed_pattern,
    split_pattern,
    steps_of,
    with_pattern,
)
from tokengraft.tokenizer.vocabulary import piece_reader

#: Files that a graft writes itself; everything else is a copy of the base's.
_WRITTEN = {
    CONFIG, small_files.GENERATION, CARD, MANIFEST, SIGNATURE, INDEX,
    tokenizer_files.TOKENIZER, tokenizer_files.TOKENIZER_CONFIG, sentence_piece.SENTENCEPIECE,
}  # fmt: skip
#: Read by people only: they may be added, and nothing that loads the model sees them.
_DOCUMENTS = (".md", ".pdf", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp")
_LICENSE = re.compile(r"(LICEN[CS]E|NOTICE|COPYING|USE_POLICY)(\.txt)?")
#: What model hubs and their clients add to a folder.
_HUB = (
    ".gitattributes", ".cache/huggingface/.gitignore", ".cache/huggingface/CACHEDIR.TAG",
    ".cache/huggingface/download/*.metadata", ".cache/huggingface/download/*.lock",
)  # fmt: skip
_CLASSES = (classes.PLAIN, "LlamaTokenizerFast")


def first_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """The first key whose values differ, in words, or None; 1, 1.0 and true are different."""
    for key in sorted({*old, *new}):
        if _typed(old.get(key)) != _typed(new.get(key)):
            return f"{key} was {str(old.get(key))[:60]!r}, is {str(new.get(key))[:60]!r}"
    return None


def _typed(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=repr)


def config_difference(
    old: Mapping[str, Any], new: Mapping[str, Any], layout: Tables, rows: int, untied: bool = False
) -> str | None:
    """How config.json differs from the base's, apart from the number of rows, or None.

    `untied`: it must say that the head is no longer the input table.
    """
    if untied:
        old = small_files.untie(old)
    if is_tied(new, untied or layout.head is not None) != (layout.tied and not untied):
        return "the tables are not tied as the base's are"
    if difference := first_difference(_without(old, "text_config"), _without(new, "text_config")):
        return f"{CONFIG}: {difference}"
    inner = text_config(new)
    if new.get("text_config") and (
        difference := first_difference(_without(text_config(old)), _without(inner))
    ):
        return f"{CONFIG}: {difference}"
    said = inner.get("vocab_size", new.get("vocab_size"))
    return None if type(said) is int and said == rows else f"vocab_size is {said} for {rows} rows"


def _without(config: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {k: v for k, v in config.items() if k not in ("vocab_size", *names)}


def generation_difference(base: Path, folder: Path) -> str | None:
    """How generation_config.json differs, apart from barred ids, or None."""
    path = base / small_files.GENERATION
    old = read_json(path) if path.is_file() else None
    new = read_if_there(folder / small_files.GENERATION)
    config = read_json(base / CONFIG)
    barred, own = map(small_files.barred_ids, (folder, base))
    # Where the base bars some ids itself, the graft may have barred them again or none at all.
    for ids in (barred, barred - own):
        wanted = output_policies.generation_config(old, config, sorted(ids)) or {}
        kept = [{k: v for k, v in one.items() if k != "suppress_tokens"} for one in (wanted, new)]
        if not (difference := first_difference(*kept)):
            return None
    return f"{small_files.GENERATION}: {difference}"


def tokenizer_difference(old: Mapping[str, Any], new: Mapping[str, Any], ids: range) -> str | None:
    """How tokenizer.json differs, apart from vocabulary, merges and split pattern, or None.

    The base's added tokens must come first, with all their flags; added tokens after them (the
    paper's mode) must have new ids.
    """
    before, after = (list(one.get("added_tokens") or ()) for one in (old, new))
    for token, copy in zip(before, after, strict=False):
        if difference := first_difference(token, copy):
            return f"added token {token.get('content')!r}: {difference}"
    if len(after) < len(before):
        return f"added token {before[len(after)].get('content')!r} is missing"
    for token in after[len(before) :]:
        if token.get("special") or token.get("id") not in ids:
            return f"added token {token.get('content')!r} is not a token of the graft"
    free = ("model", "added_tokens", "pre_tokenizer", "post_processor")
    kept = [{k: v for k, v in one.items() if k not in free} for one in (old, new)]
    inner = [
        {k: v for k, v in one["model"].items() if k not in ("vocab", "merges")}
        for one in (old, new)
    ]
    difference = first_difference(*kept) or first_difference(*inner)
    return difference and f"{tokenizer_files.TOKENIZER}: {difference}"


def insertion_difference(old: dict[str, Any], new: dict[str, Any], ids: range) -> str | None:
    """A change to vocabulary, merges or split pattern that no insertion makes, or None.

    Text cannot reveal all of these: a merge or a pattern may do harm on a line that nobody tried.
    """
    difference = _vocabulary_difference(old, new, ids) or _pattern_difference(old, new)
    return difference and f"{tokenizer_files.TOKENIZER}: {difference}"


def _vocabulary_difference(old: dict[str, Any], new: dict[str, Any], ids: range) -> str | None:
    known = vocabulary(old) | added_ids(old)
    more = {token: number for token, number in vocabulary(new).items() if token not in known}
    if strange := [token for token, number in more.items() if number not in ids]:
        return f"{strange[0]!r} has id {more[strange[0]]}, which is not a new one"
    if isinstance(scores := old["model"]["vocab"], list):
        for place, (was, now) in enumerate(zip(scores, new["model"]["vocab"], strict=False)):
            if list(was) != list(now):
                return f"piece {place} was {was}, is {now}"
    if "merges" not in old["model"]:
        return None
    before, after = merge_pairs(old), merge_pairs(new)
    if after[: len(before)] != before:
        place = next(n for n, pair in enumerate(before) if after[n : n + 1] != [pair])
        return f"merge {place} was {before[place]}: new ones may only follow the old"
    again = repeated(before, after[len(before) :])
    return again and f"the merge {again} is there twice, and only its last place counts"


def _pattern_difference(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """None if text is split as by the base, or by a pattern proved to make no text longer."""
    has = _as_loaded(new)
    literal = len(new.get("added_tokens") or ()) > len(old.get("added_tokens") or ())
    if has == _as_loaded(old if literal else settle(old)):  # `insert` settles no literal tokens
        return None
    before, after = split_pattern(old), split_pattern(new)
    # The base may be a graft whose own pattern names scripts: only what is put in front counts.
    front = "" if before is None or after is None else after.removesuffix(before)
    scripts = [name for name in RELAXABLE if rf"\p{{{name}}}" in front]
    if scripts:
        relaxed = with_pattern(old, relaxed_pattern(old, scripts))
        if has == _as_loaded(settle(relaxed)):
            return None
    return "text is cut neither as the base cuts it nor by a pattern that makes no text longer"


def _as_loaded(tokenizer: dict[str, Any]) -> Any:
    """The pre-tokenizer as the library writes it, with the defaults that the file may omit."""
    empty = {"type": "BPE", "vocab": {}, "merges": []}
    steps = {"pre_tokenizer": tokenizer.get("pre_tokenizer"), "model": empty}
    written = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], **steps}))
    return steps_of(json.loads(written.to_str())["pre_tokenizer"])


def foreign_token(
    old: dict[str, Any], new: dict[str, Any], ids: range, languages: Collection[str]
) -> str | None:
    """A token that has nothing of the planned languages' scripts, in words, or None.

    Looked at are new tokens, and old ones that a new merge makes of other parts than before. Not
    checked for languages in Latin script, which may borrow letters of others.
    """
    belongs = None if shares_letters(languages) else territory(languages)
    if belongs is None:
        return None
    read = piece_reader(family(new))
    made = [token for token, number in vocabulary(new).items() if number in ids]
    if "merges" in old["model"]:
        made += [left + right for left, right in merge_pairs(new)[len(merge_pairs(old)) :]]
    strange = next((token for token in made if not belongs(read(token))), None)
    return strange and f"{strange!r} is made and holds nothing of the scripts that were planned for"


def frame_difference(base: Path, old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """How the tokens that tokenizer.json puts around texts differ from a graft's, or None."""
    split = {**old, "pre_tokenizer": new.get("pre_tokenizer")}
    whole = classes.with_start(split, read_if_there(base / tokenizer_files.TOKENIZER_CONFIG))
    kept = {**old, "post_processor": whole.get("post_processor")}
    difference = first_difference(frames(kept), frames(new))
    return difference and f"{tokenizer_files.TOKENIZER}: {difference}"


def settings_difference(
    base: Path, folder: Path, old: Mapping[str, Any], new: Mapping[str, Any]
) -> str | None:
    """How tokenizer_config.json differs from the base's or what a graft would write, or None.

    `old` and `new` are the two tokenizers: a changed split pattern may need another class.
    """
    before, after = (read_if_there(d / tokenizer_files.TOKENIZER_CONFIG) for d in (base, folder))
    relaxed = old.get("pre_tokenizer") != new.get("pre_tokenizer")
    free = {"tokenizer_class", "add_prefix_space"} if relaxed else {"tokenizer_class"}
    kept = {key: value for key, value in before.items() if key not in free}
    config = read_json(base / CONFIG)
    written = classes.tokenizer_config(before, config, new, relaxed)
    added = {key: written.get(key) for key in after if key not in before and key not in free}
    difference = first_difference(kept | added, {key: after.get(key) for key in kept | added})
    allowed = (before.get("tokenizer_class"), *_CLASSES)
    if not difference and after.get("tokenizer_class") not in allowed:
        difference = f"tokenizer_class is {after.get('tokenizer_class')!r}"
    return difference and f"{tokenizer_files.TOKENIZER_CONFIG}: {difference}"


def strange_file(base: Path, folder: Path, weights: Collection[str]) -> str | None:
    """What is wrong with a file that a graft neither writes nor copies from the base, or None.

    A copy of the base's must be the same; documents may be missing.
    """
    pieces = (base / sentence_piece.SENTENCEPIECE).is_file()
    written = _WRITTEN if pieces else _WRITTEN - {sentence_piece.SENTENCEPIECE}
    copies = [name for name in small_files.carried(base) if name not in written]
    if foreign := next(strangers(folder, {*written, *weights, *copies}), None):
        return foreign
    for name in copies:
        path = folder / name
        if not path.is_file() and _is_document(name):
            continue
        if not path.is_file() or path.read_bytes() != (base / name).read_bytes():
            return f"{name} is not the base's"
    return None


def strangers(folder: Path, known: Collection[str]) -> Iterator[str]:
    """What else lies in a graft than `known` files, documents and what a hub adds, in words.

    A program could read code, other weights, templates or vocabularies instead of what was proved.
    Links are foreign too, wherever they lead, but for those of the hub's cache to its own blobs.
    """
    home = folder.resolve()
    blobs = home.parent.parent / "blobs" if home.parent.name == "snapshots" else None
    homes = {parent.as_posix() for name in (*known, *_HUB) for parent in Path(name).parents}
    for place, folders, names in os.walk(home):
        folders.sort()
        for path in (Path(place) / name for name in sorted((*folders, *names))):
            name = path.relative_to(home).as_posix()
            if path.is_symlink() and not (
                blobs and path.is_file() and path.resolve().is_relative_to(blobs)
            ):
                yield f"{name} is a link, which has no place in a graft: put the file itself there"
            elif path.is_dir():
                if name not in homes:
                    yield f"the folder {name} has no place in a graft"
            elif not path.is_file():
                yield f"{name} is neither a file nor a folder, and has no place in a graft"
            elif name not in known and not _is_document(name):
                yield f"{name} has no place in a graft"


def special_file(folder: Path) -> str | None:
    """A pipe, socket or device in the folder, in words, or None: reading one may never end."""
    for path in sorted(folder.rglob("*")):
        if path.exists() and not path.is_file() and not path.is_dir():
            return f"{path.relative_to(folder)} is neither a file nor a folder"
    return None


def _is_document(name: str) -> bool:
    """Whether no program that loads a model reads a file of this name."""
    path = Path(name)
    if any(part.startswith(".") for part in path.parts):
        return any(path.match(pattern) for pattern in _HUB)
    return path.suffix.lower() in _DOCUMENTS or bool(_LICENSE.fullmatch(path.name))


def hash_difference(folder: Path, hashes: Mapping[str, str]) -> tuple[bool, str]:
    """Whether the folder holds what was written and nothing else that a program may read.

    The card is for people, who may edit it: that is reported, not refused.
    """
    if foreign := next(strangers(folder, {*hashes, MANIFEST, SIGNATURE}), None):
        return False, foreign
    changed = [
        name
        for name, expected in hashes.items()
        if not (folder / name).is_file() or sha256_file(folder / name) != expected
    ]
    wrong = [name for name in changed if name != CARD]
    if wrong:
        return False, f"{wrong[0]} is not the file that was written"
    edited = f", {CARD} edited since" if changed else ""
    return True, f"{len(hashes) - len(changed)} files as written{edited}"
