"""The label set and the BIOES tags, in the order the classifier's head has them."""

from __future__ import annotations

LABELS = (
    "private_person",
    "private_email",
    "private_phone",
    "private_address",
    "private_url",
    "private_date",
    "account_number",
    "secret",
    "other_pii",
)
TAGS = ("O", *(f"{part}-{label}" for label in LABELS for part in "BIES"))
LABEL_ID = {label: i for i, label in enumerate(LABELS)}
IGNORED = -100  # as in torch's cross entropy


def tag(part: str, label: str) -> int:
    """The index of a tag: B-c is 1 + 4c, then I, E, S."""
    return 1 + 4 * LABEL_ID[label] + "BIES".index(part)


def follows(before: int, after: int) -> bool:
    """Whether `after` may stand behind `before` in a path."""
    first, second = TAGS[before], TAGS[after]
    if first[0] in "BI":
        return second[0] in "IE" and first[2:] == second[2:]
    return second[0] in "OBS"
