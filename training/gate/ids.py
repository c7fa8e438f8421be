"""Government IDs of some forty kinds, with right check digits where the scheme has them."""

from __future__ import annotations

import random
import string
from collections.abc import Callable

UPPER = string.ascii_uppercase
_ODD = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
_VERHOEFF_D = [
    "0123456789",
    "1234067895",
    "2340178956",
    "3401289567",
    "4012395678",
    "5987604321",
    "6598710432",
    "7659821043",
    "8765932104",
    "9876543210",
]
_VERHOEFF_P = [
    "0123456789",
    "1576283094",
    "5803796142",
    "8916043527",
    "9453126870",
    "4286573901",
    "2793806415",
    "7046913258",
]


def luhn(digits: str) -> str:
    """The digit that makes `digits` pass Luhn."""
    total = sum(int(c) * 2 // 10 + int(c) * 2 % 10 if i % 2 == 0 else int(c) for i, c in enumerate(reversed(digits)))
    return str(-total % 10)


def verhoeff(digits: str) -> str:
    """The digit that makes `digits` pass Verhoeff."""
    c = 0
    for i, x in enumerate(reversed(digits)):
        c = int(_VERHOEFF_D[c][int(_VERHOEFF_P[(i + 1) % 8][int(x)])])
    return "0432156789"[c]


class Numbers:
    """Draws numbers from one source of randomness."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.kinds: dict[str, tuple[tuple[str, ...], Callable[[], str]]] = {
            "ssn": (("SSN", "social security number", "Social Security No.", "SSN#", "ssn", "social"), self.ssn),
            "itin": (("ITIN", "taxpayer ID"), lambda: f"9{self.d(2)}-{rng.randint(70, 88)}-{self.d(4)}"),
            "nino": (("National Insurance number", "NI number", "NINO"), self.nino),
            "dni": (("DNI", "NIF", "dni"), self.dni),
            "nie": (("NIE", "nie"), self.nie),
            "bsn": (("BSN", "burgerservicenummer"), lambda: self.weighted(8, (9, 8, 7, 6, 5, 4, 3, 2), 11)),
            "pesel": (("PESEL", "numer PESEL"), self.pesel),
            "cpf": (("CPF", "cpf"), self.cpf),
            "aadhaar": (("Aadhaar", "Aadhaar number", "aadhar no"), self.aadhaar),
            "sin": (("SIN", "Social Insurance Number"), self.sin),
            "tfn": (("TFN", "tax file number"), self.tfn),
            "nir": (("numéro de sécurité sociale", "NIR", "n° sécu"), self.nir),
            "cf": (("codice fiscale", "C.F."), self.codice_fiscale),
            "steuer": (("Steuer-ID", "Steueridentifikationsnummer", "IdNr."), self.steuer),
            "personnummer": (("personnummer", "personnr"), self.personnummer),
            "hetu": (("henkilötunnus", "hetu"), self.hetu),
            "cpr": (("CPR-nummer", "CPR"), lambda: f"{self.ddmmyy()}-{self.d(4)}"),
            "fnr": (("fødselsnummer",), lambda: f"{self.ddmmyy()}{self.choice(('', ' '))}{self.d(5)}"),
            "pan": (
                ("PAN", "PAN card", "pan no."),
                lambda: f"{self.capitals(3)}P{self.capitals(1)}{self.d(4)}{self.capitals(1)}",
            ),
            "nhs": (("NHS number", "NHS no"), self.nhs),
            "medicare": (
                ("Medicare number", "Medicare card"),
                lambda: f"{rng.choice('2345')}{self.d(3)} {self.d(5)} {self.d(1)}",
            ),
            "curp": (
                ("CURP",),
                lambda: f"{self.capitals(4)}{self.d(6)}{rng.choice('HM')}{self.capitals(5)}{self.d(2)}",
            ),
            "mbi": (("Medicare beneficiary ID", "MBI"), self.mbi),
            "cnp": (("CNP",), lambda: f"{rng.choice('1256')}{self.d(12)}"),
            "rc": (("rodné číslo", "RČ"), lambda: f"{self.d(6)}/{self.d(4)}"),
            "tckn": (("T.C. kimlik no", "TCKN"), self.tckn),
            "rrn": (("주민등록번호",), lambda: f"{self.ddmmyy()}-{rng.choice('1234')}{self.d(6)}"),
            "cnid": (("身份证号", "身份证号码", "resident ID"), self.chinese),
            "mynumber": (("マイナンバー", "個人番号"), lambda: f"{self.d(4)} {self.d(4)} {self.d(4)}"),
            "inn": (
                ("ИНН", "СНИЛС"),
                lambda: self.choice((self.d(12), f"{self.d(3)}-{self.d(3)}-{self.d(3)} {self.d(2)}")),
            ),
            "nric": (("NRIC", "FIN"), lambda: f"{rng.choice('STFG')}{self.d(7)}{self.capitals(1)}"),
            "hkid": (("HKID",), lambda: f"{self.capitals(1)}{self.d(6)}({self.d(1)})"),
            "ahv": (("AHV-Nr.", "AVS"), lambda: f"756.{self.d(4)}.{self.d(4)}.{self.d(2)}"),
            "rrnbe": (
                ("rijksregisternummer", "numéro national"),
                lambda: f"{self.d(2)}.{self.d(2)}.{self.d(2)}-{self.d(3)}.{self.d(2)}",
            ),
            "amka": (("ΑΜΚΑ", "ΑΦΜ"), lambda: self.choice((self.d(11), self.d(9)))),  # noqa: RUF001 (Greek)
            "ppsn": (("PPS number", "PPSN"), lambda: f"{self.d(7)}{self.capitals(2)}"),
            "nas": (("número de afiliación", "NASS", "NUSS"), lambda: f"{self.d(2)} {self.d(8)} {self.d(2)}"),
            "passport": (
                ("passport number", "passport no.", "Passport", "passport", "Reisepass", "pasaporte", "passeport n°"),
                self.passport,
            ),
            "dl": (
                ("driver's license", "driving licence number", "DL#", "driver license", "permis n°", "Führerschein"),
                self.licence,
            ),
        }
        self.names = tuple(self.kinds)
        self.weights = [
            6 if k in ("ssn", "passport", "dl") else 2 if k in ("nino", "dni", "nie", "cpf", "aadhaar") else 1
            for k in self.names
        ]

    def d(self, n: int) -> str:
        """`n` digits."""
        return "".join(str(int(self.rng.random() * 10)) for _ in range(n))

    def capitals(self, n: int) -> str:
        """`n` capitals."""
        return "".join(self.rng.choice(UPPER) for _ in range(n))

    def choice(self, options: tuple[str, ...]) -> str:
        """One of them."""
        return self.rng.choice(options)

    def ddmmyy(self) -> str:
        """Six digits of a date."""
        return f"{self.rng.randint(1, 28):02}{self.rng.randint(1, 12):02}{self.rng.randint(30, 99)}"

    def government(self) -> tuple[str, str]:
        """A government ID and what its owner calls it."""
        names, make = self.kinds[self.rng.choices(self.names, self.weights)[0]]
        return make(), self.rng.choice(names)

    def ssn(self) -> str:
        """US social security number of an area that is issued."""
        area = self.rng.choice((self.rng.randint(1, 665), self.rng.randint(667, 899)))
        return self.choice(("-", "-", "-", "-", " ", "")).join(
            (f"{area:03}", f"{self.rng.randint(1, 99):02}", f"{self.rng.randint(1, 9999):04}")
        )

    def nino(self) -> str:
        """UK national insurance number."""
        s = (
            self.rng.choice("ABCEGHJKLMNPRSTWXYZ")
            + self.rng.choice("ABCEGHJKLMPRSTWXYZ")
            + self.d(6)
            + self.rng.choice("ABCD")
        )
        return self.choice((s, f"{s[:2]} {s[2:4]} {s[4:6]} {s[6:8]} {s[8]}"))

    def dni(self) -> str:
        """Spanish identity number."""
        n = self.d(8)
        letter = "TRWAGMYFPDXBNJZSQVHLCKE"[int(n) % 23]
        return n + self.choice(("", "", "-")) + (letter if self.rng.random() < 0.85 else letter.lower())

    def nie(self) -> str:
        """Spanish number of a foreigner."""
        x, n = self.rng.randrange(3), self.d(7)
        s = (
            "XYZ"[x]
            + self.choice(("", "", "-"))
            + n
            + self.choice(("", "", "-"))
            + "TRWAGMYFPDXBNJZSQVHLCKE"[int(f"{x}{n}") % 23]
        )
        return s if self.rng.random() < 0.85 else s.lower()

    def weighted(self, n: int, weights: tuple[int, ...], modulus: int) -> str:
        """`n` digits and the check digit sum(w d) mod m, drawn again while that has two digits."""
        while True:
            s = self.rng.choice("123456789") + self.d(n - 1)
            check = sum(int(c) * w for c, w in zip(s, weights, strict=True)) % modulus
            if check < 10:
                return s + str(check)

    def pesel(self) -> str:
        """Polish personal number."""
        n = f"{self.rng.randint(40, 99)}{self.rng.randint(1, 12):02}{self.rng.randint(1, 28):02}{self.d(4)}"
        return n + str(-sum(int(a) * b for a, b in zip(n, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3), strict=True)) % 10)

    def cpf(self) -> str:
        """Brazilian taxpayer number."""
        n = self.d(9)
        for _ in range(2):
            n += str(sum(int(c) * (len(n) + 1 - i) for i, c in enumerate(n)) * 10 % 11 % 10)
        return self.choice((n, f"{n[:3]}.{n[3:6]}.{n[6:9]}-{n[9:]}"))

    def aadhaar(self) -> str:
        """Indian identity number."""
        n = self.rng.choice("23456789") + self.d(10)
        n += verhoeff(n)
        return self.choice((n, f"{n[:4]} {n[4:8]} {n[8:]}", f"{n[:4]}-{n[4:8]}-{n[8:]}"))

    def sin(self) -> str:
        """Canadian social insurance number."""
        n = self.rng.choice("1234567") + self.d(7)
        n += luhn(n)
        return self.choice(("", " ", "-")).join((n[:3], n[3:6], n[6:]))

    def tfn(self) -> str:
        """Australian tax file number."""
        while True:
            n = self.rng.choice("123456789") + self.d(8)
            if sum(int(a) * b for a, b in zip(n, (1, 4, 3, 7, 5, 8, 6, 9, 10), strict=True)) % 11 == 0:
                return self.choice((n, f"{n[:3]} {n[3:6]} {n[6:]}"))

    def nir(self) -> str:
        """French social security number."""
        n = f"{self.rng.choice('12')}{self.d(2)}{self.rng.randint(1, 12):02}{self.rng.randint(1, 95):02}{self.d(6)}"
        key = f"{97 - int(n) % 97:02}"
        return self.choice((n + key, f"{n[0]} {n[1:3]} {n[3:5]} {n[5:7]} {n[7:10]} {n[10:]} {key}"))

    def codice_fiscale(self) -> str:
        """Italian tax code."""
        name = "".join(self.rng.choice("BCDFGLMNPRSTVZ") for _ in range(6))
        born = f"{self.rng.randint(40, 99)}{self.rng.choice('ABCDEHLMPRST')}{self.rng.randint(1, 28):02}"
        n = f"{name}{born}{self.rng.choice('ABCDEFGHIL')}{self.d(3)}"
        values = [int(c) if c.isdigit() else ord(c) - 65 for c in n]
        return n + UPPER[sum(v if i % 2 else _ODD[v] for i, v in enumerate(values)) % 26]

    def steuer(self) -> str:
        """German tax number of a person."""
        digits = self.rng.sample("0123456789", 9)  # one of the ten digits is missing, one stands twice
        digits.append(self.rng.choice(digits))
        self.rng.shuffle(digits)
        n, p = "".join(digits).lstrip("0").ljust(10, digits[1]), 10
        for c in n:
            p = ((int(c) + p) % 10 or 10) * 2 % 11
        n += str((11 - p) % 10)
        return self.choice((n, f"{n[:2]} {n[2:5]} {n[5:8]} {n[8:]}"))

    def personnummer(self) -> str:
        """Swedish personal number."""
        n = f"{self.rng.randint(40, 99)}{self.rng.randint(1, 12):02}{self.rng.randint(1, 28):02}{self.d(3)}"
        return self.choice(("", "", "19")) + f"{n[:6]}-{n[6:]}{luhn(n)}"

    def hetu(self) -> str:
        """Finnish personal code."""
        day, number = self.ddmmyy(), self.rng.randint(2, 899)
        return f"{day}-{number:03}{'0123456789ABCDEFHJKLMNPRSTUVWXY'[int(f'{day}{number:03}') % 31]}"

    def nhs(self) -> str:
        """English patient number."""
        while True:
            n = self.rng.choice("4679") + self.d(8)
            check = -sum(int(x) * (10 - i) for i, x in enumerate(n)) % 11
            if check < 10:
                n += str(check)
                return self.choice((n, f"{n[:3]} {n[3:6]} {n[6:]}"))

    def tckn(self) -> str:
        """Turkish identity number."""
        n = self.rng.choice("123456789") + self.d(8)
        n += str((7 * sum(int(c) for c in n[0::2]) - sum(int(c) for c in n[1::2])) % 10)
        return n + str(sum(int(c) for c in n) % 10)

    def chinese(self) -> str:
        """Chinese identity number."""
        born = f"{self.rng.randint(1950, 2006)}{self.rng.randint(1, 12):02}{self.rng.randint(1, 28):02}"
        n = f"{self.rng.choice(('110101', '310104', '440305', '510107', '330106'))}{born}{self.d(3)}"
        return n + "10X98765432"[sum(int(c) * (2 ** (17 - i) % 11) for i, c in enumerate(n)) % 11]

    def mbi(self) -> str:
        """US Medicare beneficiary number."""

        def letter() -> str:
            return self.rng.choice("ACDEFGHJKMNPQRTUVWXY")

        return f"{self.rng.randint(1, 9)}{letter()}{self.d(2)}-{letter()}{self.d(2)}-{letter()}{letter()}{self.d(2)}"

    def passport(self) -> str:
        """A passport number of one of several countries."""
        mixed = "".join(self.rng.choice("0123456789CFGHJKLMNPRTVWXYZ") for _ in range(8))
        return self.choice(
            (
                self.capitals(1) + self.d(8),
                self.d(9),
                self.rng.choice("CFGHJKLMNPRTVWXYZ") + mixed,
                self.capitals(2) + self.d(7),
                self.capitals(1) + self.d(7),
                self.capitals(3) + self.d(6),
                self.d(2) + self.capitals(2) + self.d(5),
            )
        )

    def licence(self) -> str:
        """A driver's licence."""
        return self.choice(
            (
                self.capitals(1) + self.d(7),
                self.capitals(1) + self.d(12),
                f"{self.capitals(1)}{self.d(3)}-{self.d(4)}-{self.d(4)}",
                f"{self.capitals(5)}{self.d(6)}{self.capitals(2)}{self.d(1)}{self.capitals(2)}",
                self.d(8),
                self.d(9),
                f"{self.capitals(2)}{self.d(6)}",
                f"{self.capitals(2)}-{self.d(3)}-{self.d(3)}",
            )
        )
