"""No input makes the rules slow: a text of any shape, four times as long, takes about four times as long.

Times are the process's own, so that a busy machine does not matter; the bound leaves room for noise and still fails
for anything quadratic, which takes sixteen times as long.
"""

from __future__ import annotations

import random
import time

import pytest

from lily.gate.combine import combine
from lily.gate.recognizers import find

UNITS = [
    *"aA01.-_/:@=+%,;|([{\"'`\\$#< \t\n用\u200b",
    *(
        "1 ",
        "1-",
        "1.",
        "12 34 ",
        "+1 ",
        "(1) ",
        "A1b2",
        "a@",
        "@a.",
        "a@b.c ",
        "://",
        "://a:b@",
        "https://a/",
        "1:",
        "::",
        "aa:bb:",
    ),
    *(
        "password ",
        "password=",
        "password: ",
        "password is ",
        "key ",
        "token=",
        "secret\n",
        "api_key='",
        "tokenx",
        "my key: a1B2",
    ),
    *(
        "eyJ",
        "eyJaaaaaaaaa.",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n",
        "-----begin a-----",
        "$a$",
        "sk-",
        "ghp_",
        "AKIA",
        "sha256:",
    ),
    *(
        "phone ",
        "phone 1 ",
        "iban DE89",
        "account-",
        "account: ",
        "ssn 1",
        "passport ",
        "dob:",
        "dob - - ",
        "card 4",
        "4111 ",
        "0000",
    ),
    *(
        "192.168.",
        "fe80::",
        "user: ",
        "plate A",
        "a,b\n",
        "name,email\n",
        "a|b|c\n",
        "|---|",
        "%40",
        "5f0c2b1d-7e42-",
        "cvv - - ",
    ),
    *("pin code for my ", "licence a1 ", "id number a1.", "vin ", "mrn-1", "\u0430a", "\U0001f600"),
]


def seconds(text: str) -> float:
    start = time.process_time()
    combine(text, find(text))
    return time.process_time() - start


def repeated(unit: str, size: int) -> str:
    return (unit * (size // len(unit) + 1))[:size]


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_repeated_pieces(unit: str) -> None:
    short = min(seconds(repeated(unit, 10_000)) for _ in range(2))
    assert seconds(repeated(unit, 40_000)) < 8 * short + 0.15


def test_pieces_in_any_mixture() -> None:
    rng = random.Random(11)
    for _ in range(25):
        unit = "".join(rng.choice(UNITS) for _ in range(rng.randint(2, 6)))
        short = min(seconds(repeated(unit, 8_000)) for _ in range(2))
        assert seconds(repeated(unit, 32_000)) < 8 * short + 0.15, repr(unit)


def test_a_megabyte_of_prose_and_of_log() -> None:
    """A loose floor that only a mistake in complexity breaks; the measured speeds stand in the documentation."""
    prose = "The committee met on a rainy afternoon and nobody could remember who had asked for the agenda. " * 10_500
    log = "2026-03-04T11:20:33.123Z INFO [http-8080-exec-7] OrderService - order 88213467 persisted in 18 ms\n" * 10_500
    assert seconds(prose) < 30
    assert seconds(log) < 60
