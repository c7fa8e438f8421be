"""Tables: a column whose head names a kind of value makes every cell below it one.

CSV, TSV and Markdown tables have their cue far above the value, where no other rule looks. A head counts only as a
whole, known name; what the cells hold must still be able to be of the kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from lily.gate.folding import View
from lily.gate.spans import Strength

from .hits import Hit


class Column(NamedTuple):
    """What the cells of a column are."""

    label: str
    sub: str
    strength: Strength
    form: re.Pattern[str]


_DIGITS4 = re.compile(r"(?=(?:[^0-9]*[0-9]){4})[\w #./()+-]{4,40}$")
_DIGITS6 = re.compile(r"(?=(?:[^0-9]*[0-9]){6})[\w ,;#./()+-]{6,40}$")
_DATE = re.compile(r"(?=.*[0-9])[\w .,/年月日-]{6,30}$")
_SECRET = re.compile(r"(?!(?:[*x•]+|<.*|\$.*|null|none|n/a|redacted)$)\S{4,4000}$")
_NAME = re.compile(r"(?=.*[^\W\d_]{2})[^\d:@/|{}<>=]{2,60}$")
_ADDRESS = re.compile(r"(?=.*[^\W\d_]{2})(?=.*[0-9\n,])[^@|{}<>=]{5,200}$")
_EMAIL = re.compile(r"[^\s@]+@[^\s@]+$")
_USER = re.compile(r"@?[\w][\w.@-]{2,40}$")
_COLUMNS: dict[str, Column] = {}
for _names, _column in (
    (
        (
            "password passwd pwd pass userpassword secret clientsecret apikey apisecret accesskey secretkey "
            "secretaccesskey token accesstoken refreshtoken authtoken apitoken privatekey"
        ),
        Column("secret", "", "cued", _SECRET),
    ),
    ("pin pincode accesscode", Column("secret", "pin", "cued", re.compile(r"[0-9]{4,8}$"))),
    ("email emailaddress mail contactemail useremail", Column("private_email", "", "cued", _EMAIL)),
    (
        (
            "phone phonenumber phoneno mobile mobilenumber mobileno telephone tel cell cellphone homephone workphone "
            "fax telefon telefono téléphone handy celular"
        ),
        Column("private_phone", "", "cued", _DIGITS6),
    ),
    (
        "dob dateofbirth birthdate birthday birth geburtsdatum fechadenacimiento datedenaissance born",
        Column("private_date", "dob", "cued", _DATE),
    ),
    (
        (
            "ssn socialsecuritynumber socialsecurity nationalid nationalidnumber passport passportnumber passportno "
            "driverlicense driverslicense driverslicensenumber drivinglicence licensenumber "
            "licencenumber taxid taxnumber nif dni nie nino ninumber nhsnumber pesel cpf aadhaar aadhar bsn sin tfn "
            "curp personnummer govid idnumber steuerid codicefiscale insee nir identitynumber"
        ),
        Column("account_number", "government_id", "cued", _DIGITS4),
    ),
    (
        (
            "customerid customerno customernumber clientid memberid membernumber patientid mrn medicalrecordnumber "
            "employeeid employeeno staffid studentid policynumber policyno policyid claimnumber insuranceid "
            "insurancenumber"
        ),
        Column("account_number", "customer_id", "cued", _DIGITS4),
    ),
    (
        "accountno accountnumber account acctno bankaccount bankaccountnumber routingnumber iban sortcode kontonummer",
        Column("account_number", "bank_account", "cued", _DIGITS6),
    ),
    (
        "cardnumber cardno card creditcard creditcardnumber ccnumber pan debitcard",
        Column("account_number", "payment_card", "cued", re.compile(r"(?:[0-9][ -]?){12,19}$")),
    ),
    ("cvv cvc cvv2 securitycode", Column("account_number", "cvv", "cued", re.compile(r"[0-9]{3,4}$"))),
    ("username login loginname userlogin handle", Column("other_pii", "username", "cued", _USER)),
    (
        "ip ipaddress ipaddr lastloginip clientip",
        Column("other_pii", "ip", "cued", re.compile(r"[0-9a-f]{1,4}(?:[.:][0-9a-f]{0,4}){3,7}$", re.IGNORECASE)),
    ),
    (
        (
            "fullname firstname lastname surname givenname familyname middlename patientname employeename contactname "
            "customername nachname vorname nombrecompleto apellidos"
        ),
        Column("private_person", "", "cued", _NAME),
    ),
    ("name customer patient employee contact person nombre nom prenom", Column("private_person", "", "weak", _NAME)),
    (
        (
            "address homeaddress streetaddress postaladdress mailingaddress billingaddress shippingaddress adresse "
            "dirección direccion indirizzo"
        ),
        Column("private_address", "", "cued", _ADDRESS),
    ),
    ("street addressline1 address1", Column("private_address", "street", "cued", _ADDRESS)),
):
    for _name in _names.split():
        _COLUMNS[_name] = _column

# No character may belong to two parts of a cell: the parts would split a row of blanks in two ways each.
_NAME_CELL = r"[ \t]*[\"'*`]{0,2}[^\W\d][\w .#/()-]{0,40}(?:[\"'*`]{1,2} {0,40})?"
_HEAD = re.compile(rf"^(?:[ \t]*\|)?{_NAME_CELL}(?:[,;\t|]{_NAME_CELL}){{1,60}}\|?[ \t]*$", re.MULTILINE)
_RULE = re.compile(r"[ \t]*\|?[ \t:|-]{3,400}\n")
_MAX_CELL = 4000


def find(view: View) -> Iterator[Hit]:
    """The cells of known columns of every table of a view."""
    text = view.folded
    done = 0
    for head in _HEAD.finditer(text):
        if head.start() < done:
            continue
        mark = next((m for m in "|\t;," if m in head[0].strip().strip("|")), ",")
        names = [_plain(cell) for cell in head[0].strip().strip("|").split(mark)]
        columns = [_COLUMNS.get(name) for name in names]
        if len(names) < 2 or not any(columns):
            continue
        at = head.end() + 1
        rule = _RULE.match(text, at)
        if rule:
            at = rule.end()
        elif mark == "," and sum(c is not None for c in columns) < 2 and len(names) < 3:
            continue  # two words of a sentence
        while at < len(text):
            cells, at = _row(text, at, mark, len(names))
            if len(cells) != len(names):
                break
            done = at
            yield from _cells(text, cells, columns)


def _plain(cell: str) -> str:
    return re.sub(r"[\W_]", "", cell.lower())


def _row(text: str, at: int, mark: str, most: int) -> tuple[list[tuple[int, int]], int]:
    """The cells of the row that starts at a place, as extents, and where the next row starts."""
    cells: list[tuple[int, int]] = []
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    if mark == "|":
        line = text[at:end]
        left = at + (len(line) - len(line.lstrip(" \t|"))) if line.lstrip().startswith("|") else at
        for piece in text[left:end].rstrip().removesuffix("|").split("|"):
            cells.append(_bare(text, left, left + len(piece)))
            left += len(piece) + 1
        return cells, end + 1
    while len(cells) <= most:
        while at < end and text[at] in " \t" and text[at] != mark:
            at += 1
        if text[at : at + 1] == '"':
            close = text.find('"', at + 1, at + _MAX_CELL)
            while close >= 0 and text[close + 1 : close + 2] == '"':
                close = text.find('"', close + 2, at + _MAX_CELL)
            if close < 0:
                return [], end + 1
            cells.append((at + 1, close))
            at = close + 1
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
        else:
            stop = text.find(mark, at, end)
            stop = end if stop < 0 else stop
            cells.append(_bare(text, at, stop))
            at = stop
        if text[at : at + 1] != mark:
            break
        at += 1
    return cells, end + 1


def _bare(text: str, start: int, end: int) -> tuple[int, int]:
    """An extent without blanks and quotes at its ends."""
    while start < end and text[start] in " \t\r'\"`*":
        start += 1
    while end > start and text[end - 1] in " \t\r'\"`*":
        end -= 1
    return start, end


def _cells(text: str, cells: list[tuple[int, int]], columns: list[Column | None]) -> Iterator[Hit]:
    for (start, end), column in zip(cells, columns, strict=True):
        if column is not None and end > start and end - start <= _MAX_CELL and column.form.match(text[start:end]):
            yield Hit(start, end, column.label, column.sub, column.strength, 0.85, "column of a table")
