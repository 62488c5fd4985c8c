"""Each invariant broken on purpose, one at a time, and seen by its own check."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from helpers.tiny_models import END, copy, edit, make, new_rows, plan, texts, tokenizer_json
from tokengraft.core.errors import ModelError
from tokengraft.corpus import udhr
from tokengraft.deriving.derive import Derived
from tokengraft.grafting.graft import Finishing, Output, graft
from tokengraft.grafting.manifest import read_manifest
from tokengraft.grafting.verify.invariants import Check, Report, check_lines, verify
from tokengraft.grafting.verify.small_files import insertion_difference
from tokengraft.grafting.verify.tokens import wrong_first_part
from tokengraft.model.checkpoint import read_checkpoint
from tokengraft.model.tokenizer_files import around
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Planning, with_plan
from tokengraft.planning.protect import insert_proved, protected_text
from tokengraft.tokenizer.catalog import as_json, find
from tokengraft.tokenizer.convert import from_sentencepiece, from_wordpiece
from tokengraft.tokenizer.insert import first_free_id, merge_pairs
from tokengraft.tokenizer.pre_tokenizer import GPT2
from tokengraft.tokenizer.sources import bundled

OLD = 320
ROWS = 384  # 40 padding rows stay behind the new ones
EMBED = "model.embed_tokens.weight"
LINES = [line for lines in texts().values() for line in lines]
SHAN = udhr.load(["shn"]).lines("shn_Mymr")[:20]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("verify") / "base", "llama-untied", rows=ROWS)


@pytest.fixture(scope="module")
def sound(base: Path) -> Path:
    done = graft(
        base,
        plan(),
        base.parent / "sound",
        rows=Derived(new_rows(), "random"),
        options=Finishing(check=LINES),
    )
    assert done.report is not None
    assert [check.name for check in done.report.checks] == [
        "old weights", "round trip", "untouched text", "no dead rows", "preserved", "loads",
        "output policy", "manifest",
    ]  # fmt: skip
    return done.folder


def failures(report: Report) -> set[str]:
    return {check.name for check in report.checks if not check.passed}


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(folder: Path, name: str, row: int = 0) -> None:
    """Change one byte of a tensor's row."""
    checkpoint = read_checkpoint(folder)
    tensor = checkpoint.tensors[name]
    shard = checkpoint.shard_of(tensor)
    raw = bytearray(shard.path.read_bytes())
    raw[shard.start + tensor.begin + row * tensor.row_bytes] ^= 1
    shard.path.write_bytes(raw)


def zero(folder: Path, row: int) -> None:
    checkpoint = read_checkpoint(folder)
    tensor = checkpoint.tensors[EMBED]
    path = checkpoint.shard_of(tensor).path
    raw = bytearray(path.read_bytes())
    at = checkpoint.shards[0].start + tensor.begin + row * tensor.row_bytes
    raw[at : at + tensor.row_bytes] = bytes(tensor.row_bytes)
    path.write_bytes(raw)


def in_tokenizer(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "tokenizer.json", change)


def in_file(name: str, **values: Any) -> Callable[[Path], None]:
    return lambda folder: edit(folder / name, lambda value: {**value, **values})


def lose_old_merge(value: dict[str, Any]) -> None:
    del value["model"]["merges"][0]


def swap_ids(value: dict[str, Any]) -> None:
    vocab = value["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]


def lose_new_merge(value: dict[str, Any]) -> None:
    del value["model"]["merges"][-1]


def break_decoder(value: dict[str, Any]) -> None:
    value["decoder"] = {"type": "Fuse"}


def tensors(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Change the tensors of the only weight file, by name."""

    def damage(folder: Path) -> None:
        path = folder / "model.safetensors"
        value = load_file(path)
        change(value)
        save_file({k: v.contiguous() for k, v in value.items()}, path, {"format": "pt"})

    return damage


def cut(rows: int) -> Callable[[dict[str, Any]], None]:
    return lambda value: value.update({EMBED: value[EMBED][:rows]})


def enlarge(name: str, row: int) -> Callable[[Path], None]:
    return tensors(lambda value: value[name][row].fill_(1e4))


def more_rows(folder: Path) -> None:
    """Ten rows that no token has, in both tables and in the config."""
    import torch

    def longer(value: dict[str, Any]) -> None:
        for name in (EMBED, "lm_head.weight"):
            value[name] = torch.cat([value[name], value[name][:10]])

    tensors(longer)(folder)
    in_file("config.json", vocab_size=ROWS + 10)(folder)


def flip_special(value: dict[str, Any]) -> None:
    for token in value["added_tokens"]:
        token["special"] = not token["special"]


def add_special(value: dict[str, Any]) -> None:
    value["added_tokens"].append({**value["added_tokens"][0], "id": 5, "content": "evil"})


def limit_length(value: dict[str, Any]) -> None:
    value["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst",
                           "stride": 0}  # fmt: skip


def added(name: str, text: str = "{}") -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


def unsigned(damage: Callable[[Path], Any]) -> Callable[[Path], None]:
    """The same damage in a folder that has lost its manifest, and so its hashes."""

    def both(folder: Path) -> None:
        (folder / "tokengraft.json").unlink()
        damage(folder)

    return both


def added_in(place: str, name: str) -> Callable[[Path], None]:
    def add(folder: Path) -> None:
        (folder / place).mkdir(parents=True)
        (folder / place / name).write_text("x")

    return add


def empty_template(value: dict[str, Any]) -> None:
    """Names a token that it does not define: the library panics."""
    first = [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    value["post_processor"] = {"type": "TemplateProcessing", "single": first, "pair": first,
                               "special_tokens": {}}  # fmt: skip


def swap_merges(value: dict[str, Any]) -> None:
    """Two old merges in the other order: no line of the check text shows it."""
    merges = value["model"]["merges"]
    merges[3], merges[4] = merges[4], merges[3]


def make_the_old_anew(value: dict[str, Any]) -> None:
    """A last merge that makes an English token of other parts: no new id, and English changes."""
    known, merges = value["model"]["vocab"], merge_pairs(value)
    halves = ((token[:n], token[n:]) for token in known for n in range(1, len(token)))
    anew = next(
        (a, b)
        for a, b in halves
        if a in known and b in known and (a, b) not in merges and (a + b).isascii()
    )
    value["model"]["merges"] = [list(pair) for pair in (*merges, anew)]


def add_english(value: dict[str, Any]) -> None:
    """A new token that is made of English letters alone."""
    value["model"]["vocab"]["qz"] = OLD + 24
    value["model"]["merges"] = [list(pair) for pair in (*merge_pairs(value), ("q", "z"))]


def cut_otherwise(value: dict[str, Any]) -> None:
    """A pattern that cuts runs of `q`, which no line contains."""
    pattern = GPT2.replace(r"| ?\p{L}+", r"|q(?=q)| ?\p{L}+", 1)
    cut = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    bare = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    steps = [cut, {**bare, "use_regex": False}]
    value["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}


def bar(ids: list[int]) -> Callable[[Path], None]:
    return in_file("generation_config.json", suppress_tokens=ids)


BREAKS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "1 another tensor": ("old weights", lambda d: flip(d, "model.norm.weight")),
    "1 an old row": ("old weights", lambda d: flip(d, EMBED, OLD - 1)),
    "1 an old row of the head": ("old weights", lambda d: flip(d, "lm_head.weight", 5)),
    "2 a line is longer": ("round trip", in_tokenizer(lose_old_merge)),
    "2 text comes back changed": ("round trip", in_tokenizer(break_decoder)),
    "3 an old id moved": ("untouched text", in_tokenizer(swap_ids)),
    "4 a token is never emitted": ("no dead rows", in_tokenizer(lose_new_merge)),
    "4 a row is empty": ("no dead rows", lambda d: zero(d, OLD + 3)),
    "5 tying": ("preserved", in_file("config.json", tie_word_embeddings=True)),
    "5 a special id": ("preserved", in_file("config.json", eos_token_id=7)),
    "5 chat template": ("preserved", in_file("tokenizer_config.json", chat_template="{{ 1 }}")),
    "5 a padding row": ("preserved", lambda d: flip(d, EMBED, ROWS - 1)),
    "6 code of its own": (
        "loads",
        in_file("tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Tokenizer", None]}),
    ),
    "6 an unknown model": ("loads", in_file("config.json", model_type="llamma")),
    "output": ("output policy", in_file("generation_config.json", suppress_tokens=None)),
    "output: one too many": ("output policy", bar([0, *range(OLD, OLD + 24)])),
    "output: a part of them": ("output policy", unsigned(bar([OLD]))),
    "weights: no table": ("old weights", tensors(lambda value: value.pop(EMBED))),
    "weights: old rows cut": ("old weights", tensors(cut(OLD - 20))),
    "weights: one too many": (
        "old weights",
        unsigned(tensors(lambda value: value.update(x=value["model.norm.weight"].clone()))),
    ),
    "weights: another type": (
        "old weights",
        unsigned(tensors(lambda v: v.update({"model.norm.weight": v["model.norm.weight"].half()}))),
    ),
    "rows: more than there are ids": ("preserved", unsigned(more_rows)),
    "rows: no table": ("no dead rows", tensors(lambda value: value.pop(EMBED))),
    "rows: cut before the new ones": ("no dead rows", tensors(cut(OLD - 20))),
    "rows: cut among the new ones": ("no dead rows", tensors(cut(OLD + 5))),
    "weights: truncated": ("old weights", lambda d: truncate(d / "model.safetensors")),
    "rows: one far too long": ("no dead rows", unsigned(enlarge(EMBED, OLD + 2))),
    "rows: one of the head": ("no dead rows", unsigned(enlarge("lm_head.weight", OLD + 2))),
    "text: no tokenizer": ("round trip", lambda d: (d / "tokenizer.json").unlink()),
    "text: an empty tokenizer": ("round trip", in_tokenizer(lambda value: value.clear())),
    "loads: no config": ("loads", lambda d: (d / "config.json").unlink()),
    "signed: no policy": ("output policy", in_file("tokengraft.json", output={})),
    "signed: other ids": (
        "output policy",
        lambda d: edit(
            d / "tokengraft.json", lambda v: v["output"].update(new=[OLD + 1, OLD + 25])
        ),
    ),
    "signed: another schema": ("manifest", in_file("tokengraft.json", schema=9)),
    "signed: languages that are no words": ("manifest", in_file("tokengraft.json", languages=[1])),
    "signed: no files": ("manifest", in_file("tokengraft.json", files={})),
    "signed: no JSON": ("manifest", added("tokengraft.json", "{")),
    "signed: weights beside": ("manifest", added("pytorch_model.bin")),
    "signed: stale vocabulary": ("manifest", added("merges.txt")),
    "files: code": ("preserved", unsigned(added("modeling_x.py", "raise SystemExit"))),
    "files: pickled weights": ("preserved", unsigned(added("pytorch_model.bin"))),
    "files: stale vocabulary": ("preserved", unsigned(added("vocab.json"))),
    "files: stale merges": ("preserved", unsigned(added("merges.txt"))),
    "files: more tokens": ("preserved", unsigned(added("added_tokens.json", '{"<evil>": 344}'))),
    "files: a template": ("preserved", unsigned(added("chat_template.jinja", "{{ 1 }}"))),
    "settings: special flags": ("preserved", unsigned(in_tokenizer(flip_special))),
    "settings: a special token": ("preserved", unsigned(in_tokenizer(add_special))),
    "settings: no special token": (
        "preserved",
        unsigned(in_tokenizer(lambda value: value["added_tokens"].clear())),
    ),
    "settings: truncation": ("preserved", unsigned(in_tokenizer(limit_length))),
    "settings: a template of nothing": ("preserved", unsigned(in_tokenizer(empty_template))),
    "cuts: a pattern of its own": ("preserved", unsigned(in_tokenizer(cut_otherwise))),
    "merges: an old token anew": ("preserved", in_tokenizer(make_the_old_anew)),
    "tokens: of another script": ("preserved", in_tokenizer(add_english)),
    "merges: another order": ("preserved", unsigned(in_tokenizer(swap_merges))),
    "settings: sides": (
        "preserved",
        unsigned(in_file("tokenizer_config.json", padding_side="left")),
    ),
    "settings: length": (
        "preserved",
        unsigned(in_file("tokenizer_config.json", model_max_length=7)),
    ),
    "settings: generation": (
        "preserved",
        unsigned(in_file("generation_config.json", temperature=9.0)),
    ),
    "settings: barred ids keep their share of beam scores": (
        "preserved",
        unsigned(in_file("generation_config.json", renormalize_logits=False)),
    ),
    "settings: a generation config that transformers may ignore": (
        "preserved",
        unsigned(in_file("generation_config.json", _from_model_config=True)),
    ),
}


@pytest.mark.parametrize("what", BREAKS)
def test_a_broken_invariant_is_caught(what: str, base: Path, sound: Path, tmp_path: Path) -> None:
    name, damage = BREAKS[what]
    folder = copy(sound, tmp_path / "broken")
    damage(folder)
    report = verify(folder, base, LINES)
    assert not report.passed
    assert name in failures(report), report.lines()
    number = what[0]
    if number == "1":
        assert failures(report) == {name, "manifest"}
    if number in "2345":
        assert "old weights" not in failures(report)


def start_with_end(value: dict[str, Any]) -> dict[str, Any]:
    """The end token before every text, as Llama has its BOS."""
    special = {"SpecialToken": {"id": END, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    known = {END: {"id": END, "ids": [0], "tokens": [END]}}
    post = {"type": "TemplateProcessing", "single": [special, first],
            "pair": [special, first, special, second], "special_tokens": known}  # fmt: skip
    return {**value, "post_processor": post}


@pytest.fixture(scope="module")
def framed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    base = make(tmp_path_factory.mktemp("framed") / "base", "llama-tied")
    edit(base / "tokenizer.json", start_with_end)
    given = {code: lines for code, lines in texts().items() if code != "eng_Latn"}
    parsed = json.loads((base / "tokenizer.json").read_text(encoding="utf-8"))
    chosen = plan_tokens(parsed, given, Planning(budget=24))
    rows = Derived(new_rows()[: len(chosen.tokens)], "random")
    return base, graft(
        base, chosen, base.parent / "sound", rows=rows, options=Finishing(check=LINES)
    ).folder


@pytest.mark.parametrize("key", ["single", "pair"])
@pytest.mark.parametrize("tokenizer_class", ["PreTrainedTokenizerFast", "no such class"])
def test_a_start_token_moved_behind_the_text_is_caught(
    key: str, tokenizer_class: str, framed: tuple[Path, Path], tmp_path: Path
) -> None:
    """By what transformers gives, and by the file alone where the base's class does not load."""
    base, folder = (copy(one, tmp_path / one.name) for one in framed)
    edit(base / "tokenizer_config.json", lambda v: {**v, "tokenizer_class": tokenizer_class})
    (folder / "tokengraft.json").unlink()

    def turn(value: dict[str, Any]) -> None:
        value["post_processor"][key].reverse()

    edit(folder / "tokenizer.json", turn)
    (found,) = [c for c in verify(folder, base, LINES).checks if c.name == "preserved"]
    assert not found.passed
    assert ("around a text" if key == "single" else "around two texts") in found.detail


def test_around_finds_what_stands_before_between_and_behind() -> None:
    assert around([1, 5, 6, 2], [5, 6]) == [[1], [2]]
    assert around([1, 5, 2, 5, 3], [5], [5]) == [[1], [2], [3]]
    assert around([5], [5]) == [[], []]
    assert around([1, 2], [5]) == around([1, 2], []) == [[1, 2]]


@pytest.fixture(scope="module")
def pooled(base: Path) -> Path:
    made = graft(
        base,
        plan(),
        base.parent / "pooled",
        rows=Derived(new_rows(), "random"),
        options=Finishing(check=LINES),
        output=Output(policy="paper.winner-takes-all"),
    )
    assert made.report is not None
    assert made.report.passed
    return made.folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first_parts": [5] * 24}, "not 5"),
        ({"first_parts": [10**6, *(t.parts[0] for t in plan().tokens[1:])]}, "384 rows"),
        ({"first_parts": [*(t.parts[0] for t in plan().tokens[:-1]), -1]}, "384 rows"),
        ({"bias": float("nan")}, "output is damaged"),
    ],
    ids=["another part", "no such row", "below all rows", "no bias"],
)
def test_a_pool_of_other_parts_is_caught(
    change: dict[str, Any], message: str, base: Path, pooled: Path, tmp_path: Path
) -> None:
    folder = copy(pooled, tmp_path / "broken")
    edit(folder / "tokengraft.json", lambda v: {**v, "output": {**v["output"], **change}})
    (found,) = [c for c in verify(folder, base, LINES).checks if c.name == "output policy"]
    assert not found.passed
    assert message in found.detail


def test_false_first_parts_are_caught_under_every_policy(
    base: Path, sound: Path, tmp_path: Path
) -> None:
    folder = copy(sound, tmp_path / "broken")
    edit(folder / "tokengraft.json", lambda v: v["output"].update(first_parts=[65] * 24))
    assert "output policy" in failures(verify(folder, base, LINES))


FAMILIES: dict[str, Callable[[], dict[str, Any]]] = {
    "byte-level": lambda: json.loads(tokenizer_json()),
    "byte fallback": lambda: from_sentencepiece(bundled("mistral-v0.3").read("tokenizer.model")),
    "unigram": lambda: as_json(find("t5")),
    "wordpiece": lambda: from_wordpiece(
        bundled("bert-multilingual").read("vocab.txt").decode().splitlines()
    ),
}


@pytest.mark.parametrize("mode", ["merges", "paper"])
@pytest.mark.parametrize("name", FAMILIES)
def test_first_parts_are_found_again_in_the_tokenizers(name: str, mode: Any) -> None:
    old = FAMILIES[name]()
    options = Planning(None if mode == "paper" else 30, mode, "keep")
    chosen = plan_tokens(old, {"shn_Mymr": SHAN}, options)
    given = [token.parts[0] for token in chosen.tokens]
    new, rows = with_plan(old, chosen), first_free_id(old)
    ids = range(rows, first_free_id(new))
    assert given
    assert wrong_first_part(old, new, ids, rows, given) is None
    assert insertion_difference(old, new, ids) is None
    for place in (0, len(given) - 1):
        wrong = [*given]
        wrong[place] += 1
        assert f"token {rows + place}" in (wrong_first_part(old, new, ids, rows, wrong) or "")


def test_words_that_are_looked_up_whole_have_first_parts_too() -> None:
    old = json.loads(tokenizer_json())
    old["model"]["ignore_merges"] = True
    text = {"swh_Latn": udhr.load(["swh"]).lines("swh_Latn")}
    chosen = plan_tokens(old, text, Planning(60), protect=protected_text(["fra"], False))
    new, rows = insert_proved(old, chosen, "tiny"), first_free_id(old)
    made = {left + right for left, right in chosen.merges}
    words = [place for place, token in enumerate(chosen.tokens) if token.token not in made]
    given, ids = [token.parts[0] for token in chosen.tokens], range(rows, first_free_id(new))
    assert words
    assert wrong_first_part(old, new, ids, rows, given) is None
    wrong = [*given]
    wrong[words[0]] += 1
    assert f"token {rows + words[0]}" in (wrong_first_part(old, new, ids, rows, wrong) or "")


def test_an_old_id_keeps_its_place_even_where_no_text_shows_it(
    base: Path, sound: Path, tmp_path: Path
) -> None:
    folder = copy(sound, tmp_path / "broken")
    in_tokenizer(swap_ids)(folder)
    report = verify(folder, base, ["123"])
    assert "untouched text" in failures(report)


def test_the_table_never_shrinks(base: Path, sound: Path, tmp_path: Path) -> None:
    """The grafted table against a base with more rows."""
    larger = make(tmp_path / "larger", "llama-untied", rows=ROWS + 16)
    report = verify(sound, larger, LINES)
    preserved = next(check for check in report.checks if check.name == "preserved")
    assert "shrank" in preserved.detail or "vocab_size" in preserved.detail


def test_a_changed_file_is_caught(base: Path, sound: Path, tmp_path: Path) -> None:
    folder = copy(sound, tmp_path / "broken")
    (folder / "LICENSE").write_text("another")
    report = verify(folder, base, LINES)
    assert failures(report) == {"preserved", "manifest"}


def test_documents_and_what_hubs_write_may_be_added_and_the_card_edited(
    base: Path, sound: Path, tmp_path: Path
) -> None:
    folder = copy(sound, tmp_path / "shared")
    for name in (".gitattributes", ".cache/huggingface/download/x.metadata", "curve.png", "NOTICE"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    (folder / "README.md").write_text("mine")
    report = verify(folder, base, LINES)
    assert report.passed, report.lines()
    assert report.checks[-1].detail.endswith("files as written, README.md edited since")


def link(name: str, target: str, *more: str) -> Callable[[Path], None]:
    """`name` becomes a link to `target`; `more` is the name of a file to write, and its text."""

    def make_link(folder: Path) -> None:
        for file, text in zip(more[::2], more[1::2], strict=True):
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(text)
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return make_link


def pipe(name: str) -> Callable[[Path], None]:
    """A pipe instead of the file: whoever opens it waits for ever."""

    def replace_it(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return replace_it


FOREIGN: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a link to a hidden template": (
        "additional_chat_templates is a link",
        link("additional_chat_templates", "z", "z/default.jinja", "{{ 1 }}"),
    ),
    "a link to a file within": ("LICENSE is a link", link("LICENSE", "README.md")),
    "a broken link": ("adapter_config.json", link("adapter_config.json", "nothing")),
    "a hidden folder": ("the folder .git has", added_in(".git", "config")),
    "a hidden file": (".env has no place", added(".env")),
    "a cache of code": ("x.py has no place", added_in(".cache/huggingface/download", "x.py")),
    "a template folder": (
        "the folder additional_chat_templates",
        added_in("additional_chat_templates", "x.jinja"),
    ),
    "a pipe": ("x.json is neither a file", lambda folder: os.mkfifo(folder / "x.json")),
    "a pipe for a config": ("config.json is neither", pipe("config.json")),
    "a pipe for a tokenizer": ("tokenizer.json is neither", pipe("tokenizer.json")),
    "what ollama reads": ("Modelfile has no place", added("Modelfile", "FROM elsewhere")),
    "an empty folder": ("the folder sub has", lambda folder: (folder / "sub").mkdir()),
    "weights in a subfolder": ("the folder sub has", added_in("sub", "model.safetensors")),
    "a variant": ("model.fp16.safetensors has", added("model.fp16.safetensors")),
    "other weights": ("tf_model.h5 has no place", added("tf_model.h5")),
    "an adapter": ("adapter_config.json", added("adapter_config.json")),
    "an index": (
        "holds both",
        added("model.safetensors.index.json", '{"weight_map": {"a": "model.safetensors"}}'),
    ),
    "a text": ("prompt.txt has no place", added("prompt.txt")),
    "pieces that the base lacks": ("tokenizer.model has no place", added("tokenizer.model")),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_foreign_file_is_named(what: str, base: Path, sound: Path, tmp_path: Path) -> None:
    message, damage = FOREIGN[what]
    folder = copy(sound, tmp_path / "broken")
    unsigned(damage)(folder)
    (found,) = [c for c in verify(folder, base, ["hello"]).checks if c.name == "preserved"]
    assert not found.passed and message in found.detail


@pytest.mark.parametrize("ids", [[OLD + 0.5], [float(OLD)], ["320"], [True], "320", {"320": 1}])
def test_barred_ids_are_integers_or_bar_nothing(
    ids: Any, base: Path, sound: Path, tmp_path: Path
) -> None:
    """transformers bars none of these, without a word; all others stay barred here."""
    folder = copy(sound, tmp_path / "broken")
    rest = [*range(OLD + 1, OLD + 24)]
    unsigned(bar([*ids, *rest] if isinstance(ids, list) else ids))(folder)
    (found,) = [c for c in verify(folder, base, ["hello"]).checks if c.name == "output policy"]
    assert not found.passed and "is not a list of ids" in found.detail


def test_what_can_still_be_checked_is(base: Path, sound: Path, tmp_path: Path) -> None:
    """Damage to one part leaves the checks of the others standing."""
    folder = copy(sound, tmp_path / "broken")
    (folder / "tokenizer.json").write_text("{}")
    report = verify(folder, base, LINES)
    assert "old weights" not in failures(report)
    assert all(check.detail for check in report.checks)
    folder = copy(sound, tmp_path / "headless")
    tensors(lambda value: value.pop(EMBED))(folder)
    headless = failures(verify(folder, base, LINES))
    assert "loads" in headless and not headless & {"round trip", "untouched text"}


def test_no_such_folder(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no folder .*grafted"):
        verify(tmp_path / "grafted", base, LINES)


def test_without_a_manifest_an_open_policy_is_called_unknown(
    base: Path, sound: Path, tmp_path: Path
) -> None:
    folder = copy(sound, tmp_path / "plain")
    unsigned(bar([]))(folder)
    output = verify(folder, base, LINES).checks[-1]
    assert output.name == "output policy"
    assert output.detail.startswith("not checked: without tokengraft.json the policy is unknown")


@pytest.mark.parametrize(
    ("barred", "message"),
    [(in_file("generation_config.json", suppress_tokens=None), "does not bar 24 ids, first 320"),
     (unsigned(bar([OLD])), "1 of 24 new ids are barred: no policy does so")],
)  # fmt: skip
def test_what_is_barred_is_said(
    barred: Callable[[Path], None], message: str, base: Path, sound: Path, tmp_path: Path
) -> None:
    folder = copy(sound, tmp_path / "broken")
    barred(folder)
    (output,) = [c for c in verify(folder, base, LINES).checks if c.name == "output policy"]
    assert not output.passed and message in output.detail


def test_the_base_itself_is_no_graft(base: Path) -> None:
    (dead,) = [c for c in verify(base, base, LINES).checks if c.name == "no dead rows"]
    assert not dead.passed and "this is no graft" in dead.detail


SIGNED: dict[str, tuple[str, dict[str, Any]]] = {
    "no output": ("output", {"output": []}),
    "no such policy": ("output", {"policy": "none"}),
    "a bias in words": ("output", {"bias": "1"}),
    "ids in words": ("output", {"barred": ["1"]}),
    "three ends": ("output", {"new": [OLD, OLD + 24, 1]}),
    "a part too few": ("output", {"first_parts": [65] * 23}),
    "files in a list": ("files", {"files": ["config.json"]}),
    "trained: a list": ("trained", {"trained": []}),
    "trained: numbers": (
        "trained",
        {"trained": {"tensors": [1], "promised": {"kl": 1.0, "top1": 0.9}}},
    ),
    "trained: no promise": ("trained", {"trained": {"tensors": [], "promised": None}}),
    "trained: half of it": ("trained", {"trained": {"tensors": [], "promised": {"kl": 1.0}}}),
    "trained: in words": (
        "trained",
        {"trained": {"tensors": [], "promised": {"kl": "1", "top1": 0.9}}},
    ),
    "places: a list": ("places", {"places": []}),
    "places: in words": ("places", {"places": {"ids": ["1"] * 24, "replaced": {}}}),
    "places: one too few": ("places", {"places": {"ids": [1] * 23, "replaced": {}}}),
    "places: for nothing": ("places", {"places": {"ids": [1] * 24, "replaced": []}}),
}


@pytest.mark.parametrize("what", SIGNED)
def test_a_damaged_manifest_is_an_error(what: str, sound: Path, tmp_path: Path) -> None:
    part, change = SIGNED[what]
    manifest = json.loads((sound / "tokengraft.json").read_text())
    inner = part == "output" and part not in change
    manifest |= {"output": manifest["output"] | change} if inner else change
    (tmp_path / "tokengraft.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match="names no files" if part == "files" else f"{part} is dam"):
        read_manifest(tmp_path)


def test_a_folder_without_a_manifest_can_be_verified(
    base: Path, sound: Path, tmp_path: Path
) -> None:
    folder = copy(sound, tmp_path / "plain")
    (folder / "tokengraft.json").unlink()
    report = verify(folder, base, LINES)
    assert report.passed
    assert len(report.checks) == 7
    assert "input-only (taken from what is barred" in report.checks[-1].detail


def test_every_new_token_is_proved_even_on_little_text(base: Path, sound: Path) -> None:
    def dead() -> Check:
        checks = verify(sound, base, ["hello"]).checks
        return next(check for check in checks if check.name == "no dead rows")

    # The manifest keeps a word for each token; without it text is built around the token.
    assert dead().passed and "24 emitted on the check text" in dead().detail
    path = sound / "tokengraft.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "examples": []}))
    assert dead().passed and "0 emitted on the check text" in dead().detail


def test_default_lines_are_in_the_planned_scripts_and_in_english() -> None:
    lines = check_lines(["amh_Ethi"])
    assert any("ሰው" in line for line in lines)
    assert any("human" in line for line in lines)


def test_the_report_is_readable(base: Path, sound: Path) -> None:
    for line in verify(sound, base, LINES).lines():
        assert line.startswith("ok  ")
    assert json.loads((sound / "tokengraft.json").read_text())["output"]["new"] == [OLD, OLD + 24]
