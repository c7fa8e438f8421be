# ruff: noqa: RUF001 (look-alikes and full-width characters are the subject)
"""Recognizers, kind by kind: right numbers are found wherever they stand, near misses and look-alikes are not."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from gate_rules import kinds, pieces
from gate_values import card, digits, dni, drawn, email, full_width, grouped, iban, luhn, passing, ssn, uuid, zero_width
from hypothesis import given
from hypothesis import strategies as st

from lily.gate import recognizers
from lily.gate.recognizers import checks

SEEDS = st.integers(0, 2**32)
FRAMES = [
    "{}",
    "it is {}.",
    "({})",
    "see {}, please",
    "a\n{}\nb",
    "«{}»",
    "名前 {} です",
    '{{"value": "{}"}}',
    "😀 {} 🎉",
]


@given(SEEDS, st.sampled_from(FRAMES), st.sampled_from(["", " ", "-"]))
def test_cards(seed: int, frame: str, separator: str) -> None:
    number = card(random.Random(seed))
    written = grouped(number, separator)
    assert ("account_number", "payment_card", written) in kinds(frame.format(written))


@given(SEEDS, st.sampled_from(["", " ", "-"]))
def test_cards_with_a_wrong_digit(seed: int, separator: str) -> None:
    rng = random.Random(seed)
    number = passing(lambda: card(rng), lambda n: len(n) < 19)  # a longer one may hold a shorter one and three digits
    at = rng.randrange(6, len(number) - 1)
    wrong = number[:at] + str((int(number[at]) + 1) % 10) + number[at + 1 :]
    assert not luhn(wrong)
    assert "payment_card" not in [kind for _, kind, _ in kinds(f"value {grouped(wrong, separator)} end")]


@given(SEEDS, st.sampled_from(FRAMES), st.booleans(), st.booleans())
def test_ibans(seed: int, frame: str, spaced: bool, small: bool) -> None:
    number = iban(random.Random(seed))
    written = " ".join(number[i : i + 4] for i in range(0, len(number), 4)) if spaced else number
    written = written.lower() if small else written
    assert ("account_number", "iban", written) in kinds(frame.format(written))


@given(SEEDS)
def test_iban_ends_before_the_next_word(seed: int) -> None:
    number = iban(random.Random(seed))
    for tail in (" BIC COBADEFFXXX", " FAILED", "FAILED"[:0] + ", thanks", "\nBIC"):
        assert ("account_number", "iban", number) in kinds(f"IBAN {number}{tail}")


@given(SEEDS, st.sampled_from(FRAMES))
def test_emails(seed: int, frame: str) -> None:
    address = email(random.Random(seed))
    assert ("private_email", address) in pieces(frame.format(address))
    assert ("private_email", address.upper()) in pieces(frame.format(address.upper()))


@pytest.mark.parametrize(
    ("before", "address", "after"),
    [
        ("mailto:", "ann.lee@example.org", "?subject=x"),
        ("https://site.example/?email=", "ann.lee@example.org", "&x=1"),
        ("<", "ann.lee@example.org", ">"),
        ("'", "ann.lee@example.org", "'"),
        (r"{\"body\":\"Hi\n", "ann.lee@example.org", r"\"}"),
        ("email=", "ann%40example.org", "&x=1"),
    ],
)
def test_emails_in_odd_places(before: str, address: str, after: str) -> None:
    text = before + address + after
    assert any(address in found for label, found in pieces(text) if label in ("private_email", "private_url"))


@pytest.mark.parametrize(
    "text", ["@example.org", "user@", "a @ b.c", "git@", "foo@bar", "x@y.1", "@media print", "npm i lib@1.2.3"]
)
def test_no_emails(text: str) -> None:
    assert "private_email" not in [label for label, _ in pieces(text)]


GOVERNMENT: dict[str, Callable[[random.Random], str]] = {
    "SSN": ssn,
    "DNI": dni,
    "National Insurance number": lambda r: f"AB{digits(r, 6)}C",
    "PESEL": lambda r: passing(lambda: f"{r.randint(50, 99)}0{r.randint(1, 9)}1{digits(r, 6)}", checks.pesel),
    "BSN": lambda r: passing(lambda: "1" + digits(r, 8), checks.bsn),
    "CPF": lambda r: passing(lambda: digits(r, 11), checks.cpf),
    "Aadhaar": lambda r: passing(lambda: "3" + digits(r, 11), checks.verhoeff),
    "NHS number": lambda r: passing(lambda: "4" + digits(r, 9), checks.nhs),
    "Social Insurance Number": lambda r: passing(lambda: "2" + digits(r, 8), luhn),
    "tax file number": lambda r: passing(lambda: "1" + digits(r, 8), checks.tfn),
    "numéro de sécurité sociale": lambda r: passing(
        lambda: f"1{digits(r, 2)}0{r.randint(1, 9)}{digits(r, 10)}", checks.nir
    ),
    "codice fiscale": lambda r: passing(
        lambda: f"RSSMRA{digits(r, 2)}A0{r.randint(1, 9)}H501{r.choice('ABCDEFGHIJKLMNOPQRSTUVWXYZ')}",
        checks.codice_fiscale,
    ),
    "Steuer-ID": lambda r: passing(lambda: "8" + digits(r, 10), checks.idnr),
    "personnummer": lambda r: passing(
        lambda: f"8{digits(r, 1)}0{r.randint(1, 9)}1{digits(r, 1)}-{digits(r, 4)}",
        lambda s: checks.personnummer(s.replace("-", "")),
    ),
    "henkilötunnus": lambda r: passing(
        lambda: f"1{digits(r, 1)}0{r.randint(1, 9)}{digits(r, 2)}-{digits(r, 3)}{r.choice(checks.FINNISH)}", checks.hetu
    ),
    "fødselsnummer": lambda r: passing(
        lambda: f"1{digits(r, 1)}0{r.randint(1, 9)}{digits(r, 7)}", checks.fodselsnummer
    ),
    "CNP": lambda r: passing(lambda: f"18{digits(r, 1)}0{r.randint(1, 9)}1{digits(r, 7)}", checks.cnp),
    "rodné číslo": lambda r: f"8{digits(r, 1)}0{r.randint(1, 9)}1{digits(r, 1)}/{digits(r, 4)}",
    "ЕГН": lambda r: passing(lambda: f"8{digits(r, 1)}0{r.randint(1, 9)}1{digits(r, 5)}", checks.egn),
    "TCKN": lambda r: passing(lambda: "1" + digits(r, 10), checks.tckn),
    "주민등록번호": lambda r: f"8{digits(r, 1)}0{r.randint(1, 9)}1{digits(r, 1)}-1{digits(r, 6)}",
    "身份证号": lambda r: passing(
        lambda: f"1101011980010{r.randint(1, 9)}{digits(r, 3)}{r.choice('0123456789X')}", checks.chinese
    ),
    "マイナンバー": lambda r: passing(lambda: digits(r, 12), checks.my_number),
    "ИНН": lambda r: passing(lambda: "5" + digits(r, 11), checks.inn),
    "СНИЛС": lambda r: f"{digits(r, 3)}-{digits(r, 3)}-{digits(r, 3)} {digits(r, 2)}",
    "NRIC": lambda r: passing(lambda: f"S{digits(r, 7)}{r.choice('ABCDEFGHIZJ')}", checks.nric),
    "HKID": lambda r: passing(
        lambda: f"A{digits(r, 6)}({r.choice('0123456789A')})",
        lambda s: checks.hkid(s.replace("(", "").replace(")", "")),
    ),
    "AHV-Nr.": lambda r: passing(
        lambda: f"756.{digits(r, 4)}.{digits(r, 4)}.{digits(r, 2)}", lambda s: checks.ahv(s.replace(".", ""))
    ),
    "rijksregisternummer": lambda r: passing(lambda: digits(r, 11), checks.belgian),
    "PPS number": lambda r: passing(lambda: f"{digits(r, 7)}{r.choice('ABCDEFGHIJKLMNOPQRSTUVW')}", checks.ppsn),
    "AMKA": lambda r: passing(lambda: f"1{digits(r, 1)}0{r.randint(1, 9)}{digits(r, 7)}", checks.amka),
    "contribuinte": lambda r: passing(lambda: "2" + digits(r, 8), checks.nif_pt),
    "CURP": lambda r: passing(
        lambda: f"GARC8{digits(r, 1)}0{r.randint(1, 9)}1{digits(r, 1)}HDFRRL0{digits(r, 1)}", checks.curp
    ),
    "Krankenversichertennummer": lambda r: passing(lambda: f"A{digits(r, 9)}", checks.kvnr),
    "Rentenversicherungsnummer": lambda r: passing(
        lambda: f"15{r.randint(10, 28)}0{r.randint(1, 9)}{digits(r, 2)}C{digits(r, 3)}", checks.rvnr
    ),
    "South African ID": lambda r: passing(lambda: f"800101{digits(r, 4)}0{digits(r, 2)}", checks.za_id),
    "Thai national ID": lambda r: passing(lambda: "1" + digits(r, 12), checks.th_id),
    "MBI": lambda r: f"1EG{digits(r, 1)}-TE{digits(r, 1)}-MK{digits(r, 2)}",
    "passport no.": lambda r: f"X{digits(r, 8)}",
    "driving licence number": lambda r: f"MORGA{digits(r, 6)}SM{digits(r, 1)}IJ",
}


@pytest.mark.parametrize("scheme", GOVERNMENT)
@given(SEEDS, st.sampled_from([" ", ": ", " is ", "=", '": "', "：", " - "]))
def test_government_ids(scheme: str, seed: int, link: str) -> None:
    number = GOVERNMENT[scheme](random.Random(seed))
    found = [
        (label, text) for label, kind, text in kinds(f"my {scheme}{link}{number} thanks") if kind == "government_id"
    ]
    assert ("account_number", number) in found


def test_there_are_more_than_thirty_schemes() -> None:
    assert len(GOVERNMENT) >= 30


@pytest.mark.parametrize("scheme", ["SSN", "DNI", "CPF", "NHS number", "Aadhaar", "PESEL", "BSN", "TCKN"])
@given(SEEDS)
def test_bare_ids_need_their_name(scheme: str, seed: int) -> None:
    number = GOVERNMENT[scheme](random.Random(seed)).replace("-", "")
    if number.isdigit():
        assert pieces(f"row {number} of the list") == []


@pytest.mark.parametrize("scheme", ["DNI", "NHS number", "Aadhaar", "PESEL", "BSN", "TCKN", "Thai national ID"])
@given(SEEDS)
def test_bare_ids_that_are_the_whole_text_support_the_model(scheme: str, seed: int) -> None:
    number = GOVERNMENT[scheme](random.Random(seed))
    found = [f for f in recognizers.find(f" {number}\n") if f.span.sub == "government_id"]
    assert found
    assert all(number == f" {number}\n"[f.span.start : f.span.end] for f in found)


def test_published_examples_of_check_digits() -> None:
    assert checks.kvnr("A123456780")
    assert not checks.kvnr("A123456787")
    assert checks.rvnr("15070649C103")
    assert not checks.rvnr("15070649C101")
    assert checks.za_id("8001015009087")
    assert not checks.za_id("8001015009086")
    assert checks.th_id("1234567890121")
    assert not checks.th_id("1234567890123")
    for century in "UVWXYABCDEF":  # the letters that Finland gives out since 2023
        assert ("account_number", "131052" + century + "308T") in pieces(f"henkilötunnus 131052{century}308T, thanks")


@given(SEEDS)
def test_wrong_check_letters(seed: int) -> None:
    number = dni(random.Random(seed))
    wrong = number[:-1] + next(c for c in "TRWAG" if c != number[-1])
    assert "government_id" not in [kind for _, kind, _ in kinds(f"value {wrong} end")]


PHONES = [
    "+351912345678",
    "+351 21 345 6789",
    "+44 20 7946 0958",
    "+1 (415) 555-0132",
    "+49 30 901820",
    "(415) 555-0132",
    "415-555-0132",
    "0044 20 7946 0958",
    "+33 1 42 68 53 00",
]


@pytest.mark.parametrize("number", PHONES)
@pytest.mark.parametrize(
    "frame", ["{}", "call {}.", "({}), ask", "tel:{}", "電話番号は{}です", '"phone": "{}"', "x\n{}\ny"]
)
def test_phones(number: str, frame: str) -> None:
    assert any(label == "private_phone" and number.strip("(") in text for label, text in pieces(frame.format(number)))


@given(
    SEEDS,
    st.sampled_from(["phone", "Tel.", "mobile:", "call me on", "Telefon", "téléphone", "móvil", "电话：", "телефон"]),
)
def test_phones_behind_a_cue(seed: int, cue: str) -> None:
    rng = random.Random(seed)
    number = f"0{rng.randint(1, 9)}{digits(rng, 2)} {digits(rng, 3)} {rng.randint(100, 999)}"
    assert ("private_phone", number) in pieces(f"{cue} {number}, thanks")


@pytest.mark.parametrize("separator", [":", "-"])
@given(SEEDS)
def test_network_addresses(separator: str, seed: int) -> None:
    rng = random.Random(seed)
    mac = separator.join(f"{rng.getrandbits(8):02x}" for _ in range(5)) + f"{separator}4f"
    ip = ".".join(str(rng.randint(11, 254)) for _ in range(4))
    six = ":".join(f"{rng.randint(16, 65535):x}" for _ in range(8))
    assert pieces(f"seen {ip} and {mac} and {six} today") == [("other_pii", ip), ("other_pii", mac), ("other_pii", six)]


@pytest.mark.parametrize(
    "text", ["127.0.0.1", "0.0.0.0", "version 10.4.2.1", "v1.2.3.4", "256.1.1.1", "1.2.3", "08:51:06", "::1"]
)
def test_no_addresses(text: str) -> None:
    assert pieces(f"use {text} here") == []


PRIVATE_URLS = [
    "https://www.linkedin.com/in/ann-lee-81",
    "https://drive.google.com/file/d/1aB2cD3eF4gH/view",
    "https://zoom.us/j/1234567890?pwd=a1B2c3",
    "https://portal.example.org/patients/48213/chart",
    "https://calendly.com/annlee/30min",
]
PUBLIC_URLS = [
    "https://docs.python.org/3/library/re.html",
    "https://example.com",
    "http://localhost:8080/health",
    "https://github.com/python/cpython/issues/1",
    "https://en.wikipedia.org/wiki/Ada_Lovelace",
]


@pytest.mark.parametrize("url", PRIVATE_URLS)
@pytest.mark.parametrize("frame", ["{}", "see {}.", "[me]({})", "<{}>", '"{}",'])
def test_private_urls(url: str, frame: str) -> None:
    assert ("private_url", url) in pieces(frame.format(url))


@pytest.mark.parametrize("url", PUBLIC_URLS)
def test_public_urls(url: str) -> None:
    assert pieces(f"see {url}, it helps") == []


@pytest.mark.parametrize(
    "cue",
    ["DOB", "date of birth:", "born on", "geboren am", "né le", "fecha de nacimiento:", "生年月日：", '"birthDate": "'],
)
@pytest.mark.parametrize("date", ["1984-03-17", "17/03/1984", "17 March 1984", "March 17, 1984", "17.03.1984"])
def test_dates_of_birth(cue: str, date: str) -> None:
    assert ("private_date", "dob", date) in kinds(f"{cue} {date} ok") or ("private_date", "dob", date) in kinds(
        f"{cue}{date} ok"
    )


@pytest.mark.parametrize(
    "text", ["released on 1984-03-17", "the meeting of 17 March 2021", "2026-03-04T11:20:33Z started"]
)
def test_other_dates_are_the_models(text: str) -> None:
    assert pieces(text) == []


@given(SEEDS, st.sampled_from([",", ";", "\t", " | "]))
def test_columns_of_tables(seed: int, mark: str) -> None:
    rng = random.Random(seed)
    rows = [(f"{digits(rng, 9)}", f"{drawn(rng, 9)}", f"{rng.choice('abcd')}x") for _ in range(3)]
    text = mark.join(("ssn", "password", "note")) + "\n" + "\n".join(mark.join(row) for row in rows)
    found = pieces(text)
    for number, word, _ in rows:
        assert ("account_number", number) in found
        assert ("secret", word) in found
    assert len(found) == 6


KINDS = {"card": card, "iban": iban, "dni": dni, "ssn": ssn, "email": email}


@pytest.mark.parametrize("kind", KINDS)
@given(SEEDS)
def test_every_kind_survives_foldings(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    value = KINDS[kind](rng)
    for written in (value, value.lower(), value.upper(), full_width(value), zero_width(rng, value)):
        text = f"value: {written} end"
        assert written in [found for _, found in pieces(text)], written


@given(SEEDS)
def test_uuids_are_nothing(seed: int) -> None:
    rng = random.Random(seed)
    assert pieces(f"request {uuid(rng)} failed, then {uuid(rng).upper()}") == []
