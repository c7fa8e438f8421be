"""What a value next to a secret's name is: a secret, a placeholder, a name in a program.

These are judgements of one string; where it stands and how it got there is the secret recognizer's.
"""

from __future__ import annotations

import re

from .randomness import is_random, wordiness

_PLACEHOLDER = re.compile(
    r"^(?:[x*.•…#?_-]+|0+|<.*|\$[({a-z_].*|%[a-z_]+%.*|\{.*|\[[^\]]*\]?|#\{.*|@\w+@?|&\w+;.*|\\?\(.*|your.*|"
    r"insert.*|enter .*|some.*|the|a|an|to|in|for|and|or|not|no|yes|none|null|nil|true|false|undefined|string|str|int|"
    r"bytes|bool|optional.*|required|here|value|empty|unset|n/a|tbd|todo|sample|default|redacted|hidden|masked|"
    r"removed|secret|secrets?\..*|token|password|passwd|key|username|user|input|text|os\.environ.*|process\.env.*|"
    r"env[.\[(].*|"
    r"self\..*|this\..*|config\..*|settings\..*|getenv.*|vault:.*|ssm:.*|arn:.*|ref:.*|base64|sha256|md5|bcrypt|"
    r".*(?:placeholder|redacted|xxxx|\*\*\*\*|goes here|_here|changeme|change[-_]me|not-?set|your[_-]|dummy|example|"
    r"[_-]password|\.\.\.).*)$",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"^[a-z_][\w.]*\((?:.*\))?[;,]?$|^[a-z_]\w*(?:->|::)|^[a-z_]\w*(?:\.[a-z_]\w*)+$|"
    r"^[a-z_]\w*(?:\[[\w\"'.:-]*\]?)+$|^new$|^function|^[a-z_]\w*\(.*\)",
    re.IGNORECASE,
)
_NAME = re.compile(
    r"pass|pwd|user|name|field|input|hash|salt|type|text|label|value|null|true|false|secret|token|login|email",
    re.IGNORECASE,
)
_COMMON = frozenset(
    "password required invalid incorrect missing reset change forgot update confirm current enter string username "
    "email login submit optional label title error success hidden text number "
    "manager policy field length expired protected prompt strength generator protection is was and or the must "
    "should cannot".split()
)
_NUMBER = re.compile(r"^[0-9.,:/+-]+$")


def is_placeholder(text: str) -> bool:
    """Whether a value only holds the place of one: <token>, ${VAR}, YOUR_KEY, xxxx, ****."""
    return _PLACEHOLDER.match(text) is not None


def is_code(text: str) -> bool:
    """Whether a value is an expression of a program: a call, a member, an index."""
    return _CODE.match(text) is not None


def passwordish(text: str) -> bool:
    """Whether a token of a sentence is a password rather than a word: digits or marks inside, or words joined."""
    if len(text) < 5 or _NUMBER.match(text) or text.startswith(("http", "/", "www.")) or re.match(r"^@\w+$", text):
        return False
    digits = sum(c.isdigit() for c in text)
    inner = sum(c in "!@#$%^&*" for c in text[:-1])
    letters = sum(c.isalpha() for c in text)
    if letters < 2:
        return False
    if digits and (letters >= 3 or inner):
        return not re.match(r"^[0-9]+[a-z]{1,3}$", text)
    return (
        inner > 0
        or (len(re.findall(r"[a-z]+", text)) >= 4 and text.count("-") >= 3)
        or (len(text) >= 10 and is_random(text))
    )


def is_password(text: str, link: str, quoted: bool) -> bool:
    """Whether what a word for password announces is one; `link` is mark, verb or space."""
    digits = sum(c.isdigit() for c in text)
    marks = sum(not c.isalnum() for c in text)
    lower = text.lower()
    if " " in text:
        words = lower.split()
        return quoted and link == "mark" and 3 <= len(words) <= 6 and lower.replace(" ", "").isalpha() and text == lower
    if lower in _COMMON or len(text) < 5:
        return False
    if link != "mark":
        return passwordish(text) or (quoted and digits > 0)
    if text.startswith(("-", "/", "\\")) and not digits:
        return False
    if quoted:
        return re.match(r"^[A-Z_]+$", text) is None and re.match(r"^(?:pass|pwd)[a-z_]{0,12}$", lower) is None
    if digits or marks - text.count("_") - text.count(".") > 0:
        return True
    return (
        len(text) >= 6
        and "." not in text
        and _NAME.search(text) is None
        and (text != text.lower() or "_" not in text or wordiness(text) < 0.5)
    )
