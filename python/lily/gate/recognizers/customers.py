"""Numbers that an organisation gives to a person or their belongings: customer, patient, policy, plate, device.

All need a cue, a prefix that is one (MRN-, CUST-, EMP), or check digits together with a cue (VIN, IMEI).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lily.gate.folding import View

from . import checks
from .hits import Cues, Hit
from .vetoes import Vetoes

_CUES = Cues(
    {
        "customer": (
            "customer id, customer no, customer number, customer, client id, client number, client no, member id, "
            "member number, member no, membership, membership number, employee id, employee number, employee no, "
            "employee, staff id, staff no, staff number, personnel number, badge, badge number, student id, "
            "student number, student no, policy, policy number, policy no, policy id, claim, claim number, claim "
            "no, subscriber id, loyalty number, frequent flyer, kundennummer, kunden nr, kundennr, "
            "mitgliedsnummer, personalnummer, numéro client, numéro de client, n° client, número de cliente, "
            "codice cliente, klantnummer, lidnummer, numer klienta, insurance, insurance number, insurance no, "
            "insurance id, policy #, account id, beneficiary number, group number, payroll number, user id, "
            "contract number, vertragsnummer, customer #"
        ),
        "health": (
            "mrn, medical record, medical record number, medical record no, patient id, patient no, patient "
            "number, hospital no, hospital number, hospital id, chart no, chart number, nhc, historia clínica, nº "
            "historia, n° historia, patientennummer, fallnummer, health id, health card, health insurance number, "
            "health plan, cip, cipa, episodio, nº ss, hn"
        ),
        "licence": (
            "nºcol, nº col, n° col, nº colegiado, n.º colegiado, colegiado, npi, npi number, dea number, dea, "
            "medical licence, medical license, bar number, gmc number, gmc no, license id, practice number"
        ),
    }
)
_SUBS = {"customer": "customer_id", "health": "health_id", "licence": "licence_id"}
_LINK = r"[\"'*`)\]]{0,3}(?:[ \t]{0,3}(?:[:=#|.>-]|is|was|no\.?|nr\.?|number|num|id)){0,5}[ \t]{0,3}[\"'*`(\[]{0,3}"
_VALUE = re.compile(
    _LINK + r"((?=[a-z]{0,5}[ -]?[0-9])(?=(?:[a-z -]{0,8}[0-9]){4})"
    r"[0-9a-z]{1,16}(?:[ -](?=[a-z]{0,8}[0-9])[0-9a-z]{1,16}){0,4}(?:-[a-z]{1,3})?)"
    r"(?![0-9a-z]|[.,:/][0-9])"
)
_PREFIXED = re.compile(
    r"(?:mrn|cust|emp|mbr|mem|pat|pol|stu|clm)[-#]?[0-9]{4,10}(?:-[0-9]{3,6})?(?![0-9a-z]|[.,-][0-9])"
)
_PLATE_CUE = Cues(
    {
        "plate": (
            "plate, plates, license plate, licence plate, number plate, registration, registration plate, "
            "registration number, reg no, vehicle registration, vehicle reg, kennzeichen, matrícula, matricula, "
            "plaque, immatriculation, targa, kenteken, placa, license plate number, vrn, tag, rego"
        ),
    }
)
_PLATE = re.compile(
    f"(?i:{_LINK})"
    r"((?=[A-Z0-9ÖÄÜ -]{0,9}[0-9])(?=[0-9 -]{0,6}[A-ZÖÄÜ])[0-9A-ZÖÄÜ]{1,8}(?:[ -][0-9A-ZÖÄÜ]{1,5}){0,3})"
    r"(?![0-9A-Za-z])"
)
_VIN = re.compile(r"[0-9a-hj-npr-z](?<![0-9a-z].)(?=[a-z]*[0-9])[0-9a-hj-npr-z]{12}[0-9]{4}(?![0-9a-z])")
_VIN_CUE = Cues(
    {
        "vin": (
            "vin, vehicle identification, vehicle identification number, chassis, chassis number, "
            "fahrgestellnummer, vin number, vin no"
        ),
    }
)
_VIN_VALUES = dict(
    zip(
        "0123456789abcdefghjklmnprstuvwxyz", [*range(10), *range(1, 9), 1, 2, 3, 4, 5, 7, 9, *range(2, 10)], strict=True
    )
)
_VIN_WEIGHTS = (8, 7, 6, 5, 4, 3, 2, 10, 0, 9, 8, 7, 6, 5, 4, 3, 2)
_DEVICE_CUE = Cues(
    {
        "device": (
            "imei, meid, imei number, imei no, imsi, serial, serial number, serial no, s/n, device id, device "
            "serial, udid, iccid, seriennummer, número de serie"
        ),
    }
)
_DEVICE = re.compile(
    _LINK + r"([0-9]{2}-?[0-9]{6}-?[0-9]{6}-?[0-9](?:[0-9]{1,5})?|"
    r"(?=[a-z0-9-]{0,12}[0-9][a-z0-9-]{0,6}[0-9])[a-z0-9]{2,16}"
    r"(?:-[a-z0-9]{3,12}){0,3})(?![0-9a-z]|[.:][0-9])"
)


def find(view: View, zones: list[tuple[int, int]], vetoes: Vetoes) -> Iterator[Hit]:
    """The numbers of organisations and of belongings in a view."""
    lower = view.lower
    for first, last in zones:
        for _, end, kinds in _CUES.find(view, first, last):
            value = _VALUE.match(lower, end)
            if value and not vetoes.touches(*value.span(1)) and 5 <= len(value[1]) <= 24 and not _a_date(value[1]):
                yield Hit(*value.span(1), "account_number", _SUBS[kinds[0]], "cued", 0.85, f"{kinds[0]} cue")
        for match in _PREFIXED.finditer(lower, first, last):
            if match.start() == 0 or not lower[match.start() - 1].isalnum():
                yield Hit(*match.span(), "account_number", "customer_id", "cued", 0.8, "prefix of a customer number")
        for _, end, _ in _PLATE_CUE.find(view, first, last):
            value = _PLATE.match(view.folded, end)
            if value and 4 <= len(value[1]) <= 11:
                yield Hit(*value.span(1), "account_number", "vehicle", "cued", 0.85, "plate cue")
        for match in _VIN.finditer(lower, first, last):
            if (_vin(match[0]) or _VIN_CUE.before(view, match.start(), 40)) and sum(c.isdigit() for c in match[0]) < 17:
                yield Hit(*match.span(), "account_number", "vehicle", "cued", 0.9, "vehicle identification number")
        for _, end, _ in _DEVICE_CUE.find(view, first, last):
            value = _DEVICE.match(lower, end)
            if (
                value
                and 6 <= len(value[1]) <= 22
                and sum(c.isdigit() for c in value[1]) >= 4
                and not vetoes.touches(*value.span(1))
            ):
                checked = len(value[1]) == 15 and value[1].isdigit() and checks.luhn(value[1])
                yield Hit(
                    *value.span(1), "account_number", "device", "validated" if checked else "cued", 0.85, "device cue"
                )


def _a_date(text: str) -> bool:
    return re.fullmatch(r"(?:19|20)?[0-9]{2}[-/ ][0-9]{1,2}[-/ ][0-9]{1,4}|(?:19|20)[0-9]{2}", text) is not None


def _vin(text: str) -> bool:
    total = sum(_VIN_VALUES[c] * w for c, w in zip(text, _VIN_WEIGHTS, strict=True))
    return any(c.isalpha() for c in text) and "0123456789x"[total % 11] == text[8]
