"""What can go wrong with a model folder, as members of the one exception family."""

from __future__ import annotations

from tokengraft.errors import ModelError, TokengraftError

__all__ = ["GraftError", "ModelError"]


class GraftError(TokengraftError):
    """The written folder failed its own verification; it was removed again."""

    exit_code = 3
