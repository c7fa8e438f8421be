"""Logs: which lines are read, and that what was seen in them comes back to every place where it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lily.gate.classifier import Classifier, Reading
from lily.gate.repeats import CLEAN, Condensed, Log, condense

WORDS = "cart edge feed item job list media node order page queue route stock task theme user video worker zone".split()
PROSE = (
    "Hi, I am Maria Gonzalez and live at 42 Baker Street, London. My card is 4111 1111 1111 1111, "
    "my mail maria.g@example.org, my phone +44 20 7946 0958. The password: hunter2xyz"
)


@pytest.fixture(scope="module")
def nano() -> Iterator[Classifier]:
    with Classifier.load() as loaded:
        yield loaded


def log(lines: int, value: Callable[[int], str] = lambda i: f"user=alice id={i * 7919 % 99991}") -> str:
    return "".join(
        f"2026-03-{1 + i % 28:02d}T10:{i % 60:02d}:01.{i % 997}Z INFO gateway: request {i:08x}-ab12 {value(i)} "
        f"took {i % 89} ms\n"
        for i in range(lines)
    )


def condensed(text: str) -> Log:
    found = condense(text)
    assert found is not None
    return found


def second(found: Log, suspects: Callable[[str], bool] = lambda _: False) -> Condensed | None:
    """What is read in the second round, if the first one suspects some characters."""
    text = found.first.text
    offsets = np.array([(at, at + 1) for at in range(len(text))], np.int32)
    words = np.zeros(len(text), np.float32)
    at = 0
    for piece in text.split(" "):
        words[at : at + len(piece)] = 1.0 if suspects(piece) else CLEAN / 2
        at += len(piece) + 1
    return found.second(words, offsets)


def read_lines(found: Log, rest: Condensed | None) -> str:
    return found.first.text + (rest.text if rest else "")


def mixed(i: int) -> str:
    """Two words of a few: many forms, no new word after the first lines."""
    return f"{WORDS[i % 19]} of {WORDS[i * 7 // 19 % 19]} done"


def check(text: str, reading: Reading) -> None:
    at = 0
    for span in reading.spans:
        assert at <= span.start < span.end <= len(text)
        at = span.end
    assert len(reading.any_pii) == len(reading.offsets)
    assert np.all(np.diff(reading.offsets[:, 0]) >= 0)


def test_log_lines_of_one_form_are_read_once(nano: Classifier) -> None:
    text = log(300)
    assert len(condensed(text).first.text) < 0.1 * len(text)
    (every,), (once,) = nano.read([text], repeats=False), nano.read([text])
    check(text, once)
    assert abs(len(once.any_pii) - len(every.any_pii)) < 0.2 * len(every.any_pii)


def test_what_is_found_in_a_form_is_found_in_all_its_lines(nano: Classifier) -> None:
    text = log(200, lambda i: f"customer mail maria.gonzalez{i}@example.org")
    (reading,) = nano.read([text])
    check(text, reading)
    found = {text[span.start : span.end] for span in reading.spans if span.label == "private_email"}
    assert len([i for i in range(200) if f"maria.gonzalez{i}@example.org" in found]) == 200


def test_another_word_is_another_form(nano: Classifier) -> None:
    names = ("maria.gonzalez", "john.smith", "wei.zhang")
    text = log(210, lambda i: f"customer mail {names[i // 100]}@example.org" if i in (5, 150, 205) else "nothing new")
    (reading,) = nano.read([text])
    found = {text[span.start : span.end] for span in reading.spans}
    assert {f"{name}@example.org" for name in names} <= found


def test_known_words_in_another_order_are_left_out() -> None:
    text = log(600, mixed)
    found = condensed(text)
    assert len(found.first.kept) < 60
    assert second(found) is None
    assert len(set(found._numbers)) > 300


@given(st.integers(0, 599), st.text(st.characters(categories=["L"]), min_size=1, max_size=12))
@settings(max_examples=40)
def test_a_line_with_a_new_word_is_read(place: int, name: str) -> None:
    text = log(600, lambda i: f"{WORDS[3]} of {name} done" if i == place else mixed(i))
    found = condensed(text)
    assert f" of {name} done" in read_lines(found, second(found))


def test_two_names_in_a_row_are_read_though_each_is_known() -> None:
    names = ["Will Grant", "Rose Hunter", "Grace Ford"]
    text = log(300, lambda i: f"saw {names[i % 3]} there" if i < 290 else "saw Rose Ford there")
    assert "Rose Ford" in condensed(text).first.text


@given(st.sampled_from(WORDS))
def test_a_word_under_suspicion_is_read_everywhere(word: str) -> None:
    """The model suspects it wherever it saw it: then every form with it is read."""
    text = log(600, mixed)
    found = condensed(text)
    rest = second(found, lambda piece: piece == word)
    read = read_lines(found, rest)
    for line in text.splitlines():
        pair = " ".join(line.split()[5:8])
        assert word not in pair.split() or pair in read
    assert rest is not None
    assert len(rest.kept) < 100


def test_a_number_under_suspicion_is_read_everywhere() -> None:
    """Though every word around it is known from lines that are clean."""
    text = log(
        600,
        lambda i: f"{mixed(i)} customer {10_000 + i * 7919 % 89_989}" if i % 3 == 0 else f"{mixed(i)} customer list",
    )
    found = condensed(text)
    read = read_lines(found, second(found, lambda piece: piece.isdecimal() and len(piece) > 3))
    forms = {" ".join(line.split()[5:10]) for line in text.splitlines() if "customer list" not in line}
    assert len(forms) > 100
    assert all(form in read for form in forms)


def test_a_clean_word_elsewhere_is_enough() -> None:
    """One place above suspicion clears a word."""
    text = log(600, lambda i: "gateway of stock done" if i == 0 else mixed(i))
    assert second(condensed(text), lambda piece: piece == "INFO") is not None
    assert second(condensed(text), lambda piece: piece == "nothing") is None


def test_prose_is_never_left_out_by_its_words() -> None:
    """Lines without the numbers of a log are read, whatever their words are."""
    lines = [f"We saw {WORDS[i % 19]} and then {WORDS[i // 19]} beside the road to town." for i in range(300)]
    text = "\n".join(lines * 2)
    assert all(line in condensed(text).first.text for line in lines)


def test_a_reading_of_two_rounds(nano: Classifier) -> None:
    """Lines of both rounds in one reading; what the model suspects it reads in every form."""
    text = log(600, lambda i: f"{WORDS[i % 19]} of {('maria', 'john')[i // 19 % 2]}.gonzalez{i}@example.org sent")
    (reading,) = nano.read([text])
    check(text, reading)
    found = {text[span.start : span.end] for span in reading.spans if span.label == "private_email"}
    assert len(found) == 600


@pytest.mark.parametrize("text", ["", "a\n" * 500, log(30), "\n".join(f"Line about {w}" for w in PROSE.split() * 9)])
def test_what_is_no_log_is_not_condensed(text: str) -> None:
    assert condense(text) is None


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 10**9), st.text(max_size=20)), min_size=70, max_size=120))
def test_condensed_texts_map_back(entries: list[tuple[int, int, str]]) -> None:
    """Every character of a kept line goes to the same place of each of its lines, numbers to numbers."""
    lines = [
        f"a line of the form {form} is at least forty characters long: {number}{text if form == 0 and i < 3 else ''}\n"
        for i, (form, number, text) in enumerate(entries)
    ]
    text = "".join(lines)
    first = condensed(text).first
    assert "".join(text[line.start : line.end] for line in first.lines) == text
    for at, character in enumerate(first.text):
        places = list(first.spans(at, at + 1))
        assert places
        for start, end in places:
            moved = text[start:end]
            assert moved == character or (moved.isdecimal() and character.isdecimal()) or moved == ""
