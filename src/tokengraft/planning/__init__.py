"""Choose new tokens for languages and say what they buy, before any model is touched."""

from tokengraft.planning.choose import plan_tokens
from tokengraft.planning.types import NewToken, Outcome, Plan, Point, insert

__all__ = ["NewToken", "Outcome", "Plan", "Point", "insert", "plan_tokens"]
