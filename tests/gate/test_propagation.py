# ruff: noqa: RUF001 (look-alikes and full-width characters are the subject)
"""What was found once is found everywhere, in every folding, in the text and in the session."""

from __future__ import annotations

import itertools
import random
import time

import pytest
from gate_values import card, drawn, full_width, grouped, zero_width
from hypothesis import given
from hypothesis import strategies as st

from lily.gate.propagation import Found, propagate, sweepable
from lily.gate.spans import Span

SEEDS = st.integers(0, 2**32)


def texts(text: str, spans: list[Span]) -> list[str]:
    return [text[s.start : s.end] for s in spans]


@given(SEEDS)
def test_every_folding_of_a_name(seed: int) -> None:
    rng = random.Random(seed)
    name = "Hanne Mülder"
    forms = [
        name.upper(),
        name.lower(),
        "Hanne  Mülder",
        "Hanne\nMülder",
        "Hanne\u00a0Mülder",
        zero_width(rng, name),
        "Ｈanne Mülder",
    ]
    rng.shuffle(forms)
    text = f"{name} met " + ", then ".join(forms) + " again. 😀"
    found = propagate(text, [Span(0, len(name), "private_person")])
    assert texts(text, found) == [name, *forms]
    assert {s.label for s in found} == {"private_person"}


@given(SEEDS)
def test_numbers_without_their_separators(seed: int) -> None:
    number = card(random.Random(seed))
    first, later = grouped(number, " "), [number, grouped(number, "-"), full_width(number), grouped(number, ".")]
    text = f"{first}; " + "; ".join(later) + f"; not 9{number}"
    assert texts(text, propagate(text, [Span(0, len(first), "account_number", "payment_card")])) == [first, *later]


@given(SEEDS)
def test_secrets_inside_longer_words_but_names_not(seed: int) -> None:
    secret = drawn(random.Random(seed), 20)
    text = f"{secret} and x{secret}y and Anna Annabel Hannah"
    at = text.index("Anna")
    found = propagate(text, [Span(0, 20, "secret"), Span(at, at + 4, "private_person")])
    assert texts(text, found) == [secret, secret, "Anna"]


def test_a_session_remembers() -> None:
    memory = Found()
    propagate(
        "Ann Lee, 4539148803436467",
        [Span(0, 7, "private_person"), Span(9, 25, "account_number", "payment_card")],
        memory,
    )
    later = "ask ann lee about 4539 1488 0343 6467"
    found = propagate(later, [], memory)
    assert texts(later, found) == ["ann lee", "4539 1488 0343 6467"]
    assert [s.sub for s in found] == ["", "payment_card"]
    assert propagate(later, [], Found()) == []


@pytest.mark.parametrize(
    ("form", "label"),
    [
        ("ann", "private_person"),
        ("may", "private_person"),
        ("----", "secret"),
        ("will", "private_person"),
        ("1234", "secret"),
        ("female", "other_pii"),
        ("monday", "private_date"),
    ],
)
def test_short_and_common_forms_are_not_swept(form: str, label: str) -> None:
    assert not sweepable(form, label)


@given(st.text(st.sampled_from("abАé 用\u200b\n1"), max_size=40), st.data())
def test_sweeping_keeps_spans_apart_and_covers_what_was_given(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    given_spans = [Span(a, b, "private_person") for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    out = propagate(text, given_spans)
    assert all(a.end <= b.start for a, b in itertools.pairwise(out))
    assert all(0 <= s.start < s.end <= len(text) for s in out)
    for span in given_spans:
        assert any(s.start <= span.start and span.end <= s.end for s in out)


@given(st.lists(st.sampled_from(["Anna", "Berg", "Lind"]), min_size=2, max_size=12), st.data())
def test_forms_that_overlap_are_one_span(words: list[str], data: st.DataObject) -> None:
    """Names of a few words, so that one that is swept begins within another."""
    text = " ".join(words)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(words) - 1), max_size=6)))
    given_spans = [Span(5 * a, 5 * b - 1, "private_person") for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    out = propagate(text, given_spans)
    assert all(a.end <= b.start for a, b in itertools.pairwise(out))
    for name in texts(text, given_spans):
        at = text.find(name)
        while at >= 0:
            assert any(s.start <= at and at + len(name) <= s.end for s in out)
            at = text.find(name, at + len(name))


def test_many_forms_in_a_long_text_take_linear_time() -> None:
    rng = random.Random(5)
    memory = Found()
    names = [f"Name{drawn(rng, 9)}" for _ in range(2000)]
    memory.learn(" ".join(names), [Span(14 * i, 14 * i + 13, "private_person") for i in range(2000)])
    assert len(memory) == 2000
    text = "the quick brown fox " * 25_000 + names[7]
    start = time.process_time()
    assert texts(text, memory.sweep(text)) == [names[7]]
    assert time.process_time() - start < 5
