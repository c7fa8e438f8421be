"""Payment cards: Luhn, an issuer's prefix and its lengths, and nothing that only looks like a card.

Luhn passes one random number in ten, so it never decides alone: the prefix must be one that is issued with that length,
the groups must be those of a card, and time stamps, UUIDs, decimals and runs of few digits are out. A card verification
code counts only behind a word that says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lily.gate.folding import View

from . import checks
from .hits import Cues, Hit
from .vetoes import Vetoes

_NUMBER = re.compile(r"[0-9](?<![0-9].)(?:[-. \t\n]{0,3}[0-9]){11,18}(?![0-9])")
_CARD = Cues(
    {
        "card": (
            "card, cards, card number, card no, cc, cc number, credit, debit, visa, mastercard, amex, american "
            "express, discover, diners, jcb, unionpay, maestro, pan, kreditkarte, kartennummer, karte, carte, "
            "carte bancaire, tarjeta, carta, cartão, cartao, kaart, kort, karta, payment, billing, charged, pay "
            "with, pay, 卡, カード, 카드, карта, карты, kart"
        ),
    }
)
_CVV = Cues(
    {
        "cvv": (
            "cvv, cvv2, cvc, cvc2, cid, csc, security code, card code, card verification, verification value, "
            "prüfziffer, kartenprüfnummer, cryptogramme, código de seguridad, codigo de seguridad, codice di "
            "sicurezza, código de segurança"
        ),
    }
)
_COUNT = re.compile(r"[0-9]{1,3} (?=[0-9]{4}[ -])")
_CODE = re.compile(
    r"[\"']?(?:[ \t]*(?:[:=#]|is|was|number|no\.?|on the back|est|es|ist|è|é|"
    r"\|)){0,8}[ \t]*[\"']?([0-9]{3,4})(?![0-9a-z]|[.,/-][0-9])"
)


def issued(number: str) -> bool:
    """Whether an issuer gives out cards of this prefix and length."""
    size, two, three, four = len(number), int(number[:2]), int(number[:3]), int(number[:4])
    if number[0] == "4":
        return size in (13, 16, 18, 19)
    if 51 <= two <= 55 or 2221 <= four <= 2720:
        return size == 16
    if two in (34, 37):
        return size == 15
    if four == 6011 or two == 65 or 644 <= three <= 649:
        return 16 <= size <= 19
    if two in (36, 38, 39) or 300 <= three <= 305 or three == 309:
        return 14 <= size <= 19
    if four in (5018, 5020, 5038, 5893, 6304, 6390, 6759, 6761, 6762, 6763, 6799):
        return 12 <= size <= 19
    return (3528 <= four <= 3589 or two in (50, 60, 62, 81) or 2200 <= four <= 2204) and 16 <= size <= 19


def _grouped(text: str) -> bool:
    """Whether the groups of a written number are those of a card: of four digits, or 4-6-5 and 4-6-4, or of one run."""
    sizes = [len(g) for g in re.findall(r"[0-9]+", text)]
    if len(sizes) == 1 or sizes[:2] == [4, 6] or sizes == [6, 13] or sizes == [8, 8]:
        return True
    return all(s == 4 for s in sizes[:-1]) and sizes[-1] <= 4 + (len(sizes) == 4) * 3


def find(view: View, zones: list[tuple[int, int]], vetoes: Vetoes) -> Iterator[Hit]:
    """The cards and verification codes of a view."""
    text = view.folded
    for first, last in zones:
        for match in _NUMBER.finditer(text, first, last):
            hits = list(_card(view, match.start(), match[0], vetoes))
            count = _COUNT.match(match[0])
            if count and not hits:  # "2 5425 2334 ...": a number of something, then a card
                behind = _NUMBER.match(text, match.start() + count.end(), last)
                hits = list(_card(view, behind.start(), behind[0], vetoes)) if behind else []
            yield from hits
        for _, end, _ in _CVV.find(view, first, last):
            code = _CODE.match(view.lower, end)
            if code:
                yield Hit(code.start(1), code.end(1), "account_number", "cvv", "cued", 0.95, "card verification code")


def _card(view: View, start: int, written: str, vetoes: Vetoes) -> Iterator[Hit]:
    # A number is often followed by a date or a code: give back groups from the right until it is a card.
    for size in _ends(written):
        text = written[:size]
        number = re.sub(r"[^0-9]", "", text)
        end = start + size
        if len(number) < 12:
            return
        if not checks.luhn(number) or not _grouped(text) or len(set(number)) < 3:
            continue
        cued = _CARD.before(view, start, 48)
        separated = len(number) != size
        if ("." in text or "\n" in text) and not cued:
            continue
        if issued(number) or (cued and number[:4] in ("1800", "2131")):
            if (vetoes.touches(start, end) or _in_token(view.folded, start, end)) and not (cued and separated):
                continue
            if len(number) in (12, 13, 14, 18) and not cued and not separated:
                continue  # time stamps, article numbers
            score = 0.99 if cued else 0.97
            yield Hit(start, end, "account_number", "payment_card", "validated", score, "Luhn and issuer prefix")
            return
        if cued and number[0] in "03456" and not vetoes.touches(start, end):
            yield Hit(start, end, "account_number", "payment_card", "cued", 0.9, "Luhn and a cue")
            return


def _ends(written: str) -> Iterator[int]:
    yield len(written)
    for match in reversed(list(re.finditer(r"[^0-9]+", written))):
        yield match.start()


def _in_token(text: str, start: int, end: int) -> bool:
    """Whether the number is a piece of something longer: a word, a decimal, a dotted or underscored name."""
    before = text[max(0, start - 2) : start]
    after = text[end : end + 2]
    return (
        (
            before[-1:].isalnum()
            or before[-1:] == "_"
            or (before[-1:] in ".-/" and before[:1].isalnum() and len(before) == 2)
        )
        or after[:1].isalpha()
        or after[:1] == "_"
        or (after[:1] in ".-/" and after[1:].isalnum() and after.isascii() and len(after) == 2)
    )
