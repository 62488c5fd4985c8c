"""The model card: what the model is, what it was made from, how to use it, its limits."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tokengraft.core.errors import CorpusError
from tokengraft.core.files import sha256_file, write_json, write_text
from tokengraft.core.wording import in_code, in_markdown
from tokengraft.corpus import udhr
from tokengraft.grafting.manifest import read_manifest
from tokengraft.grafting.output_policies import OutputPolicy
from tokengraft.grafting.verify.invariants import Check
from tokengraft.grafting.write_folder import Written
from tokengraft.languages.codes import language_name
from tokengraft.model.folder import CARD, MANIFEST
from tokengraft.planning.plan import Plan

_UNJUDGED = (
    "Not judged: these rows were derived without text. tokengraft evaluate says whether the graft "
    "works."
)

_SERVED = "## Served by"
_FAR = 2.0  # times the measured saving: differences between texts stay below that


@dataclass(frozen=True)
class Facts:
    """What a card says besides the plan's own figures."""

    name: str
    base: str
    license: str | None
    policy: OutputPolicy
    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    fidelity: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # language, measure
    verdict: str = ""
    measured: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # UDHR premiums
    trained: str = "rows"  # what was trained: rows, lanes or lora
    moved: Mapping[str, str] = field(default_factory=dict)  # how far protected text moved, by kind
    adapter: bool = False
    encoder: bool = False


def write_card(folder: Path, plan: Plan, written: Written, facts: Facts) -> None:
    """Write README.md with front matter that the model hub understands."""
    parts = [
        _front(plan, facts),
        f"# {in_markdown(facts.name)}\n",
        f"**{in_markdown(facts.verdict or _UNJUDGED)}**\n",
        _summary(plan, written, facts),
        _table(plan, facts),
        _fidelity(facts),
        _method(written, facts),
        "" if facts.encoder else f"## Output\n\n{facts.policy.card}\n",
        _use(facts, _prompt(plan)),
        _limits(plan, facts),
    ]
    write_text(folder / CARD, "\n".join(part for part in parts if part))


def _front(plan: Plan, facts: Facts) -> str:
    codes = sorted({code.partition("_")[0] for code in plan.languages})
    front = {
        "base_model": facts.base,
        "language": codes,
        "license": facts.license or "other",
        "library_name": "peft" if facts.adapter else "transformers",
        "pipeline_tag": "feature-extraction" if facts.encoder else "text-generation",
        "tags": ["tokengraft", "vocabulary-extension", "low-resource-languages"],
    }
    return f"---\n{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---\n"


def _summary(plan: Plan, written: Written, facts: Facts) -> str:
    names = ", ".join(_name(code) for code in plan.languages) or "no named language"
    grew = (
        f"{written.rows_before:,} to {written.rows_after:,} rows"
        if written.rows_after > written.rows_before
        else f"{written.rows_before:,} rows, spare ones used"
    )
    kept = (
        "Everything the base model knew is unchanged: all other weights and all old rows are the "
        "same bytes, and text without new tokens is encoded as before."
    )
    if facts.trained != "rows":
        kept = _moved(written, facts)
    return (
        f"{in_code(facts.base)} with {len(plan.tokens):,} new tokens for {names}. {kept} "
        f"Embedding table: {grew}.\n"
    )


def _moved(written: Written, facts: Facts) -> str:
    moves = "; ".join(f"{kind} {one}" for kind, one in facts.moved.items())
    if facts.trained == "lanes":
        return (
            "Its body is wider (lanes): what was added acts only where a new token has been read. "
            "Every old weight is there, byte for byte, except that norms are scaled, for the wider "
            f"mean, and rounded to {written.dtype}. Text without new tokens is encoded as before "
            f"and read as before but for that rounding: {moves or 'not measured'}, against the "
            "base. Training it further lets lanes act on all text, unless "
            "`tokengraft.keep_lanes(model, FOLDER)` is called first."
        )
    what = "adapters (LoRA)" if facts.trained == "lora" else "every weight but the tables"
    return (
        f"Its body was trained too: {what}, {len(written.trained)} tensors. All old rows are the "
        "same bytes, text without new tokens is encoded as before, and read nearly as before: "
        f"{moves or 'not measured'}, against the base, on text that was not trained on."
    )


def _table(plan: Plan, facts: Facts) -> str:
    if not plan.languages:
        return ""
    rows = [
        f"| {_name(code)} | {_figure(o.premium_before)} | {_figure(o.premium_after)} | "
        f"{' | '.join(map(_figure, facts.measured.get(code, (None, None))))} | "
        f"{o.planning_before:,} | {o.planning_after:,} |"
        for code, o in plan.languages.items()
    ]
    pivot = _name(plan.pivot) if plan.pivot else "the pivot"
    return "\n".join(
        [
            "## Tokens\n",
            "| language | premium before | after | on the UDHR before | after "
            "| tokens of the planning text before | after |",
            "|---" * 7 + "|",
            *rows,
            "",
            f"Premium: tokens a sentence takes over tokens of its {pivot} translation, mean over "
            "sentences of a parallel test corpus, as the plan states it; `n/a` where none was "
            "given. The figures on the UDHR (the same over its articles, against English) were "
            "measured with both tokenizers when this folder was written.\n",
            *(
                f"**{_name(code)}: the plan states a far greater saving than was measured; trust "
                "the measured one.**\n"
                for code in plan.languages
                if _overstated(plan, facts, code)
            ),
        ]
    )


def _overstated(plan: Plan, facts: Facts, code: str) -> bool:
    """Whether the plan states more than twice the saving that was measured on the UDHR."""
    before, after = facts.measured.get(code, (None, None))
    stated = plan.languages[code]
    if not (before and after and stated.premium_before and stated.premium_after):
        return False
    return stated.premium_after / stated.premium_before < after / before / _FAR


def _fidelity(facts: Facts) -> str:
    if not facts.fidelity:
        return ""
    measures = list(dict.fromkeys(m for scores in facts.fidelity.values() for m in scores))
    rule = "|---" * (len(measures) + 1) + "|"
    head = ["## Fidelity\n", f"| text | {' | '.join(map(in_markdown, measures))} |", rule]
    rows = [
        f"| {_name(code)} | {' | '.join(_figure(scores.get(m), 3) for m in measures)} |"
        for code, scores in facts.fidelity.items()
    ]
    note = (
        "Grafted model against its base, where both tokenizations end at the same byte. KL: how "
        "far the guess at the next token moves (0: not at all); top-1 agreement: share of places "
        "with the same likeliest next token; cosine: of last hidden states (1: the same). "
        "`tokengraft evaluate` measures this, and more, for each language.\n"
    )
    return "\n".join([*head, *rows, "", note])


def _method(written: Written, facts: Facts) -> str:
    single = {k: v for k, v in facts.params.items() if isinstance(v, (int, float, str))}
    params = in_markdown(", ".join(f"{key} {value}" for key, value in single.items()))
    lines = [f"Rows of the new tokens: {in_code(facts.method)}{f' ({params})' if params else ''}."]
    lines += [f"- {in_markdown(note)}" for note in facts.notes]
    kind = "tied" if written.tied else "untied"
    lines.append(
        f"\nTables are {kind}, stored as {written.dtype}. Made with tokengraft; `tokengraft.json` "
        "holds the command, versions and hashes."
    )
    return "## Method\n\n" + "\n".join(lines) + "\n"


def _prompt(plan: Plan) -> str:
    """A few words, as code: how the bundled text begins in the first planned language it is in."""
    text = "The history of"
    for code in plan.languages:
        with contextlib.suppress(CorpusError):
            text = udhr.load([code]).lines(code)[0]
            break
    return json.dumps(" ".join(text.split()[:4])[:40].strip(), ensure_ascii=False)


def _use(facts: Facts, prompt: str) -> str:
    name = json.dumps(facts.name, ensure_ascii=False)
    if facts.adapter:
        return _use_adapter(name, json.dumps(facts.base, ensure_ascii=False), prompt)
    if facts.encoder:
        return f"""## Use

```python
from transformers import AutoModel, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained({name}), AutoModel.from_pretrained({name})
states = model(**tokenizer([{prompt}], return_tensors="pt")).last_hidden_state
```
"""
    sampled = ", do_sample=True" if facts.policy.trains else ""
    return f"""## Use

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({name})
model = AutoModelForCausalLM.from_pretrained({name})
inputs = tokenizer({prompt}, return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs, max_new_tokens=40{sampled})[0]))
```
"""


def _use_adapter(name: str, base: str, prompt: str) -> str:
    return f"""## Use

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

tokenizer = AutoTokenizer.from_pretrained({name})
base = AutoModelForCausalLM.from_pretrained({base})
rows = max(base.get_input_embeddings().num_embeddings, len(tokenizer))
base.resize_token_embeddings(rows, mean_resizing=False)
model = PeftModel.from_pretrained(base, {name})
barred = GenerationConfig.from_pretrained({name})
inputs = tokenizer({prompt}, return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs, generation_config=barred, max_new_tokens=40)[0]))
```

Other programs, and `tokengraft export`, need the whole model:

```python
whole = model.merge_and_unload()
whole.generation_config = barred
whole.save_pretrained("whole")
tokenizer.save_pretrained("whole")
```
"""


def _limits(plan: Plan, facts: Facts) -> str:
    verbs = "reads and writes" if facts.policy.trains else "reads"
    lines = [
        f"Expect it to know no more of a language than its base: it {verbs} it in fewer tokens."
    ]
    if facts.encoder:
        lines.append(
            "A head that guesses masked words never guesses a new token: its bias bars it."
        )
    elif not facts.policy.writes:
        lines.append(
            "`suppress_tokens` is honoured by `generate` of transformers, by llama.cpp after "
            "`tokengraft export`, and by vLLM with tokengraft installed beside it; other programs "
            "must be told to bar the new ids (`output.new` in `tokengraft.json`)."
        )
    if facts.license is None:
        lines.append("The base states no licence in its card: look it up before use.")
    else:
        lines.append(f"The licence of the base applies: {in_markdown(facts.license)}.")
    lines += [f"Plan: {in_markdown(note)}." for note in plan.notes]
    return "## Limits\n\n" + "\n".join(f"- {line}" for line in lines) + "\n"


def write_served(folder: Path, checks: Sequence[Check]) -> None:
    """Add how programs served the model to its card, if it has one; other programs' rows stay."""
    path = folder / CARD
    if not path.is_file():
        return
    text = path.read_text("utf-8")
    before, mark, rest = text.partition(f"\n{_SERVED}\n")
    section, _, after = rest.partition("\n## ") if mark else ("", "", "")
    run = {in_markdown(check.name.partition(": ")[0]) for check in checks}
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    rows = [row for row in rows if row.split(" | ")[0].removeprefix("| ") not in run]
    for check in checks:
        program, _, what = map(in_markdown, check.name.partition(": "))
        outcome = f"{'ok' if check.passed else '**FAILED**'}: {in_markdown(check.detail)}"
        rows.append(f"| {program} | {what} | {outcome} |")
    if not mark and "\n## Limits\n" in text:
        before, _, after = text.partition("\n## Limits\n")
        after = f"Limits\n{after}"
    head = [_SERVED, "", "| program | check | outcome |", "|---|---|---|"]
    note = "Each program was run on this folder by `tokengraft verify --served-by`."
    parts = [before.rstrip("\n"), "", *head, *rows, "", note, ""]
    written = "\n".join(parts) + (f"\n## {after}" if after else "")
    manifest, old = read_manifest(folder), sha256_file(path)
    write_text(path, written)
    if manifest is not None and manifest["files"].get(CARD) == old:
        manifest["files"][CARD] = sha256_file(path)
        write_json(folder / MANIFEST, manifest)


def _name(code: str) -> str:
    name = language_name(code)
    return in_markdown(name) if name == code else f"{in_markdown(name)} ({code})"


def _figure(value: float | None, digits: int = 2) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"
