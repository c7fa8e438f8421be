"""Check digits: what makes a number of a scheme right. Each takes the bare characters and says yes or no.

Sources: Luhn US 2,950,048; Verhoeff 1969; ISO 7064 (mod 97-10, mod 11-10); the published rules of each register.
"""

from __future__ import annotations

from collections.abc import Sequence

_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
_DIHEDRAL = (
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
)
_PERMUTED = (
    "0123456789",
    "1576283094",
    "5803796142",
    "8916043527",
    "9453126870",
    "4286573901",
    "2793806415",
    "7046913258",
)
SPANISH = "TRWAGMYFPDXBNJZSQVHLCKE"
_ITALIAN_ODD = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
FINNISH = "0123456789ABCDEFHJKLMNPRSTUVWXY"


def luhn(number: str) -> bool:
    """Luhn, modulus 10."""
    digits = [int(c) for c in reversed(number)]
    return (sum(digits[0::2]) + sum(_DOUBLED[d] for d in digits[1::2])) % 10 == 0


def verhoeff(number: str) -> bool:
    """Verhoeff, the dihedral group of order 10."""
    state = 0
    for place, char in enumerate(reversed(number)):
        state = int(_DIHEDRAL[state][int(_PERMUTED[place % 8][int(char)])])
    return state == 0


def mod97(text: str) -> bool:
    """ISO 7064 mod 97-10 with letters as 10 to 35, as the IBAN has it."""
    return int("".join(str(int(c, 36)) for c in text[4:] + text[:4])) % 97 == 1


def weighted(number: str, weights: Sequence[int]) -> int:
    """The sum of digit times weight."""
    return sum(int(c) * w for c, w in zip(number, weights, strict=False))


def mod11_10(number: str) -> bool:
    """ISO 7064 mod 11,10 (German tax number, Croatian OIB)."""
    product = 10
    for char in number[:-1]:
        product = ((int(char) + product) % 10 or 10) * 2 % 11
    return (11 - product) % 10 == int(number[-1])


def date6(text: str, order: str = "ymd") -> bool:
    """Whether six digits are a date, in the order given by three letters."""
    parts = {order[i]: int(text[2 * i : 2 * i + 2]) for i in range(3)}
    return 1 <= parts["m"] <= 12 and 1 <= parts["d"] <= 31


def dni(text: str) -> bool:
    """Spanish DNI and NIE: number modulo 23."""
    text = text.upper()
    number = text[:-1].replace("X", "0", 1).replace("Y", "1", 1).replace("Z", "2", 1)
    return number.isdigit() and int(number) > 9 and SPANISH[int(number) % 23] == text[-1]


def nir(text: str) -> bool:
    """French social security number: 97 minus the rest of the first 13 digits; Corsica counts as 19 and 18."""
    text = text.upper().replace("2A", "19", 1).replace("2B", "18", 1)
    return text.isdigit() and 97 - int(text[:13]) % 97 == int(text[13:]) and 1 <= int(text[3:5]) <= 99


def pesel(number: str) -> bool:
    """Polish PESEL: weights 1 3 7 9, and a month with the century in it."""
    month = int(number[2:4]) % 20
    return weighted(number, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1)) % 10 == 0 and 1 <= month <= 12


def bsn(number: str) -> bool:
    """Dutch BSN: the eleven test with the last weight -1."""
    return weighted(number, (9, 8, 7, 6, 5, 4, 3, 2, -1)) % 11 == 0 and int(number) > 0


def cpf(number: str) -> bool:
    """Brazilian CPF: two check digits modulo 11; equal digits are not issued."""
    if len(set(number)) == 1:
        return False
    first = weighted(number[:9], range(10, 1, -1)) * 10 % 11 % 10
    second = weighted(number[:10], range(11, 1, -1)) * 10 % 11 % 10
    return number[9:] == f"{first}{second}"


def nhs(number: str) -> bool:
    """English NHS number: weights 10 to 2 modulo 11."""
    return -weighted(number[:9], range(10, 1, -1)) % 11 == int(number[9]) and len(set(number)) > 1


def tfn(number: str) -> bool:
    """Australian tax file number: weighted sum divisible by 11."""
    return weighted(number, (1, 4, 3, 7, 5, 8, 6, 9, 10)) % 11 == 0


def medicare_au(number: str) -> bool:
    """Australian Medicare card: ninth digit is the weighted sum modulo 10."""
    return number[0] in "23456" and weighted(number[:8], (1, 3, 7, 9, 1, 3, 7, 9)) % 10 == int(number[8])


def codice_fiscale(text: str) -> bool:
    """Italian codice fiscale: sum of odd and even place values modulo 26. Digits of namesakes may be letters."""
    total = 0
    for place, char in enumerate(text.upper()):
        value = int(char) if char.isdigit() else ord(char) - 65
        if place == 15:
            return total % 26 == value and not char.isdigit()
        total += value if place % 2 else _ITALIAN_ODD[value]
    return False


def idnr(number: str) -> bool:
    """German tax number of a person: mod 11,10, one digit missing or twice among the first ten, none leading zero."""
    counts = sorted(number[:10].count(d) for d in set(number[:10]))
    return number[0] != "0" and counts[-1] in (2, 3) and mod11_10(number)


def personnummer(number: str) -> bool:
    """Swedish personal number: Luhn over ten digits that begin with a date, its day plus 60 in coordination numbers."""
    return 1 <= int(number[2:4]) <= 12 and 1 <= int(number[4:6]) % 60 <= 31 and luhn(number)


def hetu(text: str) -> bool:
    """Finnish personal code: date and number modulo 31."""
    text = text.upper()
    return date6(text[:6], "dmy") and int(text[7:10]) >= 2 and FINNISH[int(text[:6] + text[7:10]) % 31] == text[10]


def fodselsnummer(number: str) -> bool:
    """Norwegian number: two check digits modulo 11."""
    first = -weighted(number, (3, 7, 6, 1, 8, 9, 4, 5, 2)) % 11
    second = -weighted(number, (5, 4, 3, 2, 7, 6, 5, 4, 3, 2)) % 11
    return [first, second] == [int(number[9]), int(number[10])]


def tckn(number: str) -> bool:
    """Turkish identity number: two check digits."""
    digits = [int(c) for c in number]
    tenth = (7 * sum(digits[0:9:2]) - sum(digits[1:8:2])) % 10
    return digits[0] != 0 and digits[9] == tenth and digits[10] == sum(digits[:10]) % 10


def chinese(text: str) -> bool:
    """Chinese resident identity number: ISO 7064 mod 11-2 over 17 digits with a date."""
    return (
        date6(text[8:14])
        and "10X98765432"[weighted(text, [2**i % 11 for i in range(17, 0, -1)]) % 11] == text[-1:].upper()
    )


def korean(number: str) -> bool:
    """Korean resident number: a date and a gender digit; numbers since October 2020 carry no check digit."""
    return date6(number[:6]) and number[6] in "12345678"


def cnp(number: str) -> bool:
    """Romanian CNP: weights 279146358279 modulo 11."""
    check = weighted(number, (2, 7, 9, 1, 4, 6, 3, 5, 8, 2, 7, 9)) % 11
    return date6(number[1:7]) and min(check, 1 if check == 10 else check) == int(number[12])


def rodne_cislo(number: str) -> bool:
    """Czech and Slovak birth number: divisible by 11; month plus 50 for women, plus 20 for full series."""
    month = int(number[2:4]) % 50 % 20
    return 1 <= month <= 12 and 1 <= int(number[4:6]) <= 31 and (int(number) % 11 == 0 or int(number[:9]) % 11 == 10)


def egn(number: str) -> bool:
    """Bulgarian EGN: weights 2 4 8 5 10 9 7 3 6 modulo 11."""
    month = int(number[2:4]) % 20
    return 1 <= month <= 12 and weighted(number, (2, 4, 8, 5, 10, 9, 7, 3, 6)) % 11 % 10 == int(number[9])


def _cross_sum(digits: str, weights: Sequence[int]) -> int:
    """The sum of the digits of each digit times weight."""
    return sum(sum(map(int, str(int(c) * w))) for c, w in zip(digits, weights, strict=True))


def _letter(char: str) -> str:
    """The place of a letter in the alphabet as two digits."""
    return f"{ord(char.upper()) - 64:02}"


def kvnr(text: str) -> bool:
    """German health insurance number: a letter and nine digits, cross sums with weights 1 and 2."""
    return _cross_sum(_letter(text[0]) + text[1:9], (1, 2) * 5) % 10 == int(text[9])


def rvnr(text: str) -> bool:
    """German pension insurance number: area, date of birth, letter, serial, cross sums with its own weights."""
    digits = text[:8] + _letter(text[8]) + text[9:11]
    day, month = int(text[2:4]), int(text[4:6])
    return (
        1 <= day <= 81  # plus 50 where a serial number was used up
        and 1 <= month <= 12
        and _cross_sum(digits, (2, 1, 2, 5, 7, 1, 2, 1, 2, 1, 2, 1)) % 10 == int(text[11])
    )


def za_id(number: str) -> bool:
    """South African identity number: a date, citizenship 0 to 2, and Luhn."""
    return date6(number[:6]) and number[10] in "012" and luhn(number)


def th_id(number: str) -> bool:
    """Thai identity number: weights 13 to 2 modulo 11."""
    return (11 - weighted(number[:12], range(13, 1, -1)) % 11) % 10 == int(number[12])


def belgian(number: str) -> bool:
    """Belgian register number: 97 minus the rest of nine digits, those of this century with a 2 in front."""
    key = int(number[9:])
    return key in (97 - int(number[:9]) % 97, 97 - int("2" + number[:9]) % 97)


def ahv(number: str) -> bool:
    """Swiss AHV number: EAN-13."""
    return number.startswith("756") and weighted(number, (1, 3) * 6 + (1,)) % 10 == 0


def nric(text: str) -> bool:
    """Singapore NRIC and FIN: weights 2 7 6 5 4 3 2 modulo 11 with tables by the first letter."""
    text = text.upper()
    total = weighted(text[1:8], (2, 7, 6, 5, 4, 3, 2)) + {"T": 4, "G": 4, "M": 3}.get(text[0], 0)
    table = {"S": "JZIHGFEDCBA", "T": "JZIHGFEDCBA", "F": "XWUTRQPNMLK", "G": "XWUTRQPNMLK", "M": "KLJNPQRTUWX"}[
        text[0]
    ]
    return table[10 - total % 11 if text[0] == "M" else total % 11] == text[8]


def hkid(text: str) -> bool:
    """Hong Kong identity card: weights 9 to 1 modulo 11, a blank counts 36."""
    text = text.upper()
    body = text[:-1].rjust(8)
    values = [36 if c == " " else int(c, 36) for c in body]
    check = -sum(v * w for v, w in zip(values, range(9, 1, -1), strict=True)) % 11
    return "0123456789A"[check] == text[-1]


def ppsn(text: str) -> bool:
    """Irish PPS number: weights 8 to 2 and 9 for the second letter, modulo 23."""
    text = text.upper()
    second = ord(text[8]) - 64 if len(text) > 8 and text[8] != "W" else 0
    return "WABCDEFGHIJKLMNOPQRSTUV"[(weighted(text[:7], range(8, 1, -1)) + 9 * second) % 23] == text[7]


def amka(number: str) -> bool:
    """Greek AMKA: a date and Luhn."""
    return date6(number[:6], "dmy") and luhn(number)


def nif_pt(number: str) -> bool:
    """Portuguese NIF: weights 9 to 2 modulo 11."""
    check = 11 - weighted(number[:8], range(9, 1, -1)) % 11
    return number[0] in "12356789" and (0 if check > 9 else check) == int(number[8])


def inn(number: str) -> bool:
    """Russian tax number of a person: two check digits modulo 11."""
    first = weighted(number, (7, 2, 4, 10, 3, 5, 9, 4, 6, 8)) % 11 % 10
    second = weighted(number, (3, 7, 2, 4, 10, 3, 5, 9, 4, 6, 8)) % 11 % 10
    return number[10:] == f"{first}{second}"


def snils(number: str) -> bool:
    """Russian insurance number: weights 9 to 1, modulo 101, 100 written 00."""
    return weighted(number[:9], range(9, 0, -1)) % 101 % 100 == int(number[9:])


def my_number(number: str) -> bool:
    """Japanese individual number: weights 6 5 4 3 2 7 6 5 4 3 2 modulo 11."""
    rest = weighted(number, (6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2)) % 11
    return (0 if rest < 2 else 11 - rest) == int(number[11])


def curp(text: str) -> bool:
    """Mexican CURP: a date, and a check digit over an alphabet with N tilde at 24."""
    alphabet = "0123456789ABCDEFGHIJKLMN\u00d1OPQRSTUVWXYZ"
    text = text.upper()
    total = sum(alphabet.index(c) * w for c, w in zip(text, range(18, 1, -1), strict=False))
    return date6(text[4:10]) and str(-total % 10) == text[17]


def ssn(number: str) -> bool:
    """US social security number: an area, a group and a serial that are issued. Numbers of advertisements are not."""
    area, group, serial = number[:3], number[3:5], number[5:]
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000" and number != "078051120"


def aba(number: str) -> bool:
    """US routing number: weights 3 7 1 modulo 10 and a Federal Reserve district."""
    prefix = int(number[:2])
    return (prefix <= 12 or 21 <= prefix <= 32 or 61 <= prefix <= 72 or prefix == 80) and (
        int(number) > 0 and weighted(number, (3, 7, 1) * 3) % 10 == 0
    )
