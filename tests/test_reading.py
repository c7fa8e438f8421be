"""What the engine of the extension reads and writes: chunks, steps, the pending token, refusals, cancel and Ctrl-C.

Here the numbers of one run are compared with those of another; that they are right at all is for the parity tests, and
test_splits.py tries every split. Sessions as such are in test_session.py, the public classes of Python elsewhere.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tiny import (
    CONTEXT,
    HEAD,
    MODEL,
    SMALL,
    VOCAB,
    Arrays,
    close_to,
    greedy,
    prompt,
    read,
    same_content,
    tiny_engine,
    tiny_model,
)

from lily import _ext, errors


@pytest.fixture(scope="module")
def weights() -> Arrays:
    return tiny_model(seed=11)[0]


@pytest.fixture(scope="module")
def engine(weights: Arrays) -> Iterator[_ext.Engine]:
    made = tiny_engine(weights, dict(SMALL))
    yield made
    made.close()


# ---- reading


def test_progress_comes_at_absolute_chunk_edges(engine: _ext.Engine) -> None:
    calls: list[tuple[int, int]] = []
    session = engine.session()
    engine.prefill(session, prompt(0, 10), lambda done, total: calls.append((done, total)))
    engine.prefill(session, prompt(1, 150), lambda done, total: calls.append((done, total)))
    assert calls == [(10, 10), (54, 150), (118, 150), (150, 150)]
    assert session.position == 160
    assert np.array_equal(session.tokens, np.concatenate((prompt(0, 10), prompt(1, 150))))


def test_steps_read_like_prefill(engine: _ext.Engine) -> None:
    session = read(engine, prompt(3, 20))
    tokens = greedy(engine, session, 30)
    whole = read(engine, np.concatenate((prompt(3, 20), np.array(tokens[:-1], np.int32))))
    assert np.array_equal(session.tokens, whole.tokens)
    assert close_to(session.logits(), whole.logits())


def test_forward_and_score_show_every_position(engine: _ext.Engine) -> None:
    tokens = prompt(4, 100)
    logits = engine.forward(tokens)
    assert logits.shape == (100, VOCAB)
    for count in (1, 64, 77, 100):
        session = read(engine, tokens[:count])
        assert close_to(logits[count - 1], session.logits())
        session.close()
    logprob, ids, top_logprobs, lse = engine.score(tokens, 5)
    exact = logits.astype(np.float64)
    expected_lse = np.log(np.sum(np.exp(exact), axis=1))
    order = np.stack([np.lexsort((np.arange(VOCAB), -row))[:5] for row in logits])
    assert np.array_equal(ids, order)
    np.testing.assert_allclose(lse, expected_lse, rtol=1e-6)
    np.testing.assert_allclose(top_logprobs, np.take_along_axis(exact, order, 1) - expected_lse[:, None], atol=2e-6)
    np.testing.assert_allclose(logprob, exact[np.arange(99), tokens[1:]] - expected_lse[:-1], atol=2e-6)


def test_score_of_one_token_and_of_no_candidates(engine: _ext.Engine) -> None:
    logprob, ids, top_logprobs, lse = engine.score(prompt(5, 1), 0)
    assert (logprob.shape, ids.shape, top_logprobs.shape, lse.shape) == ((0,), (1, 0), (1, 0), (1,))


def test_ties_go_to_the_lowest_id(weights: Arrays) -> None:
    changed = dict(weights)
    for part in (".weight", ".scales", ".biases"):
        dtype, values = weights[HEAD + part]
        twice = values.copy()
        twice[200:300] = values[100:200]
        changed[HEAD + part] = (dtype, twice)
    engine = tiny_engine(changed, dict(SMALL))
    tokens = prompt(6, 40)
    logits, ids = engine.forward(tokens), engine.score(tokens, 4)[1]
    assert np.array_equal(ids, [np.lexsort((np.arange(VOCAB), -row))[:4] for row in logits])
    assert np.any((ids[:, :3] >= 100) & (ids[:, :3] < 200) & (ids[:, 1:] == ids[:, :3] + 100))
    engine.close()


@pytest.mark.parametrize("base", [1, 4, 8])
def test_weights_at_any_address_give_the_same_bits(engine: _ext.Engine, weights: Arrays, base: int) -> None:
    moved = tiny_engine(weights, dict(SMALL), base=base)
    assert np.array_equal(moved.forward(prompt(7, 70)), engine.forward(prompt(7, 70)))
    moved.close()


@pytest.mark.parametrize("changes", [{"attention_every": 1}, {"attention_every": 9}, {"layers": 1, "conv_width": 2}])
def test_models_of_one_kind_of_layer(changes: dict[str, float]) -> None:
    engine = tiny_engine(*tiny_model(seed=12, **changes))
    tokens = prompt(10, 80)
    session = read(engine, tokens[:30], tokens[30:])
    assert close_to(session.logits(), engine.forward(tokens)[-1])
    snapshot = session.snapshot()
    steps = greedy(engine, session, 5)
    session.restore(snapshot)
    assert greedy(engine, session, 5) == steps
    engine.close()


# ---- the pending token


def test_a_token_is_read_when_the_next_one_is_asked_for(engine: _ext.Engine) -> None:
    session = read(engine, prompt(20, 12))
    first = engine.step(session, _ext.Sampler())
    assert (session.pending, session.position) == (first, 12)
    assert first == int(np.argmax(session.logits()))
    second = engine.step(session, _ext.Sampler())
    assert (session.pending, session.position, session.tokens[-1]) == (second, 13, first)


def test_prefill_reads_the_pending_token_first(engine: _ext.Engine) -> None:
    session = read(engine, prompt(21, 12))
    token = engine.step(session, _ext.Sampler())
    calls: list[tuple[int, int]] = []
    engine.prefill(session, prompt(22, 9), lambda done, total: calls.append((done, total)))
    assert (session.pending, session.position, calls) == (None, 22, [(10, 10)])
    whole = read(engine, prompt(21, 12), np.array([token, *prompt(22, 9)], np.int32))
    assert same_content(engine, session, whole)


def test_prefill_of_nothing(engine: _ext.Engine) -> None:
    nothing = np.zeros(0, np.int32)
    session = read(engine, prompt(23, 5))
    before = session.logits()
    engine.prefill(session, nothing, None)
    assert np.array_equal(session.logits(), before)
    token = engine.step(session, _ext.Sampler())
    engine.prefill(session, nothing, None)
    assert (session.position, session.tokens[-1], session.pending) == (6, token, None)
    with pytest.raises(errors.InvalidInput, match="no tokens to read and the session is empty"):
        engine.prefill(engine.session(), nothing, None)


def test_an_empty_session_has_nothing_to_say(engine: _ext.Engine) -> None:
    session = engine.session()
    assert (session.position, session.pending, len(session.tokens)) == (0, None, 0)
    with pytest.raises(errors.InvalidInput, match="prefill it first"):
        session.logits()
    with pytest.raises(errors.InvalidInput, match="prefill it first"):
        engine.step(session, _ext.Sampler())


# ---- refusals before any work


def test_overflow_comes_before_any_work(engine: _ext.Engine) -> None:
    session = read(engine, prompt(30, CONTEXT - 1))
    calls: list[int] = []
    before = session.fork()
    with pytest.raises(errors.ContextOverflow, match="max_context is 256") as caught:
        engine.prefill(session, prompt(31, 2), lambda done, _: calls.append(done))
    assert (caught.value.needed, caught.value.limit, calls) == (257, 256, [])
    assert np.array_equal(session.logits(), before.logits())
    engine.step(session, _ext.Sampler())  # chosen from the logits that are there
    engine.step(session, _ext.Sampler())  # reads the last one that fits
    assert session.position == CONTEXT
    pending = session.pending
    with pytest.raises(errors.ContextOverflow, match="257"):
        engine.step(session, _ext.Sampler())
    with pytest.raises(errors.ContextOverflow):
        engine.prefill(session, prompt(31, 1), None)
    assert (session.position, session.pending) == (CONTEXT, pending)


def test_the_pending_token_needs_room_too(engine: _ext.Engine) -> None:
    session = read(engine, prompt(32, CONTEXT - 2))
    engine.step(session, _ext.Sampler())
    with pytest.raises(errors.ContextOverflow):
        engine.prefill(session, prompt(33, 2), None)
    engine.prefill(session, prompt(33, 1), None)
    assert session.position == CONTEXT


def test_forward_and_score_do_not_overflow_silently(engine: _ext.Engine) -> None:
    for call in (engine.forward, lambda tokens: engine.score(tokens, 1)):
        with pytest.raises(errors.ContextOverflow, match="257 tokens do not fit"):
            call(prompt(34, 257))
        with pytest.raises(errors.InvalidInput, match="no tokens"):
            call(prompt(34, 0))
    with pytest.raises(errors.InvalidInput, match=r"512 MB: 400000 tokens"):
        engine.forward(np.zeros(400_001, np.int32))
    for top in (-1, VOCAB + 1):
        with pytest.raises(errors.InvalidInput, match=f"top is {top}, expected 0 to {VOCAB}"):
            engine.score(prompt(34, 3), top)


@pytest.mark.parametrize("bad", [-1, VOCAB, 2**31 - 1])
def test_a_token_id_out_of_range_is_named(engine: _ext.Engine, bad: int) -> None:
    tokens = prompt(35, 100)
    tokens[70] = bad
    session = engine.session()
    for call in (lambda: engine.prefill(session, tokens, None), lambda: engine.forward(tokens)):
        with pytest.raises(errors.InvalidInput, match=f"token 70 is {bad}, expected an id from 0 to {VOCAB - 1}"):
            call()
    assert session.position == 0


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (np.zeros(3, np.int64), "8 bytes an element, expected one dimension of int32"),
        (np.zeros((3, 1), np.int32), "2 dimensions"),
        (np.zeros(6, np.int32)[::2], "not contiguous"),
        ([1, 2], "tokens is a list, expected a numpy array"),
    ],
)
def test_other_arrays_are_refused(engine: _ext.Engine, tokens: Any, message: str) -> None:
    with pytest.raises(errors.InvalidInput, match=message):
        engine.prefill(engine.session(), tokens, None)


def test_a_sampler_that_does_not_fit_is_refused_before_reading(engine: _ext.Engine) -> None:
    session = read(engine, prompt(36, 3))
    engine.step(session, _ext.Sampler())
    with pytest.raises(errors.InvalidInput, match=f"token {VOCAB}, expected ids under"):
        engine.step(session, _ext.Sampler(logit_bias={VOCAB: 1.0}))
    assert session.position == 3


# ---- cancel, exceptions, signals


def test_cancel_stops_a_prefill_between_chunks(engine: _ext.Engine) -> None:
    tokens = prompt(40, 200)
    session = engine.session()
    with pytest.raises(errors.Cancelled, match="after 64 of 200 tokens"):
        engine.prefill(session, tokens, lambda *_: session.cancel())
    assert session.position == 64
    engine.prefill(session, tokens[64:], None)  # goes on, and the request is spent
    assert same_content(engine, session, read(engine, tokens))


def test_cancel_stops_the_next_step_once(engine: _ext.Engine) -> None:
    session = read(engine, prompt(41, 5))
    expected = greedy(engine, session.fork(), 3)
    sampler = _ext.Sampler()
    tokens = [engine.step(session, sampler)]
    session.cancel()
    with pytest.raises(errors.Cancelled, match="position 5"):
        engine.step(session, sampler)
    tokens += [engine.step(session, sampler) for _ in range(2)]
    assert tokens == expected
    session.cancel()
    session.cancel(False)
    engine.step(session, sampler)
    session.cancel()
    engine.prefill(session, prompt(41, 1), None)  # an old request does not stop a new prefill


def test_what_progress_raises_ends_the_prefill(engine: _ext.Engine) -> None:
    session = engine.session()

    def stop(done: int, total: int) -> None:
        if done == 128:
            raise LookupError(total)

    with pytest.raises(LookupError, match="200"):
        engine.prefill(session, prompt(42, 200), stop)
    assert session.position == 128
    with pytest.raises(LookupError):
        engine.forward(prompt(42, 200), stop)
    with pytest.raises(LookupError):
        engine.score(prompt(42, 200), 1, stop)


def test_control_c_ends_a_prefill_between_chunks(engine: _ext.Engine) -> None:
    session = engine.session()
    seen: list[int] = []

    def interrupt(done: int, _: int) -> None:
        seen.append(done)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        engine.prefill(session, prompt(43, 200), interrupt)
    assert (session.position, seen) == (64, [64])
    engine.prefill(session, prompt(43, 5), None)


def test_a_prefill_owns_its_session(engine: _ext.Engine) -> None:
    tokens = prompt(44, 130)
    session = engine.session()
    snapshots: list[_ext.Snapshot] = []
    other = read(engine, prompt(45, 3))

    def meddle(done: int, total: int) -> None:
        if done == total:
            return
        snapshots.append(session.snapshot())
        assert session.position == done
        for call in (
            lambda: engine.prefill(session, tokens[:1], None),
            lambda: engine.step(session, _ext.Sampler()),
            lambda: session.restore(snapshots[-1]),
            session.reset,
        ):
            with pytest.raises(errors.InvalidInput, match="in the middle of a prefill"):
                call()
        greedy(engine, other, 2)  # another session may go on meanwhile

    engine.prefill(session, tokens, meddle)
    assert [snapshot.position for snapshot in snapshots] == [64, 128]
    assert same_content(engine, session, read(engine, tokens))
    continued = engine.session()
    continued.restore(snapshots[0])
    engine.prefill(continued, tokens[64:], None)
    assert same_content(engine, continued, session)


# ---- numbers that are none


def test_logits_that_are_not_finite_leave_the_session_as_it_was(weights: Arrays) -> None:
    poisoned = 77
    changed = dict(weights)
    scales = weights[MODEL + "embed_tokens.scales"][1].copy()
    scales[poisoned] = 0x7FC0  # NaN
    changed[MODEL + "embed_tokens.scales"] = ("BF16", scales)
    engine = tiny_engine(changed, dict(SMALL))
    clean = prompt(60, 100) % poisoned
    session, reference = read(engine, clean), read(engine, clean)
    # The chunk that ends at 128 is fine and stays. The next one leaves NaN in the caches, behind the position.
    with pytest.raises(errors.NumericalError, match=r"position 157 hold -?nan .*stays at position 128, .*30 tokens"):
        engine.prefill(session, np.array([*clean[:28], *[poisoned] * 30], np.int32), None)
    engine.prefill(reference, clean[:28], None)
    assert same_content(engine, session, reference)
    force = _ext.Sampler(logit_bias={poisoned: 1e30})
    assert engine.step(session, force) == poisoned
    with pytest.raises(errors.NumericalError, match="stays at position 128"):
        engine.step(session, _ext.Sampler())
    assert (session.position, session.pending) == (128, poisoned)
    assert np.array_equal(session.logits(), reference.logits())
    for call in (engine.forward, lambda tokens: engine.score(tokens, 1)):
        with pytest.raises(errors.NumericalError, match="there is no result"):
            call(np.array([1, 2, 3, poisoned, 5], np.int32))
    engine.close()
