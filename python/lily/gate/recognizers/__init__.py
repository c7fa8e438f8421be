"""The rules of the Gate: what form, check digits and cue words alone can find.

`find` reads a text once through its folded view and gives findings of three strengths; people, most addresses and most
dates are the model's. Nothing here uses more than time linear in the text.
"""

from __future__ import annotations

from lily.gate.folding import View, view_of
from lily.gate.spans import Finding, Span

from . import bank, cards, credentials, customers, dates, government_ids, network, phones, secrets, tables, vetoes
from .hits import Hit, digit_zones
from .network import is_no_machine
from .secrets import is_mere_uuid
from .vetoes import is_typeface

__all__ = ["find", "is_mere_uuid", "is_no_machine", "is_typeface", "vetoed"]


def find(text: str | View) -> list[Finding]:
    """What the rules find, sorted. Findings may overlap, as `combine` settles. Offsets are those of the text."""
    view = view_of(text)
    zones = digit_zones(view)
    veto = vetoes.find(view, zones)
    hits: list[Hit] = [
        *credentials.find(view),
        *secrets.find(view, veto),
        *network.find(view, zones),
        *cards.find(view, zones, veto),
        *bank.find(view, zones, veto),
        *government_ids.find(view, zones, veto),
        *phones.find(view, zones, veto),
        *customers.find(view, zones, veto),
        *dates.find(view, zones),
        *tables.find(view),
    ]
    found = {
        Finding(Span(*view.origin(hit.start, hit.end), hit.label, hit.sub, hit.score, hit.why), hit.strength)
        for hit in hits
    }
    return sorted(found, key=lambda f: (f.span, f.strength))


def vetoed(text: str | View) -> list[tuple[int, int]]:
    """The parts that look like personal data and are not, as offsets of the text as given, ascending and apart."""
    view = view_of(text)
    return [view.origin(start, end) for start, end in vetoes.find(view, digit_zones(view)).parts()]
