"""Models and texts at the edge: ids beyond the table, full windows, sliding layers, one line."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import polars as pl
import pytest

torch = pytest.importorskip("torch", reason="evaluating needs the model extra")
transformers = pytest.importorskip("transformers", reason="evaluating needs the model extra")

from helpers.tiny_models import copy, edit, make, new_rows, plan, texts, tokenizer_json  # noqa: E402
from tokengraft.api.verbs import evaluate  # noqa: E402
from tokengraft.core.errors import UsageError  # noqa: E402
from tokengraft.corpus.parallel import ParallelCorpus  # noqa: E402
from tokengraft.deriving.derive import derive_rows  # noqa: E402
from tokengraft.evaluating.both_spellings import (  # noqa: E402
    _line,
    fitting,
    readable,
    stretches,
)
from tokengraft.evaluating.continuation import halve  # noqa: E402
from tokengraft.evaluating.lines import Case, prepare  # noqa: E402
from tokengraft.evaluating.score import Measurements  # noqa: E402
from tokengraft.grafting.graft import Finishing, Output, graft  # noqa: E402
from tokengraft.model.frozen import FrozenModel  # noqa: E402
from tokengraft.model.tokenizer_files import (  # noqa: E402
    base_tokenizer,
)
from tokengraft.paper import fidelity  # noqa: E402
from tokengraft.paper.fidelity import DefaultMode, run_default  # noqa: E402
from tokengraft.paper.grid import (  # noqa: E402
    Cells,
    Grid,
    Settings,
)
from tokengraft.planning.choose import plan_tokens  # noqa: E402
from tokengraft.planning.plan import Planning, with_plan  # noqa: E402
from tokengraft.render.evaluation_folder import draw  # noqa: E402
from tokengraft.render.figures.style import save_figure  # noqa: E402
from tokengraft.tokenizer.align import Alignment  # noqa: E402
from tokengraft.tokenizer.huggingface import HuggingFace  # noqa: E402

AMHARIC = "amh_Ethi"
STRATEGIES = 30  # of the paper's: two blocks have three layers, not four

#: Of the grid that the paper prints, without intervals.
PAPER = {"settings": Settings(resamples=0)}


def corpus(lines):
    lines = tuple(lines)
    return ParallelCorpus("test", "test", tuple(map(str, range(len(lines)))), {AMHARIC: lines})


def grafted(base, out):
    graft(
        base,
        plan(),
        out,
        rows=new_rows(),
        output=Output(policy="paper.shared"),
        options=Finishing(verified=False),
    )
    return out


def measured(base, out, lines, **options):
    return evaluate(base, out, corpus(lines), [AMHARIC], resamples=0, **options)


def test_an_added_token_behind_the_table(tmp_path):
    base = make(tmp_path / "base", "llama-tied")
    token = {"id": 320, "content": "<img>", "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}  # fmt: skip
    edit(base / "tokenizer.json", lambda t: t["added_tokens"].append(token))
    steps, out = plan_tokens(base_tokenizer(base), texts(), Planning(budget=6)), tmp_path / "graft"
    graft(
        base,
        steps,
        out,
        rows=new_rows()[:6],
        output=Output(policy="paper.shared"),
        options=Finishing(verified=False),
    )
    lines = texts()[AMHARIC][:2]
    found = measured(base, out, lines, shared=True)
    assert all(math.isfinite(value) for value in found.scores["value"])
    old, new = FrozenModel.load(base), FrozenModel.load(out)
    case = prepare(AMHARIC, lines, old, new.tokenizer)
    assert (case.first_new, case.rows) == (321, 320)
    slow = []
    with torch.no_grad():
        for pair in case.pairs:
            p, q = (
                one.model(input_ids=torch.from_numpy(ids)[None]).logits[0, at, :320].log_softmax(-1)
                for one, ids, at in ((old, pair.old, pair.old_at), (new, pair.new, pair.new_at))
            )
            slow += (p.exp() * (p - q)).sum(-1).tolist()
    assert found.score(AMHARIC, "kl").value == pytest.approx(np.mean(slow), rel=1e-4)
    assert len(fidelity.run(base, corpus(lines), [AMHARIC], **PAPER).table("kl")) == STRATEGIES


@pytest.fixture(scope="module")
def sentencepiece_base(tmp_path_factory):
    """A model with a `tokenizer.model` only, whose class puts <s> before every text."""
    sentencepiece = pytest.importorskip("sentencepiece")
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts()["eng_Latn"]), model_writer=made, vocab_size=340,
        model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
        minloglevel=2, num_threads=1,
    )  # fmt: skip
    folder = make(tmp_path_factory.mktemp("sentencepiece") / "base", "llama-tied", rows=340)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(made.getvalue())
    settings = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "bos_token": "<s>",
                "eos_token": "</s>", "unk_token": "<unk>", "legacy": False}  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def test_a_sentencepiece_base_is_read_with_its_start(sentencepiece_base, tmp_path):
    base, lines = sentencepiece_base, texts()[AMHARIC]
    spec = base_tokenizer(base)
    steps = plan_tokens(spec, {AMHARIC: lines}, Planning(budget=6))
    rows = np.random.default_rng(0).normal(0, 0.3, (len(steps.tokens), 16)).astype(np.float32)
    out = tmp_path / "graft"
    graft(base, steps, out, rows=rows, options=Finishing(verified=False))
    theirs = transformers.AutoTokenizer.from_pretrained(base)("a")["input_ids"]
    assert (
        FrozenModel.load(base).prefix == FrozenModel.load(out).prefix == (1,) == tuple(theirs[:1])
    )
    found = measured(base, out, lines[:3])
    assert found.score(AMHARIC, "kl").ceiling is not None or found.notes
    # Rows learnt from text are learnt behind it too.
    given = {"text": lines, "tokenizer": with_plan(spec, steps)}
    parts = [token.parts for token in steps.tokens]
    by_folder = derive_rows(base, parts, "paper.context", **given)
    by_file = FrozenModel.load(base)
    by_file.tokenizer = HuggingFace.from_parsed("file", spec)
    assert by_file.prefix == (1,)
    assert (by_folder.rows == derive_rows(by_file, parts, "paper.context", **given).rows).all()
    whole = fidelity.run(base, corpus(lines[:2]), [AMHARIC], **PAPER)
    assert len(whole.table("kl")) == STRATEGIES


def test_other_special_tokens_are_no_graft(tmp_path):
    base = make(tmp_path / "base", "llama-tied")
    other = copy(base, tmp_path / "other")
    start = {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}
    ids = {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}
    template = {"type": "TemplateProcessing", "single": [start, {"Sequence": {"id": "A",
                "type_id": 0}}], "pair": [start, {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<|endoftext|>": ids}}  # fmt: skip
    edit(other / "tokenizer.json", lambda t: t.update(post_processor=template))
    with pytest.raises(UsageError, match=r"base puts \[\] before .* other \[0\] and \[\]"):
        measured(base, other, texts()[AMHARIC][:2])


def test_learned_positions_are_never_exceeded(tmp_path):
    """GPT-2 fails at the first token behind its window."""
    base = make(tmp_path / "base", "gpt2")
    out = grafted(base, tmp_path / "graft")
    lines = [" ".join(texts()[AMHARIC][n : n + 9]) for n in (0, 9)] + texts()[AMHARIC][:2]
    english = texts()["eng_Latn"]  # whose tokens can be cut, for the ceiling
    every = [*lines, " ".join(english), *english[:4]]
    found = measured(base, out, every, shared=True, prompts=1)
    assert found.sizes["cut_short"].item() == 4
    assert found.score(AMHARIC, "continuation_bpb").ceiling is not None
    cost = found.generation.filter(model="base").row(0, named=True)
    assert cost["tokens_per_prompt"] == 256 - 32
    # 2 · 2 layers · 16 · 4 bytes for a token, over the characters that were read.
    tokenizer = FrozenModel.load(base).tokenizer
    read = tokenizer.decode([tokenizer.encode(lines[:1])[0][: 256 - 32]])[0].rstrip("\ufffd")
    assert cost["cache_bytes_per_character"] == pytest.approx(256 * (256 - 32) / len(read))
    narrow = measured(base, out, lines, window=24, prompts=1)
    assert narrow.generation.filter(model="base")["tokens_per_prompt"].item() == 12


def test_prompts_in_more_tokens_leave_less_of_the_rest():
    """A plan of single characters may cut what was one token."""
    pair = Alignment(np.arange(6), np.arange(9), np.array([1, 2, 3, 5]), np.array([4, 5, 6, 8]))
    sizes, inside = np.ones(9, np.int64), np.zeros(9, bool)
    case = Case("x", (pair,), (False,), sizes, inside, 9, 9, 9, (True,), np.array([True]))
    halves = halve(case)
    assert max(len(halves.old[0]), len(halves.new[0])) + len(halves.rest[0]) <= case.room
    assert len(halves.rest[0]) == halves.size[0] > 0
    # Old spellings of 2, 1, 1 and 2 tokens behind 0, 5, 6 and 7 new ones.
    assert [len(fitting(pair, room)) for room in (9, 8, 7, 6, 5, 1)] == [4, 3, 3, 2, 1, 0]
    assert fitting(pair, 7).old.tolist() == [0, 1, 2, 3]
    assert fitting(pair, 7).new.tolist() == list(range(7))


@pytest.mark.parametrize("kind", ["gemma3", "mistral", "llama-tied"])
def test_both_spellings_in_sliding_windows(tmp_path, kind):
    base = make(tmp_path / "base", kind)
    layers = ["sliding_attention", "full_attention"]
    slides = {"sliding_window": 8} | ({"layer_types": layers} if kind == "gemma3" else {})
    if kind != "llama-tied":
        edit(base / "config.json", lambda config: config.update(slides))
    new = FrozenModel.load(grafted(base, tmp_path / "graft"))
    case = prepare(AMHARIC, [texts()[AMHARIC][1]], FrozenModel.load(base), new.tokenizer)
    pair = case.pairs[0]
    parts = stretches(pair, False)[:12]
    assert sum(part.differs for part in parts[-6:]) and parts[-1].start > 10
    version = tuple(map(int, transformers.__version__.split(".")[:2]))
    assert readable(new, pair) == (kind != "gemma3" or version >= (4, 53))
    if not readable(new, pair):
        return

    def slow(start, ids):
        before = pair.new[:start].tolist()
        with torch.no_grad():
            logits = new.model(input_ids=torch.tensor([[*before, *ids]])).logits[0]
        logs = logits.double().log_softmax(-1)[start - 1 : -1]
        return float(logs[range(len(ids)), ids].sum())

    own = [slow(part.start, part.new.tolist()) for part in parts]
    both = [
        np.logaddexp(mine, slow(part.start, part.old.tolist())) if part.differs else mine
        for part, mine in zip(parts, own, strict=True)
    ]
    found = _line(new, new.head().exact(), pair, parts, None)
    assert found[:2] == pytest.approx([-sum(both) / np.log(2), -sum(own) / np.log(2)], rel=1e-5)


def test_a_model_that_reads_no_tree_is_left_out_with_a_note(tmp_path):
    """Bloom takes its positions from the mask, which must be a plain one."""
    folder = make(tmp_path / "base", "llama-tied")
    config = transformers.BloomConfig(
        vocab_size=400, hidden_size=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    torch.manual_seed(0)
    transformers.BloomForCausalLM(config).save_pretrained(folder)
    out = copy(folder, tmp_path / "graft")
    spec = with_plan(base_tokenizer(folder), plan())
    (out / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    lines = texts()[AMHARIC][:1]
    found = measured(folder, out, lines, against=False, shared=True)
    assert [note for note in found.notes if note.startswith("no shared_bpb for amh_Ethi")]


def test_one_line_has_no_unrelated_floor_and_n_counts_lines(tmp_path):
    base = make(tmp_path / "base", "llama-tied")
    out = grafted(base, tmp_path / "graft")
    one = measured(base, out, texts()[AMHARIC][:1])
    for metric in ("continuation_bpb", "continuation_excess", "kl"):
        score = one.score(AMHARIC, metric)
        assert score.unrelated is None and score.floor == score.mean_row is not None
    three = measured(base, out, texts()[AMHARIC][:3])
    assert three.score(AMHARIC, "continuation_excess").n == 3
    assert three.score(AMHARIC, "continuation_excess").unrelated is not None


def test_cells_know_the_text_their_rows_were_learnt_from(tmp_path):
    base = FrozenModel.load(make(tmp_path / "base", "llama-tied"))
    lines = texts()[AMHARIC]
    judged, text = lines[:2], [line for line in lines[2:] if line not in lines[:2]]
    steps = plan_tokens(base_tokenizer(base.folder), {AMHARIC: text}, Planning(budget=4))

    def run(text, methods=("paper.context", "mean"), **options):
        grid = Grid(base, corpus(judged), Settings(resamples=0), Cells(tmp_path / "cells"))
        options = {"continuation": False, **options}
        made = []
        run_default(
            grid,
            [AMHARIC],
            {AMHARIC: text},
            DefaultMode(methods, **options),
            plans={AMHARIC: steps},
            on_rows=lambda code, name, rows: made.append(name),
        )
        return made, {(row["method"], row["metric"]): row["value"] for row in grid.rows}

    first, values = run(text)
    assert first == ["paper.context", "mean"]
    assert run(text) == ([], values)
    made, others = run(text[:-4])
    assert (
        made == ["paper.context"] and others["paper.context", "kl"] != values["paper.context", "kl"]
    )
    made, more = run(text, ["mean"], continuation=True)
    assert made == ["mean"] and ("mean", "continuation_bpb") in more


def test_a_name_is_no_formula(tmp_path):
    row = {"value": 0.5, "floor": 0.1, "ceiling": 0.9, "low": 0.4, "high": 0.6, "metric": "kl"}
    table = pl.DataFrame([{**row, "language": code} for code in (r"x$\frac$", "amh_Ethi")])
    measured = Measurements(r"b$\frac$", r"g$\frac$x", "causal", "$", {}, table, table)
    save_figure(draw(measured), tmp_path / "fidelity")


def test_layers_of_a_model_with_a_picture_part(tmp_path):
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    picture = {**sizes, "num_hidden_layers": 1, "image_size": 28, "patch_size": 14}
    words = {**sizes, "num_hidden_layers": 5, "num_key_value_heads": 1, "head_dim": 8,
             "vocab_size": 320, "bos_token_id": 0, "eos_token_id": 0}  # fmt: skip
    config = transformers.Gemma3Config(text_config=words, vision_config=picture)
    model = transformers.Gemma3ForConditionalGeneration(config)
    folder = make(tmp_path / "base", "llama-tied")
    data = tokenizer_json().encode()
    tokenizer = HuggingFace.from_json("g", "g", data)
    frozen = FrozenModel(model, folder=folder, tokenizer=tokenizer, window=64)
    grid = Grid(frozen, corpus(["x"]), Settings(), Cells(None), normed=False)
    names = grid.strategy_names()
    assert len(names) == 40 and names[-1].endswith("layer 5")
