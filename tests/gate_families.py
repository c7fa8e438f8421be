# ruff: noqa: RUF001 (people's names have letters of many alphabets)
"""Families of texts for the tests of the whole Gate: templates with values to find, and texts with nothing to find.

Names, addresses and numbers are invented, and drawn from a seeded source. What must come of them the tests say.
"""

from __future__ import annotations

import json
import random
import re
import string
from collections.abc import Callable, Sequence

from gate_values import LETTERS, card, digits, dni, drawn, email, grouped, iban, luhn, passing, ssn, uuid

Case = tuple[str, list[tuple[str, str]]]
"""A text, and the (label, characters) that are to be found in it, in order."""

FIRST = (
    "Mariska Tobias Duarte Inês Danilo Oona Jörg Wendeline Leopold Priscilla Hanne Gunnar Ottilie Amarachi Ferdinand "
    "Zsófia Łukasz Aoife Thabo Mireille Anders Rukmini Çağla Matteo Siobhán Ingrid Rashid Beatriz Casper Yolanda"
).split()
LAST = (
    "Vanderhoek Lindqvist Sobral Falcão Brandt Rask Größmann Orta Averin Nwosu Mülder Eide Kroon Obi-Grant Achterberg "
    "Kovács Wiśniewska O'Driscoll Mokoena Delacroix Bergström Venkatesan Yıldırım Castellani Haugen Iqbal Figueira"
).split()
HAN = ("佐久間 玲", "田中 美咲", "高橋 健一", "小林 直樹", "王小明", "李秀英", "陈志强", "渡辺 さくら")
ADDRESSES = (
    "Rua das Amoreiras 88, 1250-024 Lisboa",
    "Lindenallee 7a, 50968 Köln",
    "17 Tanyard Close, Kendal LA9 6EL",
    "Kirkkokatu 14, 90100 Oulu",
    "Via Garibaldi 23, 16124 Genova",
    "Calle de Alcalá 112, 28009 Madrid",
    "14 rue des Tilleuls, 69003 Lyon",
    "Prinsengracht 481, 1016 HP Amsterdam",
    "2208 Maple Grove Avenue, Columbus, OH 43215",
    "ul. Kwiatowa 5/12, 60-101 Poznań",
    "Storgatan 31, 903 26 Umeå",
    "58 Harbour Street, Galway H91 X2YZ",
)
PHONES = (
    "+3519########",
    "+351 21 345 6###",
    "+31 6 12######",
    "+44 1632 960###",
    "+49 30 90######",
    "+34 612 34 5# ##",
)
HEX = "0123456789abcdef"

VALUES: dict[str, tuple[str, Callable[[random.Random], str]]] = {
    "person": ("private_person", lambda rng: f"{rng.choice(FIRST)} {rng.choice(LAST)}"),
    "han": ("private_person", lambda rng: rng.choice(HAN)),
    "mail": ("private_email", email),
    "phone": ("private_phone", lambda rng: re.sub("#", lambda _: digits(rng, 1), rng.choice(PHONES))),
    "address": ("private_address", lambda rng: rng.choice(ADDRESSES)),
    "iban": ("account_number", iban),
    "card": ("account_number", lambda rng: grouped(card(rng), " ")),
    "dni": ("account_number", lambda rng: dni(rng).lower()),
    "ssn": ("account_number", lambda rng: ssn(rng).replace("-", "\u2011")),
    "github": ("secret", lambda rng: f"ghp_{drawn(rng, 36)}"),
    "key": ("secret", lambda rng: drawn(rng, 32)),
    "uuid": ("secret", uuid),
}
"""What stands in braces in a template: its label, and how one is drawn."""


def family(templates: Sequence[str], size: int = 40, names: Callable[[str], str] = str) -> list[Case]:
    """`size` texts of the templates in turn, each with fresh values; `names` is what happens to people's names."""
    rng = random.Random(size)
    cases = []
    for number in range(size):
        parts, expected = [], []
        for place, part in enumerate(re.split(r"\{(\w+)\}", templates[number % len(templates)])):
            if place % 2:
                label, draw = VALUES[part]
                part = names(draw(rng)) if label == "private_person" else draw(rng)
                expected.append((label, part))
            parts.append(part)
        cases.append(("".join(parts), expected))
    return cases


FONTS = (
    "Times New Roman|Arial Black|Comic Sans MS|Lucida Grande|Lucida Console|Trebuchet MS|Gill Sans|Franklin Gothic|"
    "Book Antiqua|Palatino Linotype|Century Schoolbook|Courier New|Segoe UI|Helvetica Neue|Baskerville Old Face|"
    "Garamond Premier|Open Sans|Source Serif Pro|Josefin Sans|Monotype Corsiva|Bodoni MT|Georgia|Verdana|Cooper Black"
).split("|")
TYPESETTING = (
    "Body: {} 12pt; headings: {}, {}",
    "font-family: '{}', '{}', {}, sans-serif;",
    "The brochure is set in {} with captions in {} and {}.",
    'fonts = ["{}", "{}", "{}"]',
    "Fonts used: {}, {}, {}",
    "Please change the typeface from {} to {} (fallback {}).",
)


def _typeset(rng: random.Random) -> str:
    return rng.choice(TYPESETTING).format(*rng.sample(FONTS, 3))


def _column(rng: random.Random) -> str:
    return "id\n" + "\n".join(str(rng.randint(10**5, 10**8)) for _ in range(rng.randint(2, 9)))


def _interfaces(rng: random.Random) -> str:
    two = [rng.randint(10, 59) for _ in range(3)]
    one = rng.randint(1, 9)
    return (
        f"03/22 08:{two[0]}:{two[1]} INFO   :...read_netif: index #{one}, interface TR{one}, ifidx {one}\n"
        f"03/22 08:{two[0]}:{two[2]} INFO   :...mailslot_sitter: process received {two[2]}"
    )


def _measured(rng: random.Random) -> str:
    rows = [f"{rng.uniform(1e8, 2e9):.2f} {rng.uniform(-9, 9):.2f}" for _ in range(rng.randint(1, 4))]
    return "\n".join([*rows, f"delta {rng.uniform(0, 99):.2f} {rng.uniform(-1, 1):.2f} ok"])


def _program_log(rng: random.Random) -> str:
    order, ms = digits(rng, 8), rng.randint(1, 999)
    word, thread = rng.choice("orders cart stock invoices search".split()), rng.randint(1, 20)
    return (
        f"2026-03-04T11:20:33.{ms:03}Z INFO [http-nio-8080-exec-{thread}] c.e.{word}.{word.title()}Service - {word} "
        f"{order} persisted in {ms} ms\n2026-03-04T11:20:33.140Z DEBUG [scheduling-1] o.s.cache - evict key={word}::"
        f"{order}\nMar  4 11:20:33 web{thread:02} systemd[1]: Started Daily apt download activities.\n"
        f"Mar  4 11:20:34 web{thread:02} kernel: [{digits(rng, 5)}.{digits(rng, 6)}] eth0: link up"
    )


def _capitals(rng: random.Random) -> str:
    words = rng.sample("INTERVENTIONS REGISTRATION GUIDELINES DEPARTMENTAL PROCEDURES DEFINITIONS APPENDIX".split(), 2)
    mark = f"{rng.choice(string.ascii_uppercase)}{rng.randint(1, 99)}"
    return f"CHAPTER {rng.randint(1, 40)} - {words[0]}\nTable {mark} shows {words[1]} and {mark} in section {mark}."


def _page(rng: random.Random) -> str:
    number = "9" + digits(rng, 9)
    return rng.choice([f"page_id={number} rev=12", f"Runbook: https://wiki.corp.example/pages/{number}/Failover"])


def _stamp(rng: random.Random) -> str:
    stamp = str(rng.randint(1_400_000_000_000, 1_899_999_999_999))
    return rng.choice([f"{stamp} worker heartbeat ok", json.dumps({"quote": "null", "time_processed": stamp})])


def _unissued(rng: random.Random) -> str:
    return f"The form shows 9{digits(rng, 2)}-{digits(rng, 2)}-{digits(rng, 4)} as the format example only."


def _migration(rng: random.Random) -> str:
    stamp = (
        f"20{rng.randint(10, 29)}{rng.randint(1, 12):02}{rng.randint(10, 28)}{rng.randint(10, 23)}00{digits(rng, 2)}"
    )
    return f"{stamp}_{rng.choice(['reap_stale_notifications', 'add_index', 'drop_users'])}.sql"


def _uuid(rng: random.Random) -> str:
    front = passing(lambda: digits(rng, 16), luhn)
    value = f"{front[:8]}-{front[8:12]}-{front[12:]}-b66c-{drawn(rng, 12, HEX)}"
    return rng.choice(
        [
            json.dumps({"account_token": value, "coin": "BTC"}),
            f"Session {value} expired, please retry.",
            f"correlation id: {uuid(rng)}",
        ]
    )


def _integrity(rng: random.Random) -> str:
    digest = f"sha384-{drawn(rng, 64, LETTERS + '+/')}"
    return rng.choice(
        [
            f'<script src="app.js" integrity="{digest}"></script>',
            f"public policy bundle integrity {digest} is a duplicate entry",
        ]
    )


def _revision(rng: random.Random) -> str:
    return f'captcha = {{git = "https://example.com/forms/captcha.git", rev = "{drawn(rng, 40, HEX)}"}}'


def _binding(rng: random.Random) -> str:
    keys = "+".join([*rng.sample(["ctrl", "shift", "alt"], 2), rng.choice(["down", "up", "k", "f5"])])
    command = rng.choice(["insertCursorBelow", "deleteLines", "formatDocument", "showHover"])
    role = rng.choice(["inf-role-id", "app-client-id", "db-user-name"])
    return rng.choice(
        [
            json.dumps({"key": keys, "command": f"editor.action.{command}"}),
            f"withVault([vaultSecrets: [ [envVar: 'ROLE', vaultKey: '{role}']]])",
        ]
    )


def _tag(rng: random.Random) -> str:
    name = "".join(rng.choice("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for _ in range(24))
    return f"<invocation_id>req_01{name}</invocation_id> model=claude-sonnet-4-20250514 region=us-east-{digits(rng, 1)}"


def _zeros(rng: random.Random) -> str:
    return f'<feColorMatrix values="{" ".join("0" * rng.randint(13, 30))} 1 0"/>'


QUIET: dict[str, Callable[[random.Random], str]] = {
    "p1_p35_uuids": _uuid,
    "p2_capitals": _capitals,
    "p3_p24_integrity": _integrity,
    "p4_page_numbers": _page,
    "p6_time_stamps": _stamp,
    "p9_columns_of_numbers": _column,
    "p9_fields_of_logs": _interfaces,
    "p10_measurements": _measured,
    "p12_numbers_that_are_not_issued": _unissued,
    "p20_logs": _program_log,
    "p22_revisions": _revision,
    "p25_key_bindings": _binding,
    "p29_runs_of_zeros": _zeros,
    "p30_migrations": _migration,
    "p31_fonts": _typeset,
    "p37_tags": _tag,
}
"""Kinds of texts in which nothing is to be found, and how one is drawn."""


def quiet(kind: str, size: int = 40) -> list[str]:
    """`size` texts of a kind."""
    rng = random.Random(size)
    return [QUIET[kind](rng) for _ in range(size)]
