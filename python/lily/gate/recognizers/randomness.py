"""How random a token looks: what tells a key from a word, a path or an identifier of a program.

Keys are drawn from an alphabet; words are not. The measure splits a token as a reader would (small, capital, digits)
and asks how many of its letter pairs are pairs of ordinary words.
"""

from __future__ import annotations

import re
from functools import lru_cache

# The commonest pairs of letters in English, German, French and Spanish words: some nine in ten pairs of a text.
_PAIRS = frozenset(
    "th he in er an re nd on en at ou ed ha to or it is hi es ng st ar te se me nt ti ne de ea al le sa si ve ro ra "
    "ri as el om la of no be ho li "
    "ce io co ch ma wa ec ll ic us ur em lo id il et ac am so ss oo ut un op ad ai ly we tr ow ab ag ap av ay ba bl "
    "bo br bu ca ci ck cl cr ct cu "
    "da di do ds du ef ei em ep ev ex ey fa fe ff fi fl fo fr fu ga ge gh gi gl go gr gu ia ib ie if ig im ip ir iv "
    "ke ki ld lf ls lt lu mb mi mm "
    "mo mp ms mu na nc nf ni ns nu ob oc od oi ok ol os ot ov pa pe ph pi pl po pp pr ps pt pu qu rc rd rg rk rl rm "
    "rn rr rs rt ru rv ry sc sh sk "
    "sl sm sn sp su sw sy ta tl ts tt tu tw ty ub ue ug ui ul um up va vi wi wh wo wn ye yo ys za ze nk gn au eu ee "
    "eg eb fy py xp xt pd db sq ql tp".split()
)
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_RUN = re.compile(r"(.)\1{4,}")


@lru_cache(maxsize=65536)
def wordiness(token: str) -> float:
    """The part of a token's letter pairs that words have, from 0 to 1; 1 for a token of fewer than 3 pairs."""
    good = total = 0
    for piece in re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", token).lower()):
        total += len(piece) - 1
        good += sum(piece[i : i + 2] in _PAIRS for i in range(len(piece) - 1))
    return 1.0 if total < 3 else good / total


def is_word(token: str) -> bool:
    """Whether a token is a word or words joined: letters with a few digits at most, and pairs of words."""
    return sum(c.isdigit() for c in token) <= 2 and wordiness(token) >= 0.7


def monotone(token: str) -> bool:
    """Whether a token has few characters, again and again."""
    return len(set(token)) < min(6, len(token) // 2 + 1) or _RUN.search(token) is not None


def dull(token: str) -> bool:
    """Whether a token is a pattern and no key: monotone, or an alphabet recited."""
    lower = token.lower()
    return monotone(token) or any(
        alphabet in lower for alphabet in ("0123456789", "abcdefghij", "1234567890", "qwertyuiop", "example", "xxxx")
    )


def is_random(token: str) -> bool:
    """Whether a token of 12 characters or more looks drawn by a machine.

    Its pieces are short and many, or its letters do not pair as letters do in words.
    """
    letters = sum(c.isalpha() for c in token)
    digits = sum(c.isdigit() for c in token)
    if letters + digits < 10 or dull(token):
        return False
    words = wordiness(token)
    pieces = _PIECE.findall(token)
    mean = (letters + digits) / max(1, len(pieces))
    if digits < 2:
        mixed = any(c.islower() for c in token) and any(c.isupper() for c in token)
        return letters >= 16 and (words < (0.62 if mixed else 0.52) or (mixed and letters >= 24 and mean <= 3.2))
    if letters < 3:
        return False
    long_words = sum(len(p) for p in pieces if len(p) >= 4 and p.isalpha() and wordiness(p) >= 0.6)
    if long_words > 0.45 * (letters + digits):
        return False
    return mean <= 3.2 or words < 0.6
