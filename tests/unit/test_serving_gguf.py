"""GGUF files of grafts, loaded by llama.cpp itself: ids, scores, barred ids, bytes of a base."""

from __future__ import annotations

import functools
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from helpers import tiny_models
from helpers.tiny_models import load, make, texts
from tokengraft.core.errors import MissingExtra, ModelError, TokengraftError, UsageError
from tokengraft.grafting.graft import Finishing, graft
from tokengraft.model.folder import resolve
from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.plan import Plan, Planning
from tokengraft.serving import export_gguf as exporting
from tokengraft.serving import gguf_file, gguf_layers, llama_cpp, split_patterns
from tokengraft.serving.gguf_file import read_gguf

gguf = pytest.importorskip("gguf", reason="needs the extra serve")
torch = pytest.importorskip("torch")
needs_llama = pytest.mark.skipif(
    llama_cpp.installed() is None, reason="needs llama-server or xllamacpp (the extra serve)"
)
TINY = {
    "LlamaForCausalLM": "llama-tied",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Gemma3ForCausalLM": "gemma3",
    "Olmo2ForCausalLM": "olmo2",
}


def served(folder: Path, file: Path) -> Path:
    """The file of a folder under GPT-2's pattern, which the tiny tokenizer has."""
    gguf_file.write_gguf(folder, file, pre="gpt-2")
    return file


def tiny(folder: Path, case: str) -> Path:
    made = make(folder, case)
    if case == "gemma3":
        path = folder / "config.json"
        settings = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps({**settings, "query_pre_attn_scalar": 8}), "utf-8")
    return made


@functools.cache
def plan(boundaries: str = "keep", budget: int = 24) -> Plan:
    given = {code: lines for code, lines in texts().items() if code != "eng_Latn"}
    tokenizer = json.loads(tiny_models.tokenizer_json())
    return plan_tokens(tokenizer, given, Planning(budget=budget, boundaries=boundaries))


def new_rows(count: int = 24) -> np.ndarray:
    generator = np.random.default_rng(1)
    return generator.normal(0, 0.5, (count, tiny_models.WIDTH)).astype(np.float32)


def every_line() -> list[str]:
    return [line for group in texts().values() for line in group]


@pytest.fixture(scope="module")
def grafted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny base and its graft, all ids barred."""
    root = tmp_path_factory.mktemp("grafted")
    base = make(root / "base", "llama-tied")
    graft(base, plan(), root / "graft", rows=new_rows(), options=Finishing(check=every_line()))
    return base, root / "graft"


@needs_llama
@pytest.mark.parametrize("architecture", gguf_layers.ARCHITECTURES)
def test_every_architecture_writes_what_transformers_writes(architecture, tmp_path):
    folder = tiny(tmp_path / "model", TINY[architecture])
    prompt = [5, 70, 81, 12, 33, 7]
    model = load(folder)
    with torch.no_grad():
        expected = model.generate(
            torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=None
        )[0].tolist()[len(prompt) :]
    with llama_cpp.serving(served(folder, tmp_path / "model.gguf")) as llama:
        got = llama.complete(prompt, 12)["tokens"]
    ends = expected.index(0) if 0 in expected else len(expected)  # llama.cpp stops there
    assert ends > 0
    assert got[:ends] == expected[:ends]


@needs_llama
def test_a_graft_keeps_its_ids_and_bars_its_new_ones(grafted, tmp_path):
    _, folder = grafted
    lines = every_line()
    made = exporting.export(folder, tmp_path / "graft.gguf", texts=lines, pattern="unheard-of")
    assert made.checked >= len(set(lines))
    assert made.pattern == "gpt-2"
    assert "FROM ./graft.gguf" in made.modelfile.read_text("utf-8")
    ids = split_patterns.folder_ids(folder, lines)
    new = set(range(320, 320 + len(plan().tokens)))
    assert any(new & set(line) for line in ids)
    with llama_cpp.serving(made.file) as llama:
        assert [llama.tokenize(line) for line in lines] == ids
        wrote = [llama.complete(line[:40], 16, temperature=2.0)["tokens"] for line in ids[:8]]
    assert not new & {number for line in wrote for number in line}
    shared = read_gguf(made.file)
    assert set(shared.get("tokenizer.ggml.suppress_tokens")) == new


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_a_base_is_copied_byte_for_byte(grafted, tmp_path, kind):
    base, graft_folder = grafted
    old = tmp_path / "base.gguf"
    gguf_file.write_gguf(base, old, pre="gpt-2", kind=kind)
    out = tmp_path / "graft.gguf"
    gguf_file.write_from_base(read_gguf(old), graft_folder, out)
    before, after = gguf.GGUFReader(old), gguf.GGUFReader(out)
    for left, right in zip(before.tensors, after.tensors, strict=True):
        assert left.name == right.name
        assert left.tensor_type == right.tensor_type
        assert np.array_equal(left.data, right.data[: len(left.data)])
    table = next(t for t in after.tensors if t.name == "token_embd.weight")
    rows = gguf.quants.dequantize(table.data, table.tensor_type)
    assert np.allclose(rows[320:], new_rows(), atol=0.02)
    left, right = (
        {key: field.contents() for key, field in reader.fields.items()}
        for reader in (before, after)
    )
    grew = {"tokens", "token_type", "merges", "suppress_tokens"}
    known = {f"tokenizer.ggml.{name}" for name in grew} | {"llama.vocab_size"}
    changed = {key for key in right if left.get(key) != right[key] and not key.startswith("GGUF.")}
    assert changed == known
    assert (
        right["tokenizer.ggml.merges"][: len(left["tokenizer.ggml.merges"])]
        == (left["tokenizer.ggml.merges"])
    )


def test_another_models_gguf_is_refused(grafted, tmp_path):
    _, folder = grafted
    other = make(tmp_path / "other", "llama-tied")
    from safetensors.torch import load_file, save_file

    tensors = load_file(other / "model.safetensors")
    tensors["model.embed_tokens.weight"] = torch.randn(320, 16)
    save_file(tensors, other / "model.safetensors", {"format": "pt"})
    gguf_file.write_gguf(other, tmp_path / "other.gguf", pre="gpt-2")
    with pytest.raises(ModelError, match="not those of the graft's base"):
        gguf_file.write_from_base(read_gguf(tmp_path / "other.gguf"), folder, tmp_path / "x.gguf")
    assert not (tmp_path / "x.gguf").exists()
    (tmp_path / "cut.gguf").write_bytes((tmp_path / "other.gguf").read_bytes()[:4000])
    with pytest.raises(ModelError, match="damaged or cut short"):
        read_gguf(tmp_path / "cut.gguf")


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


def _header(keys: bytes = b"", tensors: bytes = b"", counts: tuple[int, int] = (0, 0)) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, *counts) + keys + tensors + bytes(64)


ONE = _text("t") + struct.pack("<IQIQ", 1, 8, 0, 0)
HOSTILE = {
    "a text longer than the file": _header(struct.pack("<Q", 1 << 60), counts=(0, 1)),
    "an array longer than the file": _header(
        _text("a") + struct.pack("<IIQ", 9, 6, 1 << 60), counts=(0, 1)
    ),
    "an alignment of nothing": _header(
        _text("general.alignment") + struct.pack("<II", 4, 0), counts=(0, 1)
    ),
    "an alignment that is no power of two": _header(
        _text("general.alignment") + struct.pack("<II", 4, 3), counts=(0, 1)
    ),
    "an alignment of another type": _header(
        _text("general.alignment") + struct.pack("<IQ", 10, 32), counts=(0, 1)
    ),
    "an alignment that is a text": _header(
        _text("general.alignment") + struct.pack("<I", 8) + _text("32"), counts=(0, 1)
    ),
    "a tensor twice": _header(tensors=ONE + ONE, counts=(2, 0)),
    "a tensor without axes": _header(
        tensors=_text("t") + struct.pack("<IIQ", 0, 0, 0), counts=(1, 0)
    ),
    "half a block": _header(tensors=_text("t") + struct.pack("<IQIQ", 1, 8, 8, 0), counts=(1, 0)),
    "rows beyond the file": _header(
        tensors=_text("t") + struct.pack("<I2QIQ", 2, 8, 1 << 61, 0, 0), counts=(1, 0)
    ),
    "nothing": b"",
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_headers_are_refused(what, tmp_path):
    path = tmp_path / "hostile.gguf"
    path.write_bytes(HOSTILE[what])
    with pytest.raises(ModelError, match="damaged or cut short"):
        read_gguf(path)
    path.write_bytes(_header(tensors=ONE, counts=(1, 0)))
    assert read_gguf(path).tensors["t"].shape == (8,)


def test_the_reader_reads_what_the_gguf_package_reads(grafted, tmp_path):
    file = served(grafted[1], tmp_path / "graft.gguf")
    ours, theirs = read_gguf(file), gguf.GGUFReader(file)
    values = {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert {name: one.value for name, one in ours.values.items()} == values
    for tensor in theirs.tensors:
        found = ours.tensors[tensor.name]
        assert found.kind == tensor.tensor_type
        assert found.shape == tuple(int(n) for n in tensor.shape[::-1])
        assert found.data.tobytes() == tensor.data.tobytes()


#: Bits a weight, and the error that a block's grid of so many steps may make, in deviations.
@pytest.mark.parametrize(("kind", "most"), [("Q6_K", 0.025), ("Q5_K", 0.06), ("Q4_K", 0.12)])
def test_k_types_come_back_near(kind, most):
    rows = np.random.default_rng(0).normal(size=(7, 512)).astype(np.float32)
    rows[3] = 0
    packed = gguf_layers.quantize(rows, kind)
    number = gguf.GGMLQuantizationType[kind]
    assert packed.shape == gguf.quants.quant_shape_to_byte_shape(rows.shape, number)
    back = gguf.quants.dequantize(packed, number)
    assert np.sqrt(np.mean((back - rows) ** 2)) < most
    assert not back[3].any()
    assert np.array_equal(gguf_layers.quantize(rows[:2], kind), packed[:2])


@needs_llama
def test_relaxed_boundaries_are_refused_with_the_way_out(grafted, tmp_path, monkeypatch):
    relaxed = plan("relax", 150)
    out = tmp_path / "relaxed"
    graft(
        grafted[0],
        relaxed,
        out,
        rows=new_rows(len(relaxed.tokens)),
        options=Finishing(check=every_line()),
    )
    monkeypatch.setattr(split_patterns, "PATTERNS", ("gpt-2", "smollm", "qwen2"))
    with pytest.raises(TokengraftError, match=r"comes nearest.*--boundaries portable"):
        exporting.export(out, tmp_path / "relaxed.gguf", texts=every_line())
    assert not list(tmp_path.glob("*.gguf"))


def test_without_llama_the_file_is_not_written_unless_asked_for(grafted, tmp_path, monkeypatch):
    monkeypatch.setattr(llama_cpp, "installed", lambda: None)
    out = tmp_path / "graft.gguf"
    with pytest.raises(MissingExtra, match=r"tokengraft\[serve\]"):
        exporting.export(grafted[1], out)
    assert not out.exists()
    made = exporting.export(grafted[1], out, unchecked=True, pattern="gpt-2")
    assert made.checked == 0
    assert "not checked" in made.notes[0]
    with pytest.raises(UsageError, match="--force"):
        exporting.export(grafted[1], out, unchecked=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"quantize": "Q3_K"}, "llama-quantize"),
        ({"base": "b.gguf", "quantize": "Q8_0"}, "without --base"),
    ],
)
def test_what_cannot_be_is_said(grafted, tmp_path, options, said):
    with pytest.raises(UsageError, match=said):
        exporting.export(grafted[1], tmp_path / "x.gguf", **options)


@needs_llama
def test_text_that_the_tokenizer_normalises_is_compared_in_that_form(grafted, tmp_path):
    """llama.cpp leaves text as it is: said in a note, while a wrong pattern is still refused."""
    folder = tiny_models.copy(grafted[1], tmp_path / "nfc")
    tiny_models.edit(folder / "tokenizer.json", lambda v: {**v, "normalizer": {"type": "NFC"}})
    line = "cafe\u0301 ክ"
    assert split_patterns.choose_pattern(folder, [line]) == "gpt-2"
    made = exporting.export(folder, tmp_path / "nfc.gguf", texts=[line])
    assert any(note.startswith("send text in NFC") for note in made.notes)
    with llama_cpp.serving(made.file) as llama:
        expected = split_patterns.folder_ids(folder, [line])[0]
        assert llama.tokenize("caf\u00e9 ክ") == expected != llama.tokenize(line)
    assert split_patterns.in_form(folder, ["caf\u00e9"]) == (["caf\u00e9"], "")


@needs_llama
def test_rootstock_is_read_as_its_folder_reads(monkeypatch):
    """`'Storage` and the like: the pattern that came nearest before cut them elsewhere."""
    folder = resolve("rootstock").path
    lines = exporting.check_corpus(folder)
    assert any("\n'SAVE\n" in line for line in lines)
    assert split_patterns.choose_pattern(folder, lines[::3]) == "k2-horizon"
    monkeypatch.setattr(split_patterns, "SAME", {})
    with pytest.raises(TokengraftError, match=r"granite-embed-multi-97m.*comes nearest"):
        split_patterns.choose_pattern(folder, lines[:30], ["granite-embed-multi-97m"])


@needs_llama
def test_agreeing_on_every_line_is_not_enough(grafted, tmp_path):
    """Nemo's tokenizer got another's pattern, because no check line told them apart."""
    other = tiny_models.copy(grafted[1], tmp_path / "other")
    split = {"type": "Split", "behavior": "Isolated", "invert": False}
    tail = r"| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    unknown, cased = rf" ?\p{{L}}+| ?\p{{N}}+{tail}", rf" ?[\p{{Lu}}\p{{Ll}}]+| ?\p{{N}}+{tail}"
    for pattern, said in (
        (unknown, "is another pattern.*--pattern"),
        (cased, "reads tokenizer.json"),
    ):
        steps = [{**split, "pattern": {"Regex": pattern}}, {"type": "ByteLevel", "use_regex": False,
                 "add_prefix_space": False, "trim_offsets": True}]  # fmt: skip
        cut = {"type": "Sequence", "pretokenizers": steps}
        tiny_models.edit(other / "tokenizer.json", lambda v, cut=cut: v.update(pre_tokenizer=cut))
        with pytest.raises(TokengraftError, match=said):
            exporting.export(other, tmp_path / "x.gguf", texts=["freedom of thought"])
        assert not (tmp_path / "x.gguf").exists()
        if pattern is unknown:  # somebody knows better
            exporting.export(other, tmp_path / "y.gguf", texts=["freedom"], pattern="gpt-2")


@needs_llama
def test_a_chat_template_that_llama_cannot_parse_is_said(grafted, tmp_path):
    """As Mistral Nemo has one: llama-server would stop at it, whatever the ids."""
    folder = tiny_models.copy(grafted[1], tmp_path / "chat")
    template = "{{ messages | selectattr('tool_calls', 'unheard-of') | list }}"
    (folder / "chat_template.jinja").write_text(template, "utf-8")
    made = exporting.export(folder, tmp_path / "chat.gguf", texts=["freedom"])
    assert any("--no-jinja" in note for note in made.notes), made.notes
