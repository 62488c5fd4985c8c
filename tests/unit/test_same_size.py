"""New tokens in the places of old ones: nothing grows, and what is promised about text holds."""

from __future__ import annotations

import functools
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from helpers.tiny_models import make, new_rows, plan, texts, tokenizer_json, torch
from tokengraft.core.errors import TokengraftError, TokenizerError, UsageError
from tokengraft.corpus import udhr
from tokengraft.grafting.graft import Finishing, Output, graft
from tokengraft.grafting.verify.invariants import verify
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Plan, Planning, folded, with_plan
from tokengraft.planning.plan_files import insert_plan
from tokengraft.planning.protect import insert_proved, sample
from tokengraft.tokenizer.catalog import as_json, find
from tokengraft.tokenizer.insert import Additions, first_free_id, fold, retirable, unfold
from tokengraft.tokenizer.insert import insert as append

BASE = json.loads(tokenizer_json())


def ids(tokenizer: dict[str, Any] | Tokenizer, text: str) -> list[int]:
    if isinstance(tokenizer, dict):
        tokenizer = Tokenizer.from_str(json.dumps(tokenizer))
    return tokenizer.encode(text, add_special_tokens=False).ids


def by_hand() -> dict[str, Any]:
    """Merges ab, abc, bc over the bytes: abc and bc are leaves, ab is not."""
    tokenizer = json.loads(tokenizer_json())
    vocab = {t: i for t, i in tokenizer["model"]["vocab"].items() if i <= 256}
    merges = [["a", "b"], ["ab", "c"], ["b", "c"]]
    vocab |= {left + right: 257 + n for n, (left, right) in enumerate(merges)}
    reserved = {"id": 260, "content": "<|reserved_special_token_0|>", "special": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [*tokenizer["added_tokens"], {**flags, **reserved}]
    model = {**tokenizer["model"], "vocab": vocab, "merges": merges}
    return {**tokenizer, "model": model, "added_tokens": added}


def test_an_example_by_hand() -> None:
    base = by_hand()
    may_go = {260: "<|reserved_special_token_0|>", 259: "bc", 258: "abc"}
    assert list(retirable(base).items()) == list(may_go.items())
    grown = append(base, Additions(((261, "xy"), (262, "xyz")), (("x", "y"), ("xy", "z"))))
    small = fold(grown, [260, 259])
    x, b, c = (base["model"]["vocab"][letter] for letter in "xbc")
    assert ids(small, "abc xyz") == ids(base, "abc") + ids(base, " ") + [259]
    assert ids(small, "xy bc x") == [260, *ids(base, " "), b, c, *ids(base, " "), x]
    assert first_free_id(small) == first_free_id(base)
    assert unfold(small, base, [260, 259]) == grown
    for places in ([257, 259], [259, 259], [259, 0], [259, 300]):
        with pytest.raises(TokenizerError, match=r"cannot take id|given twice"):
            fold(grown, places)


@functools.cache
def swahili() -> tuple[dict[str, Any], Plan, list[Tokenizer]]:
    """GPT-2, a plan, and the tokenizers before, grown and of the same size."""
    base = as_json(find("gpt2"))
    lines = udhr.load(["swh"]).lines("swh_Latn")
    chosen = plan_tokens(base, {"swh_Latn": lines}, Planning(budget=150, same_size=True))
    grown = with_plan(base, chosen)
    made = (base, grown, folded(grown, chosen))
    return base, chosen, [Tokenizer.from_str(json.dumps(one)) for one in made]


WORDS = st.sampled_from([*"abcdefgh ", " the", " watu", "ing", " haki", "ಠ", "\n", "zz", " Foo"])


@given(text=st.one_of(st.text(max_size=40), st.lists(WORDS).map("".join)))
@settings(max_examples=200, deadline=None)
def test_text_without_a_token_that_went_has_the_tokens_it_would_have_had(text: str) -> None:
    _, chosen, (base, grown, small) = swahili()
    first, places = chosen.tokens[0].id, chosen.places or ()
    if not set(ids(grown, text)) & set(places):
        expected = [places[i - first] if i >= first else i for i in ids(grown, text)]
        assert ids(small, text) == expected
    assert small.decode(ids(small, text)) == base.decode(ids(base, text))


def test_a_plan_of_the_same_size_keeps_what_it_promises(tmp_path: Path) -> None:
    parsed, chosen, (base, _, small) = swahili()
    assert chosen.places is not None and len(chosen.places) == len(chosen.tokens) == 150
    assert any(note.startswith("same size: 150 new tokens take") for note in chosen.notes)
    assert small.get_vocab_size() == base.get_vocab_size()
    corpus = udhr.load()
    for line in (line for code in corpus.languages[::9] for line in corpus.lines(code)):
        assert len(ids(small, line)) <= len(ids(base, line))
    assert all(ids(small, line) == ids(base, line) for line in sample()[::20])
    assert {*ids(small, "Watu wote wamezaliwa huru")} & {*chosen.places}
    assert Plan.from_json(json.loads(json.dumps(chosen.to_json()))) == chosen
    chosen.write(tmp_path / "plan.json")
    insert_plan("gpt2", tmp_path / "plan.json", tmp_path / "out")
    facts = json.loads((tmp_path / "out" / "tokengraft_insert.json").read_text())
    assert list(map(int, facts["replaced"])) == list(chosen.places)
    transformers = pytest.importorskip("transformers")
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert len(loaded) == first_free_id(parsed)
    assert loaded("haki za watu")["input_ids"] == ids(small, "haki za watu")


def test_places_that_were_edited_are_refused() -> None:
    base, chosen, _ = swahili()
    english = ids(base, " government")
    with pytest.raises(TokenizerError, match=r"cannot take id|protected"):
        insert_proved(base, replace(chosen, places=(*english, *(chosen.places or ())[1:])))
    data = json.loads(json.dumps(replace(chosen, places=(5,)).to_json()))
    with pytest.raises(TokengraftError, match="places"):
        Plan.from_json(data)


def test_too_few_places_and_other_families_are_told() -> None:
    given = {"tam_Taml": texts()["tam_Taml"]}
    with pytest.raises(UsageError, match="as many places, but there are"):
        plan_tokens(BASE, given, Planning(budget=200, same_size=True))
    free = plan_tokens(BASE, given, Planning(budget=20, same_size=True, rows=340))
    assert free.places == tuple(range(320, 340))
    with pytest.raises(UsageError, match="BPE"):
        plan_tokens(as_json(find("t5")), given, Planning(same_size=True))


@pytest.mark.parametrize("case", ["llama-tied", "phi-biased"])
def test_a_graft_of_the_same_size_is_verified_and_damage_is_seen(case: str, tmp_path: Path) -> None:
    base = make(tmp_path / "base", case)
    lines = [line for code, held in texts().items() if code != "eng_Latn" for line in held]
    grown = with_plan(BASE, plan())
    one = Tokenizer.from_str(json.dumps(BASE))
    used = {i for line in lines for i in ids(one, line)}
    places = tuple(i for i in retirable(grown) if i not in used and i < 320)[: len(plan().tokens)]
    steps = replace(plan(), tokens=plan().tokens[: len(places)], places=places)
    steps = replace(steps, merges=tuple(m for m in plan().merges if "".join(m) in made(steps)))
    rows, out = new_rows()[: len(places)], tmp_path / "out"
    with pytest.raises(UsageError, match="same size"):
        graft(base, steps, out, rows, output=Output("paper.winner-takes-all"))
    # Text that held a token that went is told, not refused: it may be all there is to train on.
    held = next(text for i in places if ids(one, text := one.decode([i])) == [i])
    done = graft(base, steps, out, rows, options=Finishing(check=[*lines, held]))
    said = {check.name: check.detail for check in done.report.checks}
    assert done.report.passed and f"{len(places)} ids changed their meaning" in said["same size"]
    assert " gets longer, as do 1 of " in said["same size"]
    from safetensors.torch import load_file, save_file

    before, after = (load_file(one / "model.safetensors") for one in (base, out))
    assert {name: t.shape for name, t in before.items()} == {n: t.shape for n, t in after.items()}
    table = next(name for name in before if "embed_tokens" in name)
    assert torch.equal(after[table][list(places)], torch.tensor(rows))
    kept = [i for i in range(320) if i not in places]
    assert torch.equal(after[table][kept], before[table][kept])
    assert (out / "README.md").read_text("utf-8").count("## Same size") == 1
    loaded = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(out)
    assert {*loaded(lines[0], add_special_tokens=False)["input_ids"]} & {*places}
    after[table][kept[-1]] += 1
    save_file(after, out / "model.safetensors", {"format": "pt"})
    failed = {check.name for check in verify(out, base, lines).checks if not check.passed}
    assert {"old weights", "manifest"} <= failed
    parsed = json.loads((out / "tokenizer.json").read_text("utf-8"))
    parsed["model"]["merges"] = parsed["model"]["merges"][1:]
    (out / "tokenizer.json").write_text(json.dumps(parsed), encoding="utf-8")
    failed = {check.name for check in verify(out, base, lines).checks if not check.passed}
    assert "same size" in failed

    for damage in (link_out, truncate, graft_a_pipe):
        folder = tmp_path / damage.__name__
        shutil.copytree(out, folder)
        damage(folder)
        failed = {check.name for check in verify(folder, base, lines).checks if not check.passed}
        assert failed & {"preserved", "same size"}
        assert "manifest" in failed or damage is graft_a_pipe  # with a pipe nothing is opened


def link_out(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "elsewhere.safetensors")
    (folder / "model.safetensors").symlink_to(folder.parent / "elsewhere.safetensors")


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-3])


def graft_a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "x.json")


def made(steps: Plan) -> set[str]:
    return {token.token for token in steps.tokens}
