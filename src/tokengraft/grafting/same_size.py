"""A graft that is no larger than its base: new tokens take the ids of old ones.

`graft` makes and proves a model that grew, as always. `shrink` then moves each new row to its place
(`tokenizer.insert`), cuts the tables back to the base's size, and records in manifest and card
which ids changed their meaning. `grown` undoes that: it takes the replaced rows from the base, so
that verification and evaluation see a graft in which every old id means what it did.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tokengraft.core.errors import ModelError
from tokengraft.core.files import write_json
from tokengraft.grafting import small_files
from tokengraft.grafting.manifest import file_hashes, read_manifest
from tokengraft.model.checkpoint import INDEX, read_checkpoint, read_if_there, read_json
from tokengraft.model.embedding_tables import Tables, find_layout
from tokengraft.model.folder import CARD, CONFIG, MANIFEST
from tokengraft.model.tokenizer_files import (
    TOKENIZER,
    TOKENIZER_CONFIG,
    base_tokenizer,
    write_tokenizer_json,
)
from tokengraft.tokenizer import transformers_classes as classes
from tokengraft.tokenizer.insert import first_free_id, fold, replaced, unfold, without_entries

Table: TypeAlias = Any  # a torch tensor, (rows, width) or (rows,)


def shrink(folder: Path, base: Path, places: Sequence[int]) -> None:
    """Turn a graft that grew into one of its base's size, in place."""
    tokenizer = read_json(folder / TOKENIZER)
    layout = find_layout(read_json(base / CONFIG), read_checkpoint(base))
    first = first_free_id(tokenizer) - len(places)
    if outside := [place for place in places if place >= layout.rows]:
        raise ModelError(f"the place {outside[0]} is beyond the model's {layout.rows} rows")

    def cut(_name: str, table: Table) -> Table:
        kept = table[: layout.rows].clone()
        kept[list(places)] = table[first : first + len(places)]
        return kept

    _rewrite_tables(folder, folder, layout, cut)
    write_tokenizer_json(folder, fold(tokenizer, places))
    config = read_json(folder / TOKENIZER_CONFIG)
    write_json(folder / TOKENIZER_CONFIG, without_entries(config, places))
    for name in (CONFIG, INDEX):
        if (base / name).is_file():
            shutil.copyfile(base / name, folder / name)
    _bar(folder, {first + order: place for order, place in enumerate(places)})
    given_up = replaced(tokenizer, places)
    with (folder / CARD).open("a", encoding="utf-8") as card:
        card.write(
            f"\n## Same size\n\nThe tables have the base's {layout.rows:,} rows. Of the "
            f"{len(places):,} new tokens, {len(given_up):,} have ids that meant something else "
            f"in the base; `{MANIFEST}` lists them. Text that used one of those old tokens is now "
            "spelled in its parts and gets longer.\n"
        )
    manifest = read_json(folder / MANIFEST)
    manifest["table"]["after"] = manifest["table"]["before"]
    manifest["places"] = {"ids": list(places), "replaced": given_up}
    write_json(folder / MANIFEST, {**manifest, "files": file_hashes(folder)})


def is_same_size(folder: Path) -> bool:
    """Whether the folder is a graft whose new tokens took the ids of old ones."""
    return "places" in (read_manifest(folder) or {})


@contextlib.contextmanager
def grown(folder: Path, base: Path) -> Iterator[Path]:
    """A temporary copy of a same-size graft as it was before `shrink`.

    Weight files that are the same in both are hard links, if the file system allows. ModelError or
    TokenizerError if the folder is not what `shrink` makes.
    """
    manifest = read_manifest(folder) or {}
    places = manifest["places"]["ids"]
    old = base_tokenizer(base)
    config, checkpoint = read_json(base / CONFIG), read_checkpoint(base)
    layout, first = find_layout(config, checkpoint), first_free_id(old)
    tokenizer = unfold(read_json(folder / TOKENIZER), old, places)
    settings = classes.tokenizer_config(
        read_if_there(base / TOKENIZER_CONFIG), config, tokenizer,
        old.get("pre_tokenizer") != tokenizer.get("pre_tokenizer"),
    )  # fmt: skip
    if without_entries(settings, places) != read_json(folder / TOKENIZER_CONFIG):
        raise ModelError(f"{TOKENIZER_CONFIG} is not what a graft writes")
    if read_json(folder / CONFIG) != config:
        raise ModelError(f"{CONFIG} is not the base's")
    theirs = {table.name: _table(base / table.file, table.name) for table in layout.tables}
    after = max(layout.rows, first + len(places))

    def grow(name: str, table: Table) -> Table:
        import torch

        kept = torch.cat([table, table.new_zeros((after - layout.rows, *table.shape[1:]))])
        kept[places] = theirs[name][places]
        kept[first : first + len(places)] = table[places]
        return kept

    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / folder.name
        changed = {table.file for table in layout.tables}
        shutil.copytree(
            folder, whole, ignore=lambda _, names: changed & {*names}, copy_function=_share
        )
        _rewrite_tables(folder, whole, layout, grow)
        write_tokenizer_json(whole, tokenizer)
        write_json(whole / TOKENIZER_CONFIG, settings)
        write_json(whole / CONFIG, small_files.larger_config(config, layout.rows, after))
        moved = {place: first + order for order, place in enumerate(places)}
        _bar(whole, moved, small_files.barred_ids(base))
        table = {**manifest["table"], "after": after}
        rest = {key: value for key, value in manifest.items() if key != "places"}
        write_json(whole / MANIFEST, {**rest, "table": table, "files": file_hashes(whole)})
        yield whole


def _share(source: str, copy: str) -> None:
    """Hard-link weights, which are never written to again; copy the rest."""
    with contextlib.suppress(OSError):  # another file system, or one without links
        if source.endswith(".safetensors"):
            return os.link(os.path.realpath(source), copy)
    shutil.copy2(source, copy)
    return None


def _rewrite_tables(
    source: Path, folder: Path, layout: Tables, change: Callable[[str, Table], Table]
) -> None:
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    for file in sorted({table.file for table in layout.tables}):
        path = folder / file
        tensors = load_file(source / file)
        with safe_open(source / file, "pt") as opened:
            metadata = opened.metadata()
        for table in layout.tables:
            if table.name in tensors:
                tensors[table.name] = change(table.name, tensors[table.name]).contiguous()
        mode = (source / file).stat().st_mode
        save_file(tensors, path, metadata)
        path.chmod(mode)  # save_file lets only the owner read it


def _table(path: Path, name: str) -> Table:
    from safetensors import safe_open

    with safe_open(path, "pt") as opened:
        return opened.get_tensor(name)


def _bar(folder: Path, moved: Mapping[int, int], besides: Iterable[int] = ()) -> None:
    """Replace barred ids by those they `moved` to; `besides` are barred too."""
    settings = read_if_there(folder / small_files.GENERATION)
    if barred := settings.get("suppress_tokens"):
        settings["suppress_tokens"] = sorted({*(moved.get(i, i) for i in barred), *besides})
        write_json(folder / small_files.GENERATION, settings)
