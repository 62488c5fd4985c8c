"""Planning and inserting through the command line and the public function."""

from __future__ import annotations

import gzip
import json

import pytest
from tokenizers import Tokenizer

from tokengraft.api.verbs import plan
from tokengraft.core.errors import CorpusError, TokengraftError, UsageError
from tokengraft.corpus import load
from tokengraft.paper.claim import new_token_share
from tokengraft.planning.count_words import count_words
from tokengraft.planning.plan import Plan, with_plan
from tokengraft.planning.plan_files import insert_plan, read_plan
from tokengraft.tokenizer.catalog import as_json, find


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Shan on GPT-2 (the smallest bundled byte-level tokenizer), from half of the UDHR."""
    folder = tmp_path_factory.mktemp("plan")
    result = plan("gpt2", ["shn"], budget=120)
    result.save(folder)
    return result, folder


def test_the_plan_buys_what_it_says(planned):
    """The premium after, measured again with the inserted tokenizer, is the promised one."""
    result, folder = planned
    outcome = result.plan.languages["shn_Mymr"]
    assert outcome.premium_before > 15
    assert outcome.premium_after < outcome.premium_before / 3
    corpus = load("udhr").select(["eng_Latn", "shn_Mymr"])
    pairs = list(zip(corpus.texts["shn_Mymr"], corpus.texts["eng_Latn"], strict=True))[1::2]
    pairs = [(a, b) for a, b in pairs if a and b]
    out = insert_plan("gpt2", folder, folder / "tokenizer")
    new = Tokenizer.from_file(str(out / "tokenizer.json"))
    ratios = [len(new.encode(a)) / len(new.encode(b)) for a, b in pairs]
    assert sum(ratios) / len(ratios) == pytest.approx(outcome.premium_after)


def test_the_plan_is_deterministic_and_comes_back(planned, tmp_path):
    result, folder = planned
    again = plan("gpt2", ["shn_Mymr"], budget=120)
    assert again.plan == result.plan == read_plan(folder)
    again.save(tmp_path)
    for name in ("plan.json", "figures/curve.svg", "figures/curve.png", "tables/curve.csv"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_transformers_loads_the_inserted_tokenizer(planned):
    from transformers import AutoTokenizer

    _, folder = planned
    out = insert_plan("gpt2", folder, folder / "auto")
    loaded = AutoTokenizer.from_pretrained(out)
    line = load("udhr").lines("shn_Mymr")[1]
    expected = Tokenizer.from_file(str(out / "tokenizer.json")).encode(line).ids
    assert loaded(line, add_special_tokens=False)["input_ids"] == expected
    assert loaded.decode(expected) == line


def test_command_line(tokengraft, tmp_path):
    text = "\n".join(load("udhr").lines("amh_Ethi")).encode()
    (tmp_path / "amh.txt.gz").write_bytes(gzip.compress(text))
    ran = tokengraft(
        *("plan", "rootstock", "-l", "amh", "--text", tmp_path / "amh.txt.gz", "--budget", 60),
        *("--mode", "characters", "-o", tmp_path / "plan"),
    )
    assert ran.returncode == 0, ran.stderr
    assert "0 of" in ran.stdout and "amh_Ethi" in ran.stdout
    put = ("insert", "rootstock", tmp_path / "plan", "-o")
    inserted = tokengraft(*put, tmp_path / "new", "--json")
    assert json.loads(inserted.stdout)["new_tokens"] > 20
    again = tokengraft(*put, tmp_path / "new")
    assert again.returncode == 0, again.stderr
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    refused = tokengraft(*put, tmp_path / "mine")
    assert refused.returncode == 2 and "--force" in refused.stderr
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"
    assert tokengraft(*put, tmp_path / "mine", "--force").returncode == 0
    assert not (tmp_path / "mine" / "notes.txt").exists()
    wrong = tokengraft("insert", "cl100k_base", tmp_path / "plan", "-o", tmp_path / "other")
    assert wrong.returncode == 1 and "plan again" in wrong.stderr
    assert "for the tokenizer rootstock (" in wrong.stderr and "not GPT-3.5/4 (" in wrong.stderr
    assert not (tmp_path / "other").exists()


def test_a_plan_of_no_token_is_an_error_that_says_why(tokengraft, tmp_path):
    text = tmp_path / "eng.txt"
    text.write_text("the house and the people\n" * 3, encoding="utf-8")
    ran = tokengraft(
        *("plan", "rootstock", "-l", "eng", "--text", text, "--budget", 50),
        *("-o", tmp_path / "plan"),
    )
    assert ran.returncode == 1
    assert "no token to plan" in ran.stderr and "protected text" in ran.stderr
    ran = tokengraft("plan", "rootstock", "-l", "shn", "--text", text, "-o", tmp_path / "plan")
    assert ran.returncode == 1 and "no letter in its script, Mymr" in " ".join(ran.stderr.split())
    assert not (tmp_path / "plan").exists()


def test_latin_script_with_protected_text(tokengraft, tmp_path):
    ran = tokengraft(
        *("plan", "rootstock", "-l", "swh", "-l", "shn", "--protect", "fra", "--budget", 80),
        *("-o", tmp_path / "plan", "--no-figures"),
    )
    assert ran.returncode == 0, ran.stderr
    assert "No id changed in any of" in ran.stdout and "fra_Latn (UDHR)" in ran.stdout
    made = read_plan(tmp_path / "plan")
    assert made.languages["swh_Latn"].premium_after < made.languages["swh_Latn"].premium_before
    out = insert_plan("rootstock", tmp_path / "plan", tmp_path / "new")
    new = Tokenizer.from_file(str(out / "tokenizer.json"))
    base = Tokenizer.from_str(json.dumps(as_json(find("rootstock"))))
    for line in load("udhr").lines("fra_Latn"):
        assert new.encode(line).ids == base.encode(line).ids


def test_text_in_any_form_gives_the_same_plan(tokengraft, tmp_path):
    lines = load("udhr").lines("amh_Ethi")
    (tmp_path / "amh.txt").write_text("\n".join(lines), encoding="utf-8")
    for part, own in enumerate((lines[::2], lines[1::2])):
        rows = "".join(json.dumps({"id": n, "body": line}) + "\n" for n, line in enumerate(own))
        (tmp_path / f"amh-{part}.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    options = ("--budget", 60, "--boundaries", "keep", "--state", tmp_path / "state", "--json")
    plain = tokengraft("plan", "rootstock", "-l", "amh", "--text", tmp_path / "amh.txt", *options)
    assert plain.returncode == 0, plain.stderr
    rows = ("--text", tmp_path / "amh-*.jsonl.gz", "--text-column", "body", *options)
    ran = tokengraft("plan", "rootstock", "-l", "amh", *rows)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == json.loads(plain.stdout)
    (tmp_path / "amh-1.jsonl.gz").write_bytes(gzip.compress(b'{"body": "fine"}\n{"body": 7}\n'))
    ran = tokengraft("plan", "rootstock", "-l", "amh", *rows)
    assert ran.returncode == 1 and "line 2" in ran.stderr and "--skip-bad" in ran.stderr
    ran = tokengraft("plan", "rootstock", "-l", "amh", *rows, "--skip-bad")
    assert ran.returncode == 0 and "1 bad row left out" in ran.stderr
    ran = tokengraft("plan", "rootstock", "-l", "amh", "--text", tmp_path / "nowhere.txt")
    assert ran.returncode == 1 and "no such file" in ran.stderr


def test_paper_mode_warns_how_much_longer(tokengraft, tmp_path):
    ran = tokengraft("plan", "llama-3", "-l", "hin", "--mode", "paper", "--json")
    assert ran.returncode == 0, ran.stderr
    assert "longer" in ran.stderr
    outcome = json.loads(ran.stdout)["languages"]["hin_Deva"]
    assert outcome["planning_after"] > 1.5 * outcome["planning_before"]
    planned = Plan.from_json(json.loads(ran.stdout))
    assert "pieces of text got longer" not in planned.checked


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "gpt2"], "--language"),
        (["plan", "gpt2", "-l", "shn", "-l", "tam", "--text", "a.txt"], "CODE=a.txt"),
        (["plan", "gpt2", "-l", "shn", "--text", "tam_Taml=a.txt"], "is not planned for"),
        (["plan", "gpt2", "-l", "shn", "--mode", "magic"], "magic"),
        (
            ["plan", "gpt2", "-l", "swh", "--protect", "fra", "spa"],
            "(spa). For several values repeat",
        ),
        (["plan", "gpt2", "-l", "shn", "--mode", "paper", "--budget", "20"], "takes no budget"),
    ],
)
def test_usage_mistakes(tokengraft, arguments, message):
    ran = tokengraft(*arguments)
    assert ran.returncode == 2, ran.stderr
    assert message in " ".join(ran.stderr.split())


def test_lost_text_is_flagged_not_compared(tokengraft, tmp_path):
    """BERT loses nearly all Shan to UNK: what looks cheap before is no premium."""
    ran = tokengraft("plan", "bert-multilingual", "-l", "shn", "--budget", 200, "-o", tmp_path)
    assert ran.returncode == 0, ran.stderr
    outcome = read_plan(tmp_path).languages["shn_Mymr"]
    assert outcome.unk_share_before > 0.9 and outcome.unk_share_after == 0
    assert outcome.premium_before < 1 < outcome.premium_after
    told = (tmp_path / "README.md").read_text(encoding="utf-8")
    for text in (ran.stdout, told):
        assert f"{outcome.premium_before:.2f}†" in text
        assert f"{outcome.premium_after:.2f}†" not in text
        assert "No honest premium" in text and "0 of 0" not in text
    assert "the premium before is not honest" in ran.stderr
    assert len(read_plan(tmp_path).tokens) == 200 and "tokens instead of" not in ran.stderr
    table = (tmp_path / "tables" / "outcomes.csv").read_text(encoding="utf-8")
    assert "unk_share_before" in table


def test_a_plan_says_itself_in_a_line_and_has_a_floor_where_words_are_cut():
    cut = plan("rootstock", "hin", budget=5)
    assert repr(cut).startswith("Planned(Plan(5 tokens for rootstock: hin_Deva ")
    assert len(repr(cut)) < 200
    outcome = cut.plan.languages["hin_Deva"]
    assert 0.5 < outcome.floor_before == outcome.floor_after < outcome.premium_after
    whole = plan("mistral-v0.3", "hin", budget=5).plan.languages["hin_Deva"]
    assert whole.floor_before is whole.floor_after is None


def test_text_of_the_python_call(tmp_path):
    """A code, a path, a list of paths, short keys and counted words all mean the same."""
    file = tmp_path / "shan.txt"
    file.write_text("\n".join(load("udhr").lines("shn_Mymr")), encoding="utf-8")
    options = {"budget": 30, "boundaries": "keep"}
    first = plan("rootstock", "shn", str(file), **options)
    assert first.plan.tokens and first.chosen_on == "shan.txt"
    counted = count_words({"shn": file})
    for text in (file, [file], {"shn": [str(file)]}, {"shn_Mymr": file}, counted):
        assert plan("rootstock", ["shn"], text, **options).plan == first.plan
    with pytest.raises(UsageError, match=r"text=\{'shn_Mymr': \[FILE"):
        plan("rootstock", ["shn", "tam"], file, **options)
    for text in ({"shn": 7}, [7], []):
        with pytest.raises(
            TokengraftError, match=r"give a file, a list|must be a string|no text for"
        ):
            plan("rootstock", "shn", text, **options)
    with pytest.raises(UsageError, match="given twice"):
        plan("rootstock", "shn", {"shn": file, "shn_Mymr": file}, **options)


def test_bad_text_and_plans_are_clear_errors(tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CorpusError, match=r"bad\.txt"):
        plan("gpt2", ["shn"], {"shn_Mymr": [tmp_path / "bad.txt"]}, budget=5)
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(CorpusError, match="no line of text"):
        plan("gpt2", ["shn"], {"shn_Mymr": [tmp_path / "empty.txt"]}, budget=5)
    with pytest.raises(UsageError, match="no text for shn_Mymr"):
        plan("gpt2", ["shn"], {}, budget=5)
    (tmp_path / "plan.json").write_text("[1]")
    with pytest.raises(TokengraftError, match="not a plan"):
        read_plan(tmp_path)


def test_new_token_share_of_the_paper(flores):
    verdict = new_token_share(flores)
    assert verdict.line == "28 of 28 reproduced"
    shares = [cell for cell in verdict.cells if cell.column == "percent_new"]
    assert len(shares) == 12 and all(cell.verdict == "reproduced" for cell in shares)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "mistral-v0.3"])
def test_no_line_of_flores_gets_longer(flores, name):
    """Lines of 204 languages: never longer, same text, same ids outside the script."""
    result = plan(name, ["shn", "hin"], budget=300)
    base_json = as_json(find(name))
    base = Tokenizer.from_str(json.dumps(base_json))
    new = Tokenizer.from_str(json.dumps(with_plan(base_json, result.plan)))
    corpus = load(flores, split="devtest")
    assert len(corpus.languages) == 204
    for code in corpus.languages:
        lines = corpus.lines(code)[::4]  # `results/never-longer` has all of them
        old_ids = [e.ids for e in base.encode_batch_fast(lines, add_special_tokens=False)]
        new_ids = [e.ids for e in new.encode_batch_fast(lines, add_special_tokens=False)]
        assert all(len(b) <= len(a) for a, b in zip(old_ids, new_ids, strict=True)), code
        changed = [n for n, a in enumerate(old_ids) if a != new_ids[n]]
        assert not changed or code.endswith(("_Mymr", "_Deva")), code
        decoded = new.decode_batch([new_ids[n] for n in changed])
        assert decoded == base.decode_batch([old_ids[n] for n in changed]), code
