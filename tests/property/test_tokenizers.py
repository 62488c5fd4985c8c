"""Over all of Unicode: what the adapters promise about text, pieces and cuts."""

from __future__ import annotations

import functools
import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from tokengraft.auditing.count import Counts, count
from tokengraft.auditing.count_corpus import groups
from tokengraft.corpus import load as load_corpus
from tokengraft.tokenizer import find, load
from tokengraft.tokenizer.adapters import count_batch, for_oniguruma, pretoken_counter
from tokengraft.tokenizer.catalog import BUNDLED
from tokengraft.tokenizer.openai import PATTERNS
from tokengraft.tokenizer.pre_tokenizer import GPT2
from tokengraft.tokenizer.rows import count_pieces
from tokengraft.tokenizer.vocabulary import recovered_text

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
opened = functools.cache(load)


@pytest.mark.parametrize("name", BUNDLED)
@settings(max_examples=60, deadline=None)
@given(batch=st.lists(texts, min_size=1, max_size=6))
def test_batches_equal_single_texts(name, batch):
    tokenizer = opened(name)
    assert tokenizer.encode(batch) == [tokenizer.encode([text])[0] for text in batch]


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", "o200k_base", "llama-3", "olmo-2"])
@settings(max_examples=150, deadline=None)
@given(text=texts)
def test_lossless_means_lossless(name, text):
    """What claims to be lossless is: the text comes back and the pieces spell its bytes."""
    tokenizer = opened(name)
    assert tokenizer.lossless
    (ids,) = tokenizer.encode([text])
    assert tokenizer.decode([ids]) == [text]
    assert b"".join(tokenizer.vocabulary.pieces[n] for n in ids) == text.encode()


@pytest.mark.parametrize("name", ["gpt2", "cl100k_base", "o200k_base", "llama-3", "claude-2.1"])
@settings(max_examples=100, deadline=None)
@given(text=texts)
def test_no_text_is_below_the_floor(name, text):
    tokenizer = opened(name)
    assert len(tokenizer.encode([text])[0]) >= tokenizer.pretokens([text])[0]


def slow_count(tokenizer, texts):
    """Counts the long way round: one text, one token, one character at a time."""
    rows = []
    for text in texts:
        (ids,) = tokenizer.encode([text])
        inside = unks = 0
        for number in ids:
            piece = tokenizer.vocabulary.pieces[number]
            if piece and 0x80 <= piece[0] <= 0xBF:
                inside += 1
            if number in tokenizer.vocabulary.unknown:
                unks += 1
        exact = int(tokenizer.decode([ids])[0] == text)
        cuts = tokenizer.pretokens([text])
        rows.append((len(ids), unks, inside, exact, -1 if cuts is None else int(cuts[0])))
    return rows


@pytest.mark.parametrize("name", ["t5", "mistral-v0.3", "bert-multilingual", "llama-3", "gpt2"])
@settings(max_examples=40, deadline=None)
@given(batch=st.lists(texts, min_size=1, max_size=5))
def test_count_equals_its_slow_twin(name, batch):
    tokenizer = opened(name)
    counts = count(tokenizer, batch)
    fields = ("tokens", "unks", "inside", "exact", "pretokens")
    table = list(zip(*(getattr(counts, f).tolist() for f in fields), strict=True))
    assert table == slow_count(tokenizer, batch)


@given(st.lists(st.tuples(*[st.integers(-1, 2**31 - 1)] * 6), max_size=20))
def test_packed_counts_come_back(rows):
    table = np.array(rows, np.int64).reshape(-1, 6).T
    back = Counts.unpack(Counts(*table).pack())
    for field, column in zip(
        ("tokens", "unks", "inside", "exact", "pretokens", "dropped"), table, strict=True
    ):
        assert getattr(back, field).tolist() == column.tolist()


@given(st.binary(max_size=12))
def test_recovered_text_is_inside_the_piece(piece):
    text = recovered_text(piece)
    assert text == "" or text.encode() in piece


STARTS = {b"", *(bytes([n]) for n in range(256) if not 0x80 <= n < 0xC0)}
FIELDS = ("tokens", "unks", "inside", "exact", "pretokens", "dropped")
# Where cuts go wrong: lone and doubled spaces, other white space, signs that NFKC turns into a
# space and a mark, marks after a space, marks that SentencePiece and BERT write themselves.
awkward = st.sampled_from(
    [
        *"  .,'aZß1é中ก\u0e33क\u093fً\u0301\u200b\u200c\u00a8ﷺ▁#[]<|>\n\r\t\u00a0\u3000😀",
        *("'s", "<s>", "</s>", "> </b>", "<unk>", "[MASK]", "<mask>", "<|endoftext|>"),
    ]
)
spaced = st.one_of(
    st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.just(" ")), max_size=40),
    st.lists(awkward, max_size=24).map("".join),
)


def pieces_by_library(tokenizer, texts):
    if tokenizer.pretokens(["a"]) is None:
        return None
    return count_batch(tokenizer._counter, texts)


def same_counts(tokenizer, texts):
    """The counts of the texts against those of `_encode`, `decode` and the counter itself."""
    fast = count(tokenizer, texts)
    ids = tokenizer._encode(texts)
    pieces, unknown = tokenizer.vocabulary.pieces, tokenizer.vocabulary.unknown
    cuts, dropped = pieces_by_library(tokenizer, texts), tokenizer.dropped(texts)
    whole = Counts(
        np.array([len(row) for row in ids]),
        np.array([sum(n in unknown for n in row) for row in ids]),
        np.array([sum(pieces[n][:1] not in STARTS for n in row) for row in ids]),
        np.array([a == b for a, b in zip(tokenizer.decode(ids), texts, strict=True)]),
        np.full(len(texts), -1) if cuts is None else cuts,
        np.zeros(len(texts)) if dropped is None else dropped,
    )
    for field in FIELDS:
        differ = np.flatnonzero(getattr(fast, field) != getattr(whole, field))
        assert not len(differ), (field, texts[differ[0]])


@pytest.mark.parametrize("name", BUNDLED)
@settings(max_examples=80, deadline=None)
@given(batch=st.lists(spaced, min_size=1, max_size=8))
@example(batch=["0▁", "0"])
@example(batch=["▁0", "0", "a ▁", "0▁0 ▁"])
@example(batch=["a \u200b", "a b\u200bc", "\u200b", "b\u200bc", "¨a", "¨"])
def test_counts_are_those_of_the_libraries(name, batch):
    same_counts(opened(name), batch)


@pytest.mark.parametrize("name", BUNDLED)
def test_counts_are_right_for_the_declaration(name):
    """Every line of some languages, other ones for each tokenizer, so that all are read."""
    udhr = load_corpus("udhr")
    place = BUNDLED.index(name)
    lines = [line for code in udhr.languages[place :: len(BUNDLED)] for line in udhr.lines(code)]
    same_counts(opened(name), lines)


@pytest.mark.parametrize("name", BUNDLED)
def test_counts_are_right_for_flores(flores, name):
    same_counts(opened(name), flores_lines(flores, BUNDLED.index(name)))


OTHERS = [
    *("m2m100", "qwen3", "deepseek-v3", "mistral-nemo", "command-r-plus", "gemma3", "llama2"),
    "mt5",
]


@functools.cache
def not_bundled(name, folder):
    return find(name, [folder, folder.with_name("modern.tar.xz")]).open()


#: Byte-level BPE as Llama 3 is; the test of every line has them.
ALIKE = ("qwen3", "deepseek-v3", "mistral-nemo", "command-r-plus")


@pytest.mark.parametrize("name", [name for name in OTHERS if name not in ALIKE])
def test_counts_are_right_for_other_tokenizers(flores, paper_tokenizers, name):
    tokenizer = not_bundled(name, paper_tokenizers)
    same_counts(tokenizer, flores_lines(flores, 0))
    same_counts_of_any_text(tokenizer)


def same_counts_of_any_text(tokenizer):
    @settings(max_examples=40, deadline=None)
    @example(batch=["▁▁", "a▁▁▁b", "a ▁▁"])  # Gemma has added tokens for these
    @given(batch=st.lists(spaced, min_size=1, max_size=8))
    def any_text(batch):
        same_counts(tokenizer, batch)

    any_text()


@pytest.mark.slow  # a quarter of an hour
@pytest.mark.parametrize("name", [*BUNDLED, *OTHERS])
def test_counts_are_right_for_every_line(flores, paper_tokenizers, name):
    """All of the declaration and of FLORES-200, every figure of every line; and any text."""
    tokenizer = opened(name) if name in BUNDLED else not_bundled(name, paper_tokenizers)
    same_counts_of_any_text(tokenizer)
    for corpus in (load_corpus("udhr"), load_corpus(flores)):
        for codes in groups(corpus):  # as an audit counts them
            same_counts(tokenizer, [line for code in codes for line in corpus.lines(code)])


def test_sentencepiece_without_buffers_gives_the_same_ids():
    """Another version may lack the call behind its arrays, or give something else by it."""
    lines = ["Fair tokens.", "", "ಕನ್ನಡ ⁇", "a  b"]
    rows, wanted = opened("t5").encode_texts(lines), opened("t5").encode(lines)
    assert [ids.tolist() for ids in rows.arrays()] == wanted
    for other in (object(), SimpleNamespace(_EncodeAsBufferBatch=lambda texts, *_: [b""])):
        tokenizer = find("t5").open()
        processor = SimpleNamespace(encode=tokenizer.processor.encode, _processor=other)
        tokenizer.processor = processor
        assert [ids.tolist() for ids in tokenizer.encode_texts(lines).arrays()] == wanted


flores_corpus = functools.cache(functools.partial(load_corpus, split="dev"))


def flores_lines(path, place):
    corpus = flores_corpus(path)
    return [line for code in corpus.languages for line in corpus.lines(code)[place::100]]


def test_two_engines_agree_what_every_character_is():
    """Pieces of words are counted by polars, which must cut as `tokenizers` does."""
    kinds = {char: unicodedata.category(char) for char in map(chr, range(0x110000))}
    left_out = ("Cn", "Co", "Cs")  # and nearly all of the 100,000 letters of CJK and Hangul
    chars = [
        char
        for char, kind in kinds.items()
        if kind not in left_out and not char.isspace() and (kind != "Lo" or not ord(char) % 20)
    ]
    words = [f"x{char}1{char}!{char}X'" for char in chars] + [f"x {char}" for char in chars]
    llama = opened("llama-3")._patterns
    for pattern in (*PATTERNS.values(), GPT2, *llama):
        cutter = Split(Regex(for_oniguruma(pattern)), "isolated")
        slow = count_batch(pretoken_counter(cutter), words)
        counts, left = count_pieces(pattern, words)
        differ = {*np.flatnonzero(counts != slow).tolist()} - {*left.tolist()}
        assert not differ, (pattern, words[min(differ)])
        assert len(left) < len(words) / 100
    for unknown in (r"\p{L}+|\s", r"\p{L}+ \p{L}+|\s+", r"[^\r\n]+|\s"):
        assert count_pieces(unknown, ["ab"]) is None
