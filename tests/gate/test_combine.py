# ruff: noqa: RUF001 (texts of other scripts are a part of the subject)
"""Rules and model in one list: who wins, what vetoes do, and that the list is sorted, apart and inside the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lily.gate.combine import combine
from lily.gate.recognizers import find
from lily.gate.spans import LABELS, Finding, Span, Strength

TEXT = "Ann Lee lives at 5 Elm Street, card 4539 1488 0343 6467, id 5f0c2b1d-7e42-415a-8102-5550143977ac end."
CARD = TEXT.index("4539")
UUID = TEXT.index("5f0c2b1d")


def span(start: int, end: int, label: str, sub: str = "", score: float = 0.5) -> Span:
    return Span(start, end, label, sub, score)


def draw_spans(size: int) -> st.SearchStrategy[list[Span]]:
    pairs = st.tuples(st.integers(0, size - 1), st.integers(1, size)).filter(lambda p: p[0] < p[1])
    return st.lists(
        st.builds(
            lambda p, label, score: Span(p[0], p[1], label, "", score), pairs, st.sampled_from(LABELS), st.floats(0, 1)
        ),
        max_size=8,
    )


@given(st.text(min_size=1, max_size=60), st.data())
def test_sorted_apart_inside_and_nothing_sure_is_lost(text: str, data: st.DataObject) -> None:
    drawn = data.draw(draw_spans(len(text)))
    grades: list[Strength] = ["validated", "cued", "weak"]
    strengths: list[Strength] = data.draw(st.lists(st.sampled_from(grades), min_size=len(drawn), max_size=len(drawn)))
    rules = [Finding(s, strength) for s, strength in zip(drawn, strengths, strict=True)]
    model = data.draw(draw_spans(len(text)))
    out = combine(text, rules, model)
    last = 0
    for found in out:
        assert last <= found.start < found.end <= len(text)
        assert text[found.start : found.end] == text[found.start : found.end].strip()
        last = found.end
    covered = {i for s in out for i in range(s.start, s.end)}
    for rule in rules:
        if rule.strength != "weak":
            assert {i for i in range(rule.span.start, rule.span.end) if not text[i].isspace()} <= covered


def test_a_validated_rule_names_and_extents_are_united() -> None:
    card = Finding(span(CARD, CARD + 19, "account_number", "payment_card", 0.99), "validated")
    for model in (span(CARD, CARD + 9, "account_number"), span(CARD - 5, CARD + 12, "account_number")):
        (found,) = combine(TEXT, [card], [model])
        assert (found.start, found.end, found.sub) == (min(model.start, CARD), CARD + 19, "payment_card")


def test_where_labels_differ_the_rule_keeps_its_extent_and_the_model_the_rest() -> None:
    card = Finding(span(CARD, CARD + 19, "account_number", "payment_card"), "validated")
    out = combine(TEXT, [card], [span(CARD - 5, CARD + 19, "private_phone")])
    assert [(s.label, TEXT[s.start : s.end]) for s in out] == [
        ("private_phone", "card"),
        ("account_number", "4539 1488 0343 6467"),
    ]


@pytest.mark.parametrize(("strength", "kept"), [("weak", 0), ("cued", 1), ("validated", 1)])
def test_weak_rules_alone_say_nothing(strength: Strength, kept: int) -> None:
    assert len(combine(TEXT, [Finding(span(CARD, CARD + 4, "private_phone"), strength)])) == kept


def test_weak_rules_raise_the_score_of_the_model() -> None:
    (found,) = combine(
        TEXT, [Finding(span(0, 7, "private_person", "", 0.5), "weak")], [span(0, 3, "private_person", "", 0.6)]
    )
    assert (found.start, found.end) == (0, 3)
    assert found.score == pytest.approx(0.8)


@pytest.mark.parametrize(("score", "kept"), [(0.5, 0), (0.89, 0), (0.9, 1)])
def test_vetoes_delete_what_an_unsure_model_sees(score: float, kept: int) -> None:
    assert len(combine(TEXT, [], [span(UUID, UUID + 8, "account_number", "", score)])) == kept
    assert len(combine(TEXT, [], [span(UUID - 3, UUID + 8, "account_number", "", score)])) == 1


@pytest.mark.parametrize("label", ["account_number", "private_phone", "private_date"])
@pytest.mark.parametrize("text", ["M1234567", "123 456 789", "  AB51 ABC\n", '"911701234"', "2001-02-03"])
def test_a_number_that_is_the_whole_text_needs_a_rule(text: str, label: str) -> None:
    core = text.strip().strip('"')
    at = text.index(core)
    model = [span(at, at + len(core), label, "", 0.99)]
    assert combine(text, [], model) == []
    assert len(combine(f"my {text}", [], [span(3 + at, 3 + at + len(core), label, "", 0.99)])) == 1
    (found,) = combine(text, [Finding(span(at, at + len(core), label, "government_id"), "weak")], model)
    assert found.sub == "government_id"


@pytest.mark.parametrize("label", ["private_person", "secret", "private_email", "private_address"])
def test_other_values_may_be_the_whole_text(label: str) -> None:
    assert len(combine("q7 Xw2#vLp9", [], [span(0, 11, label)])) == 1


@pytest.mark.parametrize("value", ["256.1.1.1", "192.168.1", "300.168.1.1", "12:34:56", "2001::db8::1", "1.2.3.4.5"])
def test_what_looks_like_an_address_of_a_machine_and_is_none(value: str) -> None:
    text = f"from {value} it came"
    assert combine(text, [], [span(5, 5 + len(value), "other_pii", "", 1.0)]) == []


@pytest.mark.parametrize(
    "value", ["192.0.2.44", "2001:db8::8a2e:370:7334", "fe80::1%eth0", "10.0.0.0/8", "0a:1b:2c:3d:4e:5f", "anna.b.82"]
)
def test_what_may_be_an_address_of_a_machine_or_is_another_thing(value: str) -> None:
    text = f"from {value} it came"
    assert len(combine(text, [], [span(5, 5 + len(value), "other_pii", "", 1.0)])) == 1


def test_the_stronger_of_two_rules_names_their_union() -> None:
    out = combine(TEXT, [Finding(span(0, 5, "secret"), "cued"), Finding(span(3, 7, "private_email"), "validated")])
    assert [(s.start, s.end, s.label) for s in out] == [(0, 7, "private_email")]


def test_rules_alone() -> None:
    assert [s.sub for s in combine(TEXT, find(TEXT))] == ["payment_card"]
    assert combine("", []) == []
    with pytest.raises(ValueError, match="ends at 9, the text at 2"):
        combine("ab", [], [span(0, 9, "secret")])


@pytest.mark.parametrize(
    ("before", "seen", "rest", "label", "found"),
    [
        ("ask ", "Mariska Vanderho", "ek now", "private_person", "Mariska Vanderhoek"),
        ("Mul", "der", ", hello", "private_person", "Mulder"),
        ("mit Jo", "\u0308rg", " gehen", "private_person", "Jo\u0308rg"),
        ("at ", "Mill Lane 4 🏠", "", "private_address", "Mill Lane 4"),
        ("", "✅ → Anna 👍🏽\ufe0f", " said", "private_person", "Anna"),
        ("担当は", "佐久間", "です", "private_person", "佐久間"),
        ("key ", "x9Kq2mZ", "t7Lw", "secret", "x9Kq2mZt7Lw"),
        ("", "→key✓", "", "secret", "→key✓"),
        ("令牌：", "x9Kq2mZt7Lw。", "", "secret", "x9Kq2mZt7Lw"),
        ("to ", "“Anna Berg”", "", "private_person", "Anna Berg"),
        ("born on ", "1 May 19", "70", "private_date", "1 May 19"),
    ],
)
def test_a_span_of_the_model_has_whole_words_and_no_emoji(
    before: str, seen: str, rest: str, label: str, found: str
) -> None:
    text = before + seen + rest
    spans = combine(text, [], [Span(len(before), len(before + seen), label, score=0.99, why="model")])
    assert [text[span.start : span.end] for span in spans] == [found]


@pytest.mark.parametrize(
    ("text", "name", "kept"),
    [
        ("set in Franklin Gothic with captions", "Franklin Gothic", False),
        ("font-family: 'Cooper Black', serif", "Cooper Black", False),
        ("Fonts used: Arial, Lucida Grande", "Lucida Grande", False),
        ('fonts = ["Gill Sans Light", "Josefin Slab"]', "Gill Sans Light", False),
        ("the font is by Anna Berg", "Anna Berg", True),
        ("Fonts: Arial. Anna Berg chose it", "Anna Berg", True),
        ("fonts: made by Anna Berg", "Anna Berg", True),
        ("Ricardo Sans called", "Ricardo Sans", True),
        ("seen by John Smith MS", "John Smith MS", True),
    ],
)
def test_typefaces_are_nobody(text: str, name: str, kept: bool) -> None:
    at = text.index(name)
    assert bool(combine(text, [], [Span(at, at + len(name), "private_person", score=0.99, why="model")])) is kept


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ("Session ", False),
        ('{"account_token": "', False),
        ("my key was wrong\nsession ", False),
        ("my api key is ", True),
        ("Authorization: Bearer ", True),
        ("the token they sent: ", True),
    ],
)
def test_a_uuid_is_a_secret_where_words_say_so(before: str, kept: bool) -> None:
    value = "57410185-2736-4938-b66c-8afcd3e545cf"
    text = f"{before}{value} and more"
    span = Span(len(before), len(before) + len(value), "secret", score=0.99, why="model")
    assert bool(combine(text, [], [span])) is kept
