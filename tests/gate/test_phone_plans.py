"""Telephone numbers where `phonenumbers` is installed: national plans support what looks like a number, no more."""

from __future__ import annotations

import pytest
from gate_rules import pieces

from lily.gate.combine import combine
from lily.gate.recognizers import find
from lily.gate.spans import Finding, Span

pytest.importorskip("phonenumbers")

NATIONAL = ["612 345 678", "512 345 678"]  # Spain, Poland: no trunk prefix, no cue, so that only a plan knows them


def phones(text: str) -> list[Finding]:
    return [found for found in find(text) if found.span.label == "private_phone"]


@pytest.mark.parametrize("number", NATIONAL)
def test_a_plan_makes_a_candidate(number: str) -> None:
    (found,) = phones(f"we noted {number} there")
    assert (found.strength, found.span.score, found.span.why) == ("weak", 0.6, "a national plan")


@pytest.mark.parametrize("number", NATIONAL)
def test_a_plan_alone_says_nothing_and_supports_the_model(number: str) -> None:
    text = f"we noted {number} there"
    assert combine(text, find(text)) == []
    (span,) = combine(text, find(text), [Span(9, 9 + len(number), "private_phone", score=0.4, why="model")])
    assert span.score == pytest.approx(0.76)
    assert span.why == "model; a national plan"


@pytest.mark.parametrize("number", ["012 345 678", "199 999 999", "000 000 000"])
def test_numbers_of_no_plan_are_no_candidates_of_one(number: str) -> None:
    assert all(found.span.why != "a national plan" for found in phones(f"we noted {number} there"))


def test_a_cue_needs_no_plan() -> None:
    assert ("private_phone", "612 345 678") in pieces("call me: 612 345 678")
