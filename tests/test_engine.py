"""Engine and Session: reading, writing, snapshots, and every refusal. The parity tests compare numbers with an
oracle; here the calls are compared with each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lily
from lily import Engine, Sampling
from lily.errors import (
    Cancelled,
    ContextOverflow,
    InvalidInput,
)
from lily.sampling import GREEDY

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]


# Logits of one text read in one or in several rows differ by rounding: half of them by less than TYPICAL. Where two
# experts of a random router are nearly tied, rounding picks the other one, and they differ by up to TIED. Logits of
# different texts differ by about 1.4.
TYPICAL, TIED = 0.1, 0.4


def distance(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    """Relative root mean square of the difference."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    return float(np.sqrt(((left - right) ** 2).mean() / (right**2).mean()))


def test_prefill_reports_what_it_did(engine: Engine) -> None:
    with engine.session() as session:
        result = engine.prefill(session, PROMPT)
        assert result.logits.shape == (engine.vocab,)
        assert result.logits.dtype == np.float32
        assert (result.tokens, result.cached_tokens) == (11, 0)
        assert result.seconds > 0
        assert result.tokens_per_second == result.tokens / result.seconds
        assert session.tokens.tolist() == PROMPT
        assert session.tokens.dtype == np.int32
        assert (session.position, session.pending, session.capacity) == (11, None, 256)
        assert np.array_equal(session.logits(), result.logits)
        again = engine.prefill(session, np.array([7, 8], np.uint16))
        assert (again.tokens, again.cached_tokens) == (2, 11)
        assert not np.array_equal(again.logits, result.logits)


def test_logits_are_a_copy(engine: Engine) -> None:
    with engine.session() as session:
        logits = engine.prefill(session, PROMPT).logits
        kept = logits.copy()
        logits[:] = np.nan
        assert np.array_equal(session.logits(), kept)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_mix_of_calls_reads_the_same_text(engine: Engine, data: st.DataObject) -> None:
    """Prefill, decode and snapshots in any order: the session holds exactly what was read, and its logits are those of
    reading that at once."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32), label="seed"))
    sampler = Sampling(temperature=1.0, seed=int(random.integers(2**32)))
    with engine.session() as session:
        expected: list[int] = []
        for _ in range(data.draw(st.integers(1, 5), label="calls")):
            if not expected or data.draw(st.booleans(), label="prefill"):
                tokens = random.integers(0, engine.vocab, data.draw(st.integers(1, 30), label="length")).tolist()
                result = engine.prefill(session, tokens)
                assert result.cached_tokens + result.tokens == session.position
                expected += tokens
            else:
                expected += engine.steps(session, sampler.sampler(engine.vocab), data.draw(st.integers(1, 5)))
            if data.draw(st.booleans(), label="through a snapshot"):
                snapshot = session.snapshot()
                session.reset()
                session.restore(snapshot)
        held = session.tokens.tolist() + ([] if session.pending is None else [session.pending])
        assert held == expected
        with engine.session() as other:
            assert distance(session.logits(), engine.prefill(other, session.tokens).logits) < TIED


def test_decode_takes_the_largest_logit_of_what_was_read(engine: Engine) -> None:
    with engine.session() as session:
        engine.prefill(session, PROMPT)
        tokens: list[int] = []
        for token in engine.decode(session, max_tokens=6):
            logits = session.logits()
            assert token == int(logits.argmax())
            assert distance(logits, engine.forward(PROMPT + tokens)[-1]) < TIED
            tokens.append(token)
        assert tokens
        assert session.pending == tokens[-1] or session.pending in engine.stop_ids
        assert session.tokens.tolist() == PROMPT + tokens[: session.position - len(PROMPT)]


def test_a_token_is_fed_when_the_next_is_asked_for(engine: Engine) -> None:
    with engine.session() as session:
        engine.prefill(session, PROMPT)
        tokens = engine.decode(session, max_tokens=5)
        first = next(tokens)
        assert (session.position, session.pending) == (len(PROMPT), first)
        second = next(tokens)
        assert (session.position, session.pending) == (len(PROMPT) + 1, second)
        del tokens
        engine.prefill(session, [7])
        assert session.tokens.tolist() == [*PROMPT, first, second, 7]
        assert session.pending is None


def test_decode_in_parts_is_decode_at_once(engine: Engine) -> None:
    with engine.session() as session, engine.session() as other:
        engine.prefill(session, PROMPT)
        engine.prefill(other, PROMPT)
        parts = [*engine.decode(session, 3), *engine.decode(session, 1), *engine.decode(session, 4)]
        assert parts == list(engine.decode(other, 8))


def test_a_stop_id_is_not_yielded_but_pending(engine: Engine) -> None:
    stop_id = max(engine.stop_ids)
    with engine.session() as session:
        engine.prefill(session, PROMPT)
        forced = Sampling(temperature=0, logit_bias={stop_id: 1000.0})
        assert list(engine.decode(session, 5, forced)) == []
        assert (session.position, session.pending) == (len(PROMPT), stop_id)
        assert list(engine.decode(session, 1, Sampling(temperature=0, logit_bias={9: 1000.0}))) == [9]
        assert session.tokens.tolist() == [*PROMPT, stop_id]


def test_decode_refuses_an_empty_session_at_once(engine: Engine) -> None:
    with engine.session() as session:
        with pytest.raises(InvalidInput, match=r"empty.*engine\.prefill\(session, tokens\) comes first"):
            engine.decode(session)
        with pytest.raises(InvalidInput, match="empty"):
            session.logits()


def test_a_full_session_overflows_and_stays_usable(tiny: Path) -> None:
    with Engine.load(tiny, max_context=12) as small, small.session() as session:
        with pytest.raises(ContextOverflow) as caught:
            small.prefill(session, [1] * 13)
        assert (caught.value.needed, caught.value.limit) == (13, 12)
        assert session.position == 0
        small.prefill(session, PROMPT)
        tokens = small.decode(session, 5)
        kept = [next(tokens), next(tokens)]  # position 12 is taken by feeding the first
        with pytest.raises(ContextOverflow):
            next(tokens)
        assert session.tokens.tolist() == [*PROMPT, kept[0]]
        assert session.pending == kept[1]
        with pytest.raises(ContextOverflow):
            small.prefill(session, [])


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([1, -1], r"tokens\[1\] is -1; the vocabulary has 0 to 1023"),
        ([1024], r"tokens\[0\] is 1024"),
        ([2**40], r"tokens\[0\] is 1099511627776"),
        ([2**70], "expected one row of integers"),
        ([1.5], "type float64"),
        ([True], r"tokens\[0\] is True; expected an int"),
        ([1, True], r"tokens\[1\] is True; expected an int"),
        ((1, np.True_), r"tokens\[1\] is np.True_; expected an int"),
        (np.array([True]), "type bool"),
        (np.True_, "type bool"),
        (b"abc", "tokens is a bytes"),
        (bytearray(b"abc"), "tokens is a bytearray"),
        ({1, 2}, "tokens is a set; expected one row of integers"),
        ((token for token in (1, 2)), "tokens is a generator; expected one row of integers"),
        ([[1, 2]], r"shape \[1, 2\]"),
        ([[1], [2, 3]], "cannot be read as one row"),
        ("hello", r"engine\.tokenizer\.encode"),
        (5, "tokens is a int; expected one row of integers"),
        (np.int32(5), r"shape \[\]"),
        (None, "expected one row of integers"),
        ([], "no tokens"),
    ],
)
def test_tokens_that_are_none_are_refused(engine: Engine, tokens: Any, words: str) -> None:
    with engine.session() as session:
        for call in (
            lambda: engine.prefill(session, tokens),
            lambda: engine.forward(tokens),
            lambda: engine.score(tokens),
        ):
            with pytest.raises(InvalidInput, match=words):
                call()
        assert session.position == 0


def test_a_progress_that_is_no_function(engine: Engine, tiny: Path) -> None:
    with engine.session() as session:
        for call in (
            lambda: engine.prefill(session, PROMPT, progress=5),  # type: ignore[arg-type]
            lambda: engine.stream("a", progress=5),  # type: ignore[arg-type]
            lambda: Engine.load(tiny, progress=5),  # type: ignore[arg-type]
        ):
            with pytest.raises(InvalidInput, match="progress is 5; expected a function of two numbers"):
                call()


def test_forward_agrees_with_prefill(engine: Engine) -> None:
    logits = engine.forward(PROMPT)
    assert logits.shape == (len(PROMPT), engine.vocab)
    assert logits.dtype == np.float32
    with engine.session() as session:
        distances = [
            distance(engine.prefill(session, [token]).logits, row) for token, row in zip(PROMPT, logits, strict=True)
        ]
    assert max(distances) < TIED
    assert np.median(distances) < TYPICAL


def test_forward_refuses_by_size(tiny: Path) -> None:
    words = r"\d+ MB.*125000 tokens"
    with Engine.load(tiny, max_context=200_000) as large, pytest.raises(InvalidInput, match=words):
        large.forward([1] * 125_001)


def test_a_text_beyond_the_context_is_refused_with_the_numbers(engine: Engine) -> None:
    with pytest.raises(ContextOverflow) as caught:
        engine.forward([1] * 257)
    assert (caught.value.needed, caught.value.limit) == (257, 256)
    with pytest.raises(ContextOverflow, match=r"257 tokens.*max_context is 256"):
        engine.score([1] * 257)


def test_score_is_forward_reduced(engine: Engine) -> None:
    logits = engine.forward(PROMPT).astype(np.float64)
    scores = engine.score(PROMPT, top=7)
    largest = logits.max(axis=1, keepdims=True)
    total = np.log(np.exp(logits - largest).sum(axis=1)) + largest[:, 0]
    log_probs = logits - total[:, None]
    order = np.argsort(-logits, axis=1, kind="stable")[:, :7]
    assert np.allclose(scores.log_sum_exp, total, atol=1e-4)
    assert np.allclose(scores.log_probs, log_probs[np.arange(10), PROMPT[1:]], atol=1e-4)
    assert np.array_equal(scores.top_ids, order)
    assert np.allclose(scores.top_log_probs, np.take_along_axis(log_probs, order, axis=1), atol=1e-4)
    assert scores.perplexity == pytest.approx(np.exp(-log_probs[np.arange(10), PROMPT[1:]].mean()), rel=1e-4)
    assert engine.score([5]).log_probs.shape == (0,)
    assert engine.score([5]).perplexity == 1.0
    for top in (0, engine.vocab + 1):
        with pytest.raises(InvalidInput, match=rf"top is {top}"):
            engine.score(PROMPT, top=top)


def test_sessions_are_independent(engine: Engine) -> None:
    alone = engine.generate("A lily is", 8, GREEDY).tokens
    with engine.session() as session, engine.session() as other:
        engine.prefill(session, engine.tokenizer.encode("A lily is"))
        engine.prefill(other, [9] * 50)
        mixed = []
        for token, _ in zip(engine.decode(session, 8), engine.decode(other, 50, Sampling(seed=1)), strict=False):
            mixed.append(token)
        assert tuple(mixed) == alone[: len(mixed)]


def test_snapshot_restore_and_fork(engine: Engine) -> None:
    with engine.session() as session:
        engine.prefill(session, PROMPT)
        first = next(engine.decode(session, 1))
        snapshot = session.snapshot()
        assert snapshot.position == len(PROMPT)
        assert snapshot.bytes > 0
        rest = list(engine.decode(session, 6))
        with session.fork() as twin:
            assert twin.tokens.tolist() == session.tokens.tolist()
            assert twin.pending == session.pending
            assert twin.stats == session.stats
            assert list(engine.decode(twin, 4)) == list(engine.decode(session, 4))
            twin.restore(snapshot)
            assert (twin.position, twin.pending) == (len(PROMPT), first)
            assert list(engine.decode(twin, 6)) == rest
        session.restore(snapshot)
        assert list(engine.decode(session, 6)) == rest


def test_reset_is_a_new_session(engine: Engine) -> None:
    with engine.session() as session, engine.session() as fresh:
        memory = session.memory
        engine.prefill(session, [8, 8, 8, 8])
        list(engine.decode(session, 3))
        session.reset()
        assert (session.position, session.pending, session.memory) == (0, None, memory)
        assert session.stats == lily.SessionStats()
        with pytest.raises(InvalidInput, match="empty"):
            engine.decode(session)
        assert np.array_equal(engine.prefill(session, PROMPT).logits, engine.prefill(fresh, PROMPT).logits)


def test_a_snapshot_of_another_engine_is_refused(engine: Engine, tiny: Path) -> None:
    with Engine.load(tiny, max_context=64) as other, other.session() as foreign, engine.session() as session:
        other.prefill(foreign, PROMPT)
        with pytest.raises(InvalidInput):
            session.restore(foreign.snapshot())
        with pytest.raises(InvalidInput, match="not a session of"):
            engine.prefill(foreign, PROMPT)
        with pytest.raises(InvalidInput, match="not a session of"):
            engine.decode(foreign)


def test_memory_is_reserved_with_the_session(engine: Engine) -> None:
    before = engine.memory
    assert set(before) == {"weights_mapped", "weights_copied", "weights_converted", "scratch", "sessions"}
    session = engine.session()
    reserved = session.memory
    assert engine.memory["sessions"] == before["sessions"] + reserved
    engine.prefill(session, [1] * 150)
    list(engine.decode(session, 4))
    assert session.memory == reserved
    assert engine.memory == before | {"sessions": before["sessions"] + reserved}
    session.close()
    assert engine.memory == before


def test_stats_of_a_session(engine: Engine) -> None:
    with engine.session() as session:
        assert session.stats == lily.SessionStats()
        assert session.stats.prefill_tps == session.stats.decode_tps == 0.0
        engine.prefill(session, PROMPT)
        list(engine.steps(session, GREEDY.sampler(engine.vocab), 5))
        assert (session.stats.prefill_tokens, session.stats.decode_tokens) == (11, 4)
        assert session.stats.prefill_tps > 0
        assert session.stats.decode_tps > 0
        assert "11 tokens" in session.stats._repr_html_()
        engine.prefill(session, [1])
        assert (session.stats.cached_tokens, session.stats.prefill_tokens) == (15, 2)  # one was pending


def test_closing(tiny: Path) -> None:
    engine = Engine.load(tiny, max_context=64)
    session = engine.session()
    forgotten = engine.session()
    engine.prefill(session, PROMPT)
    session.close()
    session.close()
    for call in (lambda: session.position, session.snapshot, session.cancel, lambda: engine.prefill(session, PROMPT)):
        with pytest.raises(InvalidInput, match=r"session is closed; make a new one"):
            call()
    assert repr(session) == "<lily.Session closed>"
    tokens = None
    engine.prefill(forgotten, PROMPT)
    tokens = engine.decode(forgotten, 5)
    next(tokens)
    engine.close()
    engine.close()
    for later in (engine.session, lambda: engine.forward([1]), lambda: engine.generate("a"), lambda: next(tokens)):
        with pytest.raises(InvalidInput, match="engine is closed"):
            later()
    with pytest.raises(InvalidInput, match="closed"):
        forgotten.snapshot()
    assert "closed" in repr(engine)
    assert "closed" in repr(forgotten)
    assert "closed" in engine._repr_html_()


def test_a_context_manager_closes(tiny: Path) -> None:
    with Engine.load(tiny, max_context=64) as engine:
        session = engine.session()
    with pytest.raises(InvalidInput, match="closed"):
        engine.prefill(session, PROMPT)


def test_cancel_stops_a_decode_once(engine: Engine) -> None:
    with engine.session() as session:
        engine.prefill(session, PROMPT)
        tokens = engine.decode(session, 9)
        before = [next(tokens), next(tokens)]
        session.cancel()
        with pytest.raises(Cancelled):
            next(tokens)
        assert session.pending == before[-1]
        whole = engine.session()
        engine.prefill(whole, PROMPT)
        assert before + list(engine.decode(session, 4)) == list(engine.decode(whole, 6))
        whole.close()


def test_progress_may_end_a_prefill(engine: Engine) -> None:
    def stop(done: int, total: int) -> None:
        raise RuntimeError(f"{done} of {total}")

    with engine.session() as session:
        with pytest.raises(RuntimeError, match="64 of 100"):
            engine.prefill(session, [1] * 100, progress=stop)
        assert session.position == 64
        assert session.stats.prefill_tokens == 64
        assert engine.prefill(session, [1] * 36).cached_tokens == 64


def test_what_progress_raises_comes_first(engine: Engine) -> None:
    """Even where it closed the session, so that the books cannot be kept."""

    def stop(done: int, total: int) -> None:
        session.close()
        raise RuntimeError("mine")

    session = engine.session()
    with pytest.raises(RuntimeError, match="mine") as caught:
        engine.prefill(session, [1] * 100, progress=stop)
    assert caught.value.__context__ is None
    assert repr(session) == "<lily.Session closed>"
