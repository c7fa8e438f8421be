"""Records in the formats machines write: JSON, YAML, CSV, env, ini, XML, HTML, SQL, logs, code, forms, tool calls.

A record is a list of fields; a field is a name and either a slot or a value that is nobody's. Values are written as
they are, without escapes, so that spans stay exact.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from .document import Document
from .slots import Slots

FIELDS = (
    ("name", "full"),
    ("full_name", "full"),
    ("customer", "person"),
    ("first_name", "first"),
    ("last_name", "last"),
    ("surname", "last"),
    ("contact", "full"),
    ("owner", "full"),
    ("patient", "full"),
    ("cardholder", "upper"),
    ("recipient", "full"),
    ("email", "email"),
    ("e-mail", "email"),
    ("user_email", "email"),
    ("phone", "phone"),
    ("mobile", "phone"),
    ("tel", "phone"),
    ("fax", "phone"),
    ("phoneNumber", "phone"),
    ("address", "addrl"),
    ("billing_address", "addrl"),
    ("street", "street"),
    ("shipTo", "addrl"),
    ("postal_code", "zip"),
    ("zip", "zip"),
    ("dob", "dob"),
    ("date_of_birth", "dob"),
    ("birthDate", "dob"),
    ("birthday", "dob"),
    ("geburtsdatum", "dob"),
    ("card_number", "card"),
    ("pan", "card"),
    ("cvv", "cvv"),
    ("iban", "iban"),
    ("account_no", "bank"),
    ("bank_account", "bank"),
    ("national_id", "govid"),
    ("ssn", "ssn"),
    ("tax_id", "govid"),
    ("passport", "passport"),
    ("licence_no", "licence"),
    ("customer_id", "cust"),
    ("employee_id", "cust"),
    ("mrn", "health"),
    ("insurance_no", "health"),
    ("plate", "plate"),
    ("vin", "plate"),
    ("imei", "device"),
    ("wallet", "wallet"),
    ("username", "user"),
    ("login", "user"),
    ("ip", "ip"),
    ("last_login_ip", "ip"),
    ("client_ip", "ip"),
    ("mac", "mac"),
    ("age", "age"),
    ("sex", "sex"),
    ("gender", "sex"),
    ("linkedin", "purl"),
    ("website", "site"),
    ("profile_url", "purl"),
    ("password", "pw"),
    ("passwd", "pw"),
    ("api_key", "key"),
    ("apiKey", "key"),
    ("secret", "key"),
    ("access_token", "jwt"),
    ("client_secret", "key"),
    ("auth_token", "key"),
    ("pin", "pin"),
    ("secretKey", "key"),
)
CLEAN = (
    ("status", "=active|pending|closed|ok"),
    ("plan", "=pro|free|team"),
    ("created_at", "stamp"),
    ("updated", "stamp"),
    ("order_id", "num"),
    ("version", "look"),
    ("commit", "hex"),
    ("count", "n"),
    ("total", "amount"),
    ("currency", "=EUR|USD|INR"),
    ("notes", "=n/a|none|"),
    ("city", "city"),
    ("company", "comp"),
    ("request_id", "uuid"),
    ("enabled", "=true|false"),
    ("sku", "look"),
    ("build", "num"),
    ("product", "thing"),
    ("font", "thing"),
    ("duration_ms", "n"),
    ("date", "ndate"),
    ("due", "ndate"),
    ("url", "url"),
    ("support", "docmail"),
    ("password", "placeholder"),
    ("api_key", "placeholder"),
    ("host", "localip"),
    ("checksum", "hex"),
    ("etag", "hex"),
    ("topic", "topic"),
    ("country", "=DE|US|FR|Spain"),
    ("job", "job"),
    ("name", "=main|default|web-01|backup"),
    ("id", "num"),
    ("type", "=user|order|invoice"),
)
Field = tuple[str, str]


def fields(rng: random.Random, least: int, most: int) -> list[Field]:
    """A record's fields: personal and clean ones, shuffled; one record in six has no personal one."""
    chosen = rng.sample(FIELDS, rng.randint(least, most)) if rng.random() > 0.16 else []
    chosen += rng.sample(CLEAN, rng.randint(1, 5))
    rng.shuffle(chosen)
    return chosen


def value(document: Document, slots: Slots, kind: str) -> None:
    """Writes a field's value."""
    if kind.startswith("="):
        document.plain(slots.rng.choice(kind[1:].split("|")))
    else:
        slots.put(document, kind)


def cased(rng: random.Random, name: str) -> str:
    """A field's name in the manner of a code base."""
    x = rng.random()
    if x < 0.6:
        return name
    if x < 0.75:
        return name.upper()
    parts = name.replace("-", "_").split("_")
    return parts[0] + "".join(p.title() for p in parts[1:]) if x < 0.9 else " ".join(parts).title()


def json_record(document: Document, slots: Slots) -> None:
    """An object, nested now and then; as a string inside another one time in eight."""
    rng = slots.rng
    quote = '\\"' if rng.random() < 0.12 else '"'
    indent, end = (
        ("", rng.choice(["", " "])) if quote != '"' else rng.choice([("", ""), ("", " "), ("  ", "\n"), ("    ", "\n")])
    )
    document.plain('{"arguments": "{' if quote != '"' else "{" + (end if end == "\n" else ""))
    chosen = fields(rng, 2, 8)
    depth = 0
    for i, (name, kind) in enumerate(chosen):
        if depth == 0 and rng.random() < 0.12:
            document.plain(f"{indent}{quote}{rng.choice(['user', 'data', 'billing', 'payload'])}{quote}: {{" + end)
            depth = 1
        document.plain(f"{indent * (1 + depth)}{quote}{cased(rng, name)}{quote}:{rng.choice(['', ' ', ' '])}")
        bare = kind in ("n", "num") and rng.random() < 0.5
        document.plain("" if bare else quote)
        value(document, slots, kind)
        document.plain(("" if bare else quote) + ("," if i < len(chosen) - 1 else "") + end)
    document.plain("}" * depth + ('}"}' if quote != '"' else "}"))


def lines(document: Document, slots: Slots) -> None:
    """YAML, env, ini, properties, forms: one field a line."""
    rng = slots.rng
    before, between, after = rng.choice(
        [
            ("", ": ", ""),
            ("", ": ", ""),
            ("  ", ": ", ""),
            ("", "=", ""),
            ("export ", "=", ""),
            ("", " = ", ""),
            ("", "='", "'"),
            ("", '="', '"'),
            ("- ", ": ", ""),
            ("", ":\t", ""),
            ("", ' = "', '"'),
            ("", ": '", "',"),
            ("  ", ': "', '"'),
            ("* ", " - ", ""),
            ("", ":", ";"),
            ("# ", ": ", ""),
            ("--", "=", ""),
        ]
    )
    upper = before == "export " or (between.startswith("=") and rng.random() < 0.7)
    if rng.random() < 0.2:
        document.plain(rng.choice(["---\n", "[default]\n", "[database]\n", "# settings\n", "user:\n", "Form 7\n"]))
    for name, kind in fields(rng, 2, 8):
        document.plain(before + (name.upper().replace("-", "_") if upper else cased(rng, name)) + between)
        value(document, slots, kind)
        document.plain(after + "\n")


def table(document: Document, slots: Slots) -> None:
    """CSV, TSV, Markdown and fixed tables."""
    rng = slots.rng
    chosen = fields(rng, 2, 5)
    left, sep, right, quote = rng.choice(
        [
            ("", ",", "", '"'),
            ("", ",", "", ""),
            ("", ";", "", ""),
            ("", "\t", "", ""),
            ("| ", " | ", " |", ""),
            ("", " | ", "", ""),
        ]
    )
    if rng.random() < 0.8:
        document.plain(left + sep.join(name for name, _ in chosen) + right + "\n")
        if left:
            document.plain("|" + "---|" * len(chosen) + "\n")
    for _ in range(rng.randint(1, 6)):
        document.plain(left)
        for i, (_, kind) in enumerate(chosen):
            document.plain((sep if i else "") + quote)
            value(document, slots, kind)
            document.plain(quote)
        document.plain(right + "\n")


def markup(document: Document, slots: Slots) -> None:
    """XML or HTML."""
    rng = slots.rng
    chosen = fields(rng, 2, 6)
    if rng.random() < 0.3:
        document.plain(f"<{rng.choice(['user', 'row', 'input', 'contact'])}")
        for name, kind in chosen:
            document.plain(f' {name}="')
            value(document, slots, kind)
            document.plain('"')
        document.plain("/>")
        return
    root, nl = rng.choice(["user", "customer", "record", "tr"]), rng.choice(["", "\n"])
    document.plain(f"<{root}>{nl}")
    for name, kind in chosen:
        tag = "td" if root == "tr" else name
        document.plain(f"<{tag}>")
        value(document, slots, kind)
        document.plain(f"</{tag}>{nl}")
    document.plain(f"</{root}>")


def log(document: Document, slots: Slots) -> None:
    """Lines of a log, most of them clean."""
    rng = slots.rng
    style = rng.randrange(3)
    for _ in range(rng.randint(2, 12)):
        slots.put(document, "stamp")
        document.plain(rng.choice([" INFO ", " WARN  ", " ERROR ", " [main] DEBUG ", ": ", " | "]))
        document.plain(
            rng.choice(
                [
                    "request done ",
                    "login ",
                    "user updated ",
                    "mail queued ",
                    "c.e.orders.OrderService - ",
                    "sync ",
                    "retry ",
                    "cache evict ",
                    "payment ",
                ]
            )
        )
        for name, kind in rng.sample(FIELDS, rng.choice([0, 0, 0, 1, 2])) + rng.sample(CLEAN, rng.randint(0, 3)):
            document.plain(name + ("=" if style == 0 else ": " if style == 1 else '="'))
            value(document, slots, kind)
            document.plain('" ' if style == 2 else " " if style == 0 else ", ")
        document.plain("\n")


def code(document: Document, slots: Slots) -> None:
    """A literal in a programming language, or SQL."""
    rng = slots.rng
    chosen = fields(rng, 1, 5)
    opening, assign, between, closing = rng.choice(
        [
            ("user = {{\n", "    '{}': '", "',\n", "'\n}}"),
            ("User(", '{}="', '", ', '")'),
            ("const cfg = {{\n", '  {}: "', '",\n', '"\n}};'),
            ("call(", '"{}", "', '", ', '");'),
            ("UPDATE t SET ", "{} = '", "', ", "' WHERE id = 7;"),
            ("new Account()\n", '  .{}("', '")\n', '")'),
            ("let row = [\n", '  ("{}", "', '"),\n', '")\n];'),
        ]
    )
    document.plain(opening.replace("{{", "{"))
    for i, (name, kind) in enumerate(chosen):
        document.plain((between if i else "") + assign.replace("{}", name.replace("-", "_")))
        value(document, slots, kind)
    document.plain(closing.replace("}}", "}"))


KINDS: tuple[Callable[[Document, Slots], None], ...] = (json_record, lines, table, markup, log, code)


def structured(document: Document, slots: Slots) -> None:
    """A record in one of the formats."""
    slots.rng.choices(KINDS, (6, 7, 4, 2, 3, 3))[0](document, slots)
    if any(
        s.label == "secret" or s.sub in ("payment_card", "government_id", "iban", "health_id") for s in document.spans
    ):
        document.sensitive = 1.0
    elif document.sensitive is None:
        document.sensitive = 0.0
