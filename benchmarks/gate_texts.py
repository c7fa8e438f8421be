"""Texts of any length for the Gate's speed: prose and logs, the same for the same seed and Python version.

Prose is real: sentences of Python's own documentation (pydoc_data), in ever new order, and between them sentences with
people, addresses and numbers. The log has lines of several programs; most of what varies in them are numbers and
identifiers, and names, paths and messages do now and then. Nothing here measures anything.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

FIRST = (
    "Anna Bram Chiara Dmitri Elif Farid Greta Hanne Ivo Jelena Kofi Lucía Mariska Niall Oona Priya Quentin Rosa Søren "
    "Tobias Ulla Viktor Wanda Xenia Yusuf Zoë"
).split()
LAST = (
    "Achterberg Brandt Castellano Duarte Eide Falcão Großmann Holm Iversen Jansen Kroon Lindqvist Mülder Nwosu Orta "
    "Petrov Quist Rask Sobral Tadic Ueda Vanderhoek Weiss Xu Yilmaz Zeman"
).split()
PERSONAL = (
    "Please ask {first} {last} to send it to {mail} before Friday.",
    "{first} {last} lives at {number} Mill Lane, Kendal, and can be reached on +44 1632 960{three}.",
    "As {first} wrote yesterday, invoice {five} of the {number}th was paid twice.",
    "The order of {number} chairs goes to {last} & Sons, attn. {first}.",
)
WORDS = (
    "alpha batch cart checkout delta edge export feed gamma history image import index invoice item job ledger list "
    "login mail media node note order page payment photo pool queue report route search session shard stock sync task "
    "tenant theme ticket token upload user video widget worker zone"
).split()
# Lines of several programs: their stamps, then what they say.
WEB = '{ip} - - [04/Mar/2026:11:{two}:{two2} +0000] "GET /{word}/{five}/{word2}?page={two} HTTP/1.1" 200 {five} "-" '
JAVA = "2026-03-04T11:{two}:{two2}.{three}Z "
SYSTEM = "Mar  4 11:{two}:{two2} web{two} "
LINES = (
    WEB + '"Mozilla/5.0 (X11; Linux x86_64; rv:{three}.0) Gecko/20100101 Firefox/{three}.0"',
    JAVA + "INFO [http-nio-8080-exec-{two}] c.e.{word}.{Word}Service - {word2} {eight} persisted in {two} ms",
    JAVA + "DEBUG [scheduling-{two}] o.s.cache - evict key={word}::{eight}",
    JAVA + "WARN [pool-{two}-thread-{two2}] c.e.{word}.{Word}Client - retry {two} of {word2} after {three} ms: reset",
    SYSTEM + "systemd[1]: Started {Word} {word2} cleanup of temporary directories.",
    SYSTEM + "kernel: [{five}.{three}{three}] eth0: link up, 1000 Mbps, full duplex",
    SYSTEM + "sshd[{five}]: Connection closed by {ip} port {five} [preauth]",
    '{{"ts":"' + JAVA[:-1] + '","level":"info","trace_id":"{hex}","span":"{word}.{word2}","took_ms":{three}}}',
    "I0304 11:{two}:{two2}.{three}{three} {five} {word}.go:{three}] syncing {word2}/{word}-{hex8} took {three}.{two}ms",
    "[{eight}.{three}] ({two}) {word}: flushed {five} rows to /var/lib/{word2}/{hex8}.dat, {three} MiB free",
)
PERSONAL_LINES = (
    JAVA + "INFO [http-nio-8080-exec-{two}] c.e.auth - login of {mail} from {ip} succeeded",
    JAVA + "ERROR [worker-{two}] c.e.mail - cannot deliver to {first} {last} <{mail}>: 550",
)


def prose(size: int, seed: int = 1) -> str:
    """`size` characters of English in paragraphs, one sentence in eight with something personal."""
    rng = random.Random(seed)
    sentences = _sentences()

    def paragraphs() -> Iterator[str]:
        while True:
            yield " ".join(
                _filled(rng, rng.choice(PERSONAL)) if rng.random() < 1 / 8 else rng.choice(sentences)
                for _ in range(rng.randint(2, 7))
            )

    return _joined(paragraphs(), size, "\n\n")


def log(size: int, seed: int = 1) -> str:
    """`size` characters of log lines, one in a hundred with something personal."""
    rng = random.Random(seed)

    def lines() -> Iterator[str]:
        while True:
            yield _filled(rng, rng.choice(PERSONAL_LINES if rng.random() < 0.01 else LINES))

    return _joined(lines(), size, "\n")


def _sentences() -> list[str]:
    from pydoc_data.topics import topics

    plain = re.compile(r"[A-Z][A-Za-z0-9 ,.;:'\"()!?-]{39,299}\.")
    paragraphs = (" ".join(part.split()) for text in topics.values() for part in re.split(r"\n\s*\n", text))
    pieces = (piece for paragraph in paragraphs for piece in re.split(r"(?<=[a-z]\.) (?=[A-Z])", paragraph))
    return [piece for piece in pieces if plain.fullmatch(piece)]


def _filled(rng: random.Random, form: str) -> str:
    first, last, word = rng.choice(FIRST), rng.choice(LAST), rng.choice(WORDS)
    return form.format(
        first=first,
        last=last,
        mail=f"{first}.{last}@post{rng.randint(1, 99)}.example".lower(),
        number=rng.randint(2, 99),
        ip=".".join(str(rng.randint(1, 250)) for _ in range(4)),
        word=word,
        Word=word.capitalize(),
        word2=rng.choice(WORDS),
        two=rng.randint(10, 59),
        two2=rng.randint(10, 59),
        three=rng.randint(100, 999),
        five=rng.randint(10_000, 99_999),
        eight=rng.randint(10**7, 10**8 - 1),
        hex=f"{rng.getrandbits(128):032x}",
        hex8=f"{rng.getrandbits(32):08x}",
    )


def _joined(pieces: Iterator[str], size: int, between: str) -> str:
    parts: list[str] = []
    length = 0
    for piece in pieces:
        parts.append(piece)
        length += len(piece) + len(between)
        if length >= size:
            break
    return between.join(parts)[:size]
