# ruff: noqa: RUF001 (texts of other scripts are a part of the subject)
"""Faults that users of other detectors report, where the model has a say: the whole Gate on families of texts.

P1 to P40 are the kinds of the list that this project keeps. Each is in the name of a test, of a parameter or here:
P17 and P36 are also tests of masking, P33 of the Gate, P38 of linear time. What a model decides is no certainty, so a
family has a bar: the least share of values that are found with the right label and exactly these characters, or the
largest share of texts in which anything is found. What rules alone decide, test_bug_reports_rules.py holds to a draw.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from gate_families import QUIET, Case, family, quiet

from lily import Gate

FOUND: dict[str, tuple[float, list[str]]] = {
    "p5_phones_beside_names": (
        0.95,
        [
            "o meu nome é {person} e o telefone é {phone}",
            "call {person} on {phone}",
            "Bitte {person} unter {phone} anrufen, am besten abends.",
            "{person}, {phone}, asked for a call back",
            "mi número es {phone}, pregunta por {person}",
        ],
    ),
    "p7_cards": (0.95, ["pay with {card} please", "{person}'s card {card} was refused"]),
    "p11_ids_in_small_letters": (0.95, ["mi dni es {dni}", "DNI de {person}: {dni}"]),
    "p13_ibans_end_where_they_end": (0.95, ["IBAN {iban} BIC COBADEFFXXX", "{iban} FAILED", "{iban} {person}"]),
    "p14_emoji": (
        0.85,
        [
            f"{emoji} {template}"
            for emoji in ("😀🎉", "👨\u200d👩\u200d👧\u200d👦", "👍🏽", "cafe\u0301:", "✅ →", "\U00020000")
            for template in (
                "ich bin der {person}, mail {mail} 👍🏽",
                "family of {person} lives at {address} 🏠",
                "{person} 😀 wrote from {mail} 🎉 about {iban}",
            )
        ],
    ),
    "p15_scripts": (
        0.9,
        [
            "担当は{han}です。連絡先 {mail}",
            "Überweisung für {person}, IBAN {iban}",
            "请联系{han}，邮箱 {mail}",
            "Größe: für {person} über {phone}",
            "Ünïcödé naïve café: {person}, {mail}",
        ],
    ),
    "p16_every_value_of_a_sentence": (
        0.9,
        [
            "My name is {person}, my email is {mail}, phone {phone}",
            "{person} ({mail}) lives at {address} and pays by {card}.",
            "Please send {person}'s parcel to {address}; questions to {phone} or {mail}.",
        ],
    ),
    "p18_keys_in_prose": (
        0.95,
        [
            "My API key is {key} and I need to share it with my team.",
            "the key they gave me is {key} does that look right?",
            "{person} pasted the secret ({key}) into the chat",
            "use {key} as the access key",
        ],
    ),
    "p21_addresses": (
        0.85,
        [
            "I live at {address} with my aunt.",
            "Meine Adresse: {address}",
            "Bitte liefern an: {address}",
            "Please ship it to {address}, thanks",
            "Moro em {address}.",
            "My new address is {address} from May on.",
            "J'habite {address}.",
            "The parcel for {person}, {address}, came back.",
        ],
    ),
    "p23_keys_shaped_as_uuids": (
        0.95,
        ["HEROKU_API_KEY={uuid}", "my api key is {uuid}", "the client secret was {uuid}"],
    ),
    "p26_hyphens_inside_numbers": (0.95, ["SSN: {ssn}", "{person}, SSN {ssn}"]),
    "p34_tokens_behind_characters_of_many_bytes": (0.95, ["✅ déployé → token={github}", "令牌：{github}。"]),
    "p36_names_of_two_words": (0.9, ["{person} met the advisor at noon.", "Where is {person}'s advisor?"]),
    "p39_several_kinds": (
        0.95,
        ["card {card}, mail {mail}, for {person}", "{person}: dni {dni}, card {card}, {phone}"],
    ),
}
IN_ONE_CASE = [
    "ATTENDEE: {person}",
    "hi this is {person}, can i move my slot",
    "from: {person}\nsubject: invoice",
    "could you ask {person} to call me back",
    "PATIENT {person} WAS ADMITTED ON MONDAY",
    "my colleague {person} will join us later",
    "Signed: {person}",
    "i met {person} in the office yesterday and it went well",
]
FILLERS = [
    "Line item: office chair, qty 4, unit price 120.00, delivered. ",
    "The quarterly maintenance notes follow the usual structure and contain nothing personal. ",
    "Wartung der Anlage: Filter getauscht, Druck geprüft, alles in Ordnung.\n",
    "2026-03-04 11:20:33 INFO worker heartbeat ok\n",
]


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    with Gate() as opened:
        yield opened


def share_found(gate: Gate, cases: Sequence[Case]) -> float:
    """The share of the expected values that are spans, by label and characters. What was missed is printed."""
    missed = total = 0
    for (text, expected), verdict in zip(cases, gate.classify_many([text for text, _ in cases]), strict=True):
        found = [(span.label, text[span.start : span.end]) for span in verdict.spans]
        total += len(expected)
        for one in expected:
            if one in found:
                found.remove(one)
            else:
                missed += 1
                print(one, "in", text[-120:], "gave", found)
    return 1 - missed / total


@pytest.mark.parametrize("kind", FOUND)
def test_values_are_found(gate: Gate, kind: str) -> None:
    bar, templates = FOUND[kind]
    assert share_found(gate, family(templates)) >= bar


@pytest.mark.parametrize("change", [str.upper, str.lower])
def test_p8_names_in_one_case(gate: Gate, change: Callable[[str], str]) -> None:
    assert share_found(gate, family(IN_ONE_CASE, 80, change)) >= 0.9


@pytest.mark.parametrize("filler", FILLERS)
def test_p19_p40_the_end_of_long_texts(gate: Gate, filler: str) -> None:
    """At lengths around and beyond the windows of this model and of others."""
    ends = family(["Contact {person} at {phone}.", "Bill to {person}, {address}."], 10)
    sizes = (0, 400, 1200, 1500, 2000, 2400, 4000, 9000, 20_000, 60_000)
    cases = [(filler * (size // len(filler)) + text, values) for size, (text, values) in zip(sizes, ends, strict=True)]
    assert share_found(gate, cases) >= 0.85


@pytest.mark.parametrize("kind", QUIET)
def test_nothing_is_found(gate: Gate, kind: str) -> None:
    texts = quiet(kind)
    flagged = [verdict for verdict in gate.classify_many(texts) if verdict.spans]
    for verdict in flagged:
        print([verdict.text[span.start : span.end] for span in verdict.spans], "in", verdict.text[:120])
    assert len(flagged) <= 0.05 * len(texts)


def test_p17_people_of_two_prompts_stay_apart(gate: Gate) -> None:
    (one, [(_, first)]), (two, [(_, second)]) = family(["Add user {person}, please.", "Add user {person} as well."], 2)
    assert gate.classify(one).masked == "Add user [PERSON_1], please."
    assert gate.classify(two).restore("[PERSON_1]") == second
    session = gate.session()
    session.classify(one)
    assert session.classify(two).masked == "Add user [PERSON_2] as well."
    assert session.restore("[PERSON_1] [PERSON_2]") == f"{first} {second}"


def test_every_kind_has_a_test() -> None:
    here = Path(__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in here.glob("test_*.py"))
    families = " ".join(QUIET)
    named = {int(number) for number in re.findall(r"(?:_|\b)p(\d+)(?=_)", source + families)}
    assert named >= set(range(1, 41)) - {33, 38}
    assert "def test_messages_and_tool_calls" in source  # P33
    assert "def test_a_megabyte_of_prose_and_of_log" in source  # P38
