"""What the Gate says about one text: outcome, spans, masked text, reasons, and the way back for the answer.

A verdict is read-only. It holds the text and the values, so its repr and its reasons name neither.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..arguments import switch
from ..display import counted
from ..errors import PolicyBlocked
from .masking import Restored, Vault
from .messages import Document, Path
from .policy import Outcome
from .spans import Span

_COLOURS = {
    "private_person": "#cfe2ff",
    "private_email": "#d1e7dd",
    "private_phone": "#d1f0ee",
    "private_address": "#fff3cd",
    "private_url": "#e2e3f5",
    "private_date": "#e9ecef",
    "account_number": "#ffe0cc",
    "secret": "#f8d7da",
    "other_pii": "#ead9f5",
}
_OUTCOME_COLOURS = {"allow": "#198754", "mask": "#0d6efd", "rewrite": "#0d6efd", "ask": "#b8860b"}


@dataclass(frozen=True, repr=False, eq=False)
class Verdict:
    """The verdict on one text, or on chat messages.

    `text` is what the spans refer to, in code points: the text as given, or the joined view of the messages (every
    string of theirs on a line of its own; `by_message` has the spans string by string). `masked` has the form of what
    was given and exists whatever the outcome; only `outgoing()` gives it to be sent. `suspicion` is the surest sign of
    personal data outside the spans.
    """

    outcome: Outcome
    spans: tuple[Span, ...]
    sensitivity: float
    masked: Any
    reasons: tuple[str, ...]
    text: str
    suspicion: float = 0.0
    destination: str | None = None
    policy: str = ""
    failed: bool = False
    _document: Document = field(kw_only=True)
    _vault: Vault = field(kw_only=True)
    _consented: Any = field(default=None, kw_only=True)
    _record: Callable[[], None] | None = field(default=None, kw_only=True)

    def restore(self, answer: str) -> Restored:
        """The answer with the session's placeholders turned back into values.

        They are found in any order, number, case, bracket and ending. A placeholder of no value is left as it is and
        is in `.unknown` of the result.
        """
        return self._vault.restore(answer)

    def outgoing(self, *, consent: bool = False) -> Any:
        """What may leave: `masked`, if the outcome lets something leave.

        With `consent` (the user's, asked for by you) also for ASK: then what needed consent is open, and the rest is
        masked as ever. Raises PolicyBlocked for LOCAL and REFUSE, and for ASK without consent; AuditError if the
        consent cannot be recorded, InvalidInput for a consent that is no bool.
        """
        switch(consent, "consent")
        if self.outcome.leaves:
            return self.masked
        if self.outcome is Outcome.ASK and consent:
            if self._record is not None:
                self._record()
            return self._consented
        wanted = "; it needs consent" if self.outcome is Outcome.ASK else ""
        raise PolicyBlocked(
            f"The policy {self.policy} keeps this text here: {self.outcome.value} ({self.reasons[0]}){wanted}.",
            self.outcome.value,
            self.reasons,
        )

    def by_message(self) -> list[tuple[Path, Span]]:
        """Each span with the path of its string (message, key, index ...), counted from the start of that string."""
        leaves = self._document.leaves
        return [
            (leaf.path, span)
            for leaf, spans in zip(leaves, self._document.within(self.spans), strict=True)
            for span in spans
        ]

    def to_dict(self, *, values: bool = False) -> dict[str, Any]:
        """The verdict for JSON. With `values` every span has its text: mind where you log it."""
        switch(values, "values")
        return {
            "outcome": self.outcome.value,
            "policy": self.policy,
            "destination": self.destination,
            "sensitivity": round(self.sensitivity, 4),
            "suspicion": round(self.suspicion, 4),
            "failed": self.failed,
            "reasons": list(self.reasons),
            "spans": [
                {
                    "start": span.start,
                    "end": span.end,
                    "label": span.label,
                    "sub": span.sub,
                    "score": round(span.score, 4),
                    "why": span.why,
                    **({"text": self.text[span.start : span.end]} if values else {}),
                }
                for span in self.spans
            ],
            "masked": self.masked,
        }

    def __repr__(self) -> str:
        return f"<Verdict {self.outcome.value}: {counted(len(self.spans), 'span')}, sensitivity {self.sensitivity:.2f}>"

    def _repr_html_(self) -> str:
        parts: list[str] = []
        at = 0
        for span in self.spans:
            name = f"{span.label}/{span.sub}" if span.sub else span.label
            title = html.escape(f"{name}, {span.score:.2f}: {span.why}", quote=True)
            parts += (
                html.escape(self.text[at : span.start]),
                f'<mark style="background:{_COLOURS[span.label]};color:#000;border-radius:3px" title="{title}">',
                html.escape(self.text[span.start : span.end]),
                f'<sub style="opacity:.6"> {html.escape(name)}</sub></mark>',
            )
            at = span.end
        parts.append(html.escape(self.text[at:]))
        colour = _OUTCOME_COLOURS.get(self.outcome.value, "#b02a37")
        reasons = "".join(f"<li>{html.escape(reason)}</li>" for reason in self.reasons)
        return (
            f'<div><b style="color:{colour}">{self.outcome.name}</b> sensitivity {self.sensitivity:.2f}'
            f'<ul style="margin:0">{reasons}</ul><pre style="white-space:pre-wrap">{"".join(parts)}</pre></div>'
        )
