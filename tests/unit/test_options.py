"""Options from flat keywords."""

from __future__ import annotations

import pytest

from tokengraft.core.errors import UsageError
from tokengraft.core.options import options_from
from tokengraft.deriving.distil.recipe import Recipe
from tokengraft.deriving.task import Deriving
from tokengraft.model.frozen import Reading


def test_each_keyword_finds_its_object_and_none_is_the_default() -> None:
    made = options_from(
        Deriving, {"steps": 7, "device": "cpu", "characters": 99, "seed": None, "max_minutes": None}
    )
    assert made == Deriving(reading=Reading("cpu"), recipe=Recipe(steps=7), characters=99)
    assert options_from(Deriving, {}) == Deriving()


def test_an_object_given_whole_is_taken_whole() -> None:
    recipe = Recipe(steps=3, seed=5)
    assert options_from(Deriving, {"recipe": recipe}).recipe is recipe


def test_an_unknown_keyword_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no option 'stepps'.*Did you mean.*steps"):
        options_from(Deriving, {"stepps": 7})
    with pytest.raises(UsageError, match="minutes nothing can be learned"):
        options_from(Deriving, {"max_minutes": 0})
