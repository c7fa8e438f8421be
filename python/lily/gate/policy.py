"""What may leave: outcomes, rules, and the policy that decides from spans, sensitivity and destination.

A policy is one set of rules and any number of floors. A floor is rules of an organisation: every floor decides beside
the user's rules, and the strictest outcome counts, so that nobody can weaken one by adding rules. Nothing here reads
a file (policy_file.py does) or changes a text (masking.py does).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, TypeVar

from ..display import counted
from .folding import View
from .spans import LABELS, Span


class Outcome(Enum):
    """What happens to a text, from the mildest to the strictest."""

    ALLOW = "allow"
    """It leaves as it is."""
    MASK = "mask"
    """It leaves with placeholders in place of what was found."""
    REWRITE = "rewrite"
    """A model rewrites it so that the task goes on without the values; without one, as MASK, and the reasons say so."""
    ASK = "ask"
    """It leaves only if the user consents."""
    LOCAL = "local"
    """The work stays on the device."""
    REFUSE = "refuse"
    """The work is not done at all."""

    @property
    def strictness(self) -> int:
        """0 for ALLOW up to 5 for REFUSE."""
        return _ORDER[self]

    @property
    def leaves(self) -> bool:
        """Whether something leaves the device under this outcome."""
        return self.strictness <= Outcome.REWRITE.strictness


_ORDER = {outcome: place for place, outcome in enumerate(Outcome)}

_T = TypeVar("_T")

OperatorKind = Literal["placeholder", "redact", "mask", "hash"]


@dataclass(frozen=True, slots=True)
class Operator:
    """What stands in a value's place: a placeholder that `restore` turns back, or one of three that stay.

    redact: [REDACTED]. mask: `character` for every letter and digit but the last `keep`, of which never more than a
    quarter are kept. hash: a keyed hash, equal for equal values under one key.
    """

    kind: OperatorKind = "placeholder"
    keep: int = 4
    character: str = "*"


@dataclass(frozen=True, slots=True)
class Limit:
    """From this number on, this outcome at least."""

    threshold: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Destination:
    """Rules for where the text is to go: at least this outcome, and other outcomes for some labels."""

    at_least: Outcome = Outcome.ALLOW
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)


def form(text: str) -> str:
    """A value as allow and deny lists compare it: folded, in small letters, blanks as one."""
    return " ".join(View(text).lower.split())


@dataclass(frozen=True)
class Rules:
    """One set of rules. Keys of `outcomes`, `thresholds` and `operators`: "label/sub", "label" or "default".

    The most precise key counts. `document` looks at the sensitivity of the whole text, `suspicion` at the surest sign
    of personal data outside every span. `unread` is for parts that are no text (pictures, sound), `failure` for a text
    that could not be read at all.
    """

    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)
    operators: Mapping[str, Operator] = field(default_factory=dict)
    document: Limit | None = None
    suspicion: Limit | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    deny_outcome: Outcome = Outcome.REFUSE
    destinations: Mapping[str, Destination] = field(default_factory=dict)
    unread: Outcome = Outcome.ALLOW
    failure: Outcome = Outcome.LOCAL

    def keeps(self, span: Span, value: str) -> bool:
        """Whether these rules care about a span: sure enough, and its value (a `form`) not on the allow list."""
        threshold = _precise(self.thresholds, span)
        return span.score >= (0.5 if threshold is None else threshold) and not self._allowed(span, value)

    def _allowed(self, span: Span, value: str) -> bool:
        if not self.allow:
            return False
        forms = _forms(self.allow)
        domain = value[value.rfind("@") :] if span.label == "private_email" and "@" in value else None
        return value in forms or (domain is not None and domain in forms)

    def destination(self, name: str | None) -> tuple[str, Destination] | None:
        """The rule for a destination: its own name, else the longest pattern that fits."""
        if name is None:
            return None
        fitting = [pattern for pattern in self.destinations if fnmatchcase(name.lower(), pattern.lower())]
        if not fitting:
            return None
        best = max(fitting, key=lambda pattern: (pattern.lower() == name.lower(), len(pattern), pattern))
        return best, self.destinations[best]

    def outcome(self, span: Span, destination: str | None = None) -> Outcome:
        """The outcome that one span has for one destination."""
        if span.sub == DENIED:
            return self.deny_outcome if self.deny else Outcome.ALLOW
        there = self.destination(destination)
        found = None if there is None else _precise(there[1].outcomes, span)
        if found is None:
            found = _precise(self.outcomes, span)
        return Outcome.ALLOW if found is None else found

    def operator(self, span: Span) -> Operator | None:
        """The operator that these rules name for a span."""
        return _precise(self.operators, span)


DENIED = "denied"
"""The sub-label of what a deny list names."""


@lru_cache(maxsize=64)
def _forms(values: tuple[str, ...]) -> frozenset[str]:
    return frozenset(form(value) for value in values)


@lru_cache(maxsize=64)
def _pattern(values: tuple[str, ...]) -> re.Pattern[str]:
    longest_first = sorted(_forms(values) - {""}, key=len, reverse=True)
    words = "|".join(r"\s+".join(map(re.escape, value.split(" "))) for value in longest_first)
    return re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])" if words else r"(?!)")


def _precise(table: Mapping[str, _T], span: Span) -> _T | None:
    for key in (f"{span.label}/{span.sub}", span.label, "default"):
        if key in table:
            return table[key]
    return None


@dataclass(frozen=True, slots=True)
class Decision:
    """An outcome and the sentences that explain it; they name labels and numbers, never values."""

    outcome: Outcome
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Policy:
    """The user's rules and the floors under them. `Policy.balanced()`, `Policy.strict()` or `Policy.load(path)`."""

    name: str
    rules: Rules
    floors: tuple[Rules, ...] = ()

    @staticmethod
    def balanced() -> Policy:
        """Masks what identifies people; asks for cards and government IDs; keeps credentials on the device."""
        return _BALANCED

    @staticmethod
    def strict() -> Policy:
        """Masks only what the task may need, keeps accounts on the device, refuses cards, IDs and credentials."""
        return _STRICT

    @staticmethod
    def load(path: str | os.PathLike[str], *, organisation: Policy | None = None) -> Policy:
        """The policy of a TOML file, with the floors of `organisation` under it.

        Raises PolicyError that names every bad key, or that the file cannot be read.
        """
        from .policy_file import load

        policy = load(path)
        return policy if organisation is None else policy.under(organisation)

    @staticmethod
    def parse(text: str, name: str = "policy") -> Policy:
        """The policy of a TOML text. Raises PolicyError that names every bad key."""
        from .policy_file import parse

        return parse(text, name)

    def under(self, organisation: Policy) -> Policy:
        """This policy with the floors of another one under it, too. The other's own rules do not count."""
        new = tuple(floor for floor in organisation.floors if not any(floor == own for own in self.floors))
        return replace(self, floors=(*self.floors, *new)) if new else self

    @property
    def _all(self) -> tuple[Rules, ...]:
        return (self.rules, *self.floors)

    def keep(self, text: str, spans: Iterable[Span]) -> list[Span]:
        """The spans of a text that the rules or a floor care about."""
        kept = []
        lists = any(rules.allow for rules in self._all)
        for span in spans:
            value = form(text[span.start : span.end]) if lists else ""
            if span.sub == DENIED or any(rules.keeps(span, value) for rules in self._all):
                kept.append(span)
        return kept

    def denied(self, view: View) -> list[Span]:
        """The places of what the deny lists name, as spans of the text as given."""
        found: set[Span] = set()
        for rules in self._all:
            if rules.deny:
                for match in _pattern(rules.deny).finditer(view.lower):
                    found.add(Span(*view.origin(*match.span()), "other_pii", DENIED, 1.0, "deny list"))
        return sorted(found)

    def outcome(self, span: Span, destination: str | None = None, value: str | None = None) -> Outcome:
        """The strictest outcome that the rules and the floors have for one span.

        Rules that would not keep the span have none; `value` is the span's `form`, for the allow lists.
        """
        found = [
            rules.outcome(span, destination)
            for rules in self._all
            if span.sub == DENIED or rules.keeps(span, "" if value is None else value)
        ]
        return strictest(Outcome.ALLOW, *found)

    def operator(self, span: Span) -> Operator:
        """What stands in the span's place; a floor's word goes before the user's."""
        for rules in (*self.floors, self.rules):
            found = rules.operator(span)
            if found is not None:
                return found
        return Operator()

    def decide(
        self,
        spans: Iterable[Span],
        sensitivity: float,
        destination: str | None = None,
        *,
        text: str | None = None,
        suspicion: float = 0.0,
        unread: int = 0,
        failure: str | None = None,
    ) -> Decision:
        """The strictest outcome of spans, document, destination, unread parts and failure, with every reason for it.

        `text` is what the spans refer to; without it allow lists are not looked at. `failure` is what went wrong, if
        the text could not be read: then the outcome is LOCAL or stricter.
        """
        counts: dict[tuple[str, Outcome], int] = {}
        lists = text is not None and any(rules.allow for rules in self._all)
        for span in spans:
            value = form(text[span.start : span.end]) if lists and text is not None else None
            key = f"{span.label}/{span.sub}" if span.sub else span.label
            place = key, self.outcome(span, destination, value)
            counts[place] = counts.get(place, 0) + 1
        found = [(outcome, f"{count} {key}: {outcome.value}") for (key, outcome), count in counts.items()]
        for rules in self._all:
            found += _document(rules, sensitivity, suspicion, destination, unread)
            if failure is not None:
                outcome = strictest(Outcome.LOCAL, rules.failure)
                found.append((outcome, f"not read, {failure}: {outcome.value}"))
        found.sort(key=lambda pair: -pair[0].strictness)
        outcome = found[0][0] if found else Outcome.ALLOW
        reasons = tuple(dict.fromkeys(words for _, words in found))
        return Decision(outcome, reasons or ("nothing found: allow",))


def _document(
    rules: Rules, sensitivity: float, suspicion: float, destination: str | None, unread: int
) -> list[tuple[Outcome, str]]:
    found = []
    for limit, number, words in (
        (rules.document, sensitivity, "sensitivity"),
        (rules.suspicion, suspicion, "suspicion outside the spans"),
    ):
        if limit is not None and number >= limit.threshold:
            found.append((limit.outcome, f"{words} {number:.2f}, at least {limit.threshold:g}: {limit.outcome.value}"))
    there = rules.destination(destination)
    if there is not None and there[1].at_least is not Outcome.ALLOW:
        found.append((there[1].at_least, f"destination {there[0]}: {there[1].at_least.value}"))
    if unread and rules.unread is not Outcome.ALLOW:
        found.append((rules.unread, f"{counted(unread, 'part')} without text, not read: {rules.unread.value}"))
    return found


def strictest(*outcomes: Outcome) -> Outcome:
    """The strictest of some outcomes."""
    return max(outcomes, key=lambda outcome: outcome.strictness)


WEIGHTS: Mapping[str, float] = MappingProxyType(
    {
        "private_person": 0.15,
        "private_email": 0.2,
        "private_phone": 0.2,
        "private_address": 0.3,
        "private_url": 0.1,
        "private_date": 0.1,
        "private_date/dob": 0.3,
        "account_number": 0.5,
        "account_number/iban": 0.7,
        "account_number/bank_account": 0.7,
        "account_number/payment_card": 0.9,
        "account_number/government_id": 0.9,
        "account_number/cvv": 0.9,
        "secret": 0.95,
        "other_pii": 0.2,
    }
)


def sensitivity(head: float, spans: Iterable[Span]) -> float:
    """How sensitive a text is, from 0 to 1: max(head, 1 - product of (1 - weight * score)).

    The product goes over the kinds found, each with its surest span, so that a long list of one kind does not add up.
    """
    surest: dict[str, float] = {}
    for span in spans:
        key = f"{span.label}/{span.sub}"
        surest[key] = max(surest.get(key, 0.0), span.score)
    left = 1.0
    for key, score in surest.items():
        left *= 1.0 - WEIGHTS.get(key, WEIGHTS[key.split("/")[0]]) * score
    return max(head, 1.0 - left)


_MASKED = dict.fromkeys(LABELS, Outcome.MASK)
_CRITICAL = ("account_number/payment_card", "account_number/government_id", "account_number/cvv")
_BALANCED = Policy(
    "balanced",
    Rules(
        outcomes=_MASKED | dict.fromkeys(_CRITICAL, Outcome.ASK) | {"secret": Outcome.LOCAL},
        thresholds={"default": 0.5},
        unread=Outcome.ASK,
    ),
)
_STRICT = Policy(
    "strict",
    Rules(
        outcomes=_MASKED
        | dict.fromkeys(_CRITICAL, Outcome.REFUSE)
        | {"account_number": Outcome.LOCAL, "secret": Outcome.REFUSE},
        thresholds={"default": 0.3},
        document=Limit(0.5, Outcome.LOCAL),
        suspicion=Limit(0.3, Outcome.ASK),
        unread=Outcome.LOCAL,
    ),
)
