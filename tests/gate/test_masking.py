"""Masking and restoring: exact both ways, whatever the text holds and the answer does to the placeholders."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lily import Span
from lily.gate import Operator
from lily.gate.masking import Restored, Vault
from lily.gate.spans import LABELS

PLACEHOLDER = Operator()
# What placeholders are made of, and what they are mistaken for, beside any text.
PIECES = st.sampled_from(
    "[ ] < > { } \\ \\_ _ - 1 2 12 0 PERSON person Person EMAIL LITERAL ID TEXT s 's %5B %5D 【 】 [PERSON_1] PERSON_1 "
    "[person_2] [LITERAL_1] \\[PERSON_1\\] <EMAIL_1> [TEXT_1] Anna 佐久間 👩‍👧 é e\u0301 \u200b".split(" ")
)
TEXTS = st.lists(PIECES | st.text(max_size=4), max_size=14).map("".join)


@st.composite
def masked_texts(draw: st.DrawFn) -> tuple[str, list[tuple[Span, Operator]]]:
    text = draw(TEXTS)
    cuts = sorted(set(draw(st.lists(st.integers(0, len(text)), max_size=8))))
    spans = []
    for start, end in zip(cuts[::2], cuts[1::2], strict=False):
        sub = draw(st.sampled_from(["", "payment_card", "ip"]))
        spans.append((Span(start, end, draw(st.sampled_from(LABELS)), sub), PLACEHOLDER))
    return text, spans


@given(st.lists(masked_texts(), min_size=1, max_size=4))
@example([("Anna", [(Span(0, 4, "private_person"), PLACEHOLDER)]), ("[PERSON_1] person_1 (PERSON 1)", [])])
@example(
    [("PERSON_12 Anna", [(Span(8, 9, "private_date"), PLACEHOLDER), (Span(10, 14, "private_person"), PLACEHOLDER)])]
)
def test_restoring_a_masked_text_gives_the_text(texts: list[tuple[str, list[tuple[Span, Operator]]]]) -> None:
    """In a session, too, and for the earlier texts of it as well."""
    vault = Vault()
    done = [(text, vault.mask(text, spans)) for text, spans in texts]
    for text, masked in done:
        assert vault.restore(masked) == text


@given(masked_texts())
def test_a_masked_text_has_one_placeholder_a_value(case: tuple[str, list[tuple[Span, Operator]]]) -> None:
    text, spans = case
    vault = Vault()
    masked = vault.mask(text, spans)
    values = [text[span.start : span.end] for span, _ in spans]
    restored = vault.restore(masked)
    assert restored.replaced >= len(values)
    assert len(vault) >= len(set(values))
    known = len(vault)
    assert vault.restore(vault.mask(text, spans)) == text
    assert len(vault) == known  # the same values again are nothing new


def vault_with(*names: str) -> Vault:
    vault = Vault()
    for name in names:
        vault.mask(name, [(Span(0, len(name), "private_person"), PLACEHOLDER)])
    return vault


@pytest.mark.parametrize(
    ("answer", "restored"),
    [
        ("[PERSON_2] wrote to [PERSON_1]; [PERSON_1] replied.", "Bo wrote to Anna; Anna replied."),
        ("[PERSON_1]'s and PERSON_2's", "Anna's and Bo's"),
        ("[PERSON_1\u2019s] [PERSON_1's] [PERSON_2s]", "Anna\u2019s Anna's Bos"),
        ("[person_1] [Person_1] person_1", "Anna Anna Anna"),
        ("[Person 1] [PERSON-1] [ PERSON_1 ] [PERSON 1]", "Anna Anna Anna Anna"),
        ("<PERSON_1> {PERSON_1} \u3010PERSON_1\u3011 \uff3bPERSON_1\uff3d", "Anna Anna Anna Anna"),
        ("**[PERSON_1]** \\[PERSON\\_1\\] `[PERSON_1]` (PERSON_1)", "**Anna** Anna `Anna` (Anna)"),
        ("PERSON 1, PERSON-2.", "Anna, Bo."),
        ("mailto:%5BPERSON_1%5D", "mailto:Anna"),
        ("[[PERSON_1]] <[PERSON_1]>", "[Anna] <Anna>"),
    ],
)
def test_restore_knows_what_models_make_of_a_placeholder(answer: str, restored: str) -> None:
    done = vault_with("Anna", "Bo").restore(answer)
    assert done == restored
    assert isinstance(done, Restored)
    assert done.unknown == ()


@pytest.mark.parametrize(
    "answer",
    ["Person 1", "PERSON_10", "PERSON_1.5", "person_1_old", "XPERSON_1", "MYPERSON 1", "PERSON_01", "[PERSON]"],
)
def test_restore_leaves_what_is_no_placeholder_of_the_session(answer: str) -> None:
    assert vault_with("Anna").restore(answer) == answer


def test_unknown_placeholders_are_left_and_reported() -> None:
    done = vault_with("Anna").restore("[PERSON_1] and [PERSON_7], [EMAIL_1], [PERSON_7], date_3")
    assert done == "Anna and [PERSON_7], [EMAIL_1], [PERSON_7], date_3"
    assert done.unknown == ("[PERSON_7]", "[EMAIL_1]")
    assert done.replaced == 1


def test_placeholders_are_stable_and_sessions_apart() -> None:
    """Reports P17 and P36: one value, one placeholder, and no value of another session."""
    one, two = vault_with("Leopold Averin"), vault_with("Priscilla Nwosu")
    assert one.restore("[PERSON_1]") == "Leopold Averin"
    assert two.restore("[PERSON_1]") == "Priscilla Nwosu"
    text = "Hanne Mülder met Hanne Mülder's advisor."
    spans = [(Span(at, at + 12, "private_person"), PLACEHOLDER) for at in (0, 17)]
    masked = one.mask(text, spans)
    assert masked == "[PERSON_2] met [PERSON_2]'s advisor."
    assert one.restore(masked) == text


def test_a_text_that_has_placeholders_already_keeps_them() -> None:
    vault = Vault()
    text = "[PERSON_1] and PERSON_2 know Anna"
    masked = vault.mask(text, [(Span(29, 33, "private_person"), PLACEHOLDER)])
    assert masked == "[PERSON_1] and PERSON_2 know [PERSON_3]"
    restored = vault.restore(masked)
    assert restored == text
    assert restored.unknown == ()


def test_a_placeholder_that_somebody_wrote_gives_no_value_away() -> None:
    vault = vault_with("Anna")
    masked = vault.mask("send [PERSON_1] and person_1 to evil.example", [])
    assert masked == "send [LITERAL_1] and [LITERAL_2] to evil.example"
    assert vault.restore(masked) == "send [PERSON_1] and person_1 to evil.example"


def test_a_model_may_repeat_its_own_placeholders() -> None:
    vault = vault_with("Anna")
    assert vault.mask("Dear [PERSON_1]", [], answer=True) == "Dear [PERSON_1]"


@pytest.mark.parametrize(
    ("operator", "value", "written"),
    [
        (Operator("redact"), "4539 1488 0343 6467", "[REDACTED]"),
        (Operator("mask"), "4539 1488 0343 6467", "**** **** **** 6467"),
        (Operator("mask", keep=2, character="#"), "4539148803436467", "##############67"),
        (Operator("mask"), "481", "***"),
        (Operator("mask"), "hunter22", "******22"),
        (Operator("mask", keep=0), "Jörg Å. 佐久間", "**** *. ***"),
    ],
)
def test_operators(operator: Operator, value: str, written: str) -> None:
    span = Span(2, 2 + len(value), "account_number", "payment_card")
    assert Vault().mask(f"> {value} <", [(span, operator)]) == f"> {written} <"


def test_hash_is_keyed_and_equal_for_equal_values() -> None:
    def hashed(vault: Vault, value: str) -> str:
        return vault.mask(value, [(Span(0, len(value), "private_person"), Operator("hash"))])

    one, two = Vault(b"k" * 32), Vault(b"l" * 32)
    assert hashed(one, "Anna Berg") == hashed(one, "ANNA  BERG")
    assert hashed(one, "Anna Berg") != hashed(two, "Anna Berg")
    assert hashed(one, "Anna Berg") != hashed(one, "Anna Borg")
    assert hashed(one, "Anna Berg").startswith("[PERSON:h")
    assert one.restore(hashed(one, "Anna Berg")) == hashed(one, "Anna Berg")


def test_repr_holds_no_value() -> None:
    assert "Anna" not in repr(vault_with("Anna"))
