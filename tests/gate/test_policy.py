"""Policies: what they decide, that floors hold, and that every fault of a file is named."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lily import Outcome, Policy, Span
from lily.errors import PolicyError
from lily.gate import Operator, Rules
from lily.gate.folding import View
from lily.gate.policy import sensitivity, strictest
from lily.gate.spans import LABELS

from .fakes import wide

PERSON = Span(0, 4, "private_person", "", 0.9)
CARD = Span(5, 9, "account_number", "payment_card", 1.0)
SECRET = Span(10, 14, "secret", "token", 1.0)


def test_outcomes_are_ordered() -> None:
    assert [outcome.name for outcome in Outcome] == ["ALLOW", "MASK", "REWRITE", "ASK", "LOCAL", "REFUSE"]
    for milder, stricter in itertools.pairwise(Outcome):
        assert strictest(milder, stricter) is strictest(stricter, milder) is stricter
    assert [outcome for outcome in Outcome if outcome.leaves] == [Outcome.ALLOW, Outcome.MASK, Outcome.REWRITE]


@pytest.mark.parametrize(
    ("policy", "spans", "outcome"),
    [
        (Policy.balanced(), [], Outcome.ALLOW),
        (Policy.balanced(), [PERSON], Outcome.MASK),
        (Policy.balanced(), [PERSON, CARD], Outcome.ASK),
        (Policy.balanced(), [PERSON, SECRET, CARD], Outcome.LOCAL),
        (Policy.strict(), [PERSON], Outcome.MASK),
        (Policy.strict(), [Span(0, 1, "account_number", "iban")], Outcome.LOCAL),
        (Policy.strict(), [CARD], Outcome.REFUSE),
        (Policy.strict(), [SECRET], Outcome.REFUSE),
    ],
)
def test_the_strictest_span_decides(policy: Policy, spans: list[Span], outcome: Outcome) -> None:
    decision = policy.decide(spans, 0.0)
    assert decision.outcome is outcome
    assert decision.reasons
    assert all(outcome.value in decision.reasons[0] for _ in spans[:1])


def test_the_most_precise_key_counts() -> None:
    policy = Policy.parse(
        """
        extends = "none"
        [outcomes]
        default = "ask"
        account_number = "local"
        "account_number/iban" = "allow"
        [thresholds]
        default = 0.9
        private_person = 0.2
        """
    )
    assert policy.outcome(CARD) is Outcome.LOCAL
    assert policy.outcome(Span(0, 1, "account_number", "iban")) is Outcome.ALLOW
    assert policy.outcome(Span(0, 1, "secret")) is Outcome.ASK
    assert policy.outcome(Span(0, 1, "secret", "", 0.8)) is Outcome.ALLOW
    assert policy.outcome(Span(0, 1, "private_person", "", 0.2)) is Outcome.ASK


def test_document_suspicion_unread_and_failure() -> None:
    policy = Policy.parse(
        """
        unread = "local"
        failure = "refuse"
        document = { threshold = 0.7, outcome = "ask" }
        suspicion = { threshold = 0.6, outcome = "local" }
        """
    )
    assert policy.decide([], 0.69).outcome is Outcome.ALLOW
    assert policy.decide([], 0.7).outcome is Outcome.ASK
    assert policy.decide([], 0.0, suspicion=0.6).outcome is Outcome.LOCAL
    assert policy.decide([], 0.0, unread=1).outcome is Outcome.LOCAL
    failed = policy.decide([], 0.0, failure="NumericalError")
    assert failed.outcome is Outcome.REFUSE
    assert "NumericalError" in failed.reasons[0]
    assert Policy("open", Rules()).decide([], 0.0, failure="X").outcome is Outcome.LOCAL


def test_destinations() -> None:
    policy = Policy.parse(
        """
        [destinations."*"]
        at_least = "mask"
        [destinations."*.intranet.example"]
        outcomes = { private_person = "allow" }
        [destinations."bad.intranet.example"]
        at_least = "refuse"
        """
    )
    assert policy.decide([PERSON], 0.0).outcome is Outcome.MASK
    assert policy.decide([], 0.0, "api.example.com").outcome is Outcome.MASK
    assert policy.decide([PERSON], 0.0, "wiki.intranet.example").outcome is Outcome.ALLOW
    assert policy.decide([SECRET], 0.0, "WIKI.intranet.example").outcome is Outcome.LOCAL
    assert policy.decide([], 0.0, "bad.intranet.example").outcome is Outcome.REFUSE


def test_allow_list_ignores_case_width_and_blanks() -> None:
    policy = Policy.parse('allow = ["Support Team", "@corp.example"]')
    text = wide("SUPPORT") + "  team bo@corp.example bo@other.example"
    spans = [
        Span(0, 13, "private_person"),
        Span(14, 29, "private_email"),
        Span(30, 46, "private_email"),
    ]
    assert [text[span.start : span.end] for span in policy.keep(text, spans)] == ["bo@other.example"]


@pytest.mark.parametrize(
    "text", ["ask Nightjar now", "NIGHTJAR", wide("N") + "ightjar", "night\u200bjar!", "the nightjar-2 plan"]
)
def test_deny_list_in_any_folding(text: str) -> None:
    policy = Policy.parse('deny = { values = ["nightjar"], outcome = "refuse" }')
    (span,) = policy.denied(View(text))
    assert View(text[span.start : span.end]).lower == "nightjar"
    assert policy.decide([span], 0.0).outcome is Outcome.REFUSE


def test_deny_list_takes_whole_words() -> None:
    policy = Policy.parse('deny = { values = ["night jar", "c++"] }')
    assert policy.denied(View("nightjars, midnight jar, night jarred")) == []
    assert len(policy.denied(View("night\n jar, c++"))) == 2


FLOOR = """
[floor]
unread = "local"
thresholds = { default = 0.3 }
document = { threshold = 0.8, outcome = "ask" }
deny = { values = ["nightjar"], outcome = "refuse" }
[floor.outcomes]
"account_number/payment_card" = "local"
secret = "refuse"
[floor.operators]
private_person = "redact"
[floor.destinations."*.evil.example"]
at_least = "refuse"
"""
OUTCOMES = st.sampled_from([outcome.value for outcome in Outcome])


@given(
    outcomes=st.dictionaries(st.sampled_from(["default", *LABELS, "account_number/payment_card"]), OUTCOMES),
    threshold=st.floats(0, 1),
    allow=st.booleans(),
    there=OUTCOMES,
)
def test_no_user_policy_lowers_a_floor(outcomes: dict[str, str], threshold: float, allow: bool, there: str) -> None:
    organisation = Policy.parse(FLOOR)
    text = "Anna 4539 tokn nightjar"
    lines = [f'"{key}" = "{value}"' for key, value in outcomes.items()]
    user = Policy.parse(
        "\n".join(
            [
                'extends = "none"',
                f"allow = {['Anna', '4539', 'tokn', 'nightjar'] if allow else []}",
                "[thresholds]",
                f"default = {threshold}",
                "[operators]",
                'private_person = "placeholder"',
                '[destinations."*"]',
                f'outcomes = {{ default = "{there}" }}',
                "[outcomes]",
                *lines,
            ]
        )
    ).under(organisation)
    card, secret = Span(5, 9, "account_number", "payment_card", 0.3), Span(10, 14, "secret", "", 0.4)
    assert user.keep(text, [card, secret]) == [card, secret]
    for destination in (None, "api.example"):
        assert user.decide([card], 0, destination, text=text).outcome.strictness >= Outcome.LOCAL.strictness
        assert user.decide([card, secret], 0, destination, text=text).outcome is Outcome.REFUSE
        assert user.decide(user.denied(View(text)), 0, destination, text=text).outcome is Outcome.REFUSE
        assert user.decide([], 0.8, destination).outcome.strictness >= Outcome.ASK.strictness
        assert user.decide([], 0, destination, unread=1).outcome.strictness >= Outcome.LOCAL.strictness
    assert user.decide([], 0, "www.evil.example").outcome is Outcome.REFUSE
    assert user.operator(PERSON) == Operator("redact")


def test_under_keeps_own_floors_and_takes_only_floors() -> None:
    own, other = Policy.parse('[floor.outcomes]\nsecret = "refuse"'), Policy.parse(FLOOR)
    both = own.under(other)
    assert both.floors == (*own.floors, *other.floors)
    assert both.rules == own.rules
    assert both.under(other) == both
    assert own.under(Policy.strict()) == own


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[outcomes]\nprivate_peson = "mask"', ["[outcomes]", "'private_peson'", "did you mean private_person"]),
        ('[outcomes]\nsecret = "maks"', ['outcomes."secret"', "'maks'", "did you mean mask"]),
        ('[outcomes]\n"account_number/credit" = "mask"', ["account_number/credit", "payment_card"]),
        ('[outcomes]\n"private_email/x" = "mask"', ["private_email/x"]),
        ("[thresholds]\nsecret = 1.5", ['thresholds."secret"', "1.5", "from 0 to 1"]),
        ("[thresholds]\nsecret = true", ["True"]),
        ('[operators]\nsecret = "blur"', ["'blur'", "placeholder, redact, mask, hash"]),
        ('[operators]\nsecret = { kind = "mask", keep = 99 }', ["keep", "99"]),
        ('[operators]\nsecret = { kind = "mask", chr = "#" }', ["'chr'", "character"]),
        ('[operators]\nsecret = { kind = "mask", character = "ab" }', ["character", "'ab'"]),
        ("document = { threshold = 0.5 }", ["[document]", "no outcome"]),
        ('document = { outcome = "ask" }', ["[document]", "no threshold"]),
        ('allow = "me"', ["allow", "list"]),
        ('allow = ["", "x"]', ["allow", "empty"]),
        ("deny = { values = [1] }", ["deny.values", "list"]),
        ('deny = { value = ["x"] }', ["[deny]", "'value'", "did you mean values"]),
        ('failure = "allow"', ["failure", "'allow'", "'local' or 'refuse'"]),
        ('extends = "lax"', ["extends", "'lax'", "balanced"]),
        ('unread = "no"', ["unread", "'no'"]),
        ("name = 3", ["name", "3"]),
        ('[destinations."x"]\natleast = "ask"', ['destinations."x"', "did you mean at_least"]),
        ('[destinations]\nx = "ask"', ["destinations.x", "table"]),
        ('[floor]\nextends = "none"', ["[floor]", "'extends'"]),
        ('[floor.outcomes]\nsecert = "mask"', ["[floor.outcomes]", "did you mean secret"]),
        ("floor = 1", ["floor", "table"]),
        ('outcome = "mask"', ["the policy", "'outcome'", "did you mean outcomes"]),
        ("a = = 1", ["not TOML", "line 1"]),
    ],
)
def test_every_fault_is_named(text: str, words: list[str]) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.parse(text, "p.toml")
    assert str(caught.value).startswith("p.toml")
    assert [word for word in words if word not in str(caught.value)] == []


def test_all_faults_at_once() -> None:
    with pytest.raises(PolicyError) as caught:
        Policy.parse('unread = "x"\n[outcomes]\na = "mask"\nb = "mask"')
    assert len(caught.value.problems) == 3


def test_load(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    with pytest.raises(PolicyError, match="cannot be read"):
        Policy.load(path)
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(PolicyError, match="cannot be read"):
        Policy.load(path)
    path.write_text('name = "mine"\nextends = "strict"\ndocument = false\n', encoding="utf-8")
    policy = Policy.load(path, organisation=Policy.parse(FLOOR))
    assert policy.name == "mine"
    assert policy.rules.document is None
    assert policy.rules.outcomes == Policy.strict().rules.outcomes
    assert len(policy.floors) == 1


@given(st.lists(st.tuples(st.sampled_from(LABELS), st.floats(0, 1)), max_size=6), st.floats(0, 1))
def test_sensitivity_is_a_share_and_only_grows(found: list[tuple[str, float]], head: float) -> None:
    spans = [Span(0, 1, label, "", score) for label, score in found]
    score = sensitivity(head, spans)
    assert head <= score <= 1
    assert sensitivity(head, spans[:-1]) <= score
    assert sensitivity(head, [*spans, *spans]) == score


def test_the_policy_of_the_docs_is_one() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "gate.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    policy = Policy.parse(block)
    assert policy.name == "support desk"
    assert policy.outcome(CARD) is Outcome.REFUSE
    assert policy.floors[0].outcomes == {"secret": Outcome.LOCAL}


def test_a_file_without_end_of_its_nesting_is_no_policy() -> None:
    with pytest.raises(PolicyError, match="is not TOML"):
        Policy.parse("x = " + "[" * 3000)
