"""Numbers of accounts and belongings: cards, IBANs, bank and customer numbers, plates, devices, wallets."""

from __future__ import annotations

import string

from .ids import Numbers, luhn


class Accounts(Numbers):
    """Draws them, and the government IDs too, from one source of randomness."""

    def card(self) -> str:
        """A payment card of a real issuer range that passes Luhn."""
        prefix, length = self.rng.choice(
            (
                ("4", 16),
                ("4", 16),
                ("4", 16),
                ("4", 13),
                ("4", 19),
                ("51", 16),
                ("53", 16),
                ("55", 16),
                ("2223", 16),
                ("2720", 16),
                ("34", 15),
                ("37", 15),
                ("6011", 16),
                ("65", 16),
                ("36", 14),
                ("38", 14),
                ("30", 14),
                ("3528", 16),
                ("3589", 16),
                ("62", 16),
                ("62", 19),
                ("5018", 12),
                ("6304", 16),
            )
        )
        if prefix == "30":
            prefix += self.rng.choice("012345")
        n = prefix + self.d(length - 1 - len(prefix))
        n += luhn(n)
        if self.rng.random() < 0.5:
            return n
        cut = (4, 6, 5) if length == 15 else (4, 6, 4) if length == 14 else (4, 4, 4, 4, 3)
        sep, groups, at = self.choice((" ", " ", "-")), [], 0
        for size in cut:
            groups.append(n[at : at + size])
            at += size
        return sep.join(g for g in groups if g)

    def iban(self) -> str:
        """An IBAN with the right check digits."""
        country, shape = self.rng.choice(
            (
                ("DE", "#" * 18),
                ("FR", "#" * 10 + "A" * 11 + "##"),
                ("GB", "????" + "#" * 14),
                ("ES", "#" * 20),
                ("IT", "?" + "#" * 10 + "A" * 12),
                ("NL", "????" + "#" * 10),
                ("PL", "#" * 24),
                ("CH", "#" * 5 + "A" * 12),
                ("AT", "#" * 16),
                ("SE", "#" * 20),
                ("NO", "#" * 11),
                ("DK", "#" * 14),
                ("FI", "#" * 14),
                ("BE", "#" * 12),
                ("PT", "#" * 21),
                ("IE", "????" + "#" * 14),
                ("TR", "#####0" + "A" * 16),
                ("AE", "#" * 19),
                ("SA", "##" + "A" * 18),
                ("RO", "????" + "A" * 16),
                ("GR", "#######" + "A" * 16),
                ("CZ", "#" * 20),
                ("HU", "#" * 24),
            )
        )
        body = "".join(
            self.d(1)
            if c == "#"
            else self.capitals(1)
            if c == "?"
            else self.rng.choice(string.digits + "0123456789ABCDEFGH")
            if c == "A"
            else c
            for c in shape
        )
        n = int("".join(str(int(c, 36)) for c in f"{body}{country}00"))
        s = f"{country}{98 - n % 97:02}{body}"
        x = self.rng.random()
        if x < 0.45:
            return " ".join(s[i : i + 4] for i in range(0, len(s), 4))
        return s.lower() if x > 0.97 else s

    def bank(self) -> str:
        """A bank account as people write it."""
        return self.choice(
            (
                self.d(8),
                self.d(9),
                self.d(10),
                self.d(12),
                self.d(11),
                f"{self.d(2)}-{self.d(2)}-{self.d(2)} {self.d(8)}",
                f"{self.d(4)}-{self.d(6)}-{self.d(1)}",
                f"{self.d(3)}-{self.d(7)}-{self.d(2)}",
                f"{self.d(6)}-{self.d(8)}",
                f"{self.capitals(4)}{self.capitals(2)}22{self.capitals(1)}{self.d(2)}",
            )
        )

    def customer(self) -> str:
        """A customer, member, employee or patient number."""
        return self.choice(
            (
                f"MRN-{self.d(7)}",
                f"CUST-{self.d(6)}",
                f"AC{self.d(8)}",
                f"EMP{self.d(5)}",
                f"P{self.d(8)}",
                f"MBR-{self.d(4)}-{self.d(4)}",
                self.d(10),
                self.d(7),
                self.d(6),
                f"{self.capitals(2)}-{self.d(6)}",
                f"{self.capitals(3)}{self.d(6)}",
                f"C-{self.d(5)}",
                f"{self.capitals(1)}{self.d(2)}-{self.d(5)}",
                f"STU{self.d(7)}",
                f"HN {self.d(6)}",
                f"POL-{self.d(8)}",
                f"{self.d(3)}-{self.d(4)}-{self.capitals(2)}",
            )
        )

    def plate(self) -> str:
        """A number plate or a vehicle's identification number."""
        vin = "".join(self.rng.choice("ABCDEFGHJKLMNPRSTUVWXYZ0123456789") for _ in range(17))
        return self.choice(
            (
                f"{self.capitals(3)}-{self.d(4)}",
                f"{self.capitals(2)}{self.d(2)} {self.capitals(3)}",
                f"{self.capitals(2)}-{self.d(3)}-{self.capitals(2)}",
                f"{self.d(4)} {self.capitals(3)}",
                f"{self.capitals(1)}-{self.capitals(2)} {self.d(4)}",
                f"{self.capitals(3)} {self.d(3)}",
                f"{self.d(1)}{self.capitals(3)}{self.d(3)}",
                f"{self.capitals(3)}-{self.d(3)}",
                vin,
                vin,
            )
        )

    def device(self) -> str:
        """An IMEI or a serial number of somebody's device."""
        n = "35" + self.d(12)
        return self.choice(
            (
                n + luhn(n),
                f"{self.capitals(1)}{self.d(2)}{self.capitals(2)}{self.d(3)}{self.capitals(4)}",
                f"SN-{self.d(8)}",
            )
        )

    def wallet(self) -> str:
        """A crypto address."""
        b58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

        def pick(alphabet: str, n: int) -> str:
            return "".join(self.rng.choices(alphabet, k=n))

        return self.choice(
            (
                self.rng.choice("13") + pick(b58, 33),
                "bc1q" + pick("023456789acdefghjklmnpqrstuvwxyz", 38),
                "0x" + pick("0123456789abcdef", 40),
                "T" + pick(b58, 33),
            )
        )
