"""Fair tokenization for the world's languages: audit, plan, derive, graft, evaluate, report.

    import tokengraft as tg
    result = tg.audit("udhr", ["llama-3", "o200k_base"], languages=["shn", "tam", "hin"])
    result.premiums          # a polars DataFrame
    result.save("audit/")    # tables and figures

Everything is imported when first used, so `import tokengraft` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokengraft.core.options import Later

if TYPE_CHECKING:
    from tokengraft.api.checked import Checked
    from tokengraft.api.compare import compare
    from tokengraft.api.push import Pushed, push
    from tokengraft.api.report import report
    from tokengraft.api.results import (
        Audit,
        Comparison,
        Evaluation,
        Grafted,
        Planned,
        Result,
        Verified,
        load,
    )
    from tokengraft.api.verbs import (
        audit,
        count_words,
        derive,
        evaluate,
        export,
        graft,
        plan,
        survey,
        verify,
    )  # fmt: skip
    from tokengraft.core.errors import TokengraftError
    from tokengraft.core.progress import Progress
    from tokengraft.corpus import load as load_corpus
    from tokengraft.corpus.lines_of import lines_of
    from tokengraft.corpus.parallel import ParallelCorpus
    from tokengraft.grafting.graft import logits_processor
    from tokengraft.grafting.keep_lanes import keep_lanes
    from tokengraft.tokenizer import load as load_tokenizer
    from tokengraft.tokenizer.vocabulary import Vocabulary

#: Where each name lives.
_HOMES = {
    "api.checked": "Checked", "api.compare": "compare", "api.push": "Pushed push",
    "api.report": "report",
    "api.results": "Audit Comparison Evaluation Grafted Planned Result Verified load",
    "api.verbs": "audit count_words derive evaluate export graft plan survey verify",
    "core.errors": "TokengraftError", "core.progress": "Progress", "corpus.lines_of": "lines_of",
    "corpus.parallel": "ParallelCorpus", "grafting.graft": "logits_processor",
    "grafting.keep_lanes": "keep_lanes",
    "tokenizer.vocabulary": "Vocabulary",
}  # fmt: skip
_EXPORTS = {name: f"{home}:{name}" for home, names in _HOMES.items() for name in names.split()}
_EXPORTS |= {"load_corpus": "corpus:load", "load_tokenizer": "tokenizer:load"}

__all__ = [
    "Audit", "Checked", "Comparison", "Evaluation", "Grafted", "ParallelCorpus", "Planned",
    "Progress", "Pushed", "Result", "TokengraftError", "Verified", "Vocabulary", "audit",
    "compare", "count_words", "derive", "evaluate", "export", "graft", "keep_lanes",
    "lines_of", "load", "load_corpus", "load_tokenizer", "logits_processor", "plan", "push",
    "report", "survey", "verify",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from tokengraft.core import __version__

        return __version__
    if name not in _EXPORTS:
        raise AttributeError(f"module 'tokengraft' has no attribute {name!r}")
    globals()[name] = value = Later(f"tokengraft.{_EXPORTS[name]}").load()
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__", *(n for n in globals() if n.startswith("__"))})
