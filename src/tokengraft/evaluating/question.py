"""A model that follows prompts can be asked for a line's label, and needs no probe.

    answer = the label for which log p(label | question about the line) − log p(label | the same
             question about nothing) is largest

Labels are in old tokens and over the old vocabulary for both models; the line is in each model's
own tokens. Reference: Holtzman et al. 2021, domain-conditional PMI
(https://arxiv.org/abs/2104.08315).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tokengraft.core.errors import UsageError
from tokengraft.corpus.parallel import ParallelCorpus
from tokengraft.evaluating.labels import guessing, labelled
from tokengraft.evaluating.score import Bootstrap, Metric, Score, Sums, score
from tokengraft.model.divergence import likelihoods
from tokengraft.model.frozen import FrozenModel
from tokengraft.model.reading import read
from tokengraft.tokenizer.align import Floats, Ints

_ANSWERED = "lines whose label gains most, as the answer to a question, by the line in it"
ASKED = Metric("asked_accuracy", f"share of {_ANSWERED}, graft; the ceiling is the base's own")
BASE_ASKED = Metric("base_asked_accuracy", f"share of {_ANSWERED}, base model")
HERE = "{}"  # stands for the line in a question


def asked_scores(
    base: FrozenModel,
    graft: FrozenModel,
    corpus: ParallelCorpus,
    code: str,
    labels: Mapping[str, str],
    question: str,
    drawn: Bootstrap,
) -> dict[str, Score]:
    """How often each model answers a question about a line with its label.

    The `question` has {} in place of the line and ends where the label is to follow. A line that is
    too long for either model is cut at its end.
    """
    if HERE not in question:
        raise UsageError(f"the question {question!r} has no {HERE} for the line")
    lines, names = labelled(corpus, code, labels)
    known = sorted(set(names))
    answers = _tails(base, question, known)
    rows = min(len(base.tokenizer.vocabulary), len(base.weight))
    prompts = [_fitting(question, line, (base, graft), max(map(len, answers))) for line in lines]
    prompts.append(question.replace(HERE, ""))
    hits = {}
    for side, model in (("base", base), ("graft", graft)):
        likely = _likelihoods(model, prompts, answers, rows)
        best = (likely[:-1] - likely[-1]).argmax(1)
        hits[side] = Sums.of(
            np.array([known[n] == name for n, name in zip(best, names, strict=True)], float)
        )
    floor, ceiling = guessing(names), hits["base"].value
    return {
        BASE_ASKED.name: score(BASE_ASKED, hits["base"], drawn, unrelated=floor),
        ASKED.name: score(ASKED, hits["graft"], drawn, unrelated=floor, ceiling=ceiling),
    }


def _tails(base: FrozenModel, question: str, names: Sequence[str]) -> list[Ints]:
    """Old ids of every name as the continuation of the question."""
    end = question.rpartition(HERE)[2]
    begun, *whole = base.tokenizer.encode([end, *(f"{end} {name}" for name in names)])
    tails = []
    for ids in whole:
        same = [a == b for a, b in zip(begun, ids, strict=False)]
        tails.append(np.asarray(ids[(*same, False).index(False) :], np.int64))
    return tails


def _fitting(question: str, line: str, models: Sequence[FrozenModel], answer: int) -> str:
    """The question about a line that is cut to leave room for `answer` tokens."""
    while True:
        prompt = question.replace(HERE, line)
        left = [
            one.room - answer - len(ids) for one in models for ids in one.tokenizer.encode([prompt])
        ]
        if min(left) >= 0 or not line:
            return prompt
        line = line[: len(line) * 9 // 10]


def _likelihoods(
    model: FrozenModel, prompts: Sequence[str], answers: Sequence[Ints], rows: int
) -> Floats:
    """Log p in nats of every answer after every prompt (prompts, answers)."""
    begun = [np.asarray(ids, np.int64) for ids in model.tokenizer.encode(list(prompts))]
    pairs = [(front, answer) for front in begun for answer in answers]
    before = [len(front) - 1 + np.arange(len(answer)) for front, answer in pairs]
    states = read(model, [np.concatenate(pair) for pair in pairs], before)
    targets = np.concatenate([answer for _, answer in pairs])
    logs = likelihoods(states.states, targets, model.head(rows).exact())
    starts = np.cumsum(states.counts) - states.counts
    sums: Floats = np.add.reduceat(logs, starts).reshape(len(prompts), len(answers))
    return sums
