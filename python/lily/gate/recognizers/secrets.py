"""Secrets known by what stands around them, in assignments, headers and prose, and tokens that only chance writes.

A word such as password, token or key announces a value; how much the value must look like a secret depends on the word
and on what links the two. A random token without any cue counts where it is long and mixed and no veto names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from lily.gate.folding import View

from .hits import Hit
from .randomness import dull, is_random, is_word, monotone, wordiness
from .values import is_code, is_password, is_placeholder, passwordish
from .vetoes import Vetoes

_CUE = re.compile(
    r"(?:(?:api|access|secret|private|encryption|signing|master|account|license|licence|network|wifi|wi-fi|shared|"
    r"storage|service)[_ .-]?key|pass(?:word|wort|wd|phrase|code|wrd)?|pwd|psw|kennwort|"
    r"contrase(?:ñ|n)a|mot de passe|senha|parola|wachtwoord|hasło|пароль|密码|パスワード|비밀번호|"
    r"client[_ .-]?secret|secret|token|key|credentials?|creds|bearer|authorization|auth|private|access|"
    r"client[_ .-]?id|dsn|webhook|jwt|cookie|session[_ .-]?id|salt|connection[_ .-]?string|app[_ .-]?id|consumer|"
    r"sas|mnemonic|recovery code|backup code|wlan|wep|wpa|psk|login)s?"
)
_STRONG = re.compile(
    r"pass|pwd|psw|kennwort|contrase|senha|parola|wachtwoord|hasło|пароль|密码|パスワード|비밀번호|network.?key|wi-?fi.?key|"
    r"wlan|psk|wpa|wep"
)
_LINK = re.compile(
    r"(?P<name>[\w.-]{0,40})[\"'`*)\]]{0,3}[ \t]{0,4}(?:(?P<mark>(?::=|=>|->|==?|:|\||"
    r"-(?=[ \t]))[ \t]{0,8}(?:(?<=[: ])\n[ \t]{1,12})?)|(?P<verb>(?:is|was|ist|es|est|é|è|war|of|set to|now|"
    r"equals)[ :\t]{1,3})|(?P<comma>[\"'],[ \t]{0,4})|(?P<space>[ \t]{1,4}))"
)
_OPEN = re.compile(
    r"(?:\*\*|[\"'`(\[]{0,3})(?:(?:basic|bearer|token|digest)[ \t]+|[a-z]?b?(?=[\"']))?[\"'`]{0,3}", re.IGNORECASE
)
_SCHEME = re.compile(r"(?:basic|bearer|token)[ ]+", re.IGNORECASE)
_LONGEST = 4096
_QUOTED = re.compile(rf"([\"'`])((?:(?!\1)[^\n\\]|\\.){{1,{_LONGEST}}})\1")
_BARE = re.compile(rf"[^\s\"'`<>;,|]{{1,{_LONGEST}}}")
_KEYISH = re.compile(rf"[0-9A-Za-z+/_.~%-]{{6,{_LONGEST}}}={{0,2}}")
_LONG = 256
_REACH = 90
_TOKEN = re.compile(rf"[0-9A-Za-z](?<![0-9A-Za-z_+/.-].)[0-9A-Za-z_+/.-]{{15,{_LONGEST}}}={{0,2}}")
_SAID = re.compile(
    r"(?:(?<![a-z])(?:is|was|are|were|ist|es|est)|[:=]|(?<![a-z])(?:or|and|with|"
    r"using))[ \t]{1,3}[\"'`]?([^\s\"'`<>,;|]{5,80})"
)
_PIN = re.compile(
    r"(?<![^\W_])(?:pin|otp|puk|geheimzahl|passcode|2fa|(?:pin|door|alarm|gate|entry|access|lock|unlock|safe|"
    r"verification|security|2fa|mfa|auth|authentication|login|sms|confirmation|one[- ]time|código|vault) (?:code|"
    r"pin|password|passcode)|code pin|código pin|one[- ]time (?:code|password|passcode))(?![^\W\d_])"
    r"(?:[ \t\"'*]{1,3}[a-z]{1,12}(?:'s|\.)?){0,6}?[ \t\"'*:=]{0,5}([0-9]{4,8})(?![0-9a-z%]|[.,:/-][0-9])"
)
_NOT_SECRET = re.compile(
    r"(?:sha-?(?:1|224|256|384|512)|md5|digest|checksum|fingerprint|integrity|commit|revision|(?<![a-z])rev|hash|"
    r"etag|uuid|guid|request[_ -]?id|trace[_ -]?id|span[_ -]?id|invocation[_ -]?id|correlation[_ -]?id|"
    r"blob|tree|parent|object|image|version|nonce|resolved|public[_ -]?key|pubkey|pub|ssh-(?:rsa|ed25519|dss)|"
    r"ecdsa-sha2-\w{1,20}|certificate|build|order|tracking|sku|isbn|filename|file|path|oid|index|ami|snapshot|"
    r"message[_ -]?id|msg[_ -]?id|"
    r"model|txid|transaction|block|address|wallet|base64,?)[\"']?[ \t]{0,2}[:=#]{0,2}[ \t]{0,2}[\"'(]?$"
)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", re.IGNORECASE)
_KEY_CUE = re.compile(
    r"(?:key|secret|passw|passphrase|credential|bearer|licen[sc]e|auth|"
    r"(?<!account[_ -])(?<!card[_ -])(?<!page[_ -])token)"
)
_UUID_CUE = re.compile(
    r"(?:secret|api[_ .-]?key|access[_ .-]?key|private|(?:auth|access|bearer|api)[_ .-]?token|licen[sc]e[_ .-]?key|"
    r"_key)"
)
_HEX = re.compile(r"[0-9a-f]+$", re.IGNORECASE)
_PUBLIC = re.compile(
    r"public[_ -]?$|pub[_ -]?$|primary[_ -]?$|foreign[_ -]?$|cache[_ -]?$|sort[_ -]?$|partition[_ -]?$"
)
_NAMES = re.compile(r"secret|token|key|credential|jwt|private|auth|access|consumer|webhook")


class _Value(NamedTuple):
    """What a cue announces: its extent, the link between the two, whether it stood in quotes, the cue and its name."""

    start: int
    end: int
    link: str
    quoted: bool
    name: str
    strong: bool


def find(view: View, vetoes: Vetoes) -> Iterator[Hit]:
    """The secrets of a view that their surroundings give away."""
    yield from _announced(view, vetoes)
    yield from _unannounced(view, vetoes)
    for match in _PIN.finditer(view.lower):
        yield Hit(match.start(1), match.end(1), "secret", "pin", "cued", 0.85, "code word")


def _announced(view: View, vetoes: Vetoes) -> Iterator[Hit]:
    done = read = 0  # up to where values were found, and up to where long tokens were looked at in vain
    for cue in _CUE.finditer(view.lower):
        if cue.start() < done or not _whole(view.folded, cue.start(), cue.end()):
            continue
        if _PUBLIC.search(view.lower, max(0, cue.start() - 10), cue.start()):
            continue
        value = _value(view, cue)
        if value is not None and _is_secret(view.folded[value.start : value.end], value):
            done = value.end
            sub = "password" if value.strong else "token"
            yield Hit(value.start, value.end, "secret", sub, "cued", 0.9, f"behind {cue[0]!r}")
            if value.strong:
                yield from _alternatives(view, value.end)
        elif cue.end() >= read:
            for match in _tokens(view, cue):
                if match.end() - match.start() > _LONG:
                    read = match.end()
            yield from _later(view, cue, vetoes)


def _whole(text: str, start: int, end: int) -> bool:
    """Whether a cue is a word or a part of a name: `apiKey`, `API_KEY`, not the middle of `monkey` or `passenger`."""
    if start and text[start - 1].isalpha() and text[start].islower() and text[start - 1].isascii() and end - start < 5:
        return False
    after = text[end : end + 1]
    return not (after.isalpha() and after.isascii() and after.islower() and text[end - 1].islower()) or end - start >= 6


def _value(view: View, cue: re.Match[str]) -> _Value | None:
    """What is assigned to a cue: what stands between quotes, or up to a blank or a mark."""
    text = view.folded
    link = _LINK.match(view.lower, cue.end())
    if link is None:
        return None
    kind = "mark" if link["mark"] or link["comma"] else "verb" if link["verb"] else "space"
    name = view.lower[max(0, cue.start() - 24) : cue.end()].rsplit(None, 1)[-1] + link["name"]
    strong = _STRONG.search(cue[0] + link["name"]) is not None
    opened = _OPEN.match(text, link.end())
    start = opened.end() if opened else link.end()
    for at in (link.end(), start - 1):
        if at < len(text) and text[at] in "\"'`":
            quoted = _QUOTED.match(text, at)
            if quoted:
                scheme = _SCHEME.match(quoted[2])
                first = quoted.start(2) + (scheme.end() if scheme else 0)
                return _Value(first, quoted.end(2), kind, True, name, strong) if first < quoted.end(2) else None
    bare = _BARE.match(text, start)
    if bare is None:
        return None
    end = _bare_end(text, start, bare.end(), ".,:\\" if kind == "mark" else ".,:?\\")
    return _Value(start, end, kind, start > 0 and text[start - 1] in "\"'`", name, strong) if end > start else None


def _bare_end(text: str, start: int, end: int, marks: str) -> int:
    """Where a value without quotes ends: before the punctuation of its sentence, or before the next parameter."""
    parameter = text.find("&", start, end)
    if parameter > start and "=" in text[parameter:end]:
        end = parameter
    if end - start > _LONG:
        equals = text.find("=", start, end - 2)
        end = equals if equals > start else end
    while end > start and (text[end - 1] in marks or (text[end - 1] in ")]}" and _unopened(text[start:end]))):
        end -= 1
    return end


def _unopened(value: str) -> bool:
    return value.count(value[-1]) > value.count({")": "(", "]": "[", "}": "{"}[value[-1]])


def _is_secret(text: str, value: _Value) -> bool:
    size = len(text)
    if (
        size < 4
        or is_placeholder(text)
        or "://" in text
        or (" " in text and not value.strong)
        or (size > 8 and len(set(text)) < 4)
    ):
        return False
    if _UUID.match(text):
        return value.strong or _UUID_CUE.search(value.name) is not None
    if is_code(text) and not (size >= 16 and is_random(text) and sum(c.isdigit() for c in text) * 5 >= size):
        return False
    if value.name == "pass" and text.isalpha() and not value.quoted:
        return False
    if value.strong:
        return is_password(text, value.link, value.quoted)
    return _is_key(text, value)


def _is_key(text: str, value: _Value) -> bool:
    """Whether what key, token, secret or their kin announce looks drawn."""
    size = len(text)
    digits = sum(c.isdigit() for c in text)
    if value.name in ("key", "keys") and not value.quoted and value.link == "mark" and (size < 20 or dull(text)):
        return False  # a key of a cache or of a table
    if _HEX.match(text) and size >= 16 and digits >= 2:
        return not text.isdigit() or value.link != "space"
    if size >= 12 and is_random(text):
        return True
    if not any(c.isalpha() for c in text) or monotone(text):
        return False
    if value.link == "space":
        return not dull(text) and size >= 16 and digits >= 4 and wordiness(text) < 0.75
    if not _NAMES.search(value.name):
        return False
    marks = len({c for c in text if not c.isalnum()} - set("_-./: "))
    if value.quoted and size >= 12 and marks >= 3:
        return True
    if size >= 10 and digits >= 2 and (wordiness(text) < 0.75 or digits * 3 >= size):
        return True
    if "secret" in value.name and size >= 8:
        return not is_word(text) and (digits > 0 or wordiness(text) < 0.5)
    return size >= 8 and digits >= 2 and wordiness(text) < 0.7


def _alternatives(view: View, at: int) -> Iterator[Hit]:
    """More passwords behind one: "it was X or Y"."""
    for _ in range(4):
        match = re.compile(r"[\"'`]?(?:,? (?:or|and|oder|ou|o) |, ?|/)[\"'`]?([^\s\"'`<>,;|]{5,80})").match(
            view.folded, at
        )
        if match is None:
            return
        text = match[1].rstrip(".?,:)")
        if not passwordish(text):
            return
        at = match.start(1) + len(text)
        yield Hit(match.start(1), at, "secret", "password", "cued", 0.8, "or another password")


def _later(view: View, cue: re.Match[str], vetoes: Vetoes) -> Iterator[Hit]:
    """A value further on in the sentence of a cue: "my token stopped working: ...", "the password on it is ..."."""
    stop = view.lower.find("\n", cue.end(), cue.end() + _REACH)
    stop = min(len(view.lower), cue.end() + _REACH) if stop < 0 else stop
    if _STRONG.match(cue[0]):
        for said in _SAID.finditer(view.folded, cue.end(), min(len(view.lower), stop + 70)):
            text = said[1].rstrip(".?,:)")
            if said.start() >= stop or re.search(r"[.!?] [A-Z]", view.folded[cue.end() : said.start()]):
                break
            if passwordish(text) and not is_placeholder(text) and not is_code(text):
                end = said.start(1) + len(text)
                yield Hit(said.start(1), end, "secret", "password", "cued", 0.8, f"after {cue[0]!r}")
                yield from _alternatives(view, end)
                return
    for match in _tokens(view, cue):
        start, end = _core(match)
        token = view.folded[start:end]
        if _drawn(token) and not _named(view, start, end, vetoes) and view.folded[start - 1] not in "/@#":
            yield Hit(start, end, "secret", "token", "cued", 0.8, f"after {cue[0]!r}")
            return


def _tokens(view: View, cue: re.Match[str]) -> Iterator[re.Match[str]]:
    """The tokens that start within reach of a cue, on its line."""
    stop = view.lower.find("\n", cue.end(), cue.end() + _REACH)
    stop = min(len(view.lower), cue.end() + _REACH) if stop < 0 else stop
    for match in _KEYISH.finditer(view.folded, cue.end(), stop):
        whole = _KEYISH.match(view.folded, match.start()) if match.end() == stop else match
        if whole:
            yield whole


def _core(match: re.Match[str]) -> tuple[int, int]:
    """The token without the marks of its sentence; the padding of base64 stays."""
    text = match[0]
    lead = len(text) - len(text.lstrip("-_.+/%~"))
    size = len(text.rstrip(".-~%"))
    return match.start() + lead, max(match.start() + size, match.start() + lead)


def _drawn(token: str) -> bool:
    digits = sum(c.isdigit() for c in token)
    if (
        len(token) < 12
        or token.startswith(("http", "www."))
        or _UUID.match(token)
        or token.count("/") > len(token) / 12
    ):
        return False
    return (digits >= 2 and is_random(token)) or (len(token) >= 20 and is_random(token) and "/" not in token)


def _named(view: View, start: int, end: int, vetoes: Vetoes) -> bool:
    """Whether a veto or the word before a token says that it is something else."""
    if vetoes.holds(start, end) and not (_HEX.match(view.folded[start:end]) and end - start >= 24):
        return True
    return _NOT_SECRET.search(view.lower, max(0, start - 32), start) is not None


def is_mere_uuid(text: str, start: int, end: int) -> bool:
    """Whether a part is a UUID and no word before it, on its line, speaks of keys: then it names something."""
    before = text[max(text.rfind("\n", 0, start) + 1, start - _REACH) : start].lower()
    return _UUID.match(text[start:end]) is not None and _KEY_CUE.search(before) is None


def _unannounced(view: View, vetoes: Vetoes) -> Iterator[Hit]:
    """Tokens that only chance writes: long, of mixed characters, and named by nothing else."""
    text, lower = view.folded, view.lower
    for match in _TOKEN.finditer(text):
        start = match.start()
        token = match[0].rstrip(".-_/")
        size = len(token)
        digits = sum(c.isdigit() for c in token)
        if size < 20 or digits < 1 or size - digits < 4 or _HEX.match(token) or vetoes.touches(start, start + size):
            continue
        if "+" in token and ("." in token or "-" in token):
            continue
        if token.count("/") > size / 13 or token.count(".") > 3 or token.count("_") + token.count("-") > size / 6:
            continue
        mixed = any(c.islower() for c in token) and any(c.isupper() for c in token)
        if digits < 2 and not (mixed and size >= 32 and "." not in token and wordiness(token) < 0.6):
            continue
        alone = (start == 0 or text[start - 1] in "\n\"'`|" or text[start - 2 : start] == "| ") and text[
            start + size : start + size + 1
        ] in ("", "\n", '"', "'", "`", " ")
        if not (mixed or alone or size >= 28) or not is_random(token) or _in_path(text, start):
            continue
        if not _NOT_SECRET.search(lower, max(0, start - 32), start):
            yield Hit(
                start, start + size, "secret", "token", "cued" if size >= 24 or alone else "weak", 0.7, "random token"
            )


def _in_path(text: str, start: int) -> bool:
    """Whether a token is a part of an address or a path."""
    if text[max(0, start - 1) : start] in ("/", "#", "@", "&", "?", "%", "\\", "$"):
        return True
    before = text[max(0, start - 200) : start]
    return bool(before) and not before[-1].isspace() and "://" in before.rsplit(None, 1)[-1]
