"""Fresh numbers for the tests of the Gate's rules: check digits computed here, by other means than the rules'.

Everything is drawn from a seeded source, so that no test rests on one string.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable

LETTERS = string.ascii_letters + string.digits


def digits(rng: random.Random, count: int) -> str:
    """`count` digits."""
    return "".join(rng.choice(string.digits) for _ in range(count))


def drawn(rng: random.Random, count: int, alphabet: str = LETTERS) -> str:
    """`count` characters of an alphabet, with digits, and where it has them letters of both cases."""
    while True:
        text = "".join(rng.choice(alphabet) for _ in range(count))
        enough = len(set(text)) > min(count, len(alphabet)) // 3 and sum(c.isdigit() for c in text[1:]) > count // 10
        if enough and (text.lower() == text) == (alphabet.lower() == alphabet):
            return text


def passing(make: Callable[[], str], check: Callable[[str], bool]) -> str:
    """The first drawn candidate that passes; an end digit is right in one of ten to one hundred."""
    for _ in range(100_000):
        text = make()
        if check(text):
            return text
    raise AssertionError("no candidate passed in 100,000 draws")


def luhn(text: str) -> bool:
    """Luhn, written as the standard words it: double every second digit from the right, add the digits of all."""
    total = ""
    for place, char in enumerate(reversed(text)):
        total += str(int(char) * (2 if place % 2 else 1))
    return sum(map(int, total)) % 10 == 0


def card(rng: random.Random) -> str:
    """A card number without separators."""
    ranges = "4 51 55 2223 2720 34 37 6011 65 3528 62 4/19 62/19".split()
    prefix, _, size = rng.choice(ranges).partition("/")
    length = int(size) if size else 15 if prefix in ("34", "37") else 16
    body = prefix + digits(rng, length - len(prefix) - 1)
    return next(body + d for d in string.digits if luhn(body + d))


def grouped(text: str, separator: str, sizes: tuple[int, ...] = (4, 4, 4, 4, 3)) -> str:
    """A number in groups."""
    if len(text) == 15:
        sizes = (4, 6, 5)
    parts = []
    for size in sizes:
        parts.append(text[:size])
        text = text[size:]
    return separator.join(p for p in parts if p)


def iban(rng: random.Random) -> str:
    """An IBAN without separators, of a country whose account is all digits."""
    country, size = rng.choice(
        [("DE", 18), ("ES", 20), ("AT", 16), ("BE", 12), ("PL", 24), ("SE", 20), ("PT", 21), ("CZ", 20)]
    )
    body = digits(rng, size)
    number = int(body + "".join(str(ord(c) - 55) for c in country) + "00")
    return f"{country}{98 - number % 97:02}{body}"


def ssn(rng: random.Random) -> str:
    """A US social security number with hyphens."""
    area = rng.choice([a for a in range(1, 899) if a != 666])
    return f"{area:03}-{rng.randint(1, 99):02}-{rng.randint(1, 9999):04}"


def dni(rng: random.Random) -> str:
    """A Spanish identity number."""
    number = rng.randint(1_000_000, 99_999_999)
    return f"{number:08}{'TRWAGMYFPDXBNJZSQVHLCKE'[number % 23]}"


def email(rng: random.Random) -> str:
    """An e-mail address."""
    name = "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(3, 9)))
    host = "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(4, 9)))
    top = rng.choice(["org", "com", "co.uk", "example.net", "de"])
    return f"{name}{rng.choice(['', '.', '_', '-', '+'])}{rng.randint(1, 99)}@{host}.{top}"


def uuid(rng: random.Random) -> str:
    """A UUID."""
    sizes = (8, 4, 4, 4, 12)
    return "-".join("".join(rng.choice("0123456789abcdef") for _ in range(size)) for size in sizes)


FULL_WIDTH = {ord(c): chr(ord(c) + 0xFEE0) for c in string.printable if "!" <= c <= "~"}


def full_width(text: str) -> str:
    """ASCII as full-width characters."""
    return text.translate(FULL_WIDTH)


def zero_width(rng: random.Random, text: str) -> str:
    """A text with a zero-width character inside."""
    at = rng.randint(1, len(text) - 1)
    return text[:at] + rng.choice("\u200b\u200c\u200d\u2060\ufeff\u00ad") + text[at:]
