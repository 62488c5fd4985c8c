"""The paper's tables come out, and a wrong value is noticed in either direction."""

from __future__ import annotations

import dataclasses

import pytest

from tokengraft.corpus import load
from tokengraft.paper import claim as tables
from tokengraft.paper.claim import changed_inputs, judge, read_claim


def test_all_140_premiums(flores, paper_tokenizers):
    verdict, remarks = tables.premiums(load(flores), [paper_tokenizers])
    assert verdict.line == "140 of 140 reproduced"
    assert verdict.holds and remarks == []


def test_all_vocabulary_columns_but_the_blocks(paper_tokenizers):
    verdict, remarks = tables.vocabularies([paper_tokenizers])
    columns = {cell.column for cell in verdict.cells}
    assert {c for c in columns if not verdict.exact(c)} == {"unicode_blocks"}
    assert len(columns) == 14 and len(verdict.cells) == 140
    assert verdict.holds and remarks == []


def test_nine_vocabularies_without_the_tenth():
    """With nothing but the package, nine of ten come out and the run says which is missing."""
    verdict, remarks = tables.vocabularies([])
    assert not verdict.holds
    assert {cell.row for cell in verdict.cells if cell.verdict == "missing"} == {"M2M-100"}
    assert verdict.reproduced == 9 * 13
    assert "m2m100" in remarks[0]


@pytest.mark.parametrize("change", [0.01, -0.01])
def test_a_wrong_value_fails_in_either_direction(change):
    claim = read_claim("premiums")
    values = dict(claim.expected)
    assert judge(claim, values).holds
    values["shn_Mymr", "Llama 3"] += change
    verdict = judge(claim, values)
    assert not verdict.holds and verdict.reproduced == 139


def test_a_known_difference_must_stay_what_it_is():
    claim = read_claim("vocabulary")
    values = dict(claim.expected) | dict(claim.known)
    assert judge(claim, values).holds
    values["T5", "unicode_blocks"] = claim.expected["T5", "unicode_blocks"]
    assert not judge(claim, values).holds


def test_a_missing_value_fails():
    claim = read_claim("premiums")
    assert not judge(claim, {}).holds
    assert judge(claim, {}).line == "0 of 140 reproduced"


def test_changed_inputs_are_named():
    claim = dataclasses.replace(read_claim("premiums"), inputs={"corpus": {"eng_Latn": "00"}})
    assert changed_inputs(claim, {"corpus": {"eng_Latn": "11"}}) == ["corpus eng_Latn"]
    assert changed_inputs(claim, {"corpus": {"eng_Latn": "00"}}) == []
