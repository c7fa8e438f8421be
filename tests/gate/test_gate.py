"""The Gate on a fake classifier: outcomes, sessions, messages, failures, records, and what masked text never holds."""

from __future__ import annotations

import json
import re
import threading
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lily
from lily import AuditLog, Gate, Outcome, Policy, Span
from lily.errors import AuditError, CheckpointError, InvalidInput, PolicyBlocked, PolicyError
from lily.gate import gate as gate_module
from lily.gate.propagation import sweepable

from .fakes import FakeClassifier, Upstream, fake_gate, wide

TEXT = "Please write to Hanne Mülder, hanne.mulder@vlinderpost.nl, about card 5425 2334 3010 9903."
VALUES = ("Hanne Mülder", "hanne.mulder@vlinderpost.nl", "5425 2334 3010 9903")


def test_public_names() -> None:
    for name in ("Gate", "Policy", "AuditLog", "Outcome", "Span", "Verdict"):
        assert name in lily.__all__
        assert getattr(lily, name) is getattr(lily.gate, name)


def test_classify() -> None:
    verdict = fake_gate("Hanne Mülder").classify(TEXT)
    assert verdict.outcome is Outcome.ASK
    assert [TEXT[span.start : span.end] for span in verdict.spans] == list(VALUES)
    assert verdict.masked == "Please write to [PERSON_1], [EMAIL_1], about card [CARD_1]."
    assert verdict.restore(verdict.masked) == TEXT
    assert verdict.sensitivity > 0.9
    assert verdict.reasons[0] == "1 account_number/payment_card: ask"


def test_nothing_found() -> None:
    for text in ("", " \n", "The lilies are in bloom."):
        verdict = fake_gate().classify(text)
        assert (verdict.outcome, verdict.spans, verdict.masked) == (Outcome.ALLOW, (), text)
        assert verdict.reasons == ("nothing found: allow",)


NAMES = ("Hanne Mülder", "Bo Li", "Jörg", "Ødegård-Łuk")
WORDS = st.sampled_from(
    [
        *VALUES,
        *NAMES,
        *(name.upper() for name in NAMES),
        *(wide(name) for name in NAMES),
        *(name[:2] + "\u200b" + name[2:] for name in NAMES),
        "hanne\u00a0mülder",
        "Bo \n Li",
        wide(VALUES[2]),
        "5425-2334-3010-9903",
        "5425233430109903",
        "[PERSON_1]",
        "person_2",
        *("😀", "佐久間", "e\u0301", "\U00020000", "👨\u200d👩\u200d👧"),
    ]
)


def plain(text: str) -> str:
    """What a reader takes a text for: compatibility forms, small letters, single blanks, nothing without width."""
    shown = "".join(char for char in text if unicodedata.category(char) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", shown).lower().split())


@given(st.lists(WORDS | st.text(max_size=5), max_size=12).map(" ".join))
def test_spans_masks_and_restoring(text: str) -> None:
    """Spans inside, apart and exact; no found value is left in any folding; back is exact.

    What is looked for are whole words of as many characters as the sweep looks for: three letters that are a name here
    are a part of any word there.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    verdict = fake_gate(*NAMES).classify(text)
    at = 0
    for span in verdict.spans:
        assert at <= span.start < span.end <= len(text)
        at = span.end
        if span.label == "private_person":
            assert plain(text[span.start : span.end]) in {plain(name) for name in NAMES}
    assert verdict.restore(verdict.masked) == text
    left = plain(verdict.masked)
    for span in verdict.spans:
        value = plain(text[span.start : span.end])
        if sweepable(value, span.label):
            assert not re.search(rf"(?<!\w){re.escape(value)}(?!\w)", left), (value, left)
        if span.sub == "payment_card":
            assert not re.search(r"(?<![0-9] )5425[ -]?2334[ -]?3010[ -]?9903(?! [0-9])", left)


def test_a_session_shares_values_and_placeholders() -> None:
    gate = fake_gate("Hanne Mülder")
    session = gate.session()
    first = session.classify("I am Hanne Mülder.")
    gate._pipeline.classifier.names = []  # type: ignore[attr-defined]
    second = session.classify("What did HANNE MÜLDER and [PERSON_1] say? Hanne Mülder knows.")
    assert first.masked == "I am [PERSON_1]."
    assert second.masked == "What did [PERSON_2] and [LITERAL_1] say? [PERSON_1] knows."
    assert second.restore("[PERSON_1]") == session.restore("[PERSON_1]") == "Hanne Mülder"
    assert gate.classify("Hanne Mülder").masked == "Hanne Mülder"  # no session, no memory
    assert gate.classify("x").restore("[PERSON_1]").unknown == ("[PERSON_1]",)


def test_messages_and_tool_calls() -> None:
    """Report P33, with JSON inside JSON and an escape that hides a name."""
    arguments = json.dumps(
        {
            "to": "gunnar.eide@fjordpost.no",
            "body": "Hi J\u00f6rg Größmann",
            "count": 3,
            "card": 5425233430109903,
            "inner": json.dumps({"password": "hunter22x!"}),
        }
    )
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You write mails."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Write to Jörg Größmann"}, {"type": "text", "text": "now"}],
        },
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "send_mail", "arguments": arguments}}
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": '{"sent_to": "Jörg Größmann"}'},
    ]
    before = json.dumps(messages)
    verdict = fake_gate("Jörg Größmann").classify(messages)
    assert json.dumps(messages) == before
    masked = json.loads(json.dumps(verdict.masked))
    assert [message["role"] for message in masked] == ["system", "user", "assistant", "tool"]
    assert masked[0] == messages[0]
    assert masked[1]["content"] == [{"type": "text", "text": "Write to [PERSON_1]"}, {"type": "text", "text": "now"}]
    call = masked[2]["tool_calls"][0]
    assert (call["id"], call["function"]["name"]) == ("call_1", "send_mail")
    inside = json.loads(call["function"]["arguments"])
    assert inside["to"] == "[EMAIL_1]"
    assert inside["body"] == "Hi [PERSON_1]"
    assert inside["count"] == 3
    assert inside["card"] == "[CARD_1]"
    assert json.loads(inside["inner"]) == {"password": "[SECRET_1]"}
    assert json.loads(masked[3]["content"]) == {"sent_to": "[PERSON_1]"}
    for path, span in verdict.by_message():
        assert path[0] in (1, 2, 3)
        assert span.end > span.start
    assert ((1, "content", 0, "text"), 9, 22) in [(path, s.start, s.end) for path, s in verdict.by_message()]
    assert all(verdict.text[s.start : s.end].strip() for s in verdict.spans)


def test_what_cannot_be_walked_is_read_as_text() -> None:
    for arguments in ('{"to": "a.b@fjordpost.no", "to": "x"}', '{"to": "a.b@fjordpost.no"', "a.b@fjordpost.no"):
        message = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}
        verdict = fake_gate().classify([message])
        assert "fjordpost" not in json.dumps(verdict.masked)
        assert verdict.restore(verdict.masked[0]["tool_calls"][0]["function"]["arguments"]) == arguments


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ESCAPED"}]},
        {"role": "user", "type": "function_call_output", "call_id": "c", "output": "ESCAPED"},
        {"role": "user", "parts": [{"function_response": {"name": "f", "response": {"to": 4539148803436467}}}]},
        {"role": "model", "parts": [{"function_call": {"name": "f", "args": {"4539148803436467": "x"}}}]},
    ],
)
def test_arguments_and_results_of_other_protocols_are_walked(message: Any) -> None:
    escaped = r'{"to": "a.b\u0040fjordpost.no"}'
    message = json.loads(json.dumps(message).replace('"ESCAPED"', json.dumps(escaped)))
    verdict = fake_gate().classify([message])
    assert verdict.spans
    assert not any(value in json.dumps(verdict.masked) for value in ("fjordpost", "4539148803436467"))


@pytest.mark.parametrize("levels", [101, 600, 2000])
@pytest.mark.parametrize("in_text", [True, False])
def test_what_is_nested_too_deep_is_refused_by_name(levels: int, in_text: bool) -> None:
    """An escape below the deepest level that is walked would hide a value from the rules."""
    content: Any = "[" * levels + r'"\u0061nna@berg.example"' + "]" * levels
    if not in_text:
        content = "anna@berg.example"
        for _ in range(levels):
            content = [content]
    with pytest.raises(InvalidInput, match="nested"):
        fake_gate().classify([{"role": "tool", "content": content}])


@pytest.mark.parametrize("arguments", [{"n": 10**5000}, r'{"n": %s, "to": "\u0061nna@berg.example"}' % ("7" * 5000)])
def test_a_number_that_python_does_not_convert_is_refused_by_name(arguments: Any) -> None:
    """Its digits cannot be read, and an escape beside it would hide a value from the rules."""
    call = {"function": {"name": "f", "arguments": arguments}}
    with pytest.raises(InvalidInput, match="message 0 has a whole number of thousands of digits"):
        fake_gate().classify([{"role": "assistant", "tool_calls": [call]}])


def test_pictures_are_counted_not_passed_over() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    verdict = fake_gate().classify([{"role": "user", "content": [{"type": "text", "text": "What is it?"}, picture]}])
    assert verdict.outcome is Outcome.ASK
    assert "1 part without text, not read: ask" in verdict.reasons[0]
    assert verdict.masked[0]["content"][1] == picture


@pytest.mark.parametrize("text", [None, 3, b"x", [b"x"], [{"content": "x"}], [{"role": 3}], {"role": "user"}, "\ud800"])
def test_what_is_no_text_is_an_error(text: Any) -> None:
    with pytest.raises(InvalidInput):
        fake_gate().classify(text)


def test_fail_closed(tmp_path: Path) -> None:
    classifier = FakeClassifier(["Hanne Mülder"])
    with AuditLog(tmp_path / "a.db") as audit, fake_gate(classifier=classifier, audit=audit) as gate:
        classifier.error = RuntimeError(f"quotes {TEXT}")
        verdict = gate.classify(TEXT)
        assert verdict.failed
        assert verdict.outcome is Outcome.LOCAL
        assert "not read, RuntimeError: local" in verdict.reasons
        assert "Hanne" not in str(verdict.reasons)
        assert verdict.masked == "[TEXT_1]"
        assert verdict.restore(verdict.masked) == TEXT
        assert [record.kind for record in audit.records()] == ["begin", "local"]
        with pytest.raises(PolicyBlocked, match="local"):
            verdict.outgoing()
        classifier.error = None
        classifier.sensitivity = float("nan")
        assert gate.classify("The lilies").outcome is Outcome.LOCAL
    closed = fake_gate()
    closed.close()
    assert closed.classify("The lilies").outcome is Outcome.LOCAL


def test_a_failure_does_not_hide_what_the_rules_refuse() -> None:
    classifier = FakeClassifier()
    classifier.error = MemoryError()
    assert fake_gate(classifier=classifier, policy=Policy.strict()).classify(TEXT).outcome is Outcome.REFUSE


def test_ctrl_c_is_no_failure() -> None:
    classifier = FakeClassifier()
    classifier.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        fake_gate(classifier=classifier).classify(TEXT)


def test_classify_many_reads_together_and_fails_alone() -> None:
    classifier = FakeClassifier(["Anna Berg"])
    gate = fake_gate(classifier=classifier)
    texts = ["I am Anna Berg.", "No one.", "Anna Berg again"]
    verdicts = gate.classify_many(texts)
    assert classifier.calls == [texts]
    assert [verdict.masked for verdict in verdicts] == ["I am [PERSON_1].", "No one.", "[PERSON_1] again"]
    failed = gate.classify_many(["I am Anna Berg.", "BREAK", "No one."])
    assert [verdict.outcome for verdict in failed] == [Outcome.MASK, Outcome.LOCAL, Outcome.ALLOW]
    assert gate.classify_many([]) == []
    with pytest.raises(InvalidInput, match="list of texts"):
        gate.classify_many("one")


def test_thresholds_lists_and_operators() -> None:
    policy = Policy.parse(
        """
        allow = ["hanne.mulder@vlinderpost.nl"]
        deny = { values = ["write"], outcome = "mask" }
        thresholds = { private_person = 0.98 }
        [outcomes]
        "account_number/payment_card" = "mask"
        [operators]
        "account_number/payment_card" = { kind = "mask", keep = 4 }
        """
    )
    verdict = fake_gate("Hanne Mülder").classify(TEXT, policy)
    assert verdict.outcome is Outcome.MASK
    assert verdict.masked == TEXT.replace("write", "[TERM_1]").replace("5425 2334 3010", "**** **** ****")


def test_a_deny_word_inside_a_span_still_counts() -> None:
    policy = Policy.parse('deny = { values = ["vlinderpost"] }')
    verdict = fake_gate().classify("mail h@vlinderpost.nl", policy)
    assert verdict.outcome is Outcome.REFUSE
    assert verdict.masked == "mail [EMAIL_1]"


def test_rewrite_falls_back_to_mask_and_says_so() -> None:
    policy = Policy.parse('[outcomes]\nprivate_person = "rewrite"')
    verdict = fake_gate("Anna Berg").classify("I am Anna Berg.", policy)
    assert verdict.outcome is Outcome.MASK
    assert verdict.masked == "I am [PERSON_1]."
    assert verdict.reasons[0] == "rewrite: no generation model, so masked instead"


def test_suspicion_outside_the_spans_counts() -> None:
    classifier = FakeClassifier(["Anna Berg"])
    classifier.suspicious = "Karl"
    gate = fake_gate(classifier=classifier, policy=Policy.strict())
    verdict = gate.classify("Anna Berg and Karl")
    assert verdict.suspicion == pytest.approx(0.8)
    assert verdict.outcome is Outcome.ASK
    classifier.suspicious = "Berg"
    assert gate.classify("Anna Berg and Karl").suspicion < 0.1


def test_the_policy_of_a_call_does_not_lower_the_floor() -> None:
    gate = fake_gate("Anna Berg", policy=Policy.parse('[floor.outcomes]\nprivate_person = "local"'))
    mild = Policy.parse('extends = "none"\nallow = ["Anna Berg"]')
    assert gate.classify("Anna Berg", mild).outcome is Outcome.LOCAL
    assert gate.session().classify("Anna Berg", mild).outcome is Outcome.LOCAL
    assert gate.classify_many(["Anna Berg"], mild)[0].outcome is Outcome.LOCAL
    with pytest.raises(InvalidInput, match="a str; expected a Policy"):
        gate.classify("x", "strict")  # type: ignore[arg-type]


def test_the_organisation_is_under_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gate.toml"
    monkeypatch.setattr(gate_module, "ORGANISATION", path)
    path.write_text('name = "house"\nextends = "strict"\n[floor.outcomes]\nprivate_person = "local"\n')
    assert fake_gate().policy.name == "house"
    mine = fake_gate("Anna Berg", policy=Policy.balanced())
    assert mine.policy.name == "balanced"
    assert mine.classify("Anna Berg").outcome is Outcome.LOCAL
    path.write_text("[flor]\n")
    with pytest.raises(PolicyError, match="did you mean floor"):
        fake_gate()
    path.unlink()
    path.mkdir()
    with pytest.raises(PolicyError, match="cannot be read"):
        fake_gate()


def test_send() -> None:
    upstream = Upstream("Dear [person_1], PERSON_1's mail is <EMAIL_1>. [PERSON_9]")
    gate = fake_gate("Anna Berg")
    answer = gate.send("I am Anna Berg, anna@vlinderpost.nl", upstream)
    assert upstream.sent == ["I am [PERSON_1], [EMAIL_1]"]
    assert answer == "Dear Anna Berg, Anna Berg's mail is anna@vlinderpost.nl. [PERSON_9]"
    assert answer.unknown == ("[PERSON_9]",)


@pytest.mark.parametrize(
    ("policy", "consent"),
    [(Policy.strict(), None), (Policy.strict(), True), (None, None), (None, False), (None, "yes")],
)
def test_send_sends_nothing_that_is_blocked(policy: Policy | None, consent: Any) -> None:
    upstream = Upstream()
    with pytest.raises(PolicyBlocked):
        fake_gate("Hanne Mülder").send(
            TEXT, upstream, policy, consent=None if consent is None else lambda verdict: consent
        )
    assert upstream.sent == []


def test_consent_opens_what_needed_it_and_nothing_else(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "a.db") as audit:
        upstream = Upstream()
        fake_gate("Hanne Mülder", audit=audit).send(TEXT, upstream, consent=lambda verdict: True)
        assert upstream.sent == ["Please write to [PERSON_1], [EMAIL_1], about card 5425 2334 3010 9903."]
        assert [record.kind for record in audit.records()] == ["begin", "ask", "consent"]


def test_no_departure_without_its_record(tmp_path: Path) -> None:
    upstream = Upstream()
    with AuditLog(tmp_path / "a.db") as audit:
        gate = fake_gate("Hanne Mülder", audit=audit)
        asked = gate.classify(TEXT)
        connection = audit._open()
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(AuditError, match="full"):  # noqa: PT012
            for _ in range(200):
                gate.send("Hanne Mülder asks", upstream)
        assert sum(record.kind == "mask" for record in audit.records()) == len(upstream.sent)
        with pytest.raises(AuditError):  # noqa: PT012
            for _ in range(200):
                asked.outgoing(consent=True)
        audit.verify()


def test_the_record_of_a_verdict(tmp_path: Path) -> None:
    with AuditLog(tmp_path / "a.db") as audit:
        gate = fake_gate("Hanne Mülder", audit=audit)
        gate.classify(TEXT, destination="api.example.com")
        body = list(audit.records())[-1].body
        assert body["destination"] == "api.example.com"
        assert body["policy"] == "balanced"
        assert body["labels"] == {"private_person": 1, "private_email": 1, "account_number/payment_card": 1}
        assert len(body["values"]) == 3
        assert audit.find("5425 2334 3010 9903") == audit.find("HANNE mülder") == [2]
        assert not any(value in json.dumps(body, ensure_ascii=False) for value in VALUES)


@pytest.mark.parametrize("destination", [5, b"x", "\ud800"])
def test_a_destination_that_is_no_text_is_an_error(destination: Any) -> None:
    with pytest.raises(InvalidInput, match="destination"):
        fake_gate().classify("hello", destination=destination)


@pytest.mark.parametrize("answer", [None, b"x", 5])
def test_an_answer_that_is_no_text_is_an_error(answer: Any) -> None:
    with pytest.raises(InvalidInput, match="the answer is a"):
        fake_gate().send("hello", lambda _: answer)


def test_the_embedded_model_is_named_if_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "EMBEDDED", tmp_path / "gate-nano")
    with pytest.raises(CheckpointError, match="gate-nano"):
        Gate()


def test_threads_of_one_session() -> None:
    session = fake_gate("Hanne Mülder").session()
    texts = [f"Hanne Mülder {number}, m{number}@vlinderpost.nl" for number in range(40)]
    done: dict[str, str] = {}

    def work(part: list[str]) -> None:
        for text in part:
            done[text] = session.classify(text).masked

    threads = [threading.Thread(target=work, args=(texts[at::4],)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(session.restore(done[text]) == text for text in texts)
    assert len(set(done.values())) == len(texts)


def test_span_is_the_public_type() -> None:
    assert isinstance(fake_gate("Anna Berg").classify("Anna Berg").spans[0], Span)
