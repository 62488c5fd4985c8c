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
    from tokengraft.auditing.audit import Audit, audit
    from tokengraft.auditing.survey import Survey, survey
    from tokengraft.core.errors import TokengraftError
    from tokengraft.corpus import load as load_corpus
    from tokengraft.corpus.lines_of import lines_of
    from tokengraft.corpus.parallel import ParallelCorpus
    from tokengraft.evaluating.evaluate import Evaluation, evaluate
    from tokengraft.grafting.graft import Grafted, graft, logits_processor
    from tokengraft.grafting.graft import verify_model as verify
    from tokengraft.planning.count_words import count_words
    from tokengraft.planning.plan_files import Planned, plan
    from tokengraft.render.page.build import build_page as report
    from tokengraft.tokenizer import load as load_tokenizer
    from tokengraft.tokenizer.vocabulary import Vocabulary

_EXPORTS = {
    "Audit": "tokengraft.auditing.audit:Audit",
    "Evaluation": "tokengraft.evaluating.evaluate:Evaluation",
    "Grafted": "tokengraft.grafting.graft:Grafted",
    "ParallelCorpus": "tokengraft.corpus.parallel:ParallelCorpus",
    "Planned": "tokengraft.planning.plan_files:Planned",
    "Survey": "tokengraft.auditing.survey:Survey",
    "TokengraftError": "tokengraft.core.errors:TokengraftError",
    "Vocabulary": "tokengraft.tokenizer.vocabulary:Vocabulary",
    "audit": "tokengraft.auditing.audit:audit",
    "count_words": "tokengraft.planning.count_words:count_words",
    "evaluate": "tokengraft.evaluating.evaluate:evaluate",
    "graft": "tokengraft.grafting.graft:graft",
    "lines_of": "tokengraft.corpus.lines_of:lines_of",
    "load_corpus": "tokengraft.corpus:load",
    "load_tokenizer": "tokengraft.tokenizer:load",
    "logits_processor": "tokengraft.grafting.graft:logits_processor",
    "plan": "tokengraft.planning.plan_files:plan",
    "report": "tokengraft.render.page.build:build_page",
    "survey": "tokengraft.auditing.survey:survey",
    "verify": "tokengraft.grafting.graft:verify_model",
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
    "lines_of",
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
