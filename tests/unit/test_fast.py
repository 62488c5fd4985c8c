"""Faster encoders: proved before they are used, checked while they are, dropped when wrong."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

import tokengraft as tg
from tokengraft.auditing import recorded
from tokengraft.auditing.count import count
from tokengraft.auditing.count_corpus import count_corpus
from tokengraft.auditing.token_counter import TokenCounter
from tokengraft.core.cache import Store
from tokengraft.corpus import udhr
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.corpus.rows import Batch, Layout, Seen
from tokengraft.tokenizer import fast, find
from tokengraft.tokenizer.adapters import Tokenizer
from tokengraft.tokenizer.catalog import BUNDLED
from tokengraft.tokenizer.rows import Rows
from tokengraft.tokenizer.vocabulary import Vocabulary

NAME = "gigatoken 0"  # a name that counts as a fast library's
pytestmark = pytest.mark.filterwarnings("ignore:.*gives other ids.*")


class Letters(Tokenizer):
    """Each character of ASCII is a token."""

    family = "letters"
    lossless = True

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [list(text.encode("ascii")) for text in texts]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return [bytes(row).decode("ascii") for row in ids]

    def pretokens(self, texts: Sequence[str], rows: Rows | None = None) -> None:
        return None

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(tuple(bytes([n]) for n in range(128)))

    def clean_vocabulary(self) -> frozenset[bytes]:
        return frozenset(self.vocabulary.pieces)


def planted(tokenizer: Tokenizer, wrong: set[str]) -> Tokenizer:
    """The tokenizer with a fast encoder that adds a token to the texts in `wrong`."""

    def encode(texts: Sequence[str], alone: bool) -> Rows:
        rows = zip(tokenizer._encode(texts), texts, strict=True)
        return Rows.of([*ids, 1] if text in wrong else ids for ids, text in rows)

    tokenizer._sought = True
    tokenizer._fast = fast.Fast(NAME, encode, frozenset())
    return tokenizer


def caught(languages: list[list[str]], wrong: set[str], seed: int) -> bool:
    """Whether a run over the languages finds out that the encoder is wrong."""
    tokenizer = planted(Letters("letters", "letters"), wrong)
    tokenizer.chance = random.Random(seed)
    return any(tokenizer.encode_texts(lines) and tokenizer.encoder != NAME for lines in languages)


def test_a_fault_in_one_of_fifty_lines_of_one_language_is_caught() -> None:
    lines = [str(number) for number in range(2009)]  # as FLORES-200 has
    found = 0
    for seed in range(100):
        faults = {*random.Random(-seed - 1).sample(lines, len(lines) // 50)}
        found += caught([lines], faults, seed)
    assert found >= 99


def test_a_fault_in_one_of_a_thousand_lines_is_caught() -> None:
    languages = [[f"{n}{k}" for k in range(997)] for n in range(10, 50)]
    every = [line for lines in languages for line in lines]
    found = 0
    for seed in range(100):
        faults = {*random.Random(-seed - 1).sample(every, len(every) // 1000)}
        found += caught(languages, faults, seed)
    assert found >= 99


def test_a_sample_has_a_hundredth_and_not_too_few_of_each_language() -> None:
    numbers = fast.sample([10, 1000, 100_000], random.Random(0))
    assert numbers == sorted(set(numbers)) and numbers[:10] == [*range(10)]
    assert sum(10 <= n < 1010 for n in numbers) == fast.LEAST
    assert sum(n >= 1010 for n in numbers) == 1000
    assert fast.share(1) >= 1 and fast.share(10**6) == pytest.approx(0.01)


def corpus_of(lines: int, languages: int = 4) -> ParallelCorpus:
    texts = {
        code: tuple(f"{code} {n}" for n in range(lines))
        for code in udhr.load().languages[:languages]
    }
    return ParallelCorpus("made", "made", tuple(map(str, range(lines))), texts)


def located(wrong: set[str], opened: list[Tokenizer]) -> object:
    from tokengraft.tokenizer import Located

    def open_() -> Tokenizer:
        opened.append(planted(Letters("letters", "f" * 64), wrong))
        return opened[-1]

    return Located("letters", "Letters", "f" * 64, "here", open_)


def test_what_a_wrong_encoder_counted_is_counted_again(tmp_path: Path) -> None:
    corpus, opened = corpus_of(1100), []
    *_, last = corpus.languages
    where = located({*corpus.lines(last)}, opened)
    with pytest.warns(UserWarning, match="gives other ids than tokengraft .* for letters"):
        counts = count_corpus(corpus, [where], Store(tmp_path))  # type: ignore[list-item]
    assert len(opened) == 2 and counts.encoders["letters"].startswith("tokengraft")
    for code in corpus.languages:
        assert counts["letters", code].tokens.tolist() == [*map(len, corpus.lines(code))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = count_corpus(corpus, [where], Store(tmp_path))  # type: ignore[list-item]
    assert len(opened) == 2 and dict(again).keys() == dict(counts).keys()


def test_counts_of_a_fast_encoder_are_not_the_references(tmp_path: Path) -> None:
    corpus, opened = corpus_of(1100, 2), []
    where = located(set(), opened)
    counts = count_corpus(corpus, [where], Store(tmp_path))  # type: ignore[list-item]
    assert counts.encoders == {"letters": NAME}
    own = count_corpus(corpus, [where], Store(tmp_path), reference=["letters"])  # type: ignore[list-item]
    assert own.encoders["letters"].startswith("tokengraft") and len(opened) == 2
    for cell in counts:
        assert (counts[cell].table == own[cell].table).all()


def test_a_refuted_encoder_is_not_trusted_later(tmp_path: Path) -> None:
    corpus, opened = corpus_of(1100, 2), []
    where = located(set(), opened)
    count_corpus(corpus, [where], Store(tmp_path))  # type: ignore[list-item]
    assert not fast.refuted(NAME, "e" * 64)
    fast.refute(NAME, "f" * 64)
    assert fast.refuted(NAME, "f" * 64)
    count_corpus(corpus, [where], Store(tmp_path))  # type: ignore[list-item]
    assert len(opened) == 2


def test_a_stream_says_that_its_encoder_was_wrong() -> None:
    lines = [f"line {n}" for n in range(3000)]
    for wrong in (set(), {*lines[::50]}):
        tokenizer = planted(Letters("letters", "letters"), wrong)
        counter = TokenCounter({"letters": tokenizer}, None, 1)
        for start in range(0, len(lines), 500):
            part = lines[start : start + 500]
            rows = [[("eng_Latn", line, len(line))] for line in part]
            counter.add(Batch(rows, [*range(len(part))]), Seen())  # type: ignore[arg-type]
        payload = counter.payload()
        assert ("refuted" in payload) == bool(wrong)
        if not wrong:
            assert NAME in payload["encoders"]["letters"]
            assert payload["tokens"]["letters"]["eng_Latn"][0] == sum(map(len, lines))


def test_a_survey_with_a_wrong_encoder_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokengraft.auditing import survey

    (tmp_path / "a.txt").write_text("one line\nand another\n")
    asked = []
    real = survey.count_all

    def count_all(work, *rest, **more):  # type: ignore[no-untyped-def]
        total = real(work, *rest, **more)
        if not work.reference:
            total.payload["tokens"]["gpt2"]["eng_Latn"][0] = 99
            total.payload["refuted"] = {"gpt2": 1}
        asked.append(sorted(work.reference))
        return total

    monkeypatch.setattr(survey, "count_all", count_all)
    layout = Layout(language="eng_Latn")
    result = tg.survey(tmp_path / "a.txt", "gpt2", layout=layout, state=tmp_path / "s", workers=1)
    assert asked == [[], ["gpt2"]]
    assert result.counts["tokens"].to_list() == [4]
    assert result.facts["encoders"]["gpt2"].startswith("tiktoken")


def test_characters_on_which_they_differ_are_left_to_the_reference() -> None:
    letters = Letters("letters", "letters")

    def encode(texts: Sequence[str], alone: bool) -> Rows:
        return Rows.of([2] if "$" in text else list(text.encode()) for text in texts)

    def reference(texts: Sequence[str]) -> Rows:
        return Rows.of(list(text.encode()) for text in texts)

    agreed = fast._agreeing(encode, reference, ["a", "b$", "cd"])
    assert agreed == b"$"
    with pytest.raises(ValueError, match="other ids"):
        fast._agreeing(lambda texts, _: Rows.of([1] for _ in texts), reference, ["a", "b"])
    letters._sought, letters._fast = True, fast.Fast(NAME, encode, frozenset(agreed.decode()))
    texts = [f"{n}$" if n % 5 == 0 else str(n) for n in range(2000)]
    assert letters.encode(texts) == letters._encode(texts) and letters.encoder == NAME


def test_an_encoder_that_gives_up_leaves_the_text_to_the_reference() -> None:
    def encode(texts: Sequence[str], alone: bool) -> Rows:
        raise ValueError("no")

    letters = Letters("letters", "letters")
    letters._sought, letters._fast = True, fast.Fast(NAME, encode, frozenset())
    texts = [*map(str, range(1000))]
    assert letters.encode(texts) == letters._encode(texts) and letters.encoder == NAME


def test_text_that_an_added_token_is_normalised_to_is_left_to_the_reference() -> None:
    def encode(texts: Sequence[str], alone: bool) -> Rows:
        return Rows.of([len(text)] for text in texts)

    definition = fast.Definition(
        "json", b"", normal=lambda texts: [text.lower() for text in texts], added=("<s>",)
    )
    read = fast._normalised(encode, definition)
    assert read(["Aé", "b"], True).lists() == [[2], [1]]
    with pytest.raises(ValueError, match="added token"):
        read(["é<S>"], True)


@pytest.mark.parametrize("name", BUNDLED)
def test_installed_libraries_agree_on_bundled_tokenizers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not [*fast.installed()]:
        pytest.skip("no fast library is installed (pip install '.[fast]')")
    monkeypatch.setattr(fast, "WORTH", 1000)
    tokenizer = find(name).open()
    corpus = udhr.load(["eng", "hin", "shn", "amh", "zho_Hans", "tam", "tha"])
    lines = [line for code in corpus.languages for line in corpus.lines(code)] * 3
    wanted = tokenizer._encode(lines)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tokenizer.encode(lines) == wanted
    if name != "t5" and {"gigatoken", "tokie"} <= {one for one, _ in fast.installed()}:
        assert fast.is_fast(tokenizer.encoder)


def test_recorded_counts_are_the_references() -> None:
    """`tools/record_counts.py` made them; every third language of each tokenizer is made again."""
    corpus = udhr.load()
    for place, name in enumerate(("gpt2", "t5", "mistral-v0.3")):
        tokenizer = find(name).open()
        tokenizer.by_reference()
        known = recorded.Recorded(tokenizer.fingerprint)
        for code in corpus.languages[place::60]:
            assert known.has(code, corpus.digest(code)), "run tools/record_counts.py"
            assert known.agrees(code, count(tokenizer, corpus.lines(code)))


def test_recorded_counts_find_any_wrong_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = udhr.load([*udhr.load().languages[:20], "eng_Latn"])
    where = find("gpt2")
    spoilt = corpus.lines(corpus.languages[7])[3]
    tokenizer = where.open()
    monkeypatch.setattr(
        type(tokenizer), "hasten", lambda own, _: own._sought or planted(own, {spoilt})
    )
    with pytest.warns(UserWarning, match="recorded counts"):
        counts = count_corpus(corpus, [where], Store(tmp_path))
    rows = tokenizer._encode(corpus.lines(corpus.languages[7]))
    assert counts["gpt2", corpus.languages[7]].tokens.tolist() == [*map(len, rows)]
    assert counts.encoders["gpt2"].startswith("tiktoken")


def test_an_audit_says_who_counted_and_is_the_same(tmp_path: Path) -> None:
    made = [
        tg.audit("udhr", "gpt2", "tam", store=Store(tmp_path / str(one)), reference=one)
        for one in (True, False)
    ]
    assert made[0] == made[1]
    assert made[0].facts["encoders"]["gpt2"].startswith("tiktoken")
    written = [one.save(tmp_path / f"out{n}", figures=False) for n, one in enumerate(made)]
    assert [path.name for path in written[0]] == [path.name for path in written[1]]


def test_a_fork_does_not_wait_for_threads_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "_started", {"tokie": -1, "gigatoken": -1})
    assert not fast.usable("tokie 1") and fast.usable("gigatoken 1") and fast.usable("fastokens 1")


def test_rows_are_lists_and_back() -> None:
    rows = Rows.of([[1, 2], [], [3]])
    assert rows.lists() == [[1, 2], [], [3]]
    assert rows.replaced([1], Rows.of([[7, 8]])).lists() == [[1, 2], [7, 8], [3]]
    assert rows.same(Rows.of(rows.lists())) and not rows.same(Rows.of([[1, 2], [3], []]))
    assert np.array_equal(rows.chosen([0, 2]).ids, [1, 2, 3])
