"""Fair tokenization for the world's languages: audit, plan, derive, graft, evaluate, report.

    import tokengraft as tg
    result = tg.audit("udhr", ["llama-3", "o200k_base"], languages=["shn", "tam", "hin"])
    result.premiums          # a polars DataFrame
    result.save("audit/")    # tables and figures

Everything is imported when first used, so `import tokengraft` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokengraft.auditing.run import Audit, audit
    from tokengraft.corpus import load as load_corpus
    from tokengraft.corpus.parallel import ParallelCorpus
    from tokengraft.errors import TokengraftError
    from tokengraft.evaluating.run import Evaluation, evaluate
    from tokengraft.grafting.run import Grafted, graft, logits_processor
    from tokengraft.grafting.run import verify_model as verify
    from tokengraft.page import build_page as report
    from tokengraft.planning.run import Planned, plan
    from tokengraft.scaling.run import Survey, survey
    from tokengraft.scaling.words import count_words
    from tokengraft.tokenizer import load as load_tokenizer
    from tokengraft.tokenizer.vocabulary import Vocabulary

_EXPORTS = {
    "Audit": "tokengraft.auditing.run:Audit",
    "Evaluation": "tokengraft.evaluating.run:Evaluation",
    "Grafted": "tokengraft.grafting.run:Grafted",
    "ParallelCorpus": "tokengraft.corpus.parallel:ParallelCorpus",
    "Planned": "tokengraft.planning.run:Planned",
    "Survey": "tokengraft.scaling.run:Survey",
    "TokengraftError": "tokengraft.errors:TokengraftError",
    "Vocabulary": "tokengraft.tokenizer.vocabulary:Vocabulary",
    "audit": "tokengraft.auditing.run:audit",
    "count_words": "tokengraft.scaling.words:count_words",
    "evaluate": "tokengraft.evaluating.run:evaluate",
    "graft": "tokengraft.grafting.run:graft",
    "load_corpus": "tokengraft.corpus:load",
    "load_tokenizer": "tokengraft.tokenizer:load",
    "logits_processor": "tokengraft.grafting.run:logits_processor",
    "plan": "tokengraft.planning.run:plan",
    "report": "tokengraft.page:build_page",
    "survey": "tokengraft.scaling.run:survey",
    "verify": "tokengraft.grafting.run:verify_model",
}

__all__ = [
    "Audit",
    "Evaluation",
    "Grafted",
    "ParallelCorpus",
    "Planned",
    "Survey",
    "TokengraftError",
    "Vocabulary",
    "audit",
    "count_words",
    "evaluate",
    "graft",
    "load_corpus",
    "load_tokenizer",
    "logits_processor",
    "plan",
    "report",
    "survey",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("tokengraft")
    if name not in _EXPORTS:
        raise AttributeError(f"module 'tokengraft' has no attribute {name!r}")
    module, attribute = _EXPORTS[name].split(":")
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
