# ruff: noqa: RUF001 (look-alikes and full-width characters are the subject)
"""Faults that users of other detectors report, where rules decide: each as a property of its whole kind.

P1 to P40 are the kinds of the list that this project keeps; the kinds of the model, of masking and of restoring are
tested with those.
"""

from __future__ import annotations

import json
import random
import string

import pytest
from gate_rules import kinds, pieces, spans
from gate_values import (
    LETTERS,
    card,
    digits,
    dni,
    drawn,
    email,
    full_width,
    grouped,
    iban,
    luhn,
    passing,
    ssn,
    uuid,
    zero_width,
)
from hypothesis import example, given
from hypothesis import strategies as st

from lily.gate.recognizers import checks

SEEDS = st.integers(0, 2**32)
HEX = "0123456789abcdef"


def labels(text: str) -> set[str]:
    """The labels that the rules give to parts of a text."""
    return {label for label, _ in pieces(text)}


@given(SEEDS)
@example(24466461)  # the end of one is an IBAN by its check digits
def test_p1_p35_numbers_inside_uuids(seed: int) -> None:
    rng = random.Random(seed)
    numeric = "-".join(digits(rng, n) for n in (8, 4, 4, 4, 12))
    assert pieces(f"Session {numeric} expired; correlation id: {uuid(rng)}, retry {uuid(rng)}.") == []
    front = passing(lambda: digits(rng, 16), luhn)
    text = f"{front[:8]}-{front[8:12]}-{front[12:]}-b66c-{drawn(rng, 12, HEX)}"
    assert pieces(json.dumps({"account_token": text, "coin": "BTC"})) == []


@given(SEEDS)
def test_p2_capitals_and_section_numbers_are_no_licences(seed: int) -> None:
    rng = random.Random(seed)
    word = "".join(rng.choice(string.ascii_uppercase) for _ in range(rng.randint(4, 14)))
    mark = f"{rng.choice(string.ascii_uppercase)}{rng.randint(1, 99)}"
    assert (
        pieces(f"CHAPTER {rng.randint(1, 40)} - {word}\nTable {mark} shows {word} and figure {mark} in section {mark}.")
        == []
    )


@pytest.mark.parametrize(
    "word",
    ["public", "policyholder", "publication", "assistant", "singing", "panama", "distinct", "businesses", "fine"],
)
@given(SEEDS)
def test_p3_cues_are_whole_words(word: str, seed: int) -> None:
    rng = random.Random(seed)
    assert pieces(f"the {word} {digits(rng, 9)} and {word} {rng.choice('AXK')}{digits(rng, 8)}") == []


@given(SEEDS)
def test_p3_p24_integrity_hashes(seed: int) -> None:
    rng = random.Random(seed)
    for name, size in (("sha256", 43), ("sha384", 64), ("sha512", 86)):
        digest = f"{name}-{drawn(rng, size, LETTERS + '+/')}" + "=" * (-size % 4)
        assert pieces(f'<script src="app.js" integrity="{digest}" crossorigin></script>') == []
        assert pieces(f"public policy bundle integrity {digest} is a duplicate entry") == []


@given(SEEDS)
def test_p4_check_digits_alone_prove_no_national_number(seed: int) -> None:
    rng = random.Random(seed)
    number = passing(lambda: "9" + digits(rng, 9), checks.nhs)
    assert pieces(f"Runbook: https://wiki.corp.example/spaces/OPS/pages/{number}/Failover") == []
    assert pieces(f"page_id={number} rev=12") == []
    assert pieces(f"NHS number {number}") == [("account_number", number)]


@given(SEEDS)
def test_p5_international_numbers_are_phones(seed: int) -> None:
    number = f"+3519{digits(random.Random(seed), 8)}"
    assert pieces(f"o telefone é {number}") == [("private_phone", number)]


@given(SEEDS, st.sampled_from([10, 13, 14, 16, 19]))
def test_p6_p30_time_stamps_are_no_cards(seed: int, size: int) -> None:
    rng = random.Random(seed)
    stamp = (
        f"20{rng.randint(10, 29)}{rng.randint(1, 12):02}{rng.randint(10, 28)}{rng.randint(10, 23)}"
        f"{rng.randint(10, 59)}{rng.randint(10, 59)}"
        if size == 14
        else str(rng.randint(1_400_000_000, 1_899_999_999)) + digits(rng, size - 10)
    )
    assert pieces(f"{stamp} worker heartbeat ok") == []
    assert pieces(json.dumps({"quote": "null", "time_processed": stamp})) == []
    assert pieces(f"{stamp}_reap_stale_notifications.sql") == []


@pytest.mark.parametrize(
    ("prefix", "size"),
    [("2221", 16), ("2720", 16), ("62", 19), ("4", 19), ("65", 19), ("37", 15), ("36", 14), ("3528", 16)],
)
@given(SEEDS)
def test_p7_issuers_of_every_range(prefix: str, size: int, seed: int) -> None:
    rng = random.Random(seed)
    number = passing(lambda: prefix + digits(rng, size - len(prefix)), luhn)
    for written in (number, grouped(number, " ")) if size != 14 else (number,):
        assert pieces(f"pay with card {written} please") == [("account_number", written)]


@given(SEEDS)
def test_p9_p10_numbers_alone_are_nothing(seed: int) -> None:
    rng = random.Random(seed)
    rows = "\n".join(str(rng.randint(10**5, 10**8)) for _ in range(5))
    assert pieces(f"id\n{rows}\n") == []
    assert (
        pieces(
            f"{rng.randint(10**8, 2 * 10**9)}.{digits(rng, 2)} -0.{digits(rng, 2)}\ndelta {rng.uniform(0, 99):.2f} ok"
        )
        == []
    )


@given(SEEDS)
def test_p11_ids_in_small_letters(seed: int) -> None:
    number = dni(random.Random(seed)).lower()
    assert kinds(f"mi dni es {number}") == [("account_number", "government_id", number)]


@given(SEEDS)
def test_p12_numbers_that_are_not_issued(seed: int) -> None:
    rng = random.Random(seed)
    for number in (
        f"9{digits(rng, 2)}-12-3456",
        f"666-12-{rng.randint(1000, 9999)}",
        f"000-12-{rng.randint(1000, 9999)}",
        f"{rng.randint(100, 665)}-00-1234",
    ):
        assert pieces(f"The form shows {number} as the format only.") == []


@given(SEEDS, st.sampled_from([" BIC COBADEFFXXX", " FAILED", " Max", " DE", "\nGB"]))
def test_p13_ibans_end_where_they_end(seed: int, tail: str) -> None:
    number = iban(random.Random(seed))
    for written in (number, " ".join(number[i : i + 4] for i in range(0, len(number), 4))):
        assert ("account_number", "iban", written) in kinds(f"IBAN {written}{tail}")


@given(
    SEEDS,
    st.sampled_from(
        ["😀🎉 ", "👨\u200d👩\u200d👧\u200d👦 ", "👍🏽", "担当は", "e\u0301 ", "Größe ", "✅ déployé → ", "\U00020000"]
    ),
)
def test_p14_p15_p34_offsets_are_code_points(seed: int, before: str) -> None:
    rng = random.Random(seed)
    token = "ghp_" + drawn(rng, 36)
    address = email(rng)
    text = f"{before} mail {address} {before}token={token} {before}"
    found = spans(text)
    assert [(s.label, text[s.start : s.end]) for s in found] == [("private_email", address), ("secret", token)]


def test_p16_every_value_of_a_sentence() -> None:
    text = "My name is Wendy, my email is w.orta@example.com, phone 555-867-5312"
    assert pieces(text) == [("private_email", "w.orta@example.com"), ("private_phone", "555-867-5312")]


PROSE = [
    "My API key is {} and I need to share it with my team.",
    "the key they gave me is {} does that look right?",
    "here's my token: {}",
    "my token stopped working: {} — what scopes does it need?",
    "I pasted the secret ({}) into the chat",
    "use {} as the access key",
]


@pytest.mark.parametrize("sentence", PROSE)
def test_p18_keys_in_prose(sentence: str) -> None:
    """Nearly all: a drawn key looks like words now and then."""
    rng = random.Random(18)
    values = [
        value
        for _ in range(100)
        for value in (
            drawn(rng, 32),
            f"tpuf_{drawn(rng, 18)}",
            f"sk-{drawn(rng, 17, string.ascii_lowercase + string.digits)}",
        )
    ]
    found = sum(("secret", value) in pieces(sentence.format(value)) for value in values)
    assert found >= 0.97 * len(values)


PASSWORDS = [
    "the admin password on the box is {}, ask me",
    "password: {}",
    "my password is {}",
    "I think it was the password {} or not",
    "wifi password = {}",
    "PASSWORD={}",
]


@pytest.mark.parametrize("sentence", PASSWORDS)
@given(SEEDS)
def test_p18_passwords_in_prose(sentence: str, seed: int) -> None:
    rng = random.Random(seed)
    word = rng.choice(["Winter", "purple", "Harbour", "copper"])
    for value in (f"{word}{rng.randint(10, 2030)}!", f"{word}-velvet-{rng.randint(100, 999)}", drawn(rng, 11)):
        assert any(
            label == "secret" and found.rstrip("!") == value.rstrip("!")
            for label, found in pieces(sentence.format(value))
        )


@pytest.mark.parametrize(
    "sentence",
    [
        "I forgot my password again",
        "password reset is broken",
        "the password must be long",
        "enter your password: ********",
        "password = os.environ['DB']",
        "token: ${{ secrets.DEPLOY }}",
        "API key: YOUR_API_KEY",
        "the key is under the mat",
        "a token of thanks",
        'getPassword("admin")',
    ],
)
def test_p18_words_about_secrets(sentence: str) -> None:
    assert pieces(sentence) == []


@given(SEEDS, st.integers(1, 400))
def test_p19_p40_the_end_of_long_texts(seed: int, times: int) -> None:
    address = email(random.Random(seed))
    filler = "Line item: office chair, qty 4, unit price 120.00, delivered. " * times
    text = filler + f"Write to {address}."
    assert pieces(text) == [("private_email", address)]


@given(SEEDS)
@example(5144)  # 2fa followed by digits, within a hexadecimal number
def test_p20_logs(seed: int) -> None:
    rng = random.Random(seed)
    order = digits(rng, 8)
    text = (
        f"2026-03-04T11:20:33.{digits(rng, 3)}Z INFO [http-nio-8080-exec-7] "
        f"c.e.orders.OrderService - order {order} persisted in 18 ms\n"
        f"2026-03-04T11:20:33.140Z DEBUG [scheduling-1] o.s.cache - evict key=orders::{order}\n"
        f"Mar  4 11:20:34 web03 kernel: [{digits(rng, 5)}.{digits(rng, 6)}] eth0: link up\n"
        f"trace_id={drawn(rng, 32, HEX)} span_id={drawn(rng, 16, HEX)} commit {drawn(rng, 40, HEX)}\n"
    )
    assert pieces(text) == []


@given(SEEDS)
def test_p22_revisions(seed: int) -> None:
    revision = drawn(random.Random(seed), 40, HEX)
    assert pieces(f'captcha = {{git = "https://example.com/forms/captcha.git", rev = "{revision}"}}') == []


@given(SEEDS, st.sampled_from(["HEROKU_API_KEY={}", 'api_key: "{}"', "client_secret = '{}'"]))
def test_p23_keys_shaped_as_uuids(seed: int, frame: str) -> None:
    value = uuid(random.Random(seed))
    assert pieces(frame.format(value)) == [("secret", value)]


@pytest.mark.parametrize(
    "text",
    [
        '{"key": "ctrl+shift+down", "command": "editor.action.insertCursorBelow"}',
        "withVault([vaultSecrets: [ [envVar: 'ROLE', vaultKey: 'inf-role-id']]])",
        '{"key": "primary", "token": "identifier"}',
        "keyboard.press('Enter'); tokenizer = load(); secretary: Ann",
        "authorization: required; private: true; access = read-only",
    ],
)
def test_p25_key_bindings_and_names(text: str) -> None:
    assert pieces(text) == []


@given(SEEDS, st.sampled_from("\u2010\u2011\u2012\u2013\u2212-"))
def test_p26_hyphens_and_wraps_inside_numbers(seed: int, hyphen: str) -> None:
    number = ssn(random.Random(seed))
    for written in (number.replace("-", hyphen), f"{number[:7]}\n{number[7:]}"):
        assert kinds(f"SSN: {written}") == [("account_number", "government_id", written)]


@given(SEEDS)
def test_p27_p28_zero_width_full_width_and_lookalikes(seed: int) -> None:
    rng = random.Random(seed)
    address = email(rng)
    alike = "а" + address.replace("@", "a@", 1)
    for written in (zero_width(rng, address), full_width(address), address.replace("@", "＠"), alike):
        assert pieces(f"write to {written} today") == [("private_email", written)]


@given(st.integers(13, 40), st.sampled_from([" ", "", "-"]))
def test_p29_runs_of_zeros(size: int, separator: str) -> None:
    assert pieces(f'<feColorMatrix values="{separator.join("0" * size)} 1 0"/>') == []
    assert pieces("card 0000 0000 0000 0000 is a placeholder") == []


@given(SEEDS, st.sampled_from([" - expires 05/29", " 05/29", ", cvc", ".", " / 123", "-", " "]))
def test_p30_cards_end_with_a_digit(seed: int, tail: str) -> None:
    number = grouped(card(random.Random(seed)), " ")
    assert ("account_number", "payment_card", number) in kinds(f"card {number}{tail}")


@given(SEEDS, st.sampled_from(["2 ", "17 ", "no 250 "]))
def test_p30_cards_begin_behind_other_numbers(seed: int, before: str) -> None:
    number = grouped(card(random.Random(seed)), " ")
    assert ("account_number", "payment_card", number) in kinds(f"pay {before}{number} please")


@given(
    SEEDS,
    st.sampled_from(["sk-proj-", "sk-svcacct-", "sk-ant-api03-", "github_pat_", "glpat-", "hvs.", "pypi-", "xoxb-"]),
    st.integers(60, 160),
)
def test_p32_long_keys_are_found_whole(seed: int, prefix: str, size: int) -> None:
    rng = random.Random(seed)
    value = prefix + drawn(rng, size // 2, LETTERS) + ("_" if prefix.startswith("git") else "-") + drawn(rng, size // 2)
    for frame in ("OPENAI_API_KEY={}", "{}", "Authorization: Bearer {}", '"{}"'):
        assert pieces(frame.format(value)) == [("secret", value)]


@given(SEEDS)
def test_p33_json_inside_json(seed: int) -> None:
    rng = random.Random(seed)
    address, token = email(rng), "ghp_" + drawn(rng, 36)
    arguments = json.dumps({"to": address, "body": f"Hi\n{address}\nkey\t{token}"})
    text = json.dumps({"tool_calls": [{"function": {"name": "send_mail", "arguments": arguments}}]})
    assert pieces(text) == [("private_email", address), ("private_email", address), ("secret", token)]


@given(SEEDS)
def test_p37_identifiers_and_tags(seed: int) -> None:
    rng = random.Random(seed)
    ulid = "01" + "".join(rng.choice("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for _ in range(24))
    assert pieces(f"<invocation_id>req_{ulid}</invocation_id> model=claude-sonnet-4-20250514 region=us-east-1") == []


@given(SEEDS, st.sampled_from(["cvc", "CVV:", "cvv2 is", "security code", "CVC ="]))
def test_p39_card_mail_and_code_of_one_prompt(seed: int, cue: str) -> None:
    rng = random.Random(seed)
    number, address, code = grouped(card(rng), " "), email(rng), digits(rng, 3)
    assert kinds(f"card {number}, mail {address}, {cue} {code}") == [
        ("account_number", "payment_card", number),
        ("private_email", "", address),
        ("account_number", "cvv", code),
    ]
