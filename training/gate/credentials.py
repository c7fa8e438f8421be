"""Secrets: keys of many vendors and of none, passwords, tokens, key files, connection strings. All invented."""

from __future__ import annotations

import base64
import json
import random
import re
import string

from .lists import DATA, words

LETTERS = string.ascii_letters + string.digits
URL_SAFE = LETTERS + "-_"
HEX = "0123456789abcdef"
BASE32 = string.ascii_uppercase + "234567"
UPPER_DIGITS = string.ascii_uppercase + string.digits
LOWER_DIGITS = string.ascii_lowercase + string.digits
CLASSES = {
    "a": LETTERS,
    "u": URL_SAFE,
    "x": HEX,
    "b": LETTERS + "+/",
    "B": BASE32,
    "U": UPPER_DIGITS,
    "l": LOWER_DIGITS,
    "d": string.digits,
    "X": "0123456789ABCDEF",
}
_FORMATS = [x for x in (DATA / "keys.txt").read_text("utf-8").splitlines() if not x.startswith("# ")]
GENERIC = _FORMATS[_FORMATS.index("---") + 1 :]
KEYS = _FORMATS[: _FORMATS.index("---")] + GENERIC
WORDS = words("password")
_CLASS = re.compile(r"\{([auxbBUldX])(\d+)\}")


class Credentials:
    """Draws secrets from one source of randomness."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def chars(self, alphabet: str, n: int) -> str:
        """`n` characters of an alphabet."""
        return "".join(self.rng.choices(alphabet, k=n))

    def key(self) -> str:
        """An API key or token of a known vendor, a made-up vendor or none."""
        x = self.rng.random()
        if x < 0.06:
            return self.jwt()
        if x < 0.16:  # a vendor nobody has met: letters, a separator, a tail
            head = self.chars(string.ascii_lowercase, self.rng.randint(2, 6))
            return (
                head
                + self.rng.choice("_-._")
                + self.chars(self.rng.choice((LETTERS, URL_SAFE, HEX, LOWER_DIGITS)), self.rng.randint(14, 64))
            )
        pattern = self.rng.choice(KEYS if x < 0.75 else GENERIC)
        return _CLASS.sub(lambda m: self.chars(CLASSES[m[1]], int(m[2])), pattern)

    def jwt(self) -> str:
        """A JSON web token."""

        def part(value: dict[str, object]) -> str:
            return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")

        head = part({"alg": self.rng.choice(["HS256", "RS256", "ES256"]), "typ": "JWT"})
        claims: dict[str, object] = {
            "sub": self.chars(string.digits, 10),
            "iat": 1_600_000_000 + self.rng.getrandbits(27),
        }
        if self.rng.random() < 0.4:
            claims |= {"role": self.rng.choice(["admin", "user"]), "iss": "auth." + self.rng.choice(WORDS)}
        return f"{head}.{part(claims)}.{self.chars(URL_SAFE, self.rng.choice([43, 43, 86]))}"

    def pem(self) -> str:
        """A private key file."""
        kind = self.rng.choice(
            [
                "RSA PRIVATE KEY",
                "PRIVATE KEY",
                "EC PRIVATE KEY",
                "OPENSSH PRIVATE KEY",
                "ENCRYPTED PRIVATE KEY",
                "PGP PRIVATE KEY BLOCK",
                "DSA PRIVATE KEY",
            ]
        )
        lines = [self.chars(CLASSES["b"], 64) for _ in range(self.rng.randint(1, 7))] + [
            self.chars(CLASSES["b"], self.rng.randint(8, 60)) + self.rng.choice(["=", "==", ""])
        ]
        return self.rng.choice(["\n", "\n", "\n", "\\n"]).join(
            [f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----"]
        )

    def password(self) -> str:
        """A password: words and digits, or noise."""
        r = self.rng
        w, v, s = r.choice(WORDS), r.choice(WORDS), r.choice("!@#$%&*?.")
        return r.choice(
            (
                f"{w.capitalize()}{r.randint(1, 2030)}{s}",
                f"{w}{s}{v}{r.randint(0, 99):02}",
                self.chars(LETTERS + "!@#$%^&*-_", r.randint(8, 18)),
                f"{w.capitalize()}-{v}-{r.randint(0, 999)}",
                f"P@{w}{r.randint(0, 99):02}{s}",
                f"{w.capitalize()}{v.capitalize()}{r.randint(0, 99)}",
                "-".join(r.sample(WORDS, r.choice((3, 4)))),
                self.chars(LETTERS, r.randint(8, 14)),
                f"{w[:-1]}3{s}{r.randint(0, 999)}",
                w + v,
                f"{w}{r.randint(1, 9999)}",
                " ".join(r.sample(WORDS, 4)),
                f"{w.upper()}_{v}{s}{r.randint(1, 99)}",
                f"{s}{w.capitalize()}{r.randint(10, 99)}{s}",
                w.replace("a", "4").replace("e", "3").replace("o", "0") + str(r.randint(1, 999)),
                f"{v}_{w}",
                f"{self.chars(LETTERS, 4)}{s}{self.chars(LETTERS + '!#$%', 6)}",
            )
        )

    def pin(self) -> str:
        """A PIN."""
        return self.chars(string.digits, self.rng.choice((4, 4, 4, 6)))

    def connection(self, user: str) -> tuple[str, str, str]:
        """A connection string in three parts: before the password, the password, after it."""
        r = self.rng
        scheme = r.choice(
            [
                "postgres",
                "postgresql",
                "mysql",
                "mongodb+srv",
                "mongodb",
                "redis",
                "amqp",
                "https",
                "ftp",
                "mssql+pyodbc",
                "sftp",
                "smtp",
            ]
        )
        secret = re.sub(
            r"[@/:#?%& \"']", "x", self.password() if r.random() < 0.7 else self.chars(LETTERS, r.randint(12, 40))
        )
        host = r.choice(
            [
                "db.internal",
                "10.0.4.12",
                "cluster0.ab1cd.mongodb.net",
                "prod-db.example.com",
                "cache:6379",
                "localhost",
                "localhost:5432",
                "rabbit.svc.local:5671",
                "git.example.com",
            ]
        )
        if r.random() < 0.2:
            return (
                f"Server={host};Database=main;User Id={user};Password=",
                secret,
                f";{r.choice(['Encrypt=True;', '', 'Timeout=30'])}",
            )
        return (
            f"{scheme}://{r.choice(['admin', 'app', 'root', 'deploy', '', user])}:",
            secret,
            f"@{host}{r.choice(['/app', '/prod', '', '/main?ssl=true', '/0'])}",
        )
