"""What was learned, as tokens and merges for a plan."""

from __future__ import annotations

from tokengraft.planning.learn import Learner, Step
from tokengraft.planning.new_tokens import NewToken
from tokengraft.planning.plan import Cut
from tokengraft.planning.prove import Proof
from tokengraft.tokenizer.insert import Additions


def additions_of(learner: Learner, cut: Cut) -> Additions:
    """What goes into the tokenizer, in the order it was learned."""
    names = learner.symbols.names
    tokens = tuple((s.result, names[s.result]) for s in learner.steps if s.spends)
    merges = tuple((names[s.left], names[s.right]) for s in learner.steps if s.right >= 0)
    return Additions(tokens=tokens, merges=merges, pattern=cut.new_pattern)


def tokens_of(learner: Learner, proof: Proof) -> tuple[NewToken, ...]:
    """Each new token with the old ids at the leaves of its merges."""
    symbols = learner.symbols
    parts: dict[int, tuple[int, ...]] = {}
    old = symbols.ids

    def leaves(symbol: int) -> tuple[int, ...]:
        return parts.get(symbol) or (symbol,)

    def of(step: Step) -> tuple[int, ...]:
        if step.right >= 0:
            return leaves(step.left) + leaves(step.right)
        return tuple(old[f"<0x{byte:02X}>"] for byte in symbols.names[step.result].encode())

    found = []
    for step in learner.steps:
        if not step.spends:
            continue
        parts[step.result] = of(step)
        name = symbols.names[step.result]
        piece = symbols.piece(name)
        try:
            text = piece.decode("utf-8")
        except UnicodeDecodeError:
            text = None
        count = proof.emitted.get(step.result, 0)
        example = proof.examples.get(step.result)
        found.append(
            NewToken(
                step.result, name, piece.hex(), text, parts[step.result], count, example=example
            )
        )
    return tuple(found)
