"""Telephone numbers: international form, the national forms that are unmistakable, and any form behind a cue.

The floor is our own. Where `phonenumbers` is installed (the extra `gate`), a number that a national plan knows is a
stronger candidate; a candidate still counts only where the model sees something.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from lily.gate.folding import View

from .hits import Cues, Hit
from .vetoes import Vetoes

_NUMBER = re.compile(
    r"(?:\+(?<![0-9a-z]\+)|"
    r"[0-9(](?<![0-9].))(?:[(]?[0-9]{1,14}[)]?)(?:[ \t]{0,2}[-./\u00b7]?[ \t]{0,2}\(?[0-9]{1,12}\)?){0,8}"
)
_EXTENSION = re.compile(r"[ ,;]{0,3}(?:ext\.?|extension|x|poste|int\.?|durchwahl|#)[ .:]{0,2}[0-9]{1,6}(?![0-9a-z])")
# Country codes of E.164.
_CODES = frozenset(
    "1 7 20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58 60 61 62 63 64 65 66 81 82 "
    "84 86 90 91 92 93 94 95 98 "
    "211 212 213 216 218 220 221 222 223 224 225 226 227 228 229 230 231 232 233 234 235 236 237 238 239 240 241 "
    "242 243 244 245 246 247 248 249 "
    "250 251 252 253 254 255 256 257 258 260 261 262 263 264 265 266 267 268 269 290 291 297 298 299 350 351 352 "
    "353 354 355 356 357 358 359 370 "
    "371 372 373 374 375 376 377 378 380 381 382 383 385 386 387 389 420 421 423 500 501 502 503 504 505 506 507 "
    "508 509 590 591 592 593 594 595 "
    "596 597 598 599 670 672 673 674 675 676 677 678 679 680 681 682 683 685 686 687 688 689 690 691 692 800 808 "
    "850 852 853 855 856 870 878 880 "
    "881 882 883 886 888 960 961 962 963 964 965 966 967 968 970 971 972 973 974 975 976 977 979 992 993 994 995 "
    "996 998".split()
)
_CUES = Cues(
    {
        "phone": (
            "phone, phones, phone number, phone no, telephone, tel, tél, tel no, telefon, telefono, teléfono, "
            "telefone, téléphone, telefoon, mobile, mobile number, mobile no, mob, cell, cellphone, cell phone, "
            "celular, móvil, movil, handy, handynummer, portable, gsm, cellulare, call, calls, called, call me, "
            "calling, fax, fax number, whatsapp, signal, viber, ring, text, text me, sms, dial, reach, reach me, "
            "contact, contact number, callback, call back, landline, hotline, helpline, rufnummer, telefonnummer, "
            "telefonnr, numéro, número, numero, appelez, llame, llamar, llámame, ligue, chiamare, chiamami, bel, "
            "anrufen, erreichbar, dzwoń, numer, tfno, tlf, tlfn, tf, phone/fax, kontakt, buzz, ping, number is, "
            "his number, her number, my number, mein telefon, puh, puhelin, telefonu, cep, điện thoại, sđt, тел, "
            "телефон, моб, мобильный, звоните, τηλ, τηλέφωνο, 电话, 手机, 联系电话, 手机号, 電話, "
            "電話番号, 携帯, 연락처, 전화, 전화번호, "
            "휴대폰, फोन, هاتف, جوال, zavolejte, telefonní číslo, tel.č, msisdn, emergency contact, home, work, "
            "office, direct, direct line, cellular, handset, pager, ph:, ph., m:, t:, p:"
        ),
    }
)
_NOT_PHONES = Cues(
    {
        "not": (
            "isbn, issn, order, invoice, ticket, tracking, case, ref, reference, sku, part, account, iban, ssn, "
            "passport, id, serial, card, policy, claim, mrn, licence, license, model, version, page, chapter, "
            "section, port, zip, vat, nhs, room, lot, bsn, cpf, pesel, steuer, build"
        ),
    }
)
_NANP = re.compile(r"(?:\+?1[ .-]?)?(?:\([2-9][0-9]{2}\)[ -]?|[2-9][0-9]{2}[ .-])[2-9][0-9]{2}[ .-]?[0-9]{4}")
_FRENCH = re.compile(r"0[1-9](?:([ .-])[0-9]{2})(?:\1[0-9]{2}){3}")
_TRUNK = re.compile(r"\(?0[1-9][0-9]{0,4}\)?[ /-]{1,3}[0-9]{2,8}(?:[ -]{1,3}[0-9]{2,8}){0,4}")
_DATE = re.compile(
    r"(?:[0-9]{1,2}[./-][0-9]{1,2}[./-](?:[0-9]{2}|[0-9]{4})|[0-9]{4}[./-][0-9]{1,2}[./-][0-9]{1,2})(?:[ ]+[0-9]{1,4})?"
)
_ZIP = re.compile(r"[0-9]{5}-[0-9]{4}")
_YEARS = re.compile(r"(?:1[89]|20)[0-9]{2} ?[-/] ?(?:(?:1[89]|20)?[0-9]{2})")
_REACH = 32
_REGIONS = (
    "US",
    "GB",
    "DE",
    "FR",
    "ES",
    "IT",
    "BR",
    "IN",
    "JP",
    "CN",
    "AU",
    "NL",
    "PL",
    "SE",
    "MX",
    "KR",
    "CZ",
    "TR",
    "RU",
)


@lru_cache(maxsize=1)
def _plan() -> Callable[[str, str | None], bool] | None:
    """`phonenumbers` as one question: is this a number of that region. None where it is not installed."""
    try:
        library = importlib.import_module("phonenumbers")
    except ImportError:
        return None

    def valid(text: str, region: str | None) -> bool:
        try:
            return bool(library.is_valid_number(library.parse(text, region)))
        except library.NumberParseException:
            return False

    return valid


def find(view: View, zones: list[tuple[int, int]], vetoes: Vetoes) -> Iterator[Hit]:
    """The telephone numbers of a view."""
    for first, last in zones:
        ends = [end for _, end, _ in _CUES.find(view, first, last)]
        at = 0
        for match in _NUMBER.finditer(view.folded, first, last):
            start, end = _trimmed(match)
            digits = sum(c.isdigit() for c in view.folded[start:end])
            if not 6 <= digits <= 20:
                continue
            while at < len(ends) and ends[at] <= start:
                at += 1
            cued = at > 0 and _says(view, ends[at - 1], start)
            yield from _judged(view, start, end, cued, vetoes)


def _trimmed(match: re.Match[str]) -> tuple[int, int]:
    """The match without an opening parenthesis that nothing closes and without marks at its end."""
    text = match[0]
    size = len(text.rstrip(" \t-./(\u00b7"))
    start = 0
    if text.startswith("(") and _closes(text) in (-1, size - 1):
        size -= _closes(text) == size - 1
        start = 1
    elif text[:size].endswith(")") and "(" not in text[:size]:
        size -= 1
    return match.start() + start, match.start() + size


def _closes(text: str) -> int:
    """Where the parenthesis that opens a text closes; -1 where it does not."""
    depth = 0
    for place, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return place
    return -1


def _says(view: View, cue_end: int, start: int) -> bool:
    """Whether a cue announces the number: it is near, in the same line, and no sentence ends between."""
    between = view.lower[cue_end:start]
    if "\n" in between:
        # A label over its value; not the head of a table.
        label = view.lower[max(0, cue_end - 60) : cue_end].rsplit("\n", 1)[-1]
        if between.strip(" \t\r\n:*#") or "," in label or "|" in label or "\t" in label:
            return False
    return (
        len(between) <= _REACH
        and not re.search(r"[.!?;] +[a-z]|\n.*\n|[0-9]{4}", between)
        and not _NOT_PHONES.before(view, start, 14)
    )


def _judged(view: View, start: int, end: int, cued: bool, vetoes: Vetoes) -> Iterator[Hit]:
    text = view.folded[start:end]
    if _glued(view.folded, start, end) or _DATE.fullmatch(text) or _YEARS.fullmatch(text):
        return
    if vetoes.holds(start, end) and not cued:
        return
    verdict = _verdict(view, text, start, cued, vetoes.touches(start, end))
    if verdict is None:
        # A longer run may hold a number and more digits behind it: try without the last groups.
        shorter = _NANP.match(view.folded, start, end) or _FRENCH.match(view.folded, start, end)
        if shorter is None or len(shorter[0]) == len(text) or view.folded[shorter.end()].isdigit():
            return
        end, verdict = shorter.end(), ("cued", 0.8, "national form")
        if _NOT_PHONES.before(view, start, 16):
            return
    extension = _EXTENSION.match(view.lower, end)
    if extension:
        end = extension.end()
    strength, score, why = verdict
    yield Hit(
        start,
        end,
        "private_phone",
        "",
        "validated" if strength == "validated" else "cued" if strength == "cued" else "weak",
        score,
        why,
    )


def _verdict(view: View, text: str, start: int, cued: bool, vetoed: bool) -> tuple[str, float, str] | None:
    digits = re.sub(r"[^0-9]", "", text)
    plan = _plan()
    if len(set(digits)) < 3:
        return None
    plus = text.startswith(("+", "(+"))
    if plus or (digits.startswith("00") and len(digits) >= 11 and digits[2] != "0"):
        number = digits.removeprefix("00")
        if not any(number[:n] in _CODES for n in (1, 2, 3)) or not 8 <= len(number) <= 16:
            return None
        if plus:
            return ("validated", 0.97, "international form")
        # 00 in place of the plus: many numbers begin with noughts.
        return ("cued", 0.9, "international form") if cued or len(text) > len(digits) else None
    if vetoed and not cued:
        return None
    if _NANP.fullmatch(text) and not _NOT_PHONES.before(view, start, 16):
        separated = len(text) > len(digits)
        if cued or text.startswith(("(", "1", "+")) or text.count("-") >= 2 or text.count(".") >= 2:
            return ("cued", 0.9, "North American form")
        return ("weak", 0.6, "North American form") if separated else None
    if cued and 7 <= len(digits) <= 15 and not re.fullmatch(r"[0-9]{1,3}(?:[.,][0-9]{3})+", text):
        return ("cued", 0.9, "phone cue")
    if _NOT_PHONES.before(view, start, 16):
        return None
    if _FRENCH.fullmatch(text):
        return ("cued", 0.85, "French form")
    if _TRUNK.fullmatch(text) and not _ZIP.fullmatch(text) and 9 <= len(digits) <= 12:
        return ("cued", 0.75, "trunk prefix")
    if 9 <= len(digits) <= 12 and plan is not None and len(text) > len(digits) and any(plan(text, r) for r in _REGIONS):
        return ("weak", 0.6, "a national plan")
    if 9 <= len(digits) <= 12 and (digits[0] == "0" or len(text) > len(digits)):
        return ("weak", 0.5, "like a number")
    return None


def _glued(text: str, start: int, end: int) -> bool:
    """Whether the number is a piece of a longer token."""
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    if before[-1:].isalpha() and ord(before[-1]) < 0x2E80:
        return True
    return (
        before[-1:] in ("_", "#", "@", "$", "%", "&")
        or (before[-1:] in ("-", "/", ".", "=", ":", ",") and before[:1].isdigit())
        or (before[-1:] in ("/", "-") and before[:1].isalpha())
        or (after[:1].isalpha() and ord(after[0]) < 0x2E80 and after[:1] not in "xXeE")
        or after[:1] in ("_", "@", "%")
        or (after[:1] in ("-", "/", ".", ",", ":") and after[1:].isalnum() and ord(after[1]) < 0x2E80)
    )
