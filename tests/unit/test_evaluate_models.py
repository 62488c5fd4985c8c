"""Readings of tiny random models: exactness, slow twins, floors, both spellings, generation."""

import dataclasses
import json
import math
import shutil

import numpy as np
import polars as pl
import pytest

torch = pytest.importorskip("torch", reason="evaluating needs the model extra")
transformers = pytest.importorskip("transformers", reason="evaluating needs the model extra")

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors  # noqa: E402

from tokengraft.api.verbs import evaluate  # noqa: E402
from tokengraft.core.errors import CorpusError, ModelError, UsageError  # noqa: E402
from tokengraft.corpus.parallel import ParallelCorpus  # noqa: E402
from tokengraft.evaluating.both_spellings import grow, read_tree, stretches  # noqa: E402
from tokengraft.evaluating.continuation import Continuation  # noqa: E402
from tokengraft.evaluating.evaluate import Measuring, _translation  # noqa: E402
from tokengraft.evaluating.fidelity import BaseReading, View  # noqa: E402
from tokengraft.evaluating.lines import Segmenter, prepare  # noqa: E402
from tokengraft.model.folder import resolve  # noqa: E402
from tokengraft.model.frozen import FrozenModel, NewRows  # noqa: E402
from tokengraft.model.reading import LineStates, read  # noqa: E402
from tokengraft.model.tokenizer_files import surroundings  # noqa: E402
from tokengraft.paper.claim_folder import save_fidelity  # noqa: E402
from tokengraft.paper.grid import (  # noqa: E402
    Cells,
    Grid,
    Settings,
)
from tokengraft.planning.plan import Planning  # noqa: E402
from tokengraft.tokenizer.convert import from_wordpiece  # noqa: E402
from tokengraft.tokenizer.huggingface import HuggingFace  # noqa: E402
from tokengraft.tokenizer.vocabulary import byte_alphabet  # noqa: E402

LATIN = ["the cat sat on the mat", "a dog and a cat", "then the rat ran", "that is all"]
AMHARIC = ["ሰላም ለዓለም", "ሰው ሁሉ ነጻ ሁኖ", "የሰው ልጅ the", "ክብርና መብት", "plain words"]
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("a", "t"), ("á", "Ī")]
EXTRA = [("áĪ", "°"), ("áĪ", "Ī"), ("Ġ", "a")]


def tokenizer_json(merges, bos=True):
    letters = sorted(byte_alphabet(), key=byte_alphabet().get)
    vocab = {"<s>": 0} | {letter: n + 1 for n, letter in enumerate(letters)}
    for left, right in merges:
        vocab[left + right] = len(vocab)
    made = Tokenizer(models.BPE(vocab, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<s>"])
    if bos:
        made.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    return made.to_str()


def write_model(folder, merges, like=None, size=32):
    folder.mkdir()
    text = tokenizer_json(merges)
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    count = len(json.loads(text)["model"]["vocab"])
    config = transformers.LlamaConfig(
        vocab_size=count, hidden_size=size, intermediate_size=48, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        tie_word_embeddings=True, bos_token_id=0, eos_token_id=0, pad_token_id=None,
    )  # fmt: skip
    torch.manual_seed(5)
    model = transformers.LlamaForCausalLM(config)
    if like is None:
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim == 2:
                    weight.normal_(0, 0.25)
    else:
        state = like.state_dict()
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            extra = torch.randn(count - len(state[name]), size) * 0.25
            state[name] = torch.cat([state[name], extra])
        model.load_state_dict(state)
        model.tie_weights()
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    base = write_model(root / "base", MERGES)
    write_model(root / "graft", MERGES + EXTRA, base)
    return root


@pytest.fixture(scope="module")
def base(folders):
    return FrozenModel.load(folders / "base")


@pytest.fixture(scope="module")
def grafted(folders):
    return FrozenModel.load(folders / "graft")


def test_a_model_that_gives_no_numbers_is_not_measured_on_the_rest(folders):
    """A single damaged row: lines without it can still be read, and would be all that counts."""
    broken = FrozenModel.load(folders / "graft")
    rows = broken.model.get_input_embeddings().weight
    with torch.no_grad():
        rows[-1] = float("nan")
    ids = [np.array([1, 2, 3]), np.array([4, len(rows) - 1]), np.array([5])]
    at = [np.arange(len(one)) for one in ids]
    assert torch.isfinite(read(broken, ids[:1], at[:1]).states).all()
    with pytest.raises(ModelError, match=r"states in 1 of 3 lines.*damaged"):
        read(broken, ids, at)


def test_lines_without_a_translation_find_none(base, grafted):
    texts = {"amh_Ethi": (AMHARIC[0], None), "eng_Latn": (None, LATIN[0])}
    apart = ParallelCorpus("test", "test", ("1", "2"), texts)
    assert _translation(base, grafted, apart, "amh_Ethi", Measuring()) == {}


def corpus(**texts):
    texts = {code: tuple(lines) for code, lines in texts.items()}
    count = len(next(iter(texts.values())))
    return ParallelCorpus("test", "test", tuple(map(str, range(count))), texts)


def test_subject_reads_its_folder(base, folders):
    assert (base.kind, base.prefix, base.suffix, base.window) == ("causal", (0,), (), 128)
    assert surroundings(base.tokenizer) == ((0,), ())
    with pytest.raises(UsageError, match="encoder-decoder"):
        (folders / "t5").mkdir()
        (folders / "t5" / "config.json").write_text('{"is_encoder_decoder": true}')
        FrozenModel.load(folders / "t5")
    (folders / "t5" / "config.json").write_text('{"auto_map": {"AutoModel": "own.Model"}}')
    with pytest.raises(ModelError, match="of t5 has an auto_map"):
        FrozenModel.load(folders / "t5")


EXACT = {
    "aligned_cosine": 1.0, "kl": 0.0, "top1": 1.0, "top10": 1.0, "pooled_cosine": 1.0,
    "aligned_pooled_cosine": 1.0, "mutual_rank": 1.0, "retrieval": 1.0,
    "aligned_mutual_rank": 1.0, "aligned_retrieval": 1.0, "continuation_excess": 0.0,
    "centred_mutual_rank": 1.0, "centred_retrieval": 1.0,
}  # fmt: skip


def test_a_graft_of_nothing_is_exact(folders):
    found = evaluate(
        folders / "base", folders / "base", corpus(amh_Ethi=AMHARIC), ["amh_Ethi"], resamples=100
    )
    for metric, value in EXACT.items():
        score = found.score("amh_Ethi", metric)
        assert (score.value, score.low, score.high) == (value, value, value), metric


def test_lines_the_graft_leaves_alone_are_exact_beside_others(base, grafted):
    case = prepare("mul", LATIN + AMHARIC, base, grafted.tokenizer)
    assert any(case.same) and not all(case.same)
    reading = BaseReading(base, case, tokens=64)
    found = reading.compare(reading.read_new(grafted), grafted.head(case.first_new).exact())
    same = np.array(case.same)
    for metric in ("aligned_cosine", "kl", "top1", "pooled_cosine"):
        sums = found[metric]
        exact = np.zeros(same.sum()) if metric == "kl" else sums.denominator[same]
        assert (sums.numerator[same] == exact).all(), metric
        assert not (sums.numerator[~same] == sums.denominator[~same]).any(), metric


def test_latin_text_with_nothing_to_add_scores_exactly_one(base, tmp_path):
    texts = corpus(eng_Latn=LATIN, amh_Ethi=AMHARIC[:4])
    grid = Grid(base, texts, Settings(resamples=20), Cells(tmp_path / "cells"), tmp_path / "states")
    grid.paper(["eng_Latn", "amh_Ethi"], texts)
    latin = [row for row in grid.rows if row["language"] == "eng_Latn"]
    assert len({row["method"] for row in latin}) == 40
    for row in latin:
        if row["metric"] in EXACT:
            assert row["value"] == EXACT[row["metric"]], row
    values = {
        (row["method"], row["metric"]): row["value"]
        for row in grid.rows
        if row["language"] == "amh_Ethi"
    }
    assert values["knn k=1 layer norm", "pooled_cosine"] < 1
    from tokengraft.paper import fidelity

    whole = fidelity.run(
        base.folder,
        texts,
        ["amh_Ethi", "eng_Latn"],
        settings=Settings(resamples=20),
        running=fidelity.Running(tmp_path),
    )
    assert whole.verdict is None and not whole.missing
    names = {path.name for path in save_fidelity(whole, tmp_path / "out")}
    assert {"grid.csv", "pooled_cosine.tex", "paper-kl.csv", "fidelity.json"} <= names
    assert whole.table("kl").height == 40
    assert whole.best()["language"].to_list() == ["amh_Ethi", "eng_Latn"]
    tex = (tmp_path / "out" / "pooled_cosine.tex").read_text(encoding="utf-8")
    assert r"{\tiny .059}" in tex  # the paper's Amharic, kNN k = 1, layer 0
    # What is known is not made again.
    again = Grid(base, texts, Settings(resamples=20), Cells(tmp_path / "cells"), deadline=0.0)
    again.strategies = None
    again.paper(["eng_Latn", "amh_Ethi"], texts)
    assert again.rows == grid.rows and not again.missing
    late = Grid(base, texts, Settings(resamples=20), Cells(None), deadline=0.0)
    late.paper(["eng_Latn"], texts)
    assert (late.missing, late.rows) == (40, [])


def test_only_the_languages_that_were_asked_for_are_judged(base, tmp_path):
    """And a mean only over the paper's twelve; with a part of the lines nothing is judged."""
    from tokengraft.paper import fidelity

    named = tmp_path / "Llama-3.2-1B"  # what decides whose figures they are
    shutil.copytree(base.folder, named)
    texts = corpus(amh_Ethi=AMHARIC[:2], eng_Latn=LATIN[:2])
    told = []
    running = fidelity.Running(progress=told.append)
    settings = Settings(resamples=20)
    found = fidelity.run(named, texts, ["amh", "eng_Latn"], settings=settings, running=running)
    assert {cell.column for cell in found.verdict.cells} == {"amh"}
    assert len(found.verdict.cells) == 40 and not found.verdict.holds
    assert "missing" not in {cell.verdict for cell in found.verdict.cells}
    assert {(now.total, now.unit) for now in told} == {(80, "cells")} and told[-1].done == 80
    # The paper's own figures, some off by less than types make up, would be all right.
    theirs = {r: v for (r, c), v in found.claim.expected.items() if c == "amh"}
    layers = fidelity.model_layers(found)
    exact = found.grid.with_columns(
        pl.struct("method", "language", "metric", "value")
        .map_elements(
            lambda cell: (
                theirs[fidelity.paper_row(cell["method"], layers)] + 0.9 * found.claim.tolerance
                if cell["language"] == "amh_Ethi" and cell["metric"] == "pooled_cosine"
                else cell["value"]
            ),
            pl.Float64,
        )
        .alias("value")
    )
    again = fidelity._judged(dataclasses.replace(found, grid=exact), ["amh_Ethi", "eng_Latn"])
    assert again.verdict.holds and again.verdict.line == "40 of 40 reproduced"
    part = fidelity.run(named, texts, ["amh"], settings=Settings(lines=1, resamples=20))
    assert part.verdict is None


def test_linear_at_layer_0_is_the_mean_and_knn_2_agrees_on_two_parts(base):
    from tokengraft.model.frozen import FrozenModel
    from tokengraft.paper.grid import paper_rows

    parts = [(10, 20), (30, 40, 50), (60, 70)]
    made = {
        str(cell): rows
        for cell, rows in paper_rows(FrozenModel(base.model), parts, layers=[0], anchors=256)
    }
    table = base.weight.detach().numpy()
    mean = np.stack([table[list(one)].mean(0) for one in parts])
    np.testing.assert_allclose(made["linear layer 0"], mean, atol=1e-5)
    np.testing.assert_allclose(made["knn k=2 layer 0"][[0, 2]], mean[[0, 2]], atol=1e-5)


def test_slow_twin(base, grafted):
    """Everything again, line by line, with transformers' own forward and textbook formulas."""
    lines = AMHARIC + LATIN
    case = prepare("mul", lines, base, grafted.tokenizer)
    reading = BaseReading(base, case, tokens=48)
    fast = reading.compare(reading.read_new(grafted), grafted.head(case.first_new).exact())
    slow = {name: [] for name in ("cosine", "kl", "top1", "pooled")}
    with torch.no_grad():
        for line in lines:
            sides = []
            for subject in (base, grafted):
                ids = subject.tokenizer.pipeline.encode(line).ids
                out = subject.model(input_ids=torch.tensor([ids]), output_hidden_states=True)
                pieces = [subject.tokenizer.vocabulary.pieces[i] for i in ids[1:]]
                ends = {len(b"".join(pieces[: n + 1])): n + 1 for n in range(len(pieces))}
                sides.append((out.hidden_states[-1][0], out.logits[0, :, : case.first_new], ends))
            (h0, z0, e0), (h1, z1, e1) = sides
            for end in sorted(e0.keys() & e1.keys()):
                a, b = h0[e0[end]], h1[e1[end]]
                slow["cosine"].append(float(a @ b / a.norm() / b.norm()))
                p, q = z0[e0[end]].softmax(-1), z1[e1[end]].softmax(-1)
                slow["kl"].append(float((p * (p / q).log()).sum()))
                slow["top1"].append(float(p.argmax() == q.argmax()))
            a, b = h0.mean(0), h1.mean(0)
            slow["pooled"].append(float(a @ b / a.norm() / b.norm()))
    assert fast["aligned_cosine"].denominator.sum() == len(slow["cosine"])
    for name, twin in (
        ("aligned_cosine", "cosine"), ("kl", "kl"), ("top1", "top1"), ("pooled_cosine", "pooled"),
    ):  # fmt: skip
        assert fast[name].value == pytest.approx(np.mean(slow[twin]), rel=1e-4, abs=1e-6), name


def test_rows_in_place_equal_a_grafted_folder(base, grafted):
    case = prepare("amh_Ethi", AMHARIC, base, grafted.tokenizer)
    rows = grafted.weight.detach()[case.first_new :]
    at = [pair.new_at for pair in case.pairs]
    by_rows = read(base, case.new, at, new=NewRows(case.first_new, rows))
    by_folder = read(grafted, case.new, at)
    assert torch.equal(by_rows.states, by_folder.states)
    assert (by_rows.pooled == by_folder.pooled).all()


def test_text_of_single_bytes_has_no_ceiling(folders):
    """Nothing of it can be cut: a ceiling would be the same reading twice, a perfect score."""
    tamil = ["அவன் வந்தான்", "எல்லா மக்களும்", "உரிமை உண்டு", "சமமான", "மனிதர்"]
    texts = corpus(tam_Taml=tamil, amh_Ethi=AMHARIC)
    found = evaluate(folders / "base", folders / "graft", texts, ["tam_Taml", "amh_Ethi"],
                     resamples=20)  # fmt: skip
    for metric in ("kl", "top1", "aligned_cosine", "continuation_bpb", "continuation_excess"):
        score = found.score("tam_Taml", metric)
        assert score.ceiling is None and score.floor is not None, metric
    assert found.score("amh_Ethi", "kl").ceiling > 0
    assert [note for note in found.notes if "no ceiling for tam_Taml:" in note]
    assert found.to_json()["notes"] == list(found.notes)
    assert len(repr(found)) < 200
    from tokengraft.render.terminal import score_cell

    row = found.scores.filter(language="tam_Taml", metric="kl").row(0, named=True)
    assert score_cell(row).endswith("][/dim]") and "→" not in score_cell(row)
    rank = {"value": 35.098, "floor": 506.5, "ceiling": None}
    assert score_cell(rank) == r"35.1 [dim]\[506][/dim]"


def test_a_copy_is_read_as_the_embedded_model_is(tmp_path):
    place = resolve("rootstock").path
    copy = shutil.copytree(place, tmp_path / "copy")
    by_name, by_path = (FrozenModel.load(one) for one in ("rootstock", copy))
    assert by_name.window == by_path.window == 512


def test_floors_and_ceiling(base, grafted):
    case = prepare("amh_Ethi", AMHARIC, base, grafted.tokenizer)
    reading = BaseReading(base, case)
    unrelated, mean_row = reading.unrelated(), reading.mean_row()
    assert unrelated["kl"] > 0 and unrelated["top1"] < 1
    assert mean_row["kl"] > 0
    ceiling = reading.ceiling()
    assert ceiling.keys() == unrelated.keys()
    assert 0 < ceiling["kl"] < unrelated["kl"]
    sampled = BaseReading(base, case, most_positions=7)
    assert (
        sampled.compare(View.of(read(base, case.old, [p.old_at for p in case.pairs])))[
            "kl"
        ].denominator.sum()
        == 7
    )


def test_segmenter_spells_the_same_text(base):
    cut = Segmenter(base.tokenizer, share=0.9, seed=1)
    ids = np.array(base.tokenizer.encode(["the cat sat on the mat at that"])[0])
    other, ends = cut(ids)
    pieces = base.tokenizer.vocabulary.pieces

    def spell(numbers):
        return b"".join(pieces[n] for n in numbers)

    assert len(other) > len(ids)
    assert spell(other) == spell(ids)
    for place, end in enumerate(ends):
        assert spell(other[: end + 1]) == spell(ids[: place + 1])
    assert (cut(ids)[0] == other).all()
    assert len(cut(ids, room=1)[0]) == len(ids) + 1
    assert (cut(ids, room=0)[0] == ids).all()
    assert all(b"".join((pieces[a], pieces[b])) == b"the" for a, b in cut.cuts(258))


def test_continuation_by_hand(base, grafted):
    line = "ሰላም ለዓለም ሁሉ"
    case = prepare("amh_Ethi", [line], base, grafted.tokenizer)
    found = Continuation(base, case)
    bits = found.measure(grafted, head=grafted.head(case.first_new).exact())
    prompt, rest = found.halves.new[0].tolist(), found.halves.rest[0].tolist()
    with torch.no_grad():
        ids = [0, *prompt, *rest]
        logits = grafted.model(input_ids=torch.tensor([ids])).logits[0, :, : case.first_new]
        logs = logits.log_softmax(-1)
    expected = -sum(float(logs[len(prompt) + n, token]) for n, token in enumerate(rest)) / math.log(
        2
    )
    assert bits[0] == pytest.approx(expected, rel=1e-5)
    pieces = base.tokenizer.vocabulary.pieces
    assert found.halves.size[0] == sum(len(pieces[t]) for t in rest)
    second = b"".join(pieces[t] for t in rest).decode()  # whole characters
    first = grafted.tokenizer.decode([prompt])[0]
    assert first + second == line and first and second
    assert any(t >= case.first_new for t in prompt)


def test_both_spellings_against_separate_passes(base, grafted):
    case = prepare("amh_Ethi", AMHARIC[:1], base, grafted.tokenizer)
    pair = case.pairs[0]
    parts = stretches(pair, True)
    assert sum(part.differs for part in parts) >= 1
    tree = grow(grafted.prefix, pair.new, parts)
    logs = (read_tree(grafted, tree) @ grafted.head().exact().weight.T).log_softmax(-1)
    with torch.no_grad():
        for part, at in zip(parts, tree.old_at, strict=True):
            if not part.differs:
                continue
            before = [0, *pair.new[: part.start].tolist()]
            ids = [*before, *part.old.tolist()]
            alone = grafted.model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
            for n, token in enumerate(part.old.tolist()):
                expected = float(alone[len(before) - 1 + n, token])
                assert float(logs[at[n], token]) == pytest.approx(expected, abs=1e-4)


def test_evaluate_writes_everything(folders, tmp_path):
    found = evaluate(
        folders / "base", folders / "graft", corpus(amh_Ethi=AMHARIC, eng_Latn=AMHARIC[::-1]),
        ["amh", "eng"], 4, resamples=50, shared=True, prompts=1,
    )  # fmt: skip
    names = {path.name for path in found.save(tmp_path / "out")}
    assert {"evaluation.json", "scores.csv", "sizes.csv", "generation.csv", "samples.csv",
            "fidelity.png", "fidelity.svg"} <= names  # fmt: skip
    saved = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    row = next(r for r in saved["scores"] if r["metric"] == "kl")
    assert row["value"] > 0 and row["floor"] is not None and row["ceiling"] is not None
    assert row["low"] <= row["value"] <= row["high"] and "nats" in row["definition"]
    split = found.score("amh_Ethi", "vote_split")
    assert 0 <= split.value <= 1
    both, new = (found.score("amh_Ethi", m).value for m in ("shared_bpb", "new_spelling_bpb"))
    assert both < new
    costs = {
        row["model"]: row for row in found.generation.to_dicts() if row["language"] == "amh_Ethi"
    }
    assert costs["graft"]["tokens_per_prompt"] < costs["base"]["tokens_per_prompt"]
    # Two layers' keys and values: 2 · 3 blocks · 2 heads · 8 · 4 bytes for a token.
    assert costs["base"]["cache_bytes_per_character"] == pytest.approx(
        384 * costs["base"]["tokens_per_prompt"] / len(AMHARIC[0])
    )
    assert {row["way"] for row in found.samples.to_dicts()} == {"greedy", "sampled"}
    with pytest.raises(UsageError, match="no 'nonsense'"):
        found.score("amh_Ethi", "nonsense")
    with pytest.raises(UsageError, match="name them"):
        evaluate(folders / "base", folders / "graft")
    with pytest.raises(CorpusError, match="evaluation corpus"):
        long = "one line that is surely longer than it needs to be"
        evaluate(folders / "base", folders / "graft", corpus(eng_Latn=[long]), ["eng"], text=[long])


def test_encoder(tmp_path):
    spec = json.loads(tokenizer_json(MERGES))
    for name, merges in (("base", MERGES), ("graft", MERGES + EXTRA)):
        (tmp_path / name).mkdir()
        text = tokenizer_json(merges)
        (tmp_path / name / "tokenizer.json").write_text(text, encoding="utf-8")
        count = len(json.loads(text)["model"]["vocab"])
        config = transformers.BertConfig(
            vocab_size=count, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=96, architectures=["BertModel"],
        )  # fmt: skip
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(tmp_path / name)
    texts = corpus(amh_Ethi=AMHARIC)
    found = evaluate(tmp_path / "base", tmp_path / "base", texts, ["amh"], resamples=20)
    assert found.kind == "encoder"
    measured = set(found.scores["metric"])
    assert "kl" not in measured and "continuation_bpb" not in measured
    for metric in measured:
        assert found.score("amh_Ethi", metric).value == EXACT[metric]
    other = evaluate(tmp_path / "base", tmp_path / "graft", texts, ["amh"], resamples=20)
    assert other.score("amh_Ethi", "aligned_cosine").value < 1
    assert len(spec["model"]["vocab"]) < len(HuggingFace.from_json(
        "g", "g", (tmp_path / "graft" / "tokenizer.json").read_bytes()).vocabulary)  # fmt: skip


def test_default_mode_refuses_text_of_the_evaluation_corpus(base):
    from tokengraft.paper.fidelity import DefaultMode, run_default

    lines = ["ሰው ሁሉ ነጻ ሁኖ ተወልዶ በክብርና በመብት እኩል ነው", "የማሰብና የማመዛዘን ችሎታ ስላለው ወንድማማች ነው"]
    grid = Grid(base, corpus(amh_Ethi=lines), Settings(), Cells(None))
    with pytest.raises(CorpusError, match="evaluation corpus"):
        run_default(grid, ["amh_Ethi"], {"amh_Ethi": ["ሌላ", lines[1]]}, DefaultMode(budget=3))


def test_default_mode_judges_the_forty_on_its_own_plan(base):
    from tokengraft.paper.fidelity import DefaultMode, run_default
    from tokengraft.planning.choose import plan_tokens

    judged = ["ሰው ሁሉ ነጻ ሁኖ ተወልዶ በክብርና በመብት እኩል ነው", "የማሰብና የማመዛዘን ችሎታ ስላለው ወንድማማች ነው"]
    text = ["ሰው ሁሉ እኩል ነው", "በክብርና በመብት ነው", "ሁሉም ሰው ነጻ ነው"]
    grid = Grid(base, corpus(amh_Ethi=judged), Settings(resamples=20), Cells(None))
    plan = plan_tokens(grid.spec, {"amh_Ethi": text}, Planning(budget=4))
    told = []
    run_default(
        grid, ["amh_Ethi"], {"amh_Ethi": text}, DefaultMode(["paper", "mean"], continuation=False),
        plans={"amh_Ethi": plan}, on_rows=lambda *given: told.append(given),
    )  # fmt: skip
    kl = {row["method"]: row["value"] for row in grid.rows if row["metric"] == "kl"}
    assert len(kl) == 41 and len(grid.sizes) == 1
    assert kl["mean"] == pytest.approx(kl["linear layer 0"], abs=1e-5)
    assert not any("continuation" in row["metric"] for row in grid.rows)
    ((code, name, made),) = told
    assert (code, name, len(made.rows)) == ("amh_Ethi", "mean", len(plan.tokens))


def test_means_of_lines_are_those_of_a_loop():
    import torch

    states = torch.randn(7, 3)
    counts = np.array([2, 0, 4, 1])
    found = LineStates(states, counts, np.zeros((4, 3))).means()
    assert np.isnan(found[1]).all()
    for line, (start, stop) in {0: (0, 2), 2: (2, 6), 3: (6, 7)}.items():
        expected = states[start:stop].double().mean(0).numpy()
        np.testing.assert_allclose(found[line], expected, rtol=1e-12)
    assert np.isnan(LineStates(states[:0], np.zeros(2, np.int64), np.zeros((2, 3))).means()).all()


def test_segmenter_marks_wordpiece_continuations():
    words = ["[UNK]", "un", "##do", "##ing", "##d", "##o", "undo", "##in", "##g", "u", "##n"]
    parsed = json.dumps(from_wordpiece(words, lowercase=True)).encode()
    tokenizer = HuggingFace.from_json("w", "w", parsed)
    cut = Segmenter(tokenizer)
    names = [[words[a], words[b]] for a, b in cut.cuts(words.index("undo"))]
    assert names == [["un", "##do"]]
    assert [[words[a], words[b]] for a, b in cut.cuts(2)] == [["##d", "##o"]]
    assert cut.cuts(0) == ()
