"""Policies written in TOML: every key, label, outcome and number is checked, and every fault is named.

The format is described in docs/gate.md. An unknown key is an error, never ignored: a misspelt rule would be a hole.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ..errors import PolicyError
from .policy import Destination, Limit, Operator, OperatorKind, Outcome, Policy, Rules, strictest
from .spans import LABELS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_T = TypeVar("_T")

SUBS: Mapping[str, frozenset[str]] = {
    "private_person": frozenset({"person_any", "patient", "clinician"}),
    "private_address": frozenset({"street", "postcode", "territory"}),
    "private_date": frozenset({"dob"}),
    "private_phone": frozenset({"fax"}),
    "private_url": frozenset({"domain"}),
    "account_number": frozenset(
        "payment_card cvv iban bank_account crypto_wallet government_id customer_id health_id licence_id vehicle "
        "device".split()
    ),
    "other_pii": frozenset("ip mac username age sex".split()),
}
"""The kinds below each label. Those of `secret` are open: password, pin, jwt, pem, token, or the name of a vendor."""

_KINDS: tuple[OperatorKind, ...] = ("placeholder", "redact", "mask", "hash")
_RULES = ("outcomes", "thresholds", "operators", "document", "suspicion", "allow", "deny", "destinations")
_OUTCOMES = [outcome.value for outcome in Outcome]


def load(path: str | os.PathLike[str]) -> Policy:
    """The policy of a TOML file. Raises PolicyError."""
    place = Path(path)
    try:
        text = place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{place} cannot be read as a policy: {error}.") from None
    return parse(text, str(place))


def parse(text: str, name: str = "policy") -> Policy:
    """The policy of a TOML text; `name` stands in front of every fault. Raises PolicyError."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PolicyError(f"{name} is not TOML: {error}.") from None
    reader = _Reader()
    policy = reader.policy(table, name)
    if reader.faults:
        raise PolicyError(f"{name}: {' '.join(reader.faults)}", tuple(reader.faults))
    return policy


class _Reader:
    """Reads tables and collects what is wrong with them; what it gives counts only while `faults` is empty."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def policy(self, table: Mapping[str, Any], name: str) -> Policy:
        self._known(table, "the policy", ("name", "extends", "unread", "failure", "floor", *_RULES))
        bases = {"balanced": Policy.balanced().rules, "strict": Policy.strict().rules, "none": Rules()}
        base = bases.get(str(self._one_of(table, "extends", "the policy", list(bases), "balanced")), Rules())
        floor = self._table(table, "floor", "the policy")
        floors: tuple[Rules, ...] = ()
        if "floor" in table:
            self._known(floor, "[floor]", ("unread", "failure", *_RULES))
            floors = (self._rules(floor, "floor.", Rules()),)
        title = table.get("name", name)
        if not isinstance(title, str) or not title:
            self.faults.append(f"name is {title!r}; expected a text.")
        return Policy(str(title), self._rules(table, "", base), floors)

    def _rules(self, table: Mapping[str, Any], at: str, base: Rules) -> Rules:
        allow = self._list(table, "allow", at)
        deny = self._table(table, "deny", at)
        self._known(deny, f"[{at}deny]", ("values", "outcome"))
        failure = self._outcome(table, "failure", at, base.failure)
        if failure not in (Outcome.LOCAL, Outcome.REFUSE):
            self.faults.append(
                f"{at}failure is {failure.value!r}; expected 'local' or 'refuse': a text that was not read stays."
            )
        return replace(
            base,
            outcomes={**base.outcomes, **self._outcomes(table, "outcomes", at)},
            thresholds={**base.thresholds, **self._by_label(table, "thresholds", at, self._share)},
            operators={**base.operators, **self._by_label(table, "operators", at, self._operator)},
            document=self._limit(table, "document", at, base.document),
            suspicion=self._limit(table, "suspicion", at, base.suspicion),
            allow=(*base.allow, *allow),
            deny=(*base.deny, *self._list(deny, "values", f"{at}deny.")),
            deny_outcome=self._outcome(deny, "outcome", f"{at}deny.", base.deny_outcome),
            destinations=self._destinations(table, at),
            unread=self._outcome(table, "unread", at, base.unread),
            failure=strictest(Outcome.LOCAL, failure),
        )

    def _destinations(self, table: Mapping[str, Any], at: str) -> dict[str, Destination]:
        found = {}
        inner = self._table(table, "destinations", at)
        for name in inner:
            place = f'{at}destinations."{name}"'
            rule = self._table(inner, name, f"{at}destinations.")
            self._known(rule, f"[{place}]", ("at_least", "outcomes"))
            least = self._outcome(rule, "at_least", f"{place}.", Outcome.ALLOW)
            found[name] = Destination(least, self._outcomes(rule, "outcomes", f"{place}."))
        return found

    def _outcomes(self, table: Mapping[str, Any], key: str, at: str) -> dict[str, Outcome]:
        return self._by_label(table, key, at, lambda value, place: self._read_outcome(value, place, Outcome.REFUSE))

    def _by_label(
        self, table: Mapping[str, Any], key: str, at: str, read: Callable[[object, str], _T]
    ) -> dict[str, _T]:
        found = {}
        for name, value in self._table(table, key, at).items():
            self._label(name, f"[{at}{key}]")
            found[name] = read(value, f'{at}{key}."{name}"')
        return found

    def _label(self, name: str, place: str) -> None:
        label, _, sub = name.partition("/")
        if name == "default":
            return
        if label not in LABELS:
            self._unknown(name, place, "label", ["default", *LABELS])
        elif "/" in name:
            subs = SUBS.get(label, frozenset())
            if label == "secret":
                if not sub.replace("_", "").isalnum():
                    self.faults.append(f"{place} has {name!r}; expected secret/ and a name such as password.")
            elif sub not in subs:
                self._unknown(name, place, "label", [f"{label}/{known}" for known in sorted(subs)] or [label])

    def _operator(self, value: object, place: str) -> Operator:
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, dict):
            self.faults.append(f"{place} is {value!r}; expected one of {', '.join(_KINDS)}, or a table with kind.")
            return Operator()
        self._known(value, place, ("kind", "keep", "character"))
        kind = self._one_of(value, "kind", place, list(_KINDS), "placeholder")
        keep, character = value.get("keep", 4), value.get("character", "*")
        if isinstance(keep, bool) or not isinstance(keep, int) or not 0 <= keep <= 8:
            self.faults.append(f"{place}.keep is {keep!r}; expected a whole number from 0 to 8.")
            keep = 0
        if not isinstance(character, str) or len(character) != 1 or character.isalnum() or character.isspace():
            self.faults.append(f"{place}.character is {character!r}; expected one mark such as '*'.")
            character = "*"
        return Operator(next((known for known in _KINDS if known == kind), "placeholder"), keep, character)

    def _limit(self, table: Mapping[str, Any], key: str, at: str, default: Limit | None) -> Limit | None:
        if key not in table:
            return default
        if table[key] is False:  # the way to take the base's rule away
            return None
        limit = self._table(table, key, at)
        self._known(limit, f"[{at}{key}]", ("threshold", "outcome"))
        for name in ("threshold", "outcome"):
            if name not in limit:
                self.faults.append(f"[{at}{key}] has no {name}.")
        outcome = self._outcome(limit, "outcome", f"{at}{key}.", Outcome.REFUSE)
        return Limit(self._share(limit.get("threshold", 0.0), f"{at}{key}.threshold"), outcome)

    def _share(self, value: object, place: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            self.faults.append(f"{place} is {value!r}; expected a number from 0 to 1.")
            return 0.0
        return float(value)

    def _outcome(self, table: Mapping[str, Any], key: str, at: str, default: Outcome) -> Outcome:
        return self._read_outcome(table[key], f"{at}{key}", default) if key in table else default

    def _read_outcome(self, value: object, place: str, default: Outcome) -> Outcome:
        if isinstance(value, str) and value in _OUTCOMES:
            return Outcome(value)
        self.faults.append(f"{place} is {value!r}; expected one of {', '.join(_OUTCOMES)}{_near(value, _OUTCOMES)}.")
        return default

    def _one_of(self, table: Mapping[str, Any], key: str, at: str, allowed: list[str], default: str) -> str:
        value = table.get(key, default)
        if value not in allowed:
            self.faults.append(
                f"{key} of {at} is {value!r}; expected one of {', '.join(allowed)}{_near(value, allowed)}."
            )
            return default
        return str(value)

    def _list(self, table: Mapping[str, Any], key: str, at: str) -> tuple[str, ...]:
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            self.faults.append(f"{at}{key} is {type(value).__name__}; expected a list of texts, none of them empty.")
            return ()
        return tuple(value)

    def _table(self, table: Mapping[str, Any], key: str, at: str) -> dict[str, Any]:
        value = table.get(key, {})
        if not isinstance(value, dict):
            self.faults.append(f"{at}{key} is {value!r}; expected a table.")
            return {}
        return value

    def _known(self, table: Mapping[str, Any], place: str, allowed: Iterable[str]) -> None:
        names = list(allowed)
        for name in table:
            if name not in names:
                self._unknown(name, place, "key", names)

    def _unknown(self, name: str, place: str, what: str, allowed: list[str]) -> None:
        self.faults.append(
            f"{place} has the unknown {what} {name!r}; expected one of {', '.join(allowed)}{_near(name, allowed)}."
        )


def _near(value: object, allowed: list[str]) -> str:
    close = difflib.get_close_matches(str(value), allowed, 1)
    return f" (did you mean {close[0]}?)" if close else ""
