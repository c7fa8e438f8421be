"""Dates of birth: a date counts only behind words that say somebody was born then. Other dates are the model's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lily.gate.folding import View

from .hits import Cues, Hit

_CUES = Cues(
    {
        "dob": (
            "dob, d.o.b, date of birth, birth date, birthdate, birthday, born, born on, b., né le, née le, né(e) "
            "le, date de naissance, naissance, geboren, geboren am, geb., geburtsdatum, geb. am, fecha de "
            "nacimiento, nacido el, nacida el, nació el, f. nacimiento, nacimiento, nato il, nata il, nato/a il, "
            "data di nascita, nascido em, nascida em, data de nascimento, geboortedatum, geboren op, data "
            "urodzenia, urodzony, urodzona, ur., född, födelsedatum, født, fødselsdato, syntynyt, syntymäaika, "
            "narozen, narozena, datum narození, doğum tarihi, născut, data nașterii, ngày sinh, дата рождения, "
            "родился, родилась, ημερομηνία γέννησης, 生年月日, 出生日期, 出生, 生日, 생년월일, जन्म तिथि, تاريخ الميلاد"
        ),
    }
)
_MONTH = r"[^\W\d_]{3,12}\.?"
_DATE = (
    r"(?:[0-9]{4}[./-][0-9]{1,2}[./-][0-9]{1,2}|[0-9]{1,2}[./-][0-9]{1,2}[./-](?:[0-9]{4}|[0-9]{2})|"
    r"[0-9]{1,2}\. ?[0-9]{1,2}\. ?[0-9]{4}"
    rf"|[0-9]{{1,2}}(?:st|nd|rd|th|er|º|\.)?[ -](?:(?:of|de) )?{_MONTH}(?:,? (?:del? )?|-)(?:[0-9]{{4}}|"
    rf"[0-9]{{2}}(?![0-9]))|{_MONTH} [0-9]{{1,2}}(?:st|nd|rd|th)?,? [0-9]{{4}}"
    r"|[0-9]{4}[年년] ?[0-9]{1,2}[月월] ?[0-9]{1,2}[日일]|(?:19|20)[0-9]{6})"
)
_VALUE = re.compile(
    r"[\"'*`)\]]*(?:[ \t]*(?:[:=|,-]|is|was|on|in|the|[a-z]{2,10}[ ]?\)|le|am|el|il|em|op|den|dne|roku|"
    r"día)){0,8}[ \t\n]{0,8}[\"'*`(]*(" + _DATE + r")(?![0-9])"
)


def find(view: View, zones: list[tuple[int, int]]) -> Iterator[Hit]:
    """The dates of birth of a view."""
    for first, last in zones:
        for _, end, _ in _CUES.find(view, first, last):
            match = _VALUE.match(view.lower, end)
            if match:
                yield Hit(*match.span(1), "private_date", "dob", "cued", 0.92, "birth cue")
