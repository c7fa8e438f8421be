"""What a verdict shows: HTML that escapes everything, JSON without values, a repr without any."""

from __future__ import annotations

import html
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lily import Outcome, Policy
from lily.errors import InvalidInput, PolicyBlocked

from .fakes import fake_gate


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_html_shows_the_text_and_nothing_of_its_own(text: str) -> None:
    verdict = fake_gate("<b>Anna</b>").classify(f"{text}<b>Anna</b>{text}")
    shown = verdict._repr_html_()
    body = shown.split("<pre", 1)[1].split(">", 1)[1].rsplit("</pre>", 1)[0]
    without_names = re.sub(r"<sub[^>]*>[^<]*</sub>", "", body)
    assert html.unescape(re.sub(r"</?(mark)[^>]*>", "", without_names)) == verdict.text
    assert "<b>Anna" not in shown
    assert verdict.outcome.name in shown


def test_html_names_spans_and_outcome() -> None:
    shown = fake_gate("Anna Berg").classify("I am Anna Berg.")._repr_html_()
    assert "MASK" in shown
    assert '<mark style="background:#cfe2ff' in shown
    assert "private_person, 0.97: model" in shown


def test_json_without_values() -> None:
    verdict = fake_gate("Anna Berg").classify("I am Anna Berg.", destination="d")
    shown = json.dumps(verdict.to_dict())
    assert "Anna" not in shown
    assert verdict.to_dict()["spans"] == [
        {"start": 5, "end": 14, "label": "private_person", "sub": "", "score": 0.97, "why": "model"}
    ]
    assert verdict.to_dict(values=True)["spans"][0]["text"] == "Anna Berg"
    assert verdict.to_dict()["destination"] == "d"
    assert "Anna" not in repr(verdict)
    assert repr(verdict).startswith("<Verdict mask: 1 span,")


@pytest.mark.parametrize(
    ("outcome", "consent", "leaves"),
    [
        ("allow", False, "I am Anna Berg."),
        ("mask", False, "I am [PERSON_1]."),
        ("rewrite", False, "I am [PERSON_1]."),
        ("ask", False, None),
        ("ask", True, "I am Anna Berg."),
        ("local", True, None),
        ("refuse", True, None),
    ],
)
def test_outgoing(outcome: str, consent: bool, leaves: str | None) -> None:
    policy = Policy.parse(f'name = "p"\n[outcomes]\nprivate_person = "{outcome}"')
    verdict = fake_gate("Anna Berg").classify("I am Anna Berg.", policy)
    if leaves is not None:
        assert verdict.outgoing(consent=consent) == leaves
        return
    with pytest.raises(PolicyBlocked, match=f"The policy p keeps this text here: {outcome}") as caught:
        verdict.outgoing(consent=consent)
    assert caught.value.outcome == outcome
    assert caught.value.reasons == verdict.reasons
    assert verdict.masked == "I am [PERSON_1]."
    assert verdict.outcome is Outcome(outcome)


def test_a_verdict_cannot_be_changed() -> None:
    verdict = fake_gate().classify("x")
    with pytest.raises(AttributeError):
        verdict.outcome = Outcome.ALLOW  # type: ignore[misc]


@pytest.mark.parametrize("consent", ["no", "yes", 1, None])
def test_consent_is_a_bool(consent: object) -> None:
    policy = Policy.parse('name = "p"\n[outcomes]\nprivate_person = "ask"')
    verdict = fake_gate("Anna Berg").classify("I am Anna Berg.", policy)
    with pytest.raises(InvalidInput, match=r"consent is .*; expected True or False"):
        verdict.outgoing(consent=consent)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="values is 'no'; expected True or False"):
        verdict.to_dict(values="no")  # type: ignore[arg-type]
