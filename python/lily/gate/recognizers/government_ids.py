"""Government IDs of more than thirty countries, with their own check digits, and IDs that only a cue makes one.

A form that proves itself (letters at fixed places, separators, check digits) counts alone. A bare number of 8 to 13
digits counts only behind the name of its scheme, however right its check digit: one in ten or eleven is by chance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from lily.gate.folding import View

from . import checks
from .hits import Cues, Hit
from .vetoes import Vetoes

Check = Callable[[str], bool]


class Scheme(NamedTuple):
    """A kind of ID: its form in small letters, its check, and whether the form proves itself."""

    name: str
    form: re.Pattern[str]
    check: Check | None = None
    alone: bool = False


def _form(pattern: str) -> re.Pattern[str]:
    # The first character is consumed before the look back, so that the search can jump to it.
    return re.compile(pattern + r"(?![0-9a-z]|[-./][0-9])")


_D = r"[0-9](?<![0-9a-z].)(?<![0-9][-./].)"
_A = r"[a-z](?<![0-9a-z].)"
_SCHEMES = (
    Scheme(
        "ssn",
        _form(_D + r"[0-9]{2}(?:-[0-9]{2}-[ \t]{0,4}\n?[ \t]{0,4}[0-9]{4}|-\n?[0-9]{2}-[0-9]{4})"),
        checks.ssn,
        alone=True,
    ),
    Scheme("ssn", _form(_D + r"[0-9]{2}[ .-]?[ \n]?[0-9]{2}[ .-]?[ \n]?[0-9]{4}"), checks.ssn),
    Scheme("itin", _form(r"9(?<![0-9a-z].)[0-9]{2}[- ]?(?:5[0-9]|6[0-5]|7[0-9]|8[0-8]|9[0-24-9])[- ]?[0-9]{4}")),
    Scheme(
        "nino",
        _form(_A + r"(?<=[a-ceghj-pr-tw-z])[a-ceghj-npr-tw-z][ -]?[0-9]{2}[ -]?[0-9]{2}[ -]?[0-9]{2}[ -]?[a-d]"),
        lambda s: s[:2] not in ("bg", "gb", "kn", "nk", "nt", "tn", "zz"),
        alone=True,
    ),
    Scheme("dni", _form(_D + r"[0-9](?:[0-9]{6}|\.[0-9]{3}\.[0-9]{3})[- ]?[a-z]"), checks.dni, alone=True),
    Scheme("nie", _form(r"[xyz](?<![0-9a-z].)[- ]?[0-9]{7}[- ]?[a-z]"), checks.dni, alone=True),
    Scheme("pesel", _form(_D + r"[0-9]{10}"), checks.pesel),
    Scheme("bsn", _form(_D + r"[0-9]{3}[. ]?[0-9]{2}[. ]?[0-9]{3}"), checks.bsn),
    Scheme("cpf", _form(_D + r"[0-9]{2}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}"), checks.cpf, alone=True),
    Scheme("cpf", _form(_D + r"[0-9]{2}[. ]?[0-9]{3}[. ]?[0-9]{3}[- ]?[0-9]{2}"), checks.cpf),
    Scheme("aadhaar", _form(r"[2-9](?<![0-9a-z].)[0-9]{3}[ -]?[0-9]{4}[ -]?[0-9]{4}"), checks.verhoeff),
    Scheme("nhs", _form(_D + r"[0-9]{2}[ -]?[0-9]{3}[ -]?[0-9]{4}"), checks.nhs),
    Scheme("sin", _form(_D + r"[0-9]{2}[ -]?[0-9]{3}[ -]?[0-9]{3}"), checks.luhn),
    Scheme("tfn", _form(_D + r"[0-9]{2}[ -]?[0-9]{3}[ -]?[0-9]{3}"), checks.tfn),
    Scheme(
        "medicare",
        _form(r"[2-6](?<![0-9a-z].)[0-9]{3}[ -]?[0-9]{5}[ -]?[0-9]"),
        checks.medicare_au,
    ),
    Scheme("medicare", _form(r"[2-6](?<![0-9a-z].)[0-9]{3}[ -]?[0-9]{5}[ -]?[0-9]"), None),
    Scheme(
        "nir",
        _form(
            r"[1-478](?<![0-9a-z].) ?[0-9]{2} ?[0-9]{2} ?[0-9][0-9ab] ?[0-9]{3} ?[0-9]{3} "
            r"?[0-9]{2}"
        ),
        checks.nir,
        alone=True,
    ),
    Scheme(
        "codice_fiscale",
        _form(_A + r"[a-z]{5} ?[0-9lmnp-v]{2}[abcdehlmprst][0-9lmnp-v]{2} ?[a-z][0-9lmnp-v]{3}[a-z]"),
        checks.codice_fiscale,
        alone=True,
    ),
    Scheme("codice_fiscale", _form(_A + r"[a-z]{5}[0-9]{2}[a-z][0-9]{2}[a-z][0-9]{3}[a-z]"), None),
    Scheme("curp", _form(_A + r"[a-z]{3}[0-9]{6}[a-z]{6,7}[0-9]{1,2}"), None),
    Scheme("idnr", _form(_D + r"[0-9] ?[0-9]{3} ?[0-9]{3} ?[0-9]{3}"), checks.mod11_10),
    Scheme("personnummer", _form(_D + r"[0-9]{5}[-+][0-9]{4}"), checks.personnummer, alone=True),
    Scheme(
        "personnummer",
        _form(r"[12](?<![0-9a-z].)[09][0-9]{6}[-+]?[0-9]{4}"),
        lambda s: checks.personnummer(s[2:]),
        alone=True,
    ),
    Scheme("personnummer", _form(_D + r"[0-9]{9}"), checks.personnummer),
    Scheme(
        "hetu",
        _form(_D + r"[0-9]{5}[-+a-fu-y][0-9]{3}[0-9a-y]"),
        lambda s: checks.hetu(s if len(s) == 11 else s[:6] + "-" + s[6:]),
        alone=True,
    ),
    Scheme("cpr", _form(_D + r"[0-9]{5}-?[0-9]{4}"), lambda s: checks.date6(s, "dmy")),
    Scheme("fnr", _form(_D + r"[0-9]{5} ?[0-9]{5}"), lambda s: checks.date6(s, "dmy")),
    Scheme("pan_in", _form(_A + r"[a-z]{2}[abcfghljpt][a-z][0-9]{4}[a-z]"), None, alone=True),
    Scheme(
        "curp", _form(_A + r"[a-z]{3}[0-9]{6}[hmx][a-z]{5}[0-9a-z][0-9]"), lambda s: checks.date6(s[4:10]), alone=True
    ),
    Scheme(
        "mbi",
        _form(
            r"[1-9](?<![0-9a-z].)[ac-hj-km-np-rt-y][0-9ac-hj-km-np-rt-y][0-9]-?[ac-hj-km-np-rt-y][0-9ac-hj-km-np-rt-y][0-9]-?[ac-hj-km-np-rt-y]{2}[0-9]{2}"
        ),
        None,
        alone=True,
    ),
    Scheme("cnp", _form(r"[1-9](?<![0-9a-z].)[0-9]{12}"), checks.cnp),
    Scheme("cnp", _form(r"[1-9](?<![0-9a-z].)[0-9]{12}"), lambda s: checks.date6(s[1:7])),
    Scheme("rodne_cislo", _form(_D + r"[0-9]{5}/?[0-9]{4}"), None),
    Scheme("rodne_cislo", _form(_D + r"[0-9]{5}/[0-9]{4}"), checks.rodne_cislo, alone=True),
    Scheme("egn", _form(_D + r"[0-9]{9}"), checks.egn),
    Scheme("tckn", _form(r"[1-9](?<![0-9a-z].)[0-9]{10}"), checks.tckn),
    Scheme("rrn", _form(_D + r"[0-9]{5}-[0-9]{7}"), checks.korean, alone=True),
    Scheme("resident_cn", _form(r"[1-9](?<![0-9a-z].)[0-9]{16}[0-9x]"), checks.chinese, alone=True),
    Scheme("my_number", _form(_D + r"[0-9]{3}[ -]?[0-9]{4}[ -]?[0-9]{4}"), None),
    Scheme("inn", _form(_D + r"[0-9]{9}(?:[0-9]{2})?"), None),
    Scheme("snils", _form(_D + r"[0-9]{2}-[0-9]{3}-[0-9]{3}[ -][0-9]{2}"), None, alone=True),
    Scheme("nric", _form(r"[stfgm](?<![0-9a-z].)[0-9]{7}[a-z]"), checks.nric, alone=True),
    Scheme("nric", _form(r"[stfgm](?<![0-9a-z].)[0-9]{7}[a-z]"), None),
    Scheme("hkid", _form(_A + r"[a-z]?[0-9]{6} ?\([0-9a]\)"), checks.hkid, alone=True),
    Scheme("hkid", _form(_A + r"[a-z]?[0-9]{6} ?\(?[0-9a]\)?"), None),
    Scheme("ahv", _form(r"7(?<![0-9a-z].)56[. ]?[0-9]{4}[. ]?[0-9]{4}[. ]?[0-9]{2}"), None, alone=True),
    Scheme("rrn_be", _form(_D + r"[0-9]\.[0-9]{2}\.[0-9]{2}-[0-9]{3}\.[0-9]{2}"), None, alone=True),
    Scheme("rrn_be", _form(_D + r"[0-9]{10}"), checks.belgian),
    Scheme("ppsn", _form(_D + r"[0-9]{6}[a-w][a-iw]?"), checks.ppsn, alone=True),
    Scheme("ppsn", _form(_D + r"[0-9]{6}[a-z]{1,2}"), None),
    Scheme("kvnr", _form(_A + r"[0-9]{9}"), checks.kvnr),
    Scheme("rvnr", _form(_D + r"[0-9] ?[0-9]{6} ?[a-z] ?[0-9]{3}"), checks.rvnr),
    Scheme("za_id", _form(_D + r"[0-9]{5} ?[0-9]{4} ?[0-9]{2} ?[0-9]"), checks.za_id),
    Scheme("th_id", _form(r"[1-8](?<![0-9a-z].)[- ]?[0-9]{4}[- ]?[0-9]{5}[- ]?[0-9]{2}[- ]?[0-9]"), checks.th_id),
    Scheme("amka", _form(_D + r"[0-9]{8}(?:[0-9]{2})?"), None),
    Scheme("nif_pt", _form(r"[1-9](?<![0-9a-z].)[0-9]{2} ?[0-9]{3} ?[0-9]{3}"), checks.nif_pt),
    Scheme("nass", _form(_D + r"[0-9][ /-]?[0-9]{8}[ /-]?[0-9]{2}"), None),
    Scheme("svnr", _form(_D + r"[0-9]{3} ?[0-9]{6}"), None),
    Scheme(
        "passport",
        _form(
            r"(?:[a-z](?<![0-9a-z].)[0-9]{6,9}|[a-z](?<![0-9a-z].)[a-z]{1,2} ?[0-9]{6,8}|[0-9](?<![0-9a-z].)[0-9]{7,9}|"
            r"[0-9](?<![0-9a-z].)[0-9][a-z]{2}[0-9]{5}|"
            r"[cfghjklmnprtvwxyz](?<![0-9a-z].)(?=[a-z]*[0-9])[0-9cfghjklmnprtvwxyz]{8})"
        ),
        None,
    ),
    Scheme(
        "licence",
        _form(
            r"[0-9a-z](?<![0-9a-z].)(?=[a-z]{0,5}[- ]?[0-9][0-9a-z -]{4})[0-9a-z]{0,20}(?:[- "
            r"](?=[0-9a-z]{0,8}[0-9])[0-9a-z]{1,9}){0,4}"
        ),
        lambda s: 6 <= len(s) <= 20 and sum(c.isdigit() for c in s) >= 4,
    ),
    Scheme("other", _form(_A + r"[a-z]-(?=[0-9a-z]{0,7}[0-9])[0-9a-z]{8}"), None),
    Scheme(
        "other",
        _form(
            r"[0-9a-z](?<![0-9a-z].)(?=[a-z]{0,6}[-. "
            r"]?[0-9])[0-9a-z]{0,24}(?:[-./][0-9a-z]{1,12}){0,4}"
        ),
        lambda s: 6 <= len(s) <= 18 and sum(c.isdigit() for c in s) >= 5,
    ),
)

_CUES = Cues(
    {
        "ssn": (
            "ssn, ssns, ssn#, social security, social security number, social security no, social security num, "
            "soc sec, social"
        ),
        "itin": "itin, taxpayer id, taxpayer identification, tax id, tin",
        "nino": "national insurance, national insurance number, ni number, nino, ni no",
        "dni": "dni, nif, d.n.i, n.i.f, dni/nie",
        "nie": "nie, n.i.e",
        "pesel": "pesel",
        "bsn": "bsn, burgerservicenummer, sofinummer, citizen service number",
        "cpf": "cpf",
        "aadhaar": "aadhaar, aadhar, aadhaar number, aadhar no, uidai",
        "nhs": "nhs, nhs number, nhs no",
        "sin": "sin, social insurance number, social insurance, nas",
        "tfn": "tfn, tax file number, tax file",
        "medicare": "medicare, medicare number, medicare card, medicare no",
        "mbi": "mbi, medicare beneficiary, medicare beneficiary id, medicare id",
        "nir": "nir, numéro de sécurité sociale, sécurité sociale, n° sécu, numero de securite sociale",
        "codice_fiscale": "codice fiscale, c.f",
        "idnr": (
            "steuer id, steueridentifikationsnummer, idnr, steuer idnr, tax identification number, steuernummer, steuer"
        ),
        "personnummer": "personnummer, personnr, samordningsnummer",
        "hetu": "henkilötunnus, hetu",
        "cpr": "cpr, cpr nummer, cpr nr",
        "fnr": "fødselsnummer, fodselsnummer, personnummer",
        "pan_in": "pan, pan card, pan no, permanent account number",
        "curp": "curp, rfc",
        "cnp": "cnp, cod numeric personal",
        "rodne_cislo": "rodné číslo, rodne cislo, rč",
        "egn": "egn, егн",
        "tckn": "t.c. kimlik no, tckn, tc kimlik, kimlik no, tc kimlik no",
        "rrn": "주민등록번호, resident registration number, rrn",
        "resident_cn": "身份证号, 身份证号码, 身份证, resident id, id card",
        "my_number": "マイナンバー, 個人番号, my number",
        "inn": "инн, inn",
        "snils": "снилс, snils",
        "nric": "nric, fin",
        "hkid": "hkid, hong kong id",
        "ahv": "ahv, ahv nr, avs, oasi",
        "rrn_be": "rijksregisternummer, numéro national, national register number",
        "kvnr": (
            "kvnr, krankenversichertennummer, versichertennummer, krankenversicherungsnummer, egk nummer, "
            "krankenversicherung"
        ),
        "rvnr": "rvnr, rentenversicherungsnummer, sozialversicherungsnummer, sv nummer, versicherungsnummer",
        "za_id": "south african id, sa id, rsa id, za id",
        "th_id": "thai id, thai national id, tnin, เลขประจำตัวประชาชน, บัตรประชาชน",
        "amka": "αμκα, αφμ, amka, afm",
        "ppsn": "pps number, ppsn, pps no, pps",
        "nif_pt": "nif, contribuinte, número de contribuinte",
        "nass": "número de afiliación, nass, nuss, n° afiliación, afiliación",
        "svnr": "sozialversicherungsnummer, svnr, sv nummer, versicherungsnummer",
        "passport": (
            "passport, passport number, passport no, passport num, passport #, reisepass, reisepassnummer, "
            "pasaporte, passeport, passeport n°, passaporto, passaporte, paspoort, paspoortnummer, 护照, 护照号, "
            "パスポート, 여권번호, паспорт, paszport, pass number"
        ),
        "licence": (
            "driver's license, driver's licence, drivers license, drivers licence, driver license, driver "
            "licence, driving licence, driving license, driving licence number, driver's license number, drivers "
            "license number, license number, licence number, license no, licence no, dl, dl#, dl number, dln, "
            "permis, permis n°, permis de conduire, führerschein, führerscheinnummer, rijbewijs, carnet de "
            "conducir, patente, licencia de conducir, driver's license no, cnh, prawo jazdy, driverslicense"
        ),
        "other": (
            "national id, national id number, national identity, national identification number, identity card, "
            "identity number, identification number, id number, id no, id card number, id card, government id, "
            "personal id, personal number, citizen id, personalausweis, ausweisnummer, personalausweisnummer, "
            "carte d'identité, cédula, cedula, documento, rg, residence permit, visa number, visa no, tax number, "
            "tax no, tax identification, voter id, green card, alien number, a-number, uscis, personal code, "
            "social security card, carta d'identità"
        ),
    }
)
_BY_NAME: dict[str, tuple[Scheme, ...]] = {}
for _scheme in _SCHEMES:
    _BY_NAME[_scheme.name] = (*_BY_NAME.get(_scheme.name, ()), _scheme)
_OTHER = _BY_NAME["other"][1]
_ALONE = tuple(s for s in _SCHEMES if s.alone)
# Forms of letters and digits that other things have too, and that no check digit proves: alone they are only weak.
_WEAK_ALONE = frozenset({"pan_in", "snils", "rrn_be", "ahv", "dni", "nric", "ppsn", "mbi"})
_REACH = 44
_ALONE_SIZE = 32  # characters of a text that may be one bare number
_NOT_THE_VALUE = re.compile(r"[.!?;]\s+[a-z]|\n")
_ASSIGNED = re.compile(
    r"[\"'*`)\]]{0,3}(?:[ _-]?(?:no|number|num|nr|id))?[\"'*`]{0,3}[ \t]{0,4}[:=|][ \t]{0,4}[\"'*`]{0,3}(?=[^\W_])"
)


def find(view: View, zones: list[tuple[int, int]], vetoes: Vetoes) -> Iterator[Hit]:
    """The government IDs of a view."""
    for first, last in zones:
        yield from _cued(view, first, last, vetoes)
        yield from _proven(view, first, last, vetoes)
    if len(view.lower) <= _ALONE_SIZE:
        yield from _whole(view)


def _bare(text: str) -> str:
    return re.sub(r"[^0-9a-z]", "", text)


def _passes(scheme: Scheme, text: str) -> bool:
    return scheme.check is None or scheme.check(_bare(text))


def _proven(view: View, first: int, last: int, vetoes: Vetoes) -> Iterator[Hit]:
    for scheme in _ALONE:
        for match in scheme.form.finditer(view.lower, first, last):
            if vetoes.touches(*match.span()) or not _passes(scheme, match[0]):
                continue
            weak = scheme.name in _WEAK_ALONE and not (scheme.check and scheme.name == "dni")
            yield Hit(
                *match.span(),
                "account_number",
                "government_id",
                "cued" if weak else "validated",
                0.8 if weak else 0.9,  # a cue of another kind beside it knows better
                f"form of {scheme.name}",
            )


def _whole(view: View) -> Iterator[Hit]:
    """A text that is one bare number: right check digits are no proof, and support what the model sees."""
    text = view.lower.strip()
    start = view.lower.find(text)
    for scheme in _SCHEMES:
        if scheme.check is not None and scheme.name not in ("licence", "other"):
            match = scheme.form.fullmatch(text)
            if match and scheme.check(_bare(text)):
                why = f"form of {scheme.name}"
                yield Hit(start, start + len(text), "account_number", "government_id", "weak", 0.5, why)


def _cued(view: View, first: int, last: int, vetoes: Vetoes) -> Iterator[Hit]:
    for _, end, kinds in _CUES.find(view, first, last):
        stop = min(last, end + _REACH + 24)
        assigned = _ASSIGNED.match(view.lower, end)
        if assigned:
            # A field of a record: what it holds is the ID, whatever its form.
            value = _OTHER.form.match(view.lower, assigned.end())
            if value and _passes(_OTHER, value[0]) and not vetoes.touches(*value.span()):
                yield Hit(*value.span(), "account_number", "government_id", "cued", 0.9, f"{kinds[0]} field")
        best: tuple[int, int] | None = None
        for kind in kinds:
            for scheme in (*_BY_NAME.get(kind, ()), *(_ALONE if kind == "other" else ())):
                match = scheme.form.search(view.lower, end, stop)
                if (
                    match
                    and match.start() <= end + _REACH
                    and _passes(scheme, match[0])
                    and _near(view, end, match.start())
                ):
                    checked = scheme.check is not None and kind not in ("licence", "other")
                    if vetoes.touches(*match.span()) and not checked:
                        continue
                    if best is None or match.start() < best[0]:
                        best = match.span()
                        yield Hit(
                            *best,
                            "account_number",
                            "government_id",
                            "validated" if checked else "cued",
                            0.98,
                            f"{kind} cue",
                        )


def _near(view: View, end: int, start: int) -> bool:
    """Whether nothing but words of the same sentence stands between a cue and a value."""
    between = view.lower[end:start].lstrip(".")
    return _NOT_THE_VALUE.search(between) is None
