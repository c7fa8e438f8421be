"""E-mail addresses, private URLs, IP and MAC addresses, user names behind a cue.

A URL is private when it leads to one person's page, document, meeting or record, or carries a token. Other URLs are
nobody's, and documentation addresses (127.0.0.1, example ranges of loopback) are not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_interface

from lily.gate.folding import View

from .hits import Cues, Hit

_LOCAL = re.compile(r"[\w.+'&/=~!#$%*?^{|}-]{1,64}")
_USERINFO = re.compile(r"[^\s/\"'<>]{0,64}//:")  # reversed: the @ of a URL with a user is no mail address's
_DOMAIN = re.compile(
    r"(?:\[[0-9.:a-fA-FIPv]{3,45}\]|(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_][\w-]{1,23})(?![\w-])"
)
_URL_END = re.compile(r"[^\s<>\"'`\\^|\u3000-\u303f\uff00-\uffef]{1,2000}")
_BARE_URL = re.compile(
    r"(?:www\.|linkedin\.com/|facebook\.com/|github\.com/|instagram\.com/|twitter\.com/|t\.me/|zoom\.us/)"
)
_PRIVATE = re.compile(
    r"//(?:[a-z0-9-]{1,20}\.)?(?:linkedin\.com/(?:in|pub|profile)/[^/?#]|facebook\.com/(?!(?:groups|events|pages|"
    r"help|policies|business|watch)\b)[\w.]{3,}/?(?:$|\?)"
    r"|(?:facebook\.com|fb\.com)/profile\.php|(?:github|gitlab|bitbucket|codeberg)\.(?:com|org)/(?!(?:features|"
    r"pricing|about|login|explore|topics|search|orgs|settings|marketplace)\b)[\w.-]+/?$"
    r"|gist\.github\.com/|instagram\.com/(?!p/|reel/|explore)[\w.]+/?(?:$|\?)|(?:twitter|x)\.com/(?!(?:home|search|"
    r"i|intent|share|hashtag|explore)\b)\w+/?(?:$|\?)"
    r"|(?:tiktok|medium|youtube|threads|mastodon)\.\w+/@|about\.me/|linktr\.ee/|keybase\.io/|strava\.com/athletes|"
    r"vk\.com/(?:id)?\w+/?$|xing\.com/profile"
    r"|(?:drive|docs|photos|calendar|meet|forms)\.google\.com/.{6}|zoom\.us/[jsw]/|teams\.microsoft\.com/l/|"
    r"webex\.com/|calendly\.com/[^/]|cal\.com/[^/]|doodle\.com/"
    r"|dropbox\.com/(?:s|scl|sh|request)|1drv\.ms/|onedrive\.live\.com/|sharepoint\.com/|wetransfer\.com/|we\.tl/|"
    r"icloud\.com/|box\.com/s/|t\.me/\w|wa\.me/|signal\.me/|discord\.gg/|paypal\.me/|venmo\.com/"
    r"|airtable\.com/app|notion\.so/[^/]|trello\.com/b/|figma\.com/file|pastebin\.com/\w{6}|[\w-]+\.(?:github|"
    r"gitlab)\.io/?(?:$|[?#])|[\w-]{4,}\.(?:me|name|blog)(?:/|$))"
    r"|[?&#;](?:token|key|api_?key|sig|signature|pwd|password|auth|code|access_token|id_token|invite|email|e-?mail|"
    r"user(?:name|_?id)?|phone|ssn|session(?:_?id)?|sid|patient(?:_?id)?|customer(?:_?id)?|member(?:_?id)?|uid)=[^&\s]"
    r"|/(?:patients?|users?|customers?|clients?|members?|accounts?|profiles?|people|person|employees?|students?|~|u|"
    r"in|invite|reset|verify|records?|charts?|share[ds]?)/[\w.@%-]*[0-9._@-]"
    r"|/~\w"
)
_OURS = re.compile(r"//(?:localhost|127\.|0\.0\.0\.0|\[::1\])")
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1?[0-9]{1,2})"
_IPV4 = re.compile(
    rf"[0-9](?<![0-9a-z._-].)(?<![0-9][:/].)(?:(?<=2)5[0-5]|(?<=2)[0-4][0-9]|(?<=1)[0-9]{{2}}|"
    rf"[0-9]?)(?:\.{_OCTET}){{3}}(?![0-9a-z_]|\.[0-9]|-[0-9a-z])"
)
_IPV6 = re.compile(r"[0-9a-f:](?<![0-9a-z:.].)(?=[0-9a-f]{0,4}:[0-9a-f:])[0-9a-f:]{3,38}(?:[0-9.]{0,15})(?![0-9a-z:])")
_MAC = re.compile(
    r"[0-9a-f](?<![0-9a-z:-].)[0-9a-f](?:([:-])[0-9a-f]{2})(?:\1[0-9a-f]{2}){4}(?![0-9a-z]|[:-][0-9a-f])|"
    r"[0-9a-f](?<![0-9a-z.].)[0-9a-f]{3}\.[0-9a-f]{4}\.[0-9a-f]{4}(?![0-9a-z.])"
)
_MACHINE_LIKE = re.compile(
    r"[0-9]{1,5}(?:\.[0-9]{1,5}){2,8}|(?=[0-9a-f:.]*:[0-9a-f.]*:)[0-9a-f:.]{4,60}(?:/[0-9]{1,3})?", re.IGNORECASE
)
_NOBODY = frozenset(
    "0.0.0.0 127.0.0.1 255.255.255.255 255.255.255.0 255.255.0.0 255.0.0.0 8.8.8.8 8.8.4.4 1.1.1.1 9.9.9.9 1.2.3.4 "
    "127.0.1.1".split()
)
_NUMBERED = re.compile(
    r"(?:version|ver|release|firmware|section|chapter|clause|build|update|upgrade|upgraded to|(?<![a-z])v|rfc|"
    r"driver|§|[<>~!]=)[ .:=\"']{0,3}$"
)
_USER = Cues(
    {
        "user": (
            "username, user name, user id, userid, login, login name, user, benutzername, nom d'utilisateur, "
            "usuario, nome utente, usuário, gebruikersnaam, screen name, nickname, sam account"
        ),
    }
)
_USER_VALUE = re.compile(
    r"[\"'*`]*[ \t]?(?:[:=]|=>|is[ ]?[:\"'])[ \t]*[\"'`]*(@?[a-z][\w.-]{2,31}[a-z0-9])(?![\w@(\[{.$-])"
)
_NOT_USERS = frozenset(
    "name the null none true false admin root user username login password required string undefined test email "
    "your guest anonymous system nobody default object function str int bool get set self this "
    "request optional text varchar unknown example active inactive failed success enabled disabled and not value "
    "field input page form data".split()
)


def find(view: View, zones: list[tuple[int, int]]) -> Iterator[Hit]:
    """The addresses of a view."""
    yield from _emails(view)
    yield from _urls(view)
    for first, last in zones:
        yield from _machines(view, first, last)
    yield from _users(view)


def _emails(view: View) -> Iterator[Hit]:
    text = view.folded
    for mark in ("@", "%40"):
        at = text.find(mark)
        while at >= 0:
            head = text[max(0, at - 65) : at][::-1]
            local = None if _USERINFO.match(head) else _LOCAL.match(head)
            domain = _DOMAIN.match(text, at + len(mark))
            if local and domain:
                name = _local_part(local[0][::-1])
                if name:
                    end = domain.end()
                    yield Hit(at - len(name), end, "private_email", "", "validated", 0.98, "e-mail address")
            at = text.find(mark, at + 1)


def _local_part(text: str) -> str:
    """The local part at the end of what stands before the @: without query names, paths, quotes and leading marks."""
    for mark in "=/&?{}|$!*^%#'":
        text = text.rsplit(mark, 1)[-1] if mark != "'" or text.startswith("'") else text
    text = text.lstrip(".+-_'~")
    return "" if text.endswith(".") or not text else text


def _urls(view: View) -> Iterator[Hit]:
    text, lower = view.folded, view.lower
    done = 0
    at = text.find("://")
    while at >= 0:
        start = at
        while start > max(0, at - 12) and (lower[start - 1].isalpha() or lower[start - 1] in "+"):
            start -= 1
        match = _URL_END.match(text, at + 3)
        if match and start >= done:
            end = _url_end(text, start, match.end())
            done = end
            if start < at and _is_private(lower[start:end]):
                yield Hit(start, end, "private_url", "", "cued", 0.85, "private page")
        at = text.find("://", at + 3)
    for found in _BARE_URL.finditer(lower):
        start = found.start()
        if start and (lower[start - 1].isalnum() or lower[start - 1] in "/.@-_"):
            continue
        match = _URL_END.match(text, start)
        if match:
            end = _url_end(text, start, match.end())
            if _is_private("//" + lower[start:end].removeprefix("www.")):
                yield Hit(start, end, "private_url", "", "cued", 0.85, "private page")


def _url_end(text: str, start: int, end: int) -> int:
    """Where a URL ends: before the punctuation of the sentence, and before a bracket that it did not open."""
    while end > start and (text[end - 1] in ".,;:!?*_~" or (text[end - 1] in ")]}" and _unopened(text[start:end]))):
        end -= 1
    return end


def _unopened(text: str) -> bool:
    close = text[-1]
    return text.count(close) > text.count({")": "(", "]": "[", "}": "{"}[close])


def _is_private(url: str) -> bool:
    return not _OURS.search(url[:40]) and _PRIVATE.search(url) is not None


def _machines(view: View, first: int, last: int) -> Iterator[Hit]:
    lower = view.lower
    for match in _IPV4.finditer(lower, first, last):
        if match[0] not in _NOBODY and not _NUMBERED.search(lower[max(0, match.start() - 16) : match.start()]):
            yield Hit(*match.span(), "other_pii", "ip", "cued", 0.9, "IPv4 address")
    for match in _MAC.finditer(lower, first, last):
        if len(set(re.sub("[^0-9a-f]", "", match[0]))) > 2:
            yield Hit(*match.span(), "other_pii", "mac", "cued", 0.9, "MAC address")
    for match in _IPV6.finditer(lower, first, last):
        if _ipv6(match[0]):
            yield Hit(
                match.start(),
                match.start() + len(match[0].rstrip(":.")),
                "other_pii",
                "ip",
                "cued",
                0.9,
                "IPv6 address",
            )


def is_no_machine(value: str) -> bool:
    """Whether a value is written like the address of a machine and cannot be one: 256.1.1.1, 192.168.1, 12:34:56."""
    if not _MACHINE_LIKE.fullmatch(value) or _MAC.fullmatch(value.lower()):
        return False
    try:
        ip_interface(value)
    except ValueError:
        return True
    return False


def _ipv6(text: str) -> bool:
    groups = text.rstrip(".").split(":")
    short = text.count("::") == 1
    if not ((len(groups) == 8 and all(groups)) or (short and 3 <= len(groups) <= 8)) or text in ("::1", "::"):
        return False
    plain = groups[:-1] if "." in groups[-1] else groups
    return (
        all(len(g) <= 4 for g in plain) and sum(map(len, plain)) >= (5 if short else 8) and not text.startswith(":::")
    )


def _users(view: View) -> Iterator[Hit]:
    for _, end, _ in _USER.find(view):
        match = _USER_VALUE.match(view.lower, end)
        if (
            match
            and _is_user(view.folded[slice(*match.span(1))])
            and not match[1].startswith(("os.", "env.", "process.", "self.", "config."))
        ):
            yield Hit(*match.span(1), "other_pii", "username", "cued", 0.75, "user name cue")


def _is_user(text: str) -> bool:
    """Whether it may be the name of an account: a capitalised word begins a sentence of somebody called User."""
    return text.lower() not in _NOT_USERS and not (text.isalpha() and text[0].isupper() and not text.isupper())
