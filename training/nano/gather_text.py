r"""Collects the text that nano reads: public-domain books and the documentation of permissively licensed projects.

Books are clones of the repositories that data/books.txt names (Standard Ebooks, CC0), one folder each below --books.
Documentation comes from Debian packages, checked and unpacked as for gate-nano. Whole chapters and pages are kept in
one piece; every hundredth, by a hash of its text, is held out. The glosses of WordNet go to a file of their own.

    python -m training.nano.gather_text --books books --out text.txt.xz --heldout heldout.txt.xz --glossary words.txt.xz
"""

from __future__ import annotations

import argparse
import hashlib
import html
import lzma
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from training.gate import gather_text as gate
from training.gate.gather_text import Source, licensed, read, unpack

WORDNET = "wordnet-base"
CAP = 2_500_000  # characters of one package: books are the larger part by far
MORE = (
    Source(("erlang-doc",), "Apache-2.0", "Apache-2.0", "**/*.html", CAP),
    Source(
        ("rust-doc",), "MIT or Apache-2.0", "MIT or Apache-2.0", "**/html/{book,reference,std,nomicon}/**/*.html", CAP
    ),
    Source(("python-django-doc",), "BSD-3-Clause", "BSD-3-Clause", "**/*.html", CAP),
    Source(("libboost1.83-doc", "libboost1.81-doc"), "BSL-1.0", "BSL-1.0", "**/*.html", CAP),
)
SOURCES = tuple(replace(s, cap=min(s.cap, CAP)) for s in (*gate.SOURCES, *MORE) if WORDNET not in s.packages)
FRONT_MATTER = ("titlepage", "imprint", "colophon", "uncopyright", "toc", "loi", "endnotes", "dedication", "epigraph")
HELD_OUT = 100  # one document in so many
SHORTEST = 400  # characters of a document
_PLAIN = str.maketrans(
    {
        "\u201c": '"',
        "\u201d": '"',
        "\u2018": "'",
        "\u2019": "'",
        "\u00a0": " ",
        "\u200a": " ",
        "\u2060": None,
        "\u00ad": None,
        "\ufeff": None,
    }
)


def plain(text: str) -> str:
    """Typewriter quotes and spaces; no invisible characters."""
    return text.translate(_PLAIN)


def chapter(page: str) -> str:
    """The text of one XHTML file of a book: headings and paragraphs, an empty line between them."""
    page = re.sub(r"(?s)<head>.*?</head>|<a [^>]*noteref[^>]*>.*?</a>", "", page)
    parts = re.findall(r"(?s)<(?:p|h\d|cite|li|td)\b[^>]*>(.*?)</(?:p|h\d|cite|li|td)>", page)
    lines = (re.sub(r"\s*\n\s*", "\n", html.unescape(re.sub(r"<br\s*/>", "\n", part))) for part in parts)
    texts = (re.sub(r"[ \t]+", " ", re.sub(r"<[^>]+>", "", line)).strip() for line in lines)
    return plain("\n\n".join(text for text in texts if text))


def books(folder: Path) -> Iterator[str]:
    """Chapters of every book below `folder`."""
    for name in (Path(__file__).parent / "data" / "books.txt").read_text("utf-8").split():
        found = sorted((folder / name.split("/")[1] / "src/epub/text").glob("*.xhtml"))
        if not found:
            print(f"skipped {name}: no chapters below {folder}", file=sys.stderr)
        yield from (chapter(p.read_text("utf-8")) for p in found if not p.stem.startswith((*FRONT_MATTER, "halftitle")))


def page(text: str) -> str:
    """The prose of one page of documentation, with short code between it."""
    kept = []
    for part in re.split(r"\n\s*\n", text.replace("\r", "")):
        body = part.strip("\n")
        if not body.startswith((" ", "\t")) or "\n" not in body:
            body = re.sub(r"\s*\n\s*", " ", body).strip()
        if len(body) >= 40 and sum(c.isalpha() or c == " " for c in body) > 0.8 * len(body):
            kept.append(body)
    return plain("\n\n".join(dict.fromkeys(kept)))


def pages(source: Source, folder: Path) -> Iterator[str]:
    """Pages of one package, in an order of chance, up to its cap; nothing where the archive or the licence fails."""
    package, root = next(((p, r) for p in source.packages if (r := unpack(p, folder))), (source.packages[0], None))
    if root is None or not licensed(root, package, source.phrase):
        print(f"skipped {package}: not in the archive, or its copyright file lacks {source.phrase!r}", file=sys.stderr)
        return
    before, _, rest = source.pattern.partition("{")
    names, _, after = rest.partition("}")
    patterns = [before + name + after for name in names.split(",")]
    found = {p for pattern in patterns for p in root.glob(pattern) if p.is_file() and p.name != "copyright"}
    files = sorted(p for p in found if p.suffix in (".en", "") or not p.stem.endswith(".html"))
    random.Random(7).shuffle(files)
    size, seen = 0, set[str]()
    for path in files:
        text = page(read(path))
        key = text[:300]
        if len(text) >= SHORTEST and key not in seen:
            seen.add(key)
            size += len(text)
            yield text
        if size > source.cap:
            break
    print(f"{package}: {size} characters, {source.licence}")


def glossary(folder: Path) -> Iterator[str]:
    """Lines of word, part of speech and gloss, from WordNet's nouns, verbs and adjectives."""
    root = unpack(WORDNET, folder)
    if root is None or not licensed(root, WORDNET, "WordNet"):
        print(f"skipped {WORDNET}: not in the archive, or its copyright file is another", file=sys.stderr)
        return
    for path in sorted(root.glob("**/data.*")):
        for line in path.read_text("utf-8").splitlines():
            if " | " in line and not line.startswith(" "):
                fields, gloss = line.split(" | ", 1)
                word = re.sub(r"\(\w+\)$", "", fields.split()[4]).replace("_", " ")
                yield f"{word}\t{path.suffix[1:]}\t{plain(gloss.strip())}"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Collects the text that nano reads.")
    parser.add_argument("--books", type=Path, required=True, help="folder of the clones")
    parser.add_argument("--out", type=Path, required=True, help="documents, .xz, separated by \\x00")
    parser.add_argument("--heldout", type=Path, required=True, help="documents never trained on, likewise")
    parser.add_argument("--glossary", type=Path, required=True, help="lines of word, part of speech, gloss, .xz")
    args = parser.parse_args()
    documents = [text for text in books(args.books) if len(text) >= SHORTEST]
    print(f"books: {len(documents)} chapters, {sum(map(len, documents))} characters, CC0-1.0")
    with tempfile.TemporaryDirectory() as name:
        for source in SOURCES:
            documents += pages(source, Path(name))
        glosses = list(glossary(Path(name)))
    documents = list(dict.fromkeys(documents))
    random.Random(7).shuffle(documents)
    apart = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % HELD_OUT == 0 for text in documents]
    for path, wanted in ((args.out, False), (args.heldout, True)):
        chosen = [text for text, held in zip(documents, apart, strict=True) if held == wanted]
        path.write_bytes(lzma.compress("\0".join(chosen).encode(), preset=9))
        print(f"{path}: {len(chosen)} documents, {sum(map(len, chosen))} characters, {path.stat().st_size} bytes")
    args.glossary.write_bytes(lzma.compress("\n".join(glosses).encode(), preset=9))
    print(f"{args.glossary}: {len(glosses)} glosses")


if __name__ == "__main__":
    main()
