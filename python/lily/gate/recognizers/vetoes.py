"""What looks like personal data and is not: hashes, UUIDs, time stamps, decimals, versions, placeholders, typefaces.

A veto deletes what a rule or an unsure model sees inside it. It says nothing about a value whose own cue calls it a
secret: that decision is the secret recognizer's.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from lily.gate.folding import View

_UUID = re.compile(r"[0-9a-f](?<![0-9a-z].)[0-9a-f]{7}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-z])")
_HEX = re.compile(r"[0-9a-f](?<![0-9a-z].)[0-9a-f]{6,127}(?![0-9a-z])")
_DIGEST = re.compile(r"(?:sha(?:1|224|256|384|512)|md5|blake2[bs]|h1)[-:=][a-z0-9+/=]{16,128}")
_DECIMAL = re.compile(
    r"[0-9](?<![0-9.].)[0-9]{0,18}\.[0-9]{3,20}(?![0-9]|\.[0-9])|[0-9](?<![0-9.].)[0-9]{4,18}\.[0-9]{1,2}(?![0-9]|"
    r"\.[0-9])"
)
_STAMP = re.compile(
    r"[0-9](?<![0-9a-z.].)(?:"
    r"(?<=1)[4-9][0-9]{8}(?:[0-9]{3}){0,3}"  # seconds, milliseconds, micro- or nanoseconds since 1970
    r"|(?<=[12])[09][0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])[t_-]?(?:[01][0-9]|"
    r"2[0-3])[0-5][0-9][0-5][0-9](?:[0-9]{3})?"
    r"|(?<=[12])[09][0-9]{2}-[0-9]{2}-[0-9]{2}[t ][0-9]{2}:[0-9]{2}(?::[0-9]{2})?(?:[.,][0-9]{1,9})?(?:z|"
    r"[+-][0-9]{2}:?[0-9]{2})?"
    r")(?![0-9]|[.-][0-9])"
)
_VERSION = re.compile(
    r"(?:(?<![a-z])v|version |release |firmware |section |chapter )[0-9]{1,4}(?:\.[0-9]{1,6}){1,4}(?![0-9])"
)
_NAMED = re.compile(
    r"(?<![a-z])(?:isbn(?:-1[03])?|issn|pmid|doi|arxiv|cve|rfc|ean|upc|gtin|cas|sku|part no|order(?: (?:no|number|"
    r"id))?|order_id|"
    r"invoice(?: (?:no|number))?|invoice_id|ticket|tracking(?: (?:no|number))?|build|commit|rev(?:ision)?|"
    r"page(?:_id|s)?|"
    r"trace_id|span_id|request[_ -]id|correlation[_ -]id|job[_ -]id|pid|port|inode|index|offset|epoch|timestamp|"
    r"time_processed|lat|lon|width|height|size|etag|checksum|digest|integrity)"
    r"\.?[\"']?[ ]?[:=#]{0,2}[ ]?[\"']?#?(?:[a-z]{2,4}-)?([0-9][0-9a-z./-]{3,60})"
)
_COUNTED = re.compile(
    r"[0-9](?<![0-9a-z.,-].)[0-9]{0,18} (?:bytes|rows|records|ns|ms|us|iterations|requests|items|entries|"
    r"lines)(?![a-z])"
)
_ULID = re.compile(r"[0-7](?<=[^0-9a-z].)[0-9a-hjkmnp-tv-z]{25}(?![0-9a-z])")
_PATH_NUMBER = re.compile(r"/[0-9]{4,19}(?![0-9a-z])")


# Typefaces are called after people, or as people are: how their names end, and what lists them. Sans, Serif, Neue and
# MS are names or degrees of people too, so that those need the word before them.
_TYPEFACE = re.compile(
    r".*\b(?:gothic|grotesk|grotesque|antiqua|linotype|schoolbook|corsiva|typewriter|console|old face|"
    r"(?:comic|dm|droid|fira|gill|josefin|lucida|noto|open|plex|pt|segoe|source|work) (?:sans|serif|mono|slab)|"
    r"(?:microsoft sans|sans) serif|(?:bebas|haas|helvetica) neue|"
    r"(?:arial|bell|bodoni|calisto|comic sans|gill sans|perpetua|rockwell|trebuchet) m[st])"
    r"(?: (?:pro|std|m[st]|bold|light|black|medium|condensed))*",
    re.IGNORECASE | re.DOTALL,
)
_FONTS = re.compile(
    r"(?<![a-z])(?:fonts?(?:-?family|[ _-]name)?|typefaces?)[\"']?(?: used| stack| list)?\s{0,2}[:=]\s{0,2}"
    r"[\[(\"']{0,2}(?:[\w '\"-]{1,40},\s{0,2}){0,12}[\"']?$"
)
_PUBLIC_PEM = re.compile(r"-----begin (?![a-z0-9 ]{0,30}private)[a-z0-9 ]{3,40}-----[a-z0-9+/=\s\\]{16,20000}")
_SSH_KEY = re.compile(r"(?:ssh-(?:rsa|dss|ed25519)|ecdsa-sha2-[a-z0-9-]{4,20}) [a-z0-9+/]{32,4000}={0,3}")
_DATA = re.compile(r";base64,[a-z0-9+/=_-]{16,1000000}")


class Vetoes:
    """The vetoed parts of a view, ascending and apart."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, parts: list[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(parts):
            if self._ends and start < self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def parts(self) -> list[tuple[int, int]]:
        """The vetoed parts."""
        return list(zip(self._starts, self._ends, strict=True))

    def holds(self, start: int, end: int) -> bool:
        """Whether a part lies inside one veto."""
        at = bisect_right(self._starts, start) - 1
        return at >= 0 and end <= self._ends[at]

    def touches(self, start: int, end: int) -> bool:
        """Whether a part shares a character with a veto."""
        at = bisect_right(self._starts, end - 1) - 1
        return at >= 0 and start < self._ends[at]


def find(view: View, zones: list[tuple[int, int]]) -> Vetoes:
    """The vetoes of a view. Nothing outside the zones with digits needs one."""
    lower = view.lower
    parts: list[tuple[int, int]] = []
    for literal, pattern in (
        ("-----begin", _PUBLIC_PEM),
        ("ssh-", _SSH_KEY),
        ("ecdsa-", _SSH_KEY),
        (";base64,", _DATA),
    ):
        if literal in lower:
            parts += (m.span() for m in pattern.finditer(lower))
    for start, end in zones:
        for pattern in (_UUID, _DIGEST, _DECIMAL, _STAMP, _VERSION, _COUNTED, _ULID):
            parts += (m.span() for m in pattern.finditer(lower, start, end))
        parts += (m.span() for m in _HEX.finditer(lower, start, end) if _hash_like(m[0]))
        parts += (m.span(1) for m in _NAMED.finditer(lower, start, end))
        parts += (m.span() for m in _PATH_NUMBER.finditer(lower, start, end) if _in_url(lower, m.start()))
    return Vetoes(parts)


def is_typeface(text: str, start: int, end: int) -> bool:
    """Whether a name is that of a typeface: by its last words (Gill Sans), or in a list of fonts."""
    if _TYPEFACE.fullmatch(text, start, end):
        return True
    before = text[max(0, start - 160) : start].lower()
    return ("font" in before or "typeface" in before) and _FONTS.search(before) is not None


def _hash_like(text: str) -> bool:
    """Whether hexadecimal digits are a hash or a revision: letters and digits mixed, or very long."""
    letters = sum(c > "9" for c in text)
    return (letters >= 2 and len(text) - letters >= 2) or (len(text) >= 32 and letters > 0)


def _in_url(lower: str, at: int) -> bool:
    head = lower[max(0, at - 200) : at]
    return "://" in head[-200:].rsplit(None, 1)[-1] if head.strip() and not head[-1].isspace() else False
