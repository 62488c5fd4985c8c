"""What `verify` proves of a folder is what transformers loads from it, whatever else lies there.

Every addition that transformers knows, alone and in pairs, to a sound graft that is signed anew.
Run it with other versions of transformers on PYTHONPATH (results/folders.md).
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from helpers.tiny_models import copy, edit, make, new_rows, plan, texts, torch, transformers
from tokengraft.core.errors import ModelError
from tokengraft.deriving.derive import Derived
from tokengraft.grafting.graft import Finishing, graft
from tokengraft.grafting.manifest import file_hashes
from tokengraft.grafting.verify.invariants import verify
from tokengraft.model.checkpoint import INDEX, SINGLE, read_checkpoint

LINES = [*texts()["amh_Ethi"][:4], *texts()["eng_Latn"][:2]]
EVIL = "{{ 'evil' }}"
NORM = "model.norm.weight"
Addition = Callable[[Path], Any]


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    files = [shard.path for shard in read_checkpoint(folder).shards]
    return {name: value for file in files for name, value in load_file(file).items()}


def save(values: dict[str, Any], path: Path, kind: str = "pt") -> None:
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(values, path, {"format": kind})


def other(folder: Path) -> dict[str, Any]:
    """The graft's weights, one norm of them doubled."""
    return {name: value * (2 if name == NORM else 1) for name, value in weights(folder).items()}


def put(name: str, text: str) -> Addition:
    def write(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")

    return write


def setting(name: str, **values: Any) -> Addition:
    return lambda folder: edit(folder / name, lambda value: {**value, **values})


def index_beside(folder: Path) -> None:
    """The other layout of weights beside the one that is there, with another norm."""
    values = other(folder)
    if (folder / SINGLE).exists():
        save(values, folder / "model-00001-of-00001.safetensors")
        listed = dict.fromkeys(values, "model-00001-of-00001.safetensors")
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": listed}))
    else:
        save(values, folder / SINGLE)


def shard_with(name: str, listed: bool) -> Addition:
    """A further shard that the index names, which also holds `name`."""

    def add(folder: Path) -> None:
        save({"x": torch.zeros(2), name: torch.zeros(16)}, folder / "model-z.safetensors")
        if (folder / INDEX).exists():
            more = {"x": "model-z.safetensors", **({name: "model-z.safetensors"} if listed else {})}
            edit(folder / INDEX, lambda value: value["weight_map"].update(more))

    return add


def other_shard(folder: Path) -> None:
    """A norm moved to another shard, of which the index says nothing."""
    shards = [shard.path for shard in read_checkpoint(folder).shards]
    from safetensors.torch import load_file

    first = load_file(shards[0])
    save({**first, NORM: torch.full((16,), 3.0)}, shards[0])


def adapter(folder: Path) -> None:
    size = weights(folder)["model.layers.0.self_attn.q_proj.weight"].shape
    at = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    values = {f"{at}A.weight": torch.ones(2, size[1]), f"{at}B.weight": torch.ones(size[0], 2)}
    save(values, folder / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["q_proj"],
                "base_model_name_or_path": str(folder), "task_type": "CAUSAL_LM"}  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(settings))


def pickled(folder: Path) -> None:
    torch.save(other(folder), folder / "pytorch_model.bin")


def explicit(folder: Path) -> None:
    save(other(folder), folder / "other.safetensors")
    setting("config.json", transformers_weights="other.safetensors")(folder)


def other_config(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.4.0.0.json").write_text(json.dumps({**config, "rms_norm_eps": 0.5}))
    setting("config.json", configuration_files=["config.4.0.0.json"])(folder)


def other_tokenizer(folder: Path) -> None:
    value = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    value["model"]["merges"] = value["model"]["merges"][:-9]
    (folder / "tokenizer.4.0.json").write_text(json.dumps(value), encoding="utf-8")
    setting("tokenizer_config.json", fast_tokenizer_files=["tokenizer.4.0.json"])(folder)


def linked(name: str, place: str) -> Addition:
    """`name` as a link to a copy at `place`, with another norm if it is weights."""

    def link(folder: Path) -> None:
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if name == SINGLE:
            save(other(folder), target)
        else:
            target.mkdir() if name.endswith("templates") else None
            put(f"{place}/default.jinja" if target.is_dir() else place, EVIL)(folder)
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return link


def stale(folder: Path) -> None:
    (folder / "vocab.json").write_text(json.dumps({"a": 0, "b": 1}))
    (folder / "merges.txt").write_text("a b\n")


def tokenizer_without_pieces(folder: Path) -> None:
    """What older versions read instead of tokenizer.json, if that is missing."""
    stale(folder)
    (folder / "tokenizer.json").unlink()


def fused(kind: str) -> Addition:
    def write(folder: Path) -> None:
        shard = read_checkpoint(folder).shards[0].path
        from safetensors.torch import load_file

        save(load_file(shard), shard, kind)

    return write


HARMLESS: dict[str, Addition] = {
    "nothing": lambda folder: None,
    "a card": put("README.md", "mine"),
    "a picture": put("curve.png", "x"),
    "what a hub adds": put(".gitattributes", "*.safetensors filter=lfs"),
    "a hub's record": put(".cache/huggingface/download/config.json.metadata", "x"),
}
ADDITIONS: dict[str, Addition] = {
    "an index beside": index_beside,
    "a shard more": shard_with(NORM, listed=True),
    "a tensor that no index lists": shard_with(NORM, listed=False),
    "a tensor in two shards": other_shard,
    "a variant": lambda folder: save(other(folder), folder / "model.fp16.safetensors"),
    "consolidated weights": lambda folder: save(other(folder), folder / "consolidated.safetensors"),
    "pickled weights": pickled,
    "TensorFlow weights": put("tf_model.h5", "x"),
    "Flax weights": put("flax_model.msgpack", "x"),
    "weights in a subfolder": lambda folder: save(other(folder), folder / "sub" / SINGLE),
    "weights that are linked": linked(SINGLE, "blobs/weights"),
    "weights said to be TensorFlow's": fused("tf"),
    "an adapter": adapter,
    "weights that the config names": explicit,
    "a config for each version": other_config,
    "quantization": setting(
        "config.json", quantization_config={"quant_method": "fp8", "activation_scheme": "dynamic"}
    ),
    "another activation": setting("config.json", hidden_act="relu"),
    "a template": put("chat_template.jinja", EVIL),
    "a template in JSON": put("chat_template.json", json.dumps({"chat_template": EVIL})),
    "a template of the tokenizer": setting("tokenizer_config.json", chat_template=EVIL),
    "named templates": put("additional_chat_templates/tool_use.jinja", EVIL),
    "named templates that are linked": linked("additional_chat_templates", ".hidden"),
    "a linked template": linked("chat_template.jinja", "img/x.md"),
    "a tokenizer for each version": other_tokenizer,
    "another vocabulary": stale,
    "another vocabulary alone": tokenizer_without_pieces,
    "tokens more": put("added_tokens.json", json.dumps({"<evil>": 400})),
    "special tokens": put("special_tokens_map.json", json.dumps({"eos_token": "a"})),
    "pieces": put("tokenizer.model", "x"),
    "Mistral's vocabulary": put("tekken.json", "{}"),
    "barred ids that are no integers": setting(
        "generation_config.json", suppress_tokens=[320.5, *range(321, 344)]
    ),
    "other generation": setting("generation_config.json", temperature=0.1, do_sample=True),
}


@pytest.fixture(scope="module")
def grafts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """A base and its graft, with one file of weights and with several."""
    made = {}
    for name, shard in (("one file", "1GB"), ("shards", "20KB")):
        place = tmp_path_factory.mktemp("folders")
        base = make(place / "base", "llama-untied", shard=shard)
        done = graft(
            base, plan(), place / "sound", rows=Derived(new_rows(), "random"),
            options=Finishing(check=LINES),
        )  # fmt: skip
        made[name] = base, done.folder
    return made


def loaded(folder: Path) -> dict[str, Any]:
    """All that plain transformers takes from the folder, in a form that can be compared."""
    model, tokenizer = (
        kind.from_pretrained(str(folder), local_files_only=True)
        for kind in (transformers.AutoModelForCausalLM, transformers.AutoTokenizer)
    )
    with torch.no_grad():
        scores = model(input_ids=torch.tensor([[1, 2, 321]])).logits
    chat = [{"role": "user", "content": "hello"}]
    templates = tokenizer.chat_template
    names = templates if isinstance(templates, dict) else [None]
    config = {key: value for key, value in model.config.to_dict().items() if key[0] != "_"}
    return {
        **{name: value.tolist() for name, value in model.state_dict().items()},
        "scores": scores.tolist(),
        "config": config,
        "templates": templates,
        "chats": [
            tokenizer.apply_chat_template(chat, chat_template=name, tokenize=False)
            for name in names
        ],
        "ids": [tokenizer(line)["input_ids"] for line in LINES],
        "special": {key: str(value) for key, value in tokenizer.special_tokens_map.items()},
        "generation": model.generation_config.to_dict(),
    }


def outcome(
    base: Path, sound: Path, folder: Path, additions: Iterable[Addition]
) -> tuple[str, str]:
    """What `verify` says of the graft with the additions, and what transformers makes of it."""
    copy(sound, folder)
    try:
        for addition in additions:
            addition(folder)
    except (ModelError, OSError):
        return "cannot be made", ""
    edit(folder / "tokengraft.json", lambda value: {**value, "files": file_hashes(folder)})
    try:
        proved = verify(folder, base, LINES).passed
    except ModelError:
        proved = False
    try:
        found = loaded(folder)
    except Exception:
        return "proved" if proved else "refused", "does not load"
    expected = loaded(sound)
    same = all(found.get(key) == value for key, value in expected.items())
    return "proved" if proved else "refused", "the same" if same else "otherwise"


@pytest.mark.parametrize("what", [*HARMLESS, *list(ADDITIONS)[::3]])
def test_what_is_proved_is_what_transformers_loads(
    what: str, grafts: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    addition = {**HARMLESS, **ADDITIONS}[what]
    said, found = outcome(*grafts["one file"], tmp_path / "graft", [addition])
    assert said == ("proved" if what in HARMLESS else "refused"), found
    assert said == "refused" or found == "the same"


def test_a_graft_in_the_cache_of_a_hub(
    grafts: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    base, sound = grafts["shards"]
    snapshot, blobs = tmp_path / "models--x" / "snapshots" / "main", tmp_path / "models--x/blobs"
    copy(sound, snapshot)
    blobs.mkdir()
    for path in snapshot.iterdir():
        path.rename(blobs / path.name)
        path.symlink_to(Path("../../blobs") / path.name)
    assert verify(snapshot, base, LINES).passed
    (snapshot / "x.json").symlink_to(tmp_path)
    assert not verify(snapshot, base, LINES).passed


#: What makes a base or a start unreadable too, and how that is told.
UNREADABLE = {
    "an index beside": "holds both",
    "a tensor in two shards": "lies in two files",
    "a shard more": "lies in two files",
    "an adapter": "would load that adapter",
    "weights said to be TensorFlow's": "not 'pt'",
    "weights that the config names": "transformers_weights",
    "a config for each version": "configuration_files",
    "a tokenizer for each version": "fast_tokenizer_files",
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_bases_are_read_in_the_same_order(
    what: str, grafts: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    base = copy(grafts["one file" if what == "an index beside" else "shards"][0], tmp_path / "base")
    ADDITIONS[what](base)
    with pytest.raises(ModelError, match=UNREADABLE[what]):
        graft(base, plan(), tmp_path / "out", rows=new_rows(), options=Finishing(check=LINES))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_no_pair_of_additions_is_proved_and_loaded_otherwise(
    grafts: dict[str, tuple[Path, Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    every = {**HARMLESS, **ADDITIONS}
    pairs = [*((name,) for name in every), *itertools.combinations(every, 2)]
    seen: Counter[tuple[str, str]] = Counter()
    wrong = []
    for number, (layout, names) in enumerate(itertools.product(grafts, pairs)):
        if layout == "shards" and len(names) == 2 and number % 3:
            continue
        folder = tmp_path / str(number)
        result = outcome(*grafts[layout], folder, [every[name] for name in names])
        seen[result] += 1
        if result[0] == "proved" and result[1] != "the same":
            wrong.append((layout, names, result))
    with capsys.disabled():
        print(f"\ntransformers {transformers.__version__}: {sum(seen.values())} folders")
        for (said, found), count in sorted(seen.items()):
            print(f"  {count:4} {said}, {found}")
    assert not wrong
    assert seen["proved", "the same"] >= 10 and seen["refused", "otherwise"] >= 50
    assert sum(seen.values()) - seen["cannot be made", ""] >= 200
