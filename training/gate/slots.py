"""The slots of templates: what {name} stands for, how it is labelled, and what a repeated slot repeats.

A digit binds: {person1}, {first1}, {email1} are of one person; {card2} twice is one card. Without a digit each slot
is new.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from .accounts import Accounts
from .credentials import Credentials
from .document import Document
from .lists import words
from .lookalikes import Lookalikes
from .world import Person, World

Value = tuple[str, str, str]  # text, label, sub; the empty label is nobody's
AGE = {
    "en": ("{} years old", "{}", "{}-year-old", "{} yo", "{}y"),
    "es": ("{} años", "{}"),
    "de": ("{} Jahre", "{}"),
    "fr": ("{} ans", "{}"),
    "it": ("{} anni",),
    "pt": ("{} anos",),
    "nl": ("{} jaar",),
}
SEX = {
    "en": ("male", "female", "man", "woman", "M", "F"),
    "es": ("varón", "mujer", "hombre", "H", "M"),
    "de": ("männlich", "weiblich", "Mann", "Frau"),
    "fr": ("homme", "femme", "M", "F"),
    "it": ("maschio", "femmina"),
    "pt": ("masculino", "feminino"),
    "nl": ("man", "vrouw"),
}
TITLES = {
    "en": ("Dr.", "Mr", "Mrs.", "Ms", "Prof.", "Dr", "Sir", "Judge", "Nurse", "Miss", "Mr.", "Uncle", "Aunt"),
    "es": ("Dra.", "Dr.", "Sr.", "Sra.", "Don", "Doña", "D."),
    "de": ("Herr", "Frau", "Dr.", "Prof. Dr."),
    "fr": ("M.", "Mme", "Dr", "Maître", "Mlle"),
    "it": ("Sig.", "Sig.ra", "Dott.", "Avv."),
    "pt": ("Sr.", "Sra.", "Dr.", "Dra.", "Dona"),
    "nl": ("dhr.", "mevr.", "dr."),
}


@dataclass
class Slots:
    """The values of one document."""

    rng: random.Random
    world: World
    people: dict[str, Person] = field(default_factory=dict)
    memory: dict[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.numbers = Accounts(self.rng)
        self.secrets = Credentials(self.rng)
        self.look = Lookalikes(self.rng)
        self.last = self.world.person()
        personal: dict[str, tuple[str, str, Callable[[Person], str]]] = {
            "person": ("private_person", "", self.world.name),
            "full": ("private_person", "", self.world.full),
            "first": ("private_person", "", lambda p: p.given),
            "last": ("private_person", "", lambda p: p.family),
            "initials": ("private_person", "", lambda p: f"{p.given[0]}. {p.family}"),
            "comma": ("private_person", "", lambda p: f"{p.family}, {p.given}"),
            "lower": ("private_person", "", lambda p: self.world.full(p).lower()),
            "upper": ("private_person", "", lambda p: self.world.full(p).upper()),
            "email": ("private_email", "", self.world.email),
            "user": ("other_pii", "username", self.world.user),
            "handle": ("other_pii", "username", lambda p: "@" + self.world.user(p).replace("-", "_").replace(".", "_")),
            "purl": ("private_url", "", self.private_url),
            "site": ("private_url", "domain", self.site),
        }
        self.personal = personal
        w, n, s, k, r = self.world, self.numbers, self.secrets, self.look, self.rng
        self.simple: dict[str, tuple[str, str, Callable[[], str]]] = {
            "phone": ("private_phone", "", w.phone),
            "addr": ("private_address", "", w.address),
            "addrl": ("private_address", "", lambda: w.address(one_line=True)),
            "street": ("private_address", "street", w.street),
            "zip": ("private_address", "postcode", w.postcode),
            "area": ("private_address", "territory", w.city),
            "dob": ("private_date", "dob", lambda: self.date(1930, 2015)),
            "pdate": ("private_date", "", lambda: self.date(2015, 2028)),
            "card": ("account_number", "payment_card", n.card),
            "cvv": ("account_number", "cvv", lambda: n.d(r.choice((3, 3, 3, 4)))),
            "iban": ("account_number", "iban", n.iban),
            "bank": ("account_number", "bank_account", n.bank),
            "govid": ("account_number", "government_id", lambda: n.government()[0]),
            "ssn": ("account_number", "government_id", n.ssn),
            "passport": ("account_number", "government_id", n.passport),
            "licence": ("account_number", "licence_id", n.licence),
            "cust": ("account_number", "customer_id", n.customer),
            "health": (
                "account_number",
                "health_id",
                lambda: r.choice((n.d(6), n.d(7), n.d(8), n.customer(), n.nhs(), n.mbi())),
            ),
            "colegiado": ("account_number", "licence_id", lambda: f"{n.d(2)} {n.d(2)} {n.d(5)}"),
            "plate": ("account_number", "vehicle", n.plate),
            "device": ("account_number", "device", n.device),
            "wallet": ("account_number", "crypto_wallet", n.wallet),
            "key": ("secret", "token", s.key),
            "uuidkey": ("secret", "token", k.uuid),
            "hexkey": ("secret", "token", lambda: k.x(r.choice((32, 40, 64)))),
            "pw": ("secret", "password", s.password),
            "pin": ("secret", "pin", s.pin),
            "jwt": ("secret", "jwt", s.jwt),
            "pem": ("secret", "pem", s.pem),
            "ip": ("other_pii", "ip", self.ip),
            "mac": ("other_pii", "mac", lambda: r.choice((":", ":", "-")).join(k.x(2) for _ in range(6))),
            "age": ("other_pii", "age", lambda: self.worded(AGE, str(r.randint(1, 99)))),
            "sex": ("other_pii", "sex", lambda: self.worded(SEX, "")),
            "comp": ("", "", w.company),
            "city": ("", "", w.city),
            "look": ("", "", k.number),
            "stamp": ("", "", k.stamp),
            "uuid": ("", "", k.uuid),
            "hex": ("", "", lambda: k.x(r.choice((7, 8, 32, 40, 64)))),
            "ndate": ("", "", k.date),
            "url": ("", "", k.url),
            "amount": ("", "", k.amount),
            "n": ("", "", lambda: str(r.randint(2, 999))),
            "num": ("", "", lambda: k.d(r.randint(4, 12))),
            "title": ("", "", lambda: self.worded(TITLES, "")),
            "localip": ("", "", lambda: r.choice(("127.0.0.1", "0.0.0.0", "::1", "localhost"))),
            "docmail": ("", "", lambda: r.choice(("support@", "info@", "noreply@", "sales@", "help@")) + w.domain()),
        } | {
            name: ("", "", lambda name=name: r.choice(words(name)))
            for name in (
                "public",
                "fiction",
                "thing",
                "placeholder",
                "diagnosis",
                "drug",
                "job",
                "topic",
                "adjective",
                "noun",
            )
        }

    @property
    def language(self) -> str:
        """Two letters; English for names in Latin letters."""
        code = self.world.locale.name[:2]
        return "en" if self.world.locale.name == "zh_latin" else code

    def worded(self, table: dict[str, tuple[str, ...]], value: str) -> str:
        """A form of the document's language, or of English."""
        return self.rng.choice(table.get(self.language, table["en"])).replace("{}", value)

    def date(self, first: int, last: int) -> str:
        """A date as the document's language writes it."""
        if self.language == "en":
            return self.look.date(first, last)
        return self.look.local_date(self.language, first, last)

    def ip(self) -> str:
        """An address of a machine."""
        r = self.rng
        if r.random() < 0.75:
            return ".".join(str(r.randint(1, 254)) for _ in range(4))
        groups = [f"{r.getrandbits(16):x}" for _ in range(8)]
        return r.choice((":".join(groups), ":".join(groups[:3]) + "::" + groups[7], "2001:db8::" + groups[0]))

    def private_url(self, p: Person) -> str:
        """A page that is about one person or opens to one person."""
        r, u, k = self.rng, self.world.user(p), self.look
        return r.choice(
            (
                f"https://www.linkedin.com/in/{u}-{k.x(8)}",
                f"linkedin.com/in/{u}",
                f"https://facebook.com/{u}",
                f"https://github.com/{u}",
                f"github.com/{u}",
                f"https://instagram.com/{u}",
                f"https://x.com/{u}",
                f"https://{u.replace('_', '-').replace('.', '-')}.github.io",
                f"https://www.{self.world.domain()}/",
                f"http://{self.world.domain()}/~{u}",
                f"https://drive.google.com/file/d/{k.a(28)}/view?usp=sharing",
                f"https://docs.google.com/document/d/{k.a(36)}/edit",
                f"https://zoom.us/j/{k.d(10)}?pwd={k.a(22)}",
                f"https://calendly.com/{u}/30min",
                f"https://www.dropbox.com/s/{k.a(15)}/cv_{u}.pdf?dl=0",
                f"https://medium.com/@{u}",
                f"https://t.me/{u}",
                f"https://{self.world.domain()}/users/{u}",
                f"https://portal.{self.world.domain()}/patients/{k.d(7)}",
                f"https://{self.world.domain()}/reset?token={k.a(32)}",
                f"https://{self.world.domain()}/account/{k.d(6)}/invoices",
                f"https://soundcloud.com/{u}",
                f"https://www.{u.replace('_', '').replace('.', '')}.com",
                f"https://meet.google.com/{k.a(3).lower()}-{k.a(4).lower()}-{k.a(3).lower()}",
                f"https://www.strava.com/athletes/{k.d(8)}",
            )
        )

    def site(self, p: Person) -> str:
        """A personal or small firm's domain."""
        r = self.rng
        host = r.choice(
            (
                self.world.domain(),
                self.world.user(p).replace("_", "").replace(".", "") + r.choice((".com", ".me", ".net", ".dev")),
            )
        )
        return r.choice(
            (host, f"www.{host}", f"http://www.{host}/", f"https://{host}", f"https://www.{host}/", host.title())
        )

    def value(self, name: str) -> Value:
        """The value of one slot."""
        kind = name.rstrip("0123456789")
        bound = name[len(kind) :]
        if kind in self.personal:
            label, sub, make = self.personal[kind]
            if bound:
                if bound not in self.people:
                    self.people[bound] = self.world.person()
                self.last = self.people[bound]
                if name not in self.memory:
                    self.memory[name] = (make(self.last), label, sub)
                return self.memory[name]
            if (
                kind in ("person", "full", "first", "last", "lower", "upper", "comma", "initials")
                or self.rng.random() < 0.15
            ):
                self.last = self.world.person()
            return make(self.last), label, sub
        label, sub, draw = self.simple[kind]
        if not bound:
            return draw(), label, sub
        return self.memory.setdefault(name, (draw(), label, sub))

    def put(self, document: Document, name: str) -> None:
        """Writes one slot."""
        if name == "gov":  # with the word its owner calls it by
            text, called = self.numbers.government()
            document.plain(called + self.rng.choice((": ", " ", " is ", "=", ": ", " #", " : ")))
            document.mark(text, "account_number", "government_id")
        elif name == "conn":
            before, secret, after = self.secrets.connection(self.world.user(self.last))
            document.plain(before)
            document.mark(secret, "secret", "password")
            document.plain(after)
        else:
            text, label, sub = self.value(name)
            if label and text.strip():
                document.mark(text, label, sub)
            else:
                document.plain(text)
