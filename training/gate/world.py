"""Invented people and places by locale: names, streets, addresses, phones, user names, e-mail addresses.

Names come from our own lists (data/locales.txt) and from Faker's (MIT); addresses also from the two MIT lists of the
data directory where it is given. Nothing here knows labels.
"""

from __future__ import annotations

import importlib
import json
import random
import re
import string
import unicodedata
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .lists import DATA, words

CJK = ("ja_JP", "zh_CN", "ko_KR")
_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Locale:
    """One section of data/locales.txt."""

    name: str
    weight: int
    given: tuple[str, ...]
    family: tuple[str, ...]
    stem: tuple[str, ...]
    street: tuple[str, ...]
    city: tuple[tuple[str, str], ...]
    post: tuple[str, ...]
    line: tuple[str, ...]
    phone: tuple[str, ...]


def _faker_names(name: str, kind: str) -> list[str]:
    """Given or family names of one of Faker's locales, straight from its lists."""
    provider = importlib.import_module(f"faker.providers.person.{name}").Provider
    found: list[str] = []
    for field_name in vars(provider):
        if field_name.startswith(f"{kind}_name") and "roman" not in field_name and "pair" not in field_name:
            value = getattr(provider, field_name)
            if isinstance(value, (list, tuple, dict, set)):
                found += [v for v in value if isinstance(v, str) and len(v) > 1 - (name in CJK)]
    return sorted(set(found))


def _words(text: str) -> tuple[str, ...]:
    return tuple(w.replace("_", " ") for w in text.split())


def _lines(text: str) -> tuple[str, ...]:
    return tuple(t.strip().replace("\\n", "\n") for t in text.split("|"))


@cache
def locales() -> dict[str, Locale]:
    """All locales, read once."""
    sections: dict[str, dict[str, str]] = {}
    for line in (DATA / "locales.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            current = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, value = line.split("=", 1)
            current[key.strip()] = value.strip()
    made = {}
    for name, s in sections.items():
        given, family = _words(s["given"]), _words(s["family"])
        if "faker" in s:
            given += tuple(_faker_names(s["faker"], "first"))
            family += tuple(_faker_names(s["faker"], "last"))
        city = tuple((c.split(",")[0], c.split(",")[1]) for c in _words(s["city"]))
        made[name] = Locale(
            name,
            int(s["weight"]),
            given,
            family,
            _words(s["stem"]),
            _lines(s["street"]),
            city,
            _lines(s["post"]),
            _lines(s["line"]),
            _lines(s["phone"]),
        )
    return made


@dataclass
class Person:
    """Someone invented; `user` and `email` are settled when first asked for."""

    given: str
    family: str
    locale: Locale
    user: str = ""
    email: str = ""


def ascii_letters(text: str) -> str:
    """Lower-case ASCII letters of a name, for user names."""
    return re.sub(r"[^a-z]", "", unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower())


@dataclass
class World:
    """The randomness and the locale of one document, and the addresses that the data directory adds."""

    rng: random.Random
    extra_addresses: list[str] = field(default_factory=list)
    companies: list[str] = field(default_factory=list)
    locale: Locale = field(init=False)

    def __post_init__(self) -> None:
        self._names = list(locales().values())
        self._weights = [x.weight for x in self._names]
        self.move()

    def move(self, language: str | None = None) -> None:
        """Picks a locale: any, or one of a language."""
        if language is None:
            self.locale = self.rng.choices(self._names, self._weights)[0]
        else:
            fitting = [x for x in self._names if x.name.startswith(language)]
            self.locale = self.rng.choices(fitting, [x.weight for x in fitting])[0]

    def fill(self, pattern: str) -> str:
        """Digits for #, 2 to 9 for N, a capital for ?."""
        r = self.rng
        out = []
        for c in pattern:
            if c == "#":
                out.append(str(int(r.random() * 10)))
            elif c == "N":
                out.append(str(2 + int(r.random() * 8)))
            elif c == "?":
                out.append(r.choice(string.ascii_uppercase))
            else:
                out.append(c)
        return "".join(out)

    def digits(self, n: int) -> str:
        """`n` digits."""
        return "".join(str(int(self.rng.random() * 10)) for _ in range(n))

    # ---- people

    def person(self) -> Person:
        """Someone of the document's locale; now and then from elsewhere."""
        where = self.locale if self.rng.random() < 0.85 else self.rng.choices(self._names, self._weights)[0]
        if where.name in CJK and self.locale.name not in CJK:
            where = self.locale
        return Person(self.rng.choice(where.given), self.rng.choice(where.family), where)

    def full(self, p: Person) -> str:
        """Given and family name."""
        if p.locale.name in CJK:
            return p.family + self.rng.choice(["", "", "", " "]) + p.given
        return f"{p.given} {p.family}"

    def name(self, p: Person) -> str:
        """A name in one of the forms that people write."""
        r = self.rng
        if p.locale.name in CJK:
            return self.full(p)
        x = r.random()
        if x < 0.60:
            return f"{p.given} {p.family}"
        if x < 0.67:
            return f"{p.given} {r.choice(string.ascii_uppercase)}. {p.family}"
        if x < 0.71:
            return f"{p.given[0]}. {p.family}"
        if x < 0.75:
            return f"{p.given} {p.family}-{r.choice(p.locale.family)}"
        if x < 0.78:
            return f"{p.family}, {p.given}"
        if x < 0.82:
            return f"{p.given} {r.choice(p.locale.given)} {p.family}"
        if x < 0.88:
            return p.given
        if x < 0.90:
            return p.family
        if x < 0.95:
            return f"{p.given} {p.family}".upper()
        if x < 0.985:
            return f"{p.given} {p.family}".lower()
        return f"{p.given} {p.family} {r.choice(['Jr.', 'III', 'Sr.'])}"

    def user(self, p: Person) -> str:
        """A user name made of the name, or a nickname."""
        if not p.user:
            r = self.rng
            f = ascii_letters(p.given) or r.choice(["kim", "lee", "max", "ana", "sam"])
            last = ascii_letters(p.family) or r.choice(["ito", "wei", "sato", "petrov", "khan"])
            n = r.randint(1, 2012)
            p.user = r.choice(
                [
                    f"{f}.{last}",
                    f"{f[0]}{last}",
                    f"{f}_{last}",
                    f"{f}{last}{n % 100}",
                    f"{last}.{f}",
                    f"{f}{n}",
                    f"{f}-{last}",
                    f"{last}{f[0]}",
                    f"{f}{n % 100}",
                    f"{f[0]}.{last}{n % 10}",
                    f"{r.choice(words('nick'))}{r.choice(['', '_', '.'])}{f}",
                    f"{f}_{r.choice(words('nick'))}",
                    f"{r.choice(words('nick'))}{n % 1000}",
                    f"{f}{last}",
                    f"{f}{last[0]}",
                ]
            )
        return p.user

    def email(self, p: Person) -> str:
        """Their e-mail address."""
        if not p.email:
            r = self.rng
            user = self.user(p) + (
                f"+{r.choice(['news', 'test', 'shop', 'work', '2024'])}" if r.random() < 0.06 else ""
            )
            x = r.random()
            domain = r.choice(words("mail")) if x < 0.55 else self.domain()
            p.email = f"{user}@{domain}"
            if x > 0.97:
                p.email = p.email.upper()
            elif x > 0.94 and ascii_letters(p.given):
                p.email = f"{ascii_letters(p.given).title()}{ascii_letters(p.family).title()}@{domain}"
        return p.email

    def domain(self) -> str:
        """A host name nobody is known to own: two or three words and a top-level domain."""
        r = self.rng
        word = r.choice(words("host")) + (
            r.choice(words("host"))
            if r.random() < 0.6
            else r.choice(["-", ""]) + r.choice(["tech", "group", "shop", "media", "co", "online", "lab"])
        )
        if r.random() < 0.3:
            word = ascii_letters(r.choice(self.locale.family)) or word
        return f"{word}.{r.choice(words('tld'))}"

    # ---- places

    def street(self) -> str:
        """Street and number, in the locale's manner."""
        r, loc = self.rng, self.locale
        x = r.random()
        n = (
            r.randint(1, 40)
            if x < 0.3
            else r.randint(1, 300)
            if x < 0.7
            else r.randint(100, 99999 if loc.name == "en_US" else 1500)
        )
        values = {
            "s": r.choice(loc.stem),
            "n": str(n),
            "m": str(r.randint(1, 30) if r.random() < 0.7 else r.randint(30, 999)),
            "f": r.choice(loc.given),
            "l": r.choice(loc.family),
        }
        return _SLOT.sub(lambda m: values[m[1]], r.choice(loc.street))

    def address(self, one_line: bool = False) -> str:
        """A whole address, on one line or several."""
        r, loc = self.rng, self.locale
        if self.extra_addresses and r.random() < (0.2 if loc.name == "en_US" else 0.1):
            text = r.choice(self.extra_addresses)
        else:
            city, region = r.choice(loc.city)
            if r.random() < 0.25 and loc.name == "en_US":
                city = (
                    r.choice(CITY_PARTS[0])
                    + r.choice(loc.family + loc.given).replace(" ", "")
                    + r.choice(CITY_PARTS[1])
                )
            values = {"st": self.street(), "c": city, "r": region, "p": self.postcode(), "m": str(r.randint(1, 900))}
            text = _SLOT.sub(lambda m: values[m[1]], r.choice(loc.line))
            if r.random() < 0.08:
                text += r.choice([", ", " ", "\n"]) + r.choice(words("country"))
        if one_line:
            text = re.sub(r"\s*\n\s*,?\s*", ", ", text)
        return text

    def city(self) -> str:
        """A city of the locale."""
        return self.rng.choice(self.locale.city)[0]

    def postcode(self) -> str:
        """A postcode of the locale."""
        return self.fill(self.rng.choice(self.locale.post))

    def phone(self) -> str:
        """A phone number in one of the locale's notations."""
        return self.fill(self.rng.choice(self.locale.phone))

    def company(self) -> str:
        """A company; many are made of family names."""
        r = self.rng
        names = self.locale.family
        if self.companies and r.random() < 0.4:
            return r.choice(self.companies)
        return r.choice(
            [
                f"{r.choice(names)} {r.choice(words('firm'))}",
                f"{r.choice(names)}, {r.choice(names)} and {r.choice(names)}",
                f"{r.choice(names)} & {r.choice(['Sons', 'Partners', r.choice(names)])}",
                f"{r.choice(words('host')).title()}{r.choice(words('host'))} {r.choice(words('firm'))}",
                f"{r.choice(names)}-{r.choice(names)}",
                f"{r.choice(words('host')).title()} {r.choice(words('firm'))}",
                f"{r.choice(self.locale.city)[0]} {r.choice(words('body'))}",
            ]
        )


CITY_PARTS = (
    ("", "", "North ", "West ", "Lake ", "Port ", "New ", "South ", "East ", "Fort "),
    ("ville", "burg", "ton", "berg", "mouth", "field", "bury", "side", "stad", "port", "shire", "view", ""),
)


def resources(folder: Path | None) -> tuple[list[str], list[str]]:
    """Addresses and company names of the data directory's MIT lists; empty where it has none."""
    addresses: list[str] = []
    companies: list[str] = []
    base = (folder or Path()) / "train-ok" / "resources"
    for name in ("us_addresses.json", "world_addresses.json"):
        if folder and (base / name).is_file():
            for entry in json.loads((base / name).read_text("utf-8")):
                text = entry if isinstance(entry, str) else "\n".join(entry["lines"])
                if len(text) > 12:
                    addresses.append(text.strip())
    if folder and (base / "company_names.json").is_file():
        companies = [
            c for c in json.loads((base / "company_names.json").read_text("utf-8")) if isinstance(c, str) and len(c) > 3
        ]
    return addresses, companies
