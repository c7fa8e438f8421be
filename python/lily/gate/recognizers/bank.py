"""Bank accounts: IBAN by its check digits, other account numbers by the words before them, crypto addresses by form."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lily.gate.folding import View

from . import checks
from .hits import Cues, Hit
from .vetoes import Vetoes

# Lengths of the IBAN registry.
_LENGTHS = {
    "AD": 24,
    "AE": 23,
    "AL": 28,
    "AT": 20,
    "AZ": 28,
    "BA": 20,
    "BE": 16,
    "BG": 22,
    "BH": 22,
    "BI": 27,
    "BR": 29,
    "BY": 28,
    "CH": 21,
    "CR": 22,
    "CY": 28,
    "CZ": 24,
    "DE": 22,
    "DJ": 27,
    "DK": 18,
    "DO": 28,
    "EE": 20,
    "EG": 29,
    "ES": 24,
    "FI": 18,
    "FK": 18,
    "FO": 18,
    "FR": 27,
    "GB": 22,
    "GE": 22,
    "GI": 23,
    "GL": 18,
    "GR": 27,
    "GT": 28,
    "HR": 21,
    "HU": 28,
    "IE": 22,
    "IL": 23,
    "IQ": 23,
    "IS": 26,
    "IT": 27,
    "JO": 30,
    "KW": 30,
    "KZ": 20,
    "LB": 28,
    "LC": 32,
    "LI": 21,
    "LT": 20,
    "LU": 20,
    "LV": 21,
    "LY": 25,
    "MC": 27,
    "MD": 24,
    "ME": 22,
    "MK": 19,
    "MN": 20,
    "MR": 27,
    "MT": 31,
    "MU": 30,
    "NI": 28,
    "NL": 18,
    "NO": 15,
    "OM": 23,
    "PK": 24,
    "PL": 28,
    "PS": 29,
    "PT": 25,
    "QA": 29,
    "RO": 24,
    "RS": 22,
    "RU": 33,
    "SA": 24,
    "SC": 31,
    "SD": 18,
    "SE": 24,
    "SI": 19,
    "SK": 24,
    "SM": 27,
    "SO": 23,
    "ST": 25,
    "SV": 28,
    "TL": 23,
    "TN": 24,
    "TR": 26,
    "UA": 29,
    "VA": 22,
    "VG": 24,
    "XK": 20,
    "YE": 30,
}
_IBAN = re.compile(r"[a-z](?<![0-9a-z].)[a-z][0-9]{2}(?:[ \t.-]?[0-9a-z]){11,31}")
_ACCOUNT = Cues(
    {
        "account": (
            "account, account number, account no, account nr, acct, acct no, a/c, a/c no, ac no, "
            "bank account, checking, savings, "
            "bank account number, kontonummer, konto, konto nr, compte, cuenta, conto, conta, "
            "rekening, rekeningnummer, konto nummer, beneficiary account, refund to, iban, 口座番号, "
            "账号, 帐号, 계좌번호, счет, счёт, account num, hesap no, cuenta bancaria, numéro de compte, bank acct, "
            "direct deposit, wire to, ccc, clabe"
        ),
        "routing": "routing, routing number, routing no, aba, aba routing, transit number, rtn",
        "sort": "sort code, sortcode, bsb, blz, bankleitzahl, ifsc",
        "swift": "bic, swift, swift code, bic code, swift/bic",
    }
)
_LINK = (
    r"[\"'*`)\]]{0,3}(?:[ \t]*(?:[:=#|>-]|is|was|no\.?|nr\.?|number|num|id|ending in|lautet|ist|est|es|è|é)){0,8}"
    r"[ \t]*[\"'*`(\[]{0,3}"
)
_VALUES = {
    "account": re.compile(
        _LINK + r"((?:[0-9]{2}-[0-9]{2}-[0-9]{2}[ ,/]+)?[0-9]{1,20}(?:[ "
        r"-][0-9]{1,10}){0,4}(?![0-9a-z]|[.,][0-9]|%)|[a-z]{1,4}-?[0-9]{6,18}(?![0-9a-z]))"
    ),
    "routing": re.compile(_LINK + r"([0-9]{9}|[0-9]{5}-[0-9]{3}|[0-9]{4}-[0-9]{4}-[0-9])(?![0-9a-z]|[.,][0-9])"),
    "sort": re.compile(
        _LINK + r"([0-9]{2}[- ]?[0-9]{2}[- ]?[0-9]{2}|[0-9]{3}[- ]?[0-9]{3}|"
        r"[0-9]{3} ?[0-9]{3} ?[0-9]{2}|[a-z]{4}0[0-9a-z]{6})(?![0-9a-z])"
    ),
    "swift": re.compile(_LINK + r"([a-z]{6}[0-9a-z]{2}(?:[0-9a-z]{3})?)(?![0-9a-z])"),
}
_UK = re.compile(r"[0-9](?<![0-9-].)[0-9]-[0-9]{2}-[0-9]{2} [0-9]{8}(?![0-9])")
_WALLETS = (
    re.compile(r"0x(?<![0-9a-z]..)[0-9a-f]{40}(?![0-9a-z])"),
    re.compile(r"bc1(?<![0-9a-z]...)[ac-hj-np-z02-9]{25,62}(?![0-9a-z])"),
)
_BASE58 = re.compile(r"[13T](?<![0-9A-Za-z].)[1-9A-HJ-NP-Za-km-z]{25,34}(?![0-9A-Za-z])")
_COIN = Cues(
    {
        "coin": "btc, bitcoin, wallet, wallet address, tron, trx, usdt, crypto, eth, address, send to",
    }
)


def find(view: View, zones: list[tuple[int, int]], vetoes: Vetoes) -> Iterator[Hit]:
    """The bank accounts of a view."""
    lower = view.lower
    for first, last in zones:
        for match in _IBAN.finditer(lower, first, last):
            hit = _iban(match)
            if hit and not (vetoes.holds(hit.start, hit.end) and lower[hit.start - 1 : hit.start] == "-"):
                yield hit  # and not the end of a UUID
        for _, end, kinds in _ACCOUNT.find(view, first, last):
            for kind in kinds:
                value = _VALUES[kind].match(lower, end)
                if value and _account(kind, value[1]) and not vetoes.touches(*value.span(1)):
                    sub = "bank_account"
                    yield Hit(value.start(1), value.end(1), "account_number", sub, "cued", 0.85, f"{kind} cue")
        for match in _UK.finditer(lower, first, last):
            yield Hit(*match.span(), "account_number", "bank_account", "cued", 0.85, "sort code and account")
        yield from _wallets(view, first, last)


def _iban(match: re.Match[str]) -> Hit | None:
    size = _LENGTHS.get(match[0][:2].upper())
    if size is None:
        return None
    written = 0
    for place, char in enumerate(match[0]):
        written += char.isalnum()
        if written == size:
            compact = re.sub(r"[^0-9a-z]", "", match[0][: place + 1])
            after = match.string[match.start() + place + 1 : match.start() + place + 2]
            if not after.isalnum() and checks.mod97(compact):
                return Hit(
                    match.start(),
                    match.start() + place + 1,
                    "account_number",
                    "iban",
                    "validated",
                    0.99,
                    "IBAN check digits",
                )
            return None
    return None


def _account(kind: str, value: str) -> bool:
    digits = sum(c.isdigit() for c in value)
    if kind == "account":
        return 6 <= digits <= 20 and len(set(value)) > 2
    if kind == "routing":
        return (digits == 9 and checks.aba(re.sub("[^0-9]", "", value))) or "-" in value
    return True if kind != "swift" else value.isalnum() and not value.isdigit()


def _wallets(view: View, first: int, last: int) -> Iterator[Hit]:
    for pattern in _WALLETS:
        for match in pattern.finditer(view.lower, first, last):
            yield Hit(*match.span(), "account_number", "crypto_wallet", "cued", 0.9, "crypto address")
    for match in _BASE58.finditer(view.folded, first, last):
        mixed = (
            any(c.islower() for c in match[0])
            and any(c.isupper() for c in match[0])
            and any(c.isdigit() for c in match[0][1:])
        )
        if mixed and _COIN.before(view, match.start(), 40):
            yield Hit(*match.span(), "account_number", "crypto_wallet", "cued", 0.9, "crypto address")
