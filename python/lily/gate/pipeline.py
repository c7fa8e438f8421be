"""From a text to its verdict: rules and model, policy, masking, record, in this order.

The order is the promise: no verdict exists before its record, and whatever goes wrong while reading makes the outcome
LOCAL or stricter. What a value is (recognizers, classifier), what is allowed (policy) and what is written in its place
(masking) live elsewhere; the public face is gate.py's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import InvalidInput
from ..tokenizer import check_text
from .combine import combine
from .folding import View
from .masking import Vault
from .messages import Document
from .policy import Decision, Outcome, Policy, form, sensitivity
from .propagation import Found, propagate
from .recognizers import find
from .spans import Span
from .verdict import Verdict

if TYPE_CHECKING:
    from .audit import AuditLog


class Reading(Protocol):
    """What the classifier says about one text."""

    @property
    def spans(self) -> Sequence[Span]:
        """Sorted spans that do not overlap."""

    @property
    def sensitivity(self) -> float:
        """From 0 to 1."""

    @property
    def any_pii(self) -> np.ndarray[Any, Any]:
        """For each token the probability that it is part of something personal: float [tokens]."""

    @property
    def offsets(self) -> np.ndarray[Any, Any]:
        """For each token its start and end in the text: int [tokens, 2]."""


class Reader(Protocol):
    """The classifier, as far as the Gate knows it."""

    def read(self, texts: Sequence[str]) -> Sequence[Reading]:
        """A reading for each text."""

    def close(self) -> None:
        """Gives its memory back."""


@dataclass
class Findings:
    """Everything that was found out about a document before the policy speaks."""

    document: Document
    view: View
    spans: list[Span]
    head: float
    any_pii: np.ndarray[Any, Any] | None
    offsets: np.ndarray[Any, Any] | None
    failure: str | None


class Memory:
    """What a session remembers: the values found, and their placeholders."""

    def __init__(self, hash_key: bytes) -> None:
        self.found = Found()
        self.vault = Vault(hash_key)


class Pipeline:
    """The work of one Gate. `read` may run in many threads at once, `decide` in one for each memory."""

    def __init__(self, policy: Policy, audit: AuditLog | None, classifier: Reader) -> None:
        self.policy = policy
        self.audit = audit
        self.classifier = classifier

    def active(self, policy: Policy | None) -> Policy:
        """The policy of a call: its own rules, or the Gate's, over the Gate's floors."""
        if policy is not None and not isinstance(policy, Policy):
            raise InvalidInput(f"policy is a {type(policy).__name__}; expected a Policy: Policy.load(path) reads one.")
        return self.policy if policy is None else policy.under(self.policy)

    def read(self, documents: Sequence[Document]) -> list[Findings]:
        """What rules and model find; a failure is part of it, and only of the document that failed."""
        texts = [document.text for document in documents]
        try:
            readings: list[Reading | str] = list(self.classifier.read(texts))
            if len(readings) != len(texts):
                raise ValueError(f"{len(readings)} readings for {len(texts)} texts")
        except Exception as error:  # whatever it is: fail closed
            readings = [_failure(error)] if len(texts) == 1 else [self._read_alone(text) for text in texts]
        return [_combined(document, reading) for document, reading in zip(documents, readings, strict=True)]

    def _read_alone(self, text: str) -> Reading | str:
        try:
            (reading,) = self.classifier.read([text])
        except Exception as error:
            return _failure(error)
        return reading

    def decide(self, read: Findings, policy: Policy, destination: str | None, memory: Memory) -> Verdict:
        """The recorded verdict. Raises AuditError, InvalidInput for a destination that is no text."""
        if destination is not None:
            check_text(destination, "the destination")
        document, view = read.document, read.view
        kept = policy.keep(view.text, read.spans)
        swept = propagate(view, kept, memory.found)
        denied = policy.denied(view)
        spans = document.clipped(policy.keep(view.text, _merged(swept, denied)))
        suspicion = _suspicion(read, spans)
        score = sensitivity(read.head, spans)
        decision = policy.decide(
            [*spans, *denied],
            score,
            destination,
            text=view.text,
            suspicion=suspicion,
            unread=document.unread,
            failure=read.failure,
        )
        decision = _without_rewriting(decision)
        masked, consented = _written(document, spans, policy, destination, decision.outcome, read, memory.vault)
        record = self._recorder(policy, destination, document, spans, score)
        if record is not None:
            record(decision.outcome.value, decision.reasons)
        return Verdict(
            decision.outcome,
            tuple(spans),
            score,
            masked,
            decision.reasons,
            view.text,
            suspicion,
            destination,
            policy.name,
            read.failure is not None,
            _document=document,
            _vault=memory.vault,
            _consented=consented,
            _record=None if record is None else lambda: record("consent", ("the user consented",)),
        )

    def _recorder(
        self, policy: Policy, destination: str | None, document: Document, spans: Sequence[Span], score: float
    ) -> Callable[[str, tuple[str, ...]], None] | None:
        audit = self.audit
        if audit is None:
            return None
        values = [document.text[span.start : span.end] for span in spans]
        labels: dict[str, int] = {}
        for span in spans:
            key = f"{span.label}/{span.sub}" if span.sub else span.label
            labels[key] = labels.get(key, 0) + 1

        def record(outcome: str, reasons: tuple[str, ...]) -> None:
            audit.append(
                outcome,
                text=document.text,
                values=values,
                details={
                    "policy": policy.name,
                    "destination": destination,
                    "reasons": list(reasons),
                    "labels": labels,
                    "sensitivity": round(score, 4),
                },
            )

        return record


def _failure(error: Exception) -> str:
    return type(error).__name__  # a message may quote the text


def _combined(document: Document, reading: Reading | str) -> Findings:
    view = View(document.text)
    failure = reading if isinstance(reading, str) else None
    spans: list[Span] = []
    head, any_pii, offsets = 0.0, None, None
    try:
        if not isinstance(reading, str):
            head, any_pii, offsets = float(reading.sensitivity), reading.any_pii, reading.offsets
            if not math.isfinite(head):
                failure, head = "NumericalError", 0.0
        model = [] if failure or isinstance(reading, str) else reading.spans
        spans = combine(view, find(view), model)
    except Exception as error:
        failure = _failure(error)
    return Findings(document, view, spans, head, any_pii, offsets, failure)


def _merged(spans: Sequence[Span], denied: Sequence[Span]) -> list[Span]:
    """Both, sorted and apart: where they overlap the found span keeps its name and has the extent of both."""
    out: list[Span] = []
    for span in sorted([*spans, *denied]):
        if out and span.start < out[-1].end:
            last = out[-1]
            name, other = (span, last) if last.sub == "denied" and span.sub != "denied" else (last, span)
            out[-1] = name.united(other)
        else:
            out.append(span)
    return out


def _suspicion(read: Findings, spans: Sequence[Span]) -> float:
    """The highest P(personal) of a token outside the spans: the union of hits routes, the path masks."""
    if read.any_pii is None or read.offsets is None or not len(read.any_pii):
        return 0.0
    inside = np.zeros(len(read.view.text) + 1, dtype=np.int32)
    for span in spans:
        inside[span.start] += 1
        inside[span.end] -= 1
    covered = np.cumsum(inside) > 0
    offsets = np.asarray(read.offsets)
    middle = (offsets[:, 0] + np.maximum(offsets[:, 1], offsets[:, 0] + 1) - 1) // 2
    open_ = np.asarray(read.any_pii)[~covered[np.clip(middle, 0, len(covered) - 1)]]
    return float(open_.max()) if len(open_) else 0.0


def _without_rewriting(decision: Decision) -> Decision:
    if decision.outcome is not Outcome.REWRITE:
        return decision
    return Decision(Outcome.MASK, ("rewrite: no generation model, so masked instead", *decision.reasons))


def _written(
    document: Document,
    spans: Sequence[Span],
    policy: Policy,
    destination: str | None,
    outcome: Outcome,
    read: Findings,
    vault: Vault,
) -> tuple[Any, Any]:
    """What stands for the content when it leaves, and what does after consent (None where there is nothing to ask)."""
    texts = document.leaf_texts()
    if len(texts) > 1:  # one string is looked through by `mask` itself
        vault.reserve(texts)
    if read.failure is not None:  # nobody knows what is in it
        return document.rebuilt([vault.whole(text) for text in texts]), None
    local = document.within(spans)

    def written(open_: Mapping[Outcome, bool]) -> Any:
        parts = []
        for text, found, leaf in zip(texts, local, document.leaves, strict=True):
            closed = []
            for span in found:
                value = text[span.start : span.end]
                if not open_.get(policy.outcome(span, destination, form(value)), False):
                    closed.append((span, policy.operator(span)))
            parts.append(vault.mask(text, closed, answer=leaf.role == "assistant"))
        return document.rebuilt(parts)

    masked = written({Outcome.ALLOW: True})
    consented = written({Outcome.ALLOW: True, Outcome.ASK: True}) if outcome is Outcome.ASK else None
    return masked, consented
