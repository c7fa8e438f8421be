"""Collects plain text for pretraining and for documents without personal data, from Debian packages of clear licence.

Only packages whose texts are public domain or under a permissive licence are listed; what was looked at and left out is
in ../README.md. Each package's own copyright file must contain the phrase given here, otherwise the package is skipped
with a word, never taken silently. Needs `apt-get update` to have run and a Debian or Ubuntu machine; nothing is
installed.

    python -m training.gate.gather_text --out text.txt.xz
"""

from __future__ import annotations

import argparse
import html
import lzma
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """One package (or its name in another release, tried in order): its licence, a phrase that its copyright file must
    hold, the files to read, a cap in characters."""

    packages: tuple[str, ...]
    licence: str
    phrase: str
    pattern: str
    cap: int


SOURCES = (
    Source(
        ("python3.13-doc", "python3.11-doc"),
        "PSF-2.0",
        "PYTHON SOFTWARE FOUNDATION LICENSE",
        "**/_sources/**/*.txt",
        9_000_000,
    ),
    Source(("sqlite3-doc",), "public domain", "public domain", "**/*.html", 7_000_000),
    Source(("postgresql-doc-17", "postgresql-doc-15"), "PostgreSQL", "PostgreSQL", "**/*.html", 7_000_000),
    Source(("apache2-doc",), "Apache-2.0", "Apache License", "**/*.html*", 12_000_000),
    Source(("nodejs-doc",), "MIT", "Permission is hereby granted", "**/*.html", 3_000_000),
    Source(("wordnet-base",), "WordNet", "WordNet", "**/data.*", 9_000_000),
    Source(("dict-jargon",), "public domain", "ublic domain", "**/*.dict.dz", 1_500_000),
    Source(("dict-devil",), "public domain", "ublic domain", "**/*.dict.dz", 400_000),
)

PARAGRAPH = (60, 1200)  # characters; what lies outside is a heading or a dump


def unpack(package: str, folder: Path) -> Path | None:
    """Downloads one package and unpacks it without installing; None when the archive does not have it."""
    done = subprocess.run(["apt-get", "download", "-q", package], cwd=folder, capture_output=True, text=True)
    files = sorted(folder.glob(f"{package}_*.deb"))
    if done.returncode or not files:
        return None
    root = folder / package
    subprocess.run(["dpkg", "-x", str(files[-1]), str(root)], check=True)
    return root


def licensed(root: Path, package: str, phrase: str) -> bool:
    """Whether the package's own copyright file says what the table above says."""
    path = root / "usr/share/doc" / package / "copyright"
    return path.is_file() and phrase in path.read_text("utf-8", "replace")


def read(path: Path) -> str:
    """The text of one file: tags dropped from HTML, glosses taken from WordNet, compressed dictionaries opened."""
    if path.suffix == ".dz":
        return subprocess.run(["gzip", "-dc"], stdin=path.open("rb"), capture_output=True, check=True).stdout.decode(
            "utf-8", "replace"
        )
    text = path.read_bytes().decode("utf-8", "replace")
    if path.name.startswith("data."):
        return "\n\n".join(line.split(" | ", 1)[1].strip() for line in text.splitlines() if " | " in line)
    if ".html" in path.name:
        text = re.sub(r"(?is)<(script|style|head)\b.*?</\1>", " ", text)
        text = re.sub(r"(?i)</?(p|div|li|dd|dt|h\d|td|tr|pre|br)\b[^>]*>", "\n\n", text)
        text = html.unescape(re.sub(r"<[^>]+>", "", text))
    return text


def paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of prose or code of a usable length; wrapped lines are joined where the text is prose."""
    for part in re.split(r"\n\s*\n", text.replace("\r", "")):
        body = part.strip("\n")
        if not body.startswith((" ", "\t")) or "\n" not in body:
            body = re.sub(r"\s*\n\s*", " ", body).strip()
        if PARAGRAPH[0] <= len(body) <= PARAGRAPH[1] and sum(c.isalpha() for c in body) > len(body) // 2:
            yield body


def collect(source: Source, folder: Path) -> list[str]:
    """All usable paragraphs of one package, without repeats, up to its cap."""
    for package in source.packages:
        if root := unpack(package, folder):
            break
    else:
        print(f"skipped {source.packages[0]}: not in the archive", file=sys.stderr)
        return []
    if not licensed(root, package, source.phrase):
        print(f"skipped {package}: its copyright file does not say {source.phrase!r}", file=sys.stderr)
        return []
    found: dict[str, None] = {}
    for path in sorted(p for p in root.glob(source.pattern) if p.is_file() and p.name != "copyright"):
        for part in paragraphs(read(path)):
            found.setdefault(part)
    kept, size = [], 0
    order = list(found)
    random.Random(7).shuffle(order)
    for part in order:
        size += len(part)
        if size > source.cap:
            break
        kept.append(part)
    print(f"{package}: {len(kept)} paragraphs, {sum(map(len, kept))} characters, {source.licence}")
    return kept


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="text file, .xz; paragraphs are separated by \\x00")
    out: Path = parser.parse_args().out
    with tempfile.TemporaryDirectory() as name:
        parts = [part for source in SOURCES for part in collect(source, Path(name))]
    random.Random(7).shuffle(parts)
    out.write_bytes(lzma.compress("\0".join(parts).encode(), preset=6))
    print(f"{out}: {len(parts)} paragraphs, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
