"""The audit as a whole, on small corpora and on the bundled one."""

from __future__ import annotations

import dataclasses
import io
import json
import sqlite3
import subprocess
import sys
import unicodedata
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Pipeline

import tokengraft as tg
from tokengraft.auditing import audit as run_module
from tokengraft.auditing.cost import read_prices
from tokengraft.auditing.count import count
from tokengraft.auditing.premium import gini
from tokengraft.auditing.vocabularies import breakdown, cluster_order, containment, jaccard
from tokengraft.core.cache import Store
from tokengraft.core.errors import CorpusError, TokengraftError, Unavailable, UsageError
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.tokenizer import find, load

SMALL = ParallelCorpus(
    "small",
    "made for this test",
    ("1", "2", "3"),
    {
        "eng_Latn": (
            "All human beings are born free.",
            "Everyone has rights.",
            "No one is a slave.",
        ),
        "shn_Mymr": ("ၵူၼ်းၵူႈၵေႃႉ", "မီးသုၼ်ႇ", None),
        "zho_Hans": ("人人生而自由", None, "任何人不得为奴隶"),
    },
)


@pytest.fixture(scope="module")
def small():
    return tg.audit(SMALL, ["llama-3", "t5", "o200k_base", "mistral-v0.3"])


def cell(result, tokenizer, language):
    return result.premiums.row(
        by_predicate=(pl.col("tokenizer") == tokenizer) & (pl.col("language") == language),
        named=True,
    )


def test_a_unit_missing_on_one_side_is_dropped_on_both(small):
    row = cell(small, "llama-3", "shn_Mymr")
    tokenizer = load("llama-3")
    tokens = [len(ids) for ids in tokenizer.encode(SMALL.lines("shn_Mymr"))]
    english = [len(ids) for ids in tokenizer.encode(SMALL.lines("eng_Latn"))][:2]
    assert row["n"] == 2
    assert row["premium"] == pytest.approx(np.mean(np.array(tokens) / english))


SMALLEST = Path(tg.__file__).parent / "assets" / "rootstock" / "tokenizer.json"
APART = ParallelCorpus(
    "apart",
    "made for this test",
    ("1", "2", "3"),
    {
        "eng_Latn": ("hello world", "a cat sat on a mat", None),
        "deu_Latn": ("hallo Welt, wie geht es dir", None, "und jetzt"),
        "shn_Mymr": (None, None, "ၵူၼ်းၵူႈၵေႃႉ"),
    },
)


def test_a_language_without_a_unit_in_common_has_no_premium_and_spoils_nothing():
    result = tg.audit(APART, ["mistral-v0.3", "gpt2"], resamples=50)
    row = cell(result, "mistral-v0.3", "shn_Mymr")
    assert row["n"] == 0
    compared = ("premium", "premium_low", "ratio_of_sums", "floor", "missing_tokens", "utf8")
    assert [row[name] for name in compared] == [None] * len(compared)
    assert row["tokens"] > 0 and row["tokens_per_byte"] > 0
    for summary in result.summary.to_dicts():
        assert summary["worst_language"] == "deu_Latn"
        assert summary["not_comparable"] == 1 and summary["meaningless_cells"] == 0
        assert summary["compared"] == 1 and summary["languages"] == 3
        assert summary["median_premium"] == pytest.approx(summary["worst_premium"])
        assert summary["above_2x"] == (summary["worst_premium"] > 2)
    shan = result.cost.filter(pl.col("language") == "shn_Mymr").to_dicts()
    assert shan and all(r["relative_cost"] is r["effective_context"] is None for r in shan)
    for frame in result.tables().values():
        numbers = frame.select(pl.selectors.float())
        assert all(not column.is_nan().any() for column in numbers)
    with pytest.raises(UsageError, match="no unit of text in common"):
        result.premium("mistral-v0.3", "shn_Mymr")


def test_a_tokenizer_given_by_its_path_is_called_by_its_name(tmp_path):
    folders = [tmp_path / "secret dir" / "mine", tmp_path / "other" / "mine", tmp_path / "gpt2"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "tokenizer.json").write_bytes(SMALLEST.read_bytes())
    given = [*map(str, folders), "gpt2"]
    result = tg.audit(APART, given, resamples=0)
    # A folder that is called as a known tokenizer is not taken for it.
    assert [found.name for found in result.tokenizers] == ["mine", "mine (2)", "gpt2 (2)", "gpt2"]
    text = json.dumps(result.manifest())
    assert "secret dir" not in text and str(tmp_path) not in text
    assert set(result.premiums["tokenizer"]) == {"mine", "mine (2)", "gpt2 (2)", "gpt2"}


def test_files_that_are_all_called_alike_are_called_by_their_folder(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tokenizer.json").write_bytes(SMALLEST.read_bytes())
    given = [str(tmp_path / folder / "tokenizer.json") for folder in "ab"]
    result = tg.audit(APART, [*given, "gpt-2", "gpt2"], resamples=0)
    assert [found.label for found in result.tokenizers] == ["a", "b", "GPT-2/3"]
    assert result.premium("GPT-2", "eng_Latn").value == 1


def test_the_pivot_costs_one(small):
    for name in ("llama-3", "t5", "o200k_base", "mistral-v0.3"):
        assert cell(small, name, "eng_Latn")["premium"] == 1


def test_the_parts_of_a_premium_sum_to_it(small):
    table = small.premiums
    total = table["floor"].fill_null(0) + table["missing_tokens"] + table["missing_characters"]
    assert total.to_numpy() == pytest.approx(table["premium"].to_numpy())


def test_no_floor_where_nothing_is_cut(small):
    assert cell(small, "mistral-v0.3", "shn_Mymr")["floor"] is None
    assert cell(small, "llama-3", "shn_Mymr")["floor"] > 0


def test_unk_is_flagged(small):
    row = cell(small, "t5", "zho_Hans")
    assert row["meaningless"] and row["unk_share"] > 0.3 and row["lossless_share"] == 0
    assert not cell(small, "llama-3", "zho_Hans")["meaningless"]
    assert small.premium("t5", "zho_Hans").unk_share == row["unk_share"]


def test_cost_follows_the_ratio_of_sums(small):
    row = small.cost.row(
        by_predicate=(pl.col("model") == "GPT-4o") & (pl.col("language") == "shn_Mymr"), named=True
    )
    ratio = cell(small, "o200k_base", "shn_Mymr")["ratio_of_sums"]
    assert row["input_usd"] == pytest.approx(2.5 * ratio)
    assert row["effective_context"] == int(128_000 / ratio)


def test_coverage_names_the_missing_characters(small):
    row = small.coverage.row(
        by_predicate=(pl.col("tokenizer") == "t5") & (pl.col("language") == "zho_Hans"), named=True
    )
    assert row["covered"] == 0 and row["missing"][0] == "人"
    assert row["running_share"] == 0
    english = small.coverage.row(
        by_predicate=(pl.col("tokenizer") == "t5") & (pl.col("language") == "eng_Latn"), named=True
    )
    assert english["missing"] == "" and english["running_share"] == 1


def test_a_second_run_encodes_nothing(tmp_path, monkeypatch):
    store = Store(tmp_path)
    first = tg.audit(SMALL, ["gpt2"], store=store)
    monkeypatch.setattr(
        "tokengraft.tokenizer.openai.TikToken.from_gpt2", lambda *_: pytest.fail("opened again")
    )
    calls = []
    second = tg.audit(SMALL, ["gpt2"], store=store, progress=calls.append)
    assert second.premiums.equals(first.premiums) and not calls


def test_a_tokenizer_is_opened_once(tmp_path, monkeypatch):
    opened = []

    def counted(name, search=()):
        found = find(name, search)

        def once():
            opened.append(name)
            return found.open()

        return dataclasses.replace(found, open=once)

    monkeypatch.setattr("tokengraft.auditing.audit.find", counted)
    store = Store(tmp_path)
    first = tg.audit(SMALL, ["mistral-v0.3", "gpt2"], store=store, resamples=0)
    assert opened == ["mistral-v0.3", "gpt2"]
    # A third one is compared with the two, whose counts are known.
    again = tg.audit(SMALL, ["mistral-v0.3", "gpt2", "t5"], store=store, resamples=0)
    assert opened == ["mistral-v0.3", "gpt2", "t5", "mistral-v0.3", "gpt2"]
    alone = tg.audit(
        SMALL, ["t5", "gpt2", "mistral-v0.3"], store=Store(tmp_path / "b"), resamples=0
    )
    assert again.vocabulary.equals(alone.vocabulary)
    for table in ("jaccard", "containment"):
        labels = sorted(getattr(again, table)["label"])
        squares = [getattr(a, table).sort("label").select(labels) for a in (again, alone)]
        assert squares[0].equals(squares[1])
    both = sorted(first.jaccard["label"])
    assert (
        first.jaccard.sort("label")
        .select(both)
        .equals(again.jaccard.filter(pl.col("label").is_in(both)).sort("label").select(both))
    )


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    store, seen = Store(tmp_path), []

    def interrupt(tokenizer, texts, cut, alone):
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(len(texts))
        return count(tokenizer, texts, cut, alone)

    monkeypatch.setattr("tokengraft.auditing.count_corpus.count", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tg.audit(SMALL, ["gpt2", "cl100k_base", "t5"], store=store)
    monkeypatch.setattr(
        "tokengraft.auditing.count_corpus.count", lambda *args: seen.append("again") or count(*args)
    )
    tg.audit(SMALL, ["gpt2", "cl100k_base", "t5"], store=store)
    lines = sum(len(SMALL.lines(code)) for code in SMALL.languages)
    assert seen == [lines, lines, "again"]  # languages as small as these are counted together


def test_other_text_is_counted_anew(tmp_path):
    store = Store(tmp_path)
    before = tg.audit(SMALL, ["gpt2"], store=store)
    texts = dict(SMALL.texts) | {"zho_Hans": ("自由", None, "奴隶")}
    after = tg.audit(ParallelCorpus("small", "", SMALL.units, texts), ["gpt2"], store=store)
    assert cell(after, "gpt2", "zho_Hans")["premium"] < cell(before, "gpt2", "zho_Hans")["premium"]


def test_a_missing_tokenizer_is_an_error_or_skipped_with_a_reason():
    with pytest.raises(Unavailable, match="hub cannot be reached"):
        tg.audit(SMALL, ["gpt2", "gemma3"])
    result = tg.audit(SMALL, ["gpt2", "gemma3"], skip_missing=True)
    assert [found.name for found in result.tokenizers] == ["gpt2"]
    assert "hub" in result.skipped["gemma3"]
    with pytest.raises(Unavailable, match="hub cannot be reached"):
        tg.audit(SMALL, ["gemma3"], skip_missing=True)


def test_a_network_library_does_not_speak_to_the_user(monkeypatch):
    """What urllib3 prints is a page long; the catalog's own short reasons stay as they are."""
    dump = f"p50k_base: could not be downloaded (HTTPSConnectionPool(host='x'): {'x' * 500})"
    told = run_module._in_short("p50k_base", dump)
    assert "HTTPS" not in told and "--tokenizers" in told and len(told) < 200
    assert run_module._in_short("gemma3", "gemma3 is gated.") == "gemma3 is gated."


def test_fairness_is_over_honest_languages_other_than_the_pivot():
    result = tg.audit("udhr", ["gpt2", "t5", "bert-multilingual"], ["shn", "tam", "deu"])
    by_name = {row["tokenizer"]: row for row in result.summary.to_dicts()}
    for name, row in by_name.items():  # the obvious way
        cells = [
            c
            for c in result.premiums.to_dicts()
            if c["tokenizer"] == name and c["language"] != "eng_Latn" and not c["meaningless"]
        ]
        values = [c["premium"] for c in cells]
        sums = np.array([c["ratio_of_sums"] for c in cells])
        assert row["compared"] == len(cells)
        assert row["compared"] + row["meaningless_cells"] + row["not_comparable"] == 3
        assert row["median_premium"] == pytest.approx(np.median(values))
        assert row["worst_premium"] == max(values)
        assert row["above_2x"] == sum(value > 2 for value in values)
        # The pivot pays too: one language at nine times its price is not equality.
        assert row["gini"] == pytest.approx(gini(np.append(sums, 1.0)))
    assert by_name["gpt2"]["compared"] == 3 and by_name["t5"]["compared"] == 1
    one = tg.audit("udhr", ["gpt2"], ["shn"]).summary.row(0, named=True)
    assert one["gini"] > 0.4
    lost = tg.audit("udhr", ["t5"], ["shn", "tam"]).summary.row(0, named=True)
    assert lost["compared"] == 0 and lost["meaningless_cells"] == 2
    none = ("worst_language", "worst_premium", "median_premium", "gini")
    assert [lost[name] for name in none] == [None] * 4


def test_languages_and_pivot_go_by_bare_codes_and_names():
    result = tg.audit("udhr", ["gpt2"], ["shn"], pivot="fra", resamples=0)
    assert result.pivot == "fra_Latn"
    full = result.premium("gpt2", "shn_Mymr").value
    assert result.premium("gpt2", "shn").value == result.premium("gpt2", "Shan").value == full
    with pytest.raises(UsageError, match="No language 'deu'"):
        result.premium("gpt2", "deu")
    with pytest.raises(UsageError, match=r"no tokenizer 'gpt22'.*Did you mean gpt2"):
        result.premium("gpt22", "shn")


def test_reprs_fit_a_line():
    result = tg.audit("udhr", ["gpt2"], ["shn"], resamples=0)
    assert repr(result.corpus) == "udhr: 2 languages, 61 passages"
    assert repr(result) == f"Audit({result.corpus!r}, pivot eng_Latn, tokenizers: GPT-2/3)"


def test_prices_for_no_audited_tokenizer_are_refused(tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text("as_of: 2024\nmodels: [{model: m, tokenizer: mine, context: 9, source: s}]")
    with pytest.raises(UsageError, match=r"tokenizers mine, none of which is audited \(gpt2\)"):
        tg.audit(SMALL, ["gpt2"], prices=path)


def test_inputs_are_checked_before_anything_is_encoded(monkeypatch):
    monkeypatch.setattr(
        "tokengraft.auditing.audit.count_corpus", lambda *_: pytest.fail("too late")
    )
    with pytest.raises(CorpusError, match="Did you mean"):
        tg.audit("udhr", ["gpt2"], ["shn_Mymx"])
    with pytest.raises(CorpusError, match="deu_Latn"):
        tg.audit(SMALL, ["gpt2"], pivot="deu_Latn")


def test_a_damaged_cache_is_set_aside(tmp_path):
    (tmp_path / "audit.sqlite").write_bytes(b"not a database, but long enough to look like one" * 9)
    store = Store(tmp_path)
    store.put("a", b"1")
    assert store.get("a") == b"1" and store.get("b") is None
    assert (tmp_path / "audit.damaged").exists()


def test_an_unwritable_cache_says_what_to_do(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(TokengraftError, match="TOKENGRAFT_CACHE"):
        Store(blocked)


def test_a_full_cache_is_a_clear_error(tmp_path):
    store = Store(tmp_path)
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(TokengraftError, match="cannot write the cache") as failure:
        store.put("key", b"x" * 100_000)
    assert isinstance(failure.value.__cause__, sqlite3.OperationalError)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: []", "as_of"),
        ("as_of: 2024\nmodels: [3]", r"models\[0\]"),
        ("as_of: 2024\nmodels: [{model: m, tokenizer: t, context: 1}]", "missing source"),
        (
            "as_of: 2024\nmodels: [{model: m, tokenizer: t, context: 1, source: s, input: x}]",
            "must be a number",
        ),
        (
            "as_of: 2024\nmodels: [{model: m, tokenizer: t, context: 0, source: s}]",
            "number of tokens, got 0",
        ),
        ("as_of: [", "cannot read"),
        *(
            (f"as_of: 2024\nmodels: [{{model: m, tokenizer: t, context: 9, source: s, {said}}}]",
             rf"models\[0\]: {said.partition(':')[0]} must be")
            for said in ("tokenizer: [t]", "model: 5", "source: 2026-01-01", "input: .nan",
                         "output: .inf", "input: true", "input: -1", "context: null",
                         "context: .inf", "context: .nan", f"context: {10**24}", "context: 1.5")
        ),
    ],
)  # fmt: skip
def test_a_bad_price_file_names_the_entry(tmp_path, text, message):
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(TokengraftError, match=message):
        read_prices(path)


def test_own_prices_are_used(tmp_path):
    path = tmp_path / "prices.yaml"
    path.write_text(
        "as_of: 2030-01-01\n"
        "models: [{model: Mine, tokenizer: gpt2, context: 100, source: me, input: 7}]\n"
    )
    result = tg.audit(SMALL, ["gpt2"], prices=path)
    assert result.cost["model"].unique().to_list() == ["Mine"]
    english = result.cost.filter(pl.col("language") == "eng_Latn").row(0, named=True)
    assert english["input_usd"] == 7 and english["output_usd"] is None


def test_breakdown_by_hand():
    clean = frozenset([b"a", b"ab", "é".encode(), "的".encode(), b"longer token"])
    row = breakdown(clean, raw_bytes=False)
    assert row["clean_vocab_size"] == 5
    assert [row[f"toks_{n}b"] for n in range(1, 8)] == [1, 2, 1, 0, 0, 0, 0]
    assert row["toks_gt7b"] == 1
    assert (row["chars_2b"], row["chars_3b"]) == (1, 1)
    assert row["unicode_blocks"] == 3


def test_overlaps_by_hand():
    shared = np.array([[4, 2, 0], [2, 8, 1], [0, 1, 2]])
    assert jaccard(shared)[0, 1] == pytest.approx(2 / 10)
    assert containment(shared)[0, 1] == 0.5 and containment(shared)[1, 0] == 0.25
    assert sorted(cluster_order(jaccard(shared))) == [0, 1, 2]


def test_clustering_puts_alike_together():
    similarity = np.array(
        [[1, 0.1, 0.9, 0.1], [0.1, 1, 0.1, 0.8], [0.9, 0.1, 1, 0.1], [0.1, 0.8, 0.1, 1]]
    )
    order = cluster_order(similarity)
    assert abs(order.index(0) - order.index(2)) == 1
    assert abs(order.index(1) - order.index(3)) == 1


def test_the_base_imports_no_torch_and_is_instant():
    code = (
        "import sys, tokengraft; assert 'numpy' not in sys.modules\n"
        "import tokengraft.auditing.audit, tokengraft.cli.app\n"
        "loaded = {'torch', 'transformers', 'matplotlib', 'sklearn'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_resolve():
    assert set(tg.__all__) <= set(dir(tg))
    for name in tg.__all__:
        assert getattr(tg, name) is not None
    assert tg.__version__
    offered = [name for name in dir(tg) if not name.startswith("_")]
    assert offered == sorted(tg.__all__)  # nothing else for completion to offer, and nothing twice
    with pytest.raises(AttributeError):
        _ = tg.nothing


def test_udhr_audit_has_over_a_hundred_languages():
    result = tg.audit("udhr", ["t5"])
    assert result.premiums["language"].n_unique() > 100
    assert Path(result.manifest()["tokenizers"]["t5"]["from"]).name == "t5"


def dropper(folder: Path, letters: str) -> Path:
    """`tokenizers`' default BPE: what its vocabulary lacks is left out without a token."""
    vocab = {letter: n for n, letter in enumerate(letters)}
    pipeline = Pipeline(models.BPE(vocab, []))
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder.mkdir()
    pipeline.save(str(folder / "tokenizer.json"))
    return folder


def test_dropped_text_is_no_saving(tmp_path: Path) -> None:
    from tokengraft.corpus import load as load_corpus

    folder = dropper(
        tmp_path / "drops", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,;'-()"
    )
    corpus = load_corpus("udhr").select(["eng_Latn", "shn_Mymr", "amh_Ethi", "ita_Latn"])
    found = tg.audit(corpus, [str(folder)], resamples=10)
    cells = {row["language"]: row for row in found.premiums.to_dicts()}
    for code in ("shn_Mymr", "amh_Ethi"):
        assert cells[code]["meaningless"], code
        assert cells[code]["unk_share"] > 0.5
    assert not cells["eng_Latn"]["meaningless"]  # spaces are dropped by design
    assert "shn_Mymr" not in (found.summary["worst_language"].to_list())
    assert found.summary["meaningless_cells"][0] >= 2


TAKEN = {
    "a normaliser deletes it": {"normalizer": normalizers.Replace(Regex(r"[^\x00-\x7f]"), "")},
    "a normaliser writes ?": {"normalizer": normalizers.Replace(Regex(r"[^\x00-\x7f]+"), "?")},
    "its vowel signs are accents": {
        "normalizer": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()])
    },
    "cut out": {"pre_tokenizer": pre_tokenizers.Split(Regex(r"[^\x00-\x7f]+"), "removed")},
    "not kept": {"pre_tokenizer": pre_tokenizers.Split(Regex(r"^.|[ -~]+"), "removed", True)},
}


@pytest.mark.parametrize("how", TAKEN)
def test_text_that_is_taken_away_before_the_model_is_no_saving(tmp_path: Path, how: str) -> None:
    """Every byte is a token here, and there is no UNK."""
    from tokengraft.corpus import load as load_corpus

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pipeline = Pipeline(models.BPE({one: n for n, one in enumerate(letters)}, []))
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    if "pre_tokenizer" in TAKEN[how]:
        steps.insert(0, TAKEN[how]["pre_tokenizer"])
    pipeline.pre_tokenizer = pre_tokenizers.Sequence(steps)
    pipeline.decoder = decoders.ByteLevel()
    if "normalizer" in TAKEN[how]:
        pipeline.normalizer = TAKEN[how]["normalizer"]
    pipeline.save(str(tmp_path / "tokenizer.json"))
    corpus = load_corpus("udhr").select(["eng_Latn", "shn_Mymr", "ita_Latn"])
    found = tg.audit(corpus, [str(tmp_path)], resamples=10)
    cells = {row["language"]: row for row in found.premiums.to_dicts()}
    assert cells["shn_Mymr"]["meaningless"] and cells["shn_Mymr"]["unk_share"] > 0.3
    assert not cells["eng_Latn"]["meaningless"]
    assert not load(tmp_path).lossless


def test_a_decoder_of_bytes_spells_nothing_in_bytes(tmp_path: Path) -> None:
    """Every byte is a token, but no step turns text into bytes: other letters are left out."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pipeline = Pipeline(models.BPE({one: n for n, one in enumerate(letters)}, []))
    pipeline.pre_tokenizer = pre_tokenizers.Whitespace()
    pipeline.decoder = decoders.ByteLevel()
    pipeline.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load(tmp_path)
    assert not tokenizer.lossless
    assert np.asarray(tokenizer.dropped(["ab", "ၵa"])).tolist() == [0, 1]


def test_text_that_a_sentencepiece_model_deletes_is_no_saving(tmp_path: Path) -> None:
    from sentencepiece import SentencePieceTrainer

    from tokengraft.corpus import load as load_corpus

    corpus = load_corpus("udhr").select(["eng_Latn", "shn_Mymr", "fuf_Adlm", "ita_Latn"])
    rules = tmp_path / "rules.tsv"  # every character of Myanmar and Adlam script becomes nothing
    taken = (*range(0x1000, 0x10A0), *range(0x1E900, 0x1E960))
    rules.write_text("".join(f"{n:X}\t\n" for n in taken))
    SentencePieceTrainer.train(
        sentence_iterator=iter(corpus.lines("eng_Latn")),
        model_prefix=str(tmp_path / "tokenizer"),
        vocab_size=500,
        byte_fallback=True,
        normalization_rule_tsv=str(rules),
        minloglevel=2,
    )
    found = tg.audit(corpus, [str(tmp_path / "tokenizer.model")], resamples=10)
    cells = {row["language"]: row for row in found.premiums.to_dicts()}
    for code in ("shn_Mymr", "fuf_Adlm"):
        assert cells[code]["meaningless"] and cells[code]["unk_share"] > 0.3, code
    assert not cells["eng_Latn"]["meaningless"] and not cells["ita_Latn"]["meaningless"]


def test_what_is_lost_of_a_text_is_the_same_beside_any_other(tmp_path: Path) -> None:
    """A dropped joiner is no lost letter, even if another text in the batch loses an accent."""
    pipeline = Pipeline(models.WordPiece({"[UNK]": 0, "a": 1, "##a": 2}, unk_token="[UNK]"))
    pipeline.normalizer = normalizers.BertNormalizer(lowercase=True)
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.save(str(tmp_path / "tokenizer.json"))
    tokenizer, texts = load(tmp_path), ["a\u200ca", "கா aa", "a\u0301\u0302"]
    alone = [tokenizer.dropped([text]) for text in texts]
    assert alone[0] is None and np.asarray(tokenizer.dropped(texts)).tolist() == [0, 0, 2]
    assert np.asarray(alone[2]).tolist() == [2]


def test_a_pattern_that_keeps_all_it_cuts_takes_nothing_away() -> None:
    """OLMo's keeps what its pattern matches and removes the rest, of which there is none."""
    assert load("olmo-2").lossless
    assert load("olmo-2").dropped(["ၵူၼ်း ၵူႈ", "été"]) is None


def test_a_tokenizer_that_knows_nothing_divides_by_nothing(tmp_path: Path) -> None:
    from tokengraft.corpus import load as load_corpus

    folder = dropper(tmp_path / "nothing", "ɣ")
    corpus = load_corpus("udhr").select(["eng_Latn", "fra_Latn"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = tg.audit(corpus, [str(folder)], resamples=10)
    cells = found.premiums.to_dicts()
    assert [row["premium"] for row in cells] == [None, None]
    assert all(row["meaningless"] and row["unk_share"] == 1 for row in cells)


def test_text_that_is_not_nfc_is_told_with_what_it_would_cost_in_nfc():
    from rich.console import Console

    from tokengraft.corpus import load as load_corpus
    from tokengraft.render.audit_printed import printed
    from tokengraft.render.terminal import show_audit

    corpus = load_corpus("udhr").select(["eng_Latn", "vie_Latn", "fra_Latn"])
    texts = dict(corpus.texts)
    loose = tuple(text and unicodedata.normalize("NFD", text) for text in texts["vie_Latn"])
    mixed = dataclasses.replace(
        corpus, texts=texts | {"vie_Latn": loose[:9] + texts["vie_Latn"][9:]}
    )
    plain, found = (tg.audit(one, ["llama-3"], resamples=0) for one in (corpus, mixed))
    before, after = (cell(one, "llama-3", "vie_Latn") for one in (plain, found))
    assert (before["not_nfc"], before["premium_nfc"]) == (0, None)
    assert after["not_nfc"] == sum(map(bool, loose[:9]))
    assert after["premium_nfc"] == before["premium"] < after["premium"]
    assert cell(found, "llama-3", "fra_Latn")["premium_nfc"] is None
    console = Console(width=300, file=io.StringIO())
    show_audit(console, found)
    said = f"In NFC its premium would be {before['premium']:.2f} instead of {after['premium']:.2f}"
    assert said in console.file.getvalue()
    assert said in "".join(printed(found)["premiums"].notes)
    assert "NFC" not in "".join(printed(plain)["premiums"].notes)


def test_the_printed_table_shows_the_absolute_cost_beside_the_premium():
    from rich.console import Console

    from tokengraft.render.terminal import show_audit

    result = tg.audit("udhr", ["gpt2", "o200k_base"], ["shn"])
    console = Console(width=100, file=io.StringIO())
    show_audit(console, result)
    first, second = result.premiums.filter(pl.col("language") == "shn_Mymr").to_dicts()
    change = second["tokens"] / first["tokens"] - 1
    assert second["tokens_change"] == pytest.approx(change)
    assert first["tokens_change"] is None
    assert first["bytes_per_token"] == pytest.approx(1 / first["tokens_per_byte"])
    printed = console.file.getvalue()
    below = [
        f"{row['tokens_per_unit']:.0f} {row['bytes_per_token']:.1f}" for row in (first, second)
    ]
    assert f"│ {below[0]} │ {below[1]} −{abs(100 * change):.0f}% │" in printed
    assert f"{first['premium']:.2f} │" in printed
    caption = "tokens per passage, bytes per token, tokens against GPT-2/3"
    assert caption in " ".join(printed.split())
