"""What looks like personal data and is not: numbers, hashes, time stamps, plain dates, public pages.

None of it is ever labelled. The kinds are those that users report as false alarms of other tools.
"""

from __future__ import annotations

import random
import string

from .lists import words

HEX = "0123456789abcdef"
MONTHS = "January February March April May June July August September October November December".split()
LOCAL_MONTHS = {
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "nl": "januari februari maart april mei juni juli augustus september oktober november december",
    "pl": "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada grudnia",
    "sv": "januari februari mars april maj juni juli augusti september oktober november december",
    "nb": "januar februar mars april mai juni juli august september oktober november desember",
    "da": "januar februar marts april maj juni juli august september oktober november december",
    "cs": "ledna února března dubna května června července srpna září října listopadu prosince",
    "ru": "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    "tr": "Ocak Şubat Mart Nisan Mayıs Haziran Temmuz Ağustos Eylül Ekim Kasım Aralık",  # noqa: RUF001 (Turkish)
    "ro": "ianuarie februarie martie aprilie mai iunie iulie august septembrie octombrie noiembrie decembrie",
}


class Lookalikes:
    """Draws look-alikes from one source of randomness."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def d(self, n: int) -> str:
        """`n` digits."""
        return "".join(str(int(self.rng.random() * 10)) for _ in range(n))

    def x(self, n: int) -> str:
        """`n` hexadecimal digits."""
        return "".join(self.rng.choices(HEX, k=n))

    def u(self, n: int) -> str:
        """`n` capitals or digits."""
        return "".join(self.rng.choices(string.ascii_uppercase + string.digits, k=n))

    def a(self, n: int) -> str:
        """`n` letters or digits."""
        return "".join(self.rng.choices(string.ascii_letters + string.digits, k=n))

    def uuid(self) -> str:
        """A version 4 UUID."""
        text = f"{self.x(8)}-{self.x(4)}-4{self.x(3)}-{self.rng.choice('89ab')}{self.x(3)}-{self.x(12)}"
        return text.upper() if self.rng.random() < 0.15 else text

    def stamp(self) -> str:
        """A time stamp in one of the forms logs have."""
        r = self.rng
        day = f"20{r.randint(10, 29)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}"
        clock = f"{r.randint(0, 23):02}:{r.randint(0, 59):02}:{r.randint(0, 59):02}"
        return r.choice(
            (
                f"{day}T{clock}Z",
                f"{day} {clock},{r.randint(0, 999):03}",
                f"{day}T{clock}.{r.randint(0, 999):03}+02:00",
                str(1_400_000_000 + r.getrandbits(28)),
                str(1_400_000_000_000 + r.getrandbits(38)),
                day.replace("-", "") + clock.replace(":", ""),
                f"{MONTHS[r.randrange(12)][:3]} {r.randint(1, 28):2} {clock}",
                f"[{r.randint(1, 28):02}/{MONTHS[r.randrange(12)][:3]}/20{r.randint(10, 29)}:{clock} +0000]",
            )
        )

    def date(self, first: int = 1800, last: int = 2027) -> str:
        """A date in one of many notations."""
        r = self.rng
        y, m, d = r.randint(first, last), r.randint(1, 12), r.randint(1, 28)
        month = MONTHS[m - 1]
        suffix = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}.get(d, "th")
        return r.choice(
            (
                f"{y}-{m:02}-{d:02}",
                f"{y}-{m:02}-{d:02}",
                f"{d:02}/{m:02}/{y}",
                f"{m}/{d}/{y}",
                f"{d:02}.{m:02}.{y}",
                f"{d} {month} {y}",
                f"{month} {d}, {y}",
                f"{month} {d}{suffix}, {y}",
                f"{d} {month[:3]} {y}",
                f"{m:02}/{d:02}/{y % 100:02}",
                f"{d}-{month[:3]}-{y}",
                f"{d}.{m}.{y}",
                f"{d}{suffix} of {month} {y}",
                f"{y}/{m:02}/{d:02}",
                f"{d:02}-{m:02}-{y}",
                f"{month[:3]} {d}, {y}",
            )
        )

    def local_date(self, language: str, first: int = 1930, last: int = 2015) -> str:
        """A date as it is written in a language."""
        r = self.rng
        y, m, d = r.randint(first, last), r.randint(1, 12), r.randint(1, 28)
        names = LOCAL_MONTHS.get(language)
        if language in ("ja", "zh"):
            return r.choice((f"{y}年{m}月{d}日", f"{y}/{m:02}/{d:02}", f"{y}-{m:02}-{d:02}"))
        if language == "ko":
            return r.choice((f"{y}년 {m}월 {d}일", f"{y}.{m:02}.{d:02}", f"{y}-{m:02}-{d:02}"))
        if names is None or r.random() < 0.45:
            return r.choice(
                (
                    f"{d:02}/{m:02}/{y}",
                    f"{d:02}.{m:02}.{y}",
                    f"{d:02}-{m:02}-{y}",
                    f"{d}.{m}.{y}",
                    f"{y}-{m:02}-{d:02}",
                    f"{d:02}/{m:02}/{y % 100:02}",
                )
            )
        name = names.split()[m - 1]
        return r.choice(
            (f"{d} de {name} de {y}", f"{d} de {name} del {y}")
            if language in ("es", "pt")
            else (f"{d}. {name} {y}",)
            if language in ("de", "nb", "da", "cs")
            else (f"{d} {name} {y}",)
        )

    def amount(self) -> str:
        """Money."""
        r = self.rng
        v = r.randint(1, 99_999)
        return r.choice(
            (
                f"${v:,}.{self.d(2)}",
                f"€{v}",
                f"£{v:,}",
                f"{v},{self.d(2)} €",
                f"EUR {v:,}.{self.d(2)}",
                f"{v} USD",
                f"{v}k",
                f"₹{v:,}",
                f"R$ {v},{self.d(2)}",
                f"{v} kr",
            )
        )

    def number(self) -> str:
        """A number of a thing, with the word that says so."""
        r, d, x, u = self.rng, self.d, self.x, self.u
        return r.choice(
            (
                lambda: f"{r.choice(words('order'))} {r.choice(['#', '', 'number '])}{d(r.randint(5, 10))}",
                lambda: f"{r.choice(words('invoice'))} {r.choice(['INV-', '#', '', 'R-'])}{d(4)}-{d(5)}",
                lambda: f"commit {x(r.choice([7, 8, 40]))}",
                lambda: f"sha256:{x(64)}",
                lambda: f"sha1 {x(40)}",
                lambda: f"md5 {x(32)}",
                self.uuid,
                lambda: f"request id {self.uuid()}",
                lambda: f"trace_id={x(32)} span_id={x(16)}",
                lambda: f"v{r.randint(0, 20)}.{r.randint(0, 40)}.{r.randint(0, 99)}",
                lambda: f"version {r.randint(1, 9)}.{r.randint(0, 30)}.{r.randint(0, 9)}-rc{r.randint(1, 4)}",
                lambda: (
                    f"{r.choice(words('ticket'))} {r.choice(['JIRA-', '#', 'OPS-', 'INC', 'SUP-'])}{d(r.randint(3, 7))}"
                ),
                lambda: f"build {d(10)}",
                self.stamp,
                self.stamp,
                lambda: f"ISBN 978-{d(1)}-{d(4)}-{d(4)}-{d(1)}",
                lambda: f"ISSN {d(4)}-{d(4)}",
                lambda: f"tracking {r.choice([f'1Z{u(6)}{d(10)}', f'RR{d(9)}DE', d(12), d(20)])}",
                lambda: f"SKU {u(3)}-{d(5)}",
                lambda: f"part no. {d(3)}-{d(4)}-{d(2)}",
                lambda: f"CVE-20{r.randint(14, 29)}-{d(5)}",
                lambda: f"RFC {r.randint(700, 9500)}",
                lambda: f"port {r.randint(1024, 65000)}",
                lambda: f"integrity sha{r.choice(['384', '512'])}-{self.a(86)}==",
                lambda: f"0x{x(r.choice([4, 8, 16]))}",
                lambda: f"PMID {d(8)}",
                lambda: f"doi:10.{d(4)}/{self.a(8)}",
                lambda: f"arXiv:{r.randint(17, 29)}{r.randint(1, 12):02}.{d(5)}",
                lambda: f"section {r.randint(1, 20)}.{r.randint(1, 9)}.{r.randint(1, 9)}",
                lambda: f"{r.randint(1, 12)}:{r.randint(0, 59):02} {r.choice(['PM', 'am'])}",
                lambda: f"{r.uniform(-90, 90):.{r.randint(2, 7)}f}, {r.uniform(-180, 180):.{r.randint(2, 7)}f}",
                lambda: f"{r.uniform(-10, 2e9):.{r.randint(1, 6)}f}",
                lambda: f"req_{u(26)}",
                lambda: f"{r.choice(['evt', 'msg', 'run', 'job', 'ch', 'in'])}_{self.a(24)}",
                lambda: (
                    f"{d(r.randint(5, 19))} {r.choice(['bytes', 'rows', 'records', 'ns', 'iterations', 'requests'])}"
                ),
                lambda: f"{r.choice(words('page'))}{r.choice(['=', ' ', ': '])}{d(r.randint(2, 10))}",
                lambda: "0" * r.choice([8, 10, 16]),
                lambda: f"model {u(2)}-{d(4)}{r.choice('ABX')}",
                lambda: f"flight {r.choice(['LH', 'BA', 'AF', 'UA'])}{d(3)}",
                lambda: f"{d(4)}-{d(4)} season",
                lambda: f"room {d(3)}",
                lambda: f"{d(14)}_{r.choice(['add_index', 'create_users', 'drop_column'])}.sql",
                lambda: f"arn:aws:s3:::bucket-{x(6)}",
                lambda: f"ami-{x(17)}",
                lambda: f"IMG_{d(8)}_{d(6)}.jpg",
                lambda: f"CAS {d(4)}-{d(2)}-{d(1)}",
                lambda: f"10.{r.randint(1, 20)}.{r.randint(0, 9)}",
                lambda: f"EAN {d(13)}",
                lambda: f"chr{r.randint(1, 22)}:{d(8)}-{d(8)}",
                lambda: f"ext4 inode {d(8)}",
                lambda: f"window {r.randint(640, 3840)}x{r.randint(480, 2160)}",
                lambda: f"color #{x(6)}",
            )
        )()

    def url(self) -> str:
        """An address of the web that is nobody's."""
        r = self.rng
        return r.choice(
            (
                f"https://docs.python.org/3/library/{r.choice(['re', 'json', 'os', 'ssl'])}.html",
                "https://example.com",
                f"https://en.wikipedia.org/wiki/{r.choice(words('thing')).replace(' ', '_')}",
                f"https://github.com/{r.choice(words('repository'))}/issues/{self.d(5)}",
                "http://localhost:8080/health",
                f"https://cdn.example.com/lib@{self.d(1)}.{self.d(1)}.{self.d(1)}/app.min.js",
                f"https://t.co/{self.a(10)}",
                f"https://www.youtube.com/watch?v={self.a(11)}",
                f"https://bit.ly/{self.a(7)}",
                "https://stackoverflow.com/questions/" + self.d(8),
                "https://www.gov.uk/apply-passport",
                f"https://wiki.corp.example/pages/{self.d(9)}/Runbook",
                "http://www.w3.org/2000/svg",
                f"https://registry.npmjs.org/{r.choice(['lodash', 'react', 'vite'])}",
                "https://status.example.com",
                "https://api.example.com/v1/users",
                "https://news.example.org/2024/05/election-results",
            )
        )
