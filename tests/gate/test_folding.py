# ruff: noqa: RUF001 (look-alikes and full-width characters are the subject)
"""The folded view: what it undoes, and that every place of it leads back to the text as given."""

from __future__ import annotations

import random

import pytest
from gate_values import full_width, zero_width
from hypothesis import given
from hypothesis import strategies as st

from lily.gate.folding import View
from lily.gate.spans import Span, utf8, utf16

ODD = st.text(
    st.sampled_from("aZ9 @.-\\n\u200b\u00ad\u0430\uff11\u2011\u00a0\U0001f600\u0301\u7528\u0130\u00df\r\n\ufb01\u2167"),
    max_size=60,
)


@given(st.one_of(st.text(max_size=80), ODD))
def test_view_is_as_long_as_its_small_letters_and_leads_back(text: str) -> None:
    view = View(text)
    assert len(view.lower) == len(view.folded) <= len(text)
    last = 0
    for place in range(len(view.folded)):
        start, end = view.origin(place, place + 1)
        assert last <= start < end <= len(text)
        assert end - start == 1
        last = end
    if view.folded:
        start, end = view.origin(0, len(view.folded))
        assert 0 <= start < end <= len(text)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=2, max_size=40), st.integers())
def test_ascii_survives_full_width_and_zero_width(text: str, seed: int) -> None:
    expected = View(text).folded
    assert View(full_width(text)).folded.replace(" ", "") == text.replace(" ", "") or "\\" in text
    if "\\" not in text:
        assert View(zero_width(random.Random(seed), text)).folded == expected


@pytest.mark.parametrize("odd", ["аlina", "аlinа", "pаypal.com", "Ѕmith", "micrоsoft", "αlpha@example.org"])
def test_lookalikes_fold_inside_latin_words(odd: str) -> None:
    assert View(odd).folded.isascii()


@pytest.mark.parametrize("word", ["соса", "Москва", "Παρίσι", "пишите", "naïve", "Größe", "東京", "Россия-USA"])
def test_other_scripts_stay(word: str) -> None:
    assert View(word).folded == word


@pytest.mark.parametrize("hyphen", "\u2010\u2011\u2012\u2013\u2212\uff0d")
def test_hyphens_and_digits_of_unicode(hyphen: str) -> None:
    assert View(f"1{hyphen}2").folded == "1-2"
    assert View("٠١٢٣४५६").folded == "0123456"


@pytest.mark.parametrize("blank", "\u00a0\u2002\u2007\u2009\u202f\u3000")
def test_blanks_of_unicode(blank: str) -> None:
    assert View(f"1{blank}2").folded == "1 2"


def test_escapes_of_json_are_blanks() -> None:
    assert View(r"a\nbob@example.org").folded == "a  bob@example.org"
    assert View(r"a\\nbob@example.org").folded == "a   bob@example.org"


@given(st.text(max_size=60), st.data())
def test_offsets_in_other_units(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    (units,), (octets,) = utf16(text, [at]), utf8(text, [at])
    assert text.encode("utf-16-le", "surrogatepass")[: 2 * units].decode("utf-16-le", "surrogatepass") == text[:at]
    assert text.encode("utf-8", "surrogatepass")[:octets].decode("utf-8", "surrogatepass") == text[:at]


def test_a_span_outside_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 0 <= start < end"):
        Span(3, 3, "secret")
    with pytest.raises(ValueError, match="no label"):
        Span(0, 1, "name")
    with pytest.raises(ValueError, match="outside the text"):
        utf16("ab", [3])
