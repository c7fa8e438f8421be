"""One writer a session: an open decode or stream never goes on in a timeline that somebody else has begun."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lily import Engine, Sampling, Session
from lily.errors import InvalidInput
from lily.sampling import GREEDY

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
OTHER = [2, 7, 1, 8, 2, 8]

Begin = Callable[[Engine, Session], Iterator[Any]]
WRITERS: dict[str, Begin] = {
    "decode": lambda engine, session: engine.decode(session, 50),
    "stream": lambda engine, session: engine.stream("A lily is", 50, GREEDY, session=session),
}
every_writer = pytest.mark.parametrize("begin", WRITERS.values(), ids=WRITERS.keys())


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    with engine.session() as session:
        engine.prefill(session, PROMPT)
        yield session


def state(session: Session) -> tuple[list[int], int | None, bytes]:
    return session.tokens.tolist(), session.pending, session.logits().tobytes()


def assert_over(writer: Iterator[Any], session: Session, reason: str) -> None:
    before = state(session)
    with pytest.raises(InvalidInput, match=rf"is over, because .*{reason}.* nothing was fed\. .*fork\(\)"):
        next(writer)
    assert state(session) == before
    assert next(writer, None) is None


@every_writer
def test_a_reset_ends_what_was_open(engine: Engine, session: Session, begin: Begin) -> None:
    writer = begin(engine, session)
    next(writer)
    session.reset()
    engine.prefill(session, OTHER)
    assert_over(writer, session, "the session was reset")
    assert list(engine.decode(session, 2))


@every_writer
def test_a_restore_ends_what_was_open(engine: Engine, session: Session, begin: Begin) -> None:
    snapshot = session.snapshot()
    writer = begin(engine, session)
    next(writer)
    session.restore(snapshot)
    assert_over(writer, session, "the session was restored from a snapshot")


def test_a_decode_that_never_began_belongs_to_the_old_timeline_too(engine: Engine, session: Session) -> None:
    tokens = engine.decode(session)
    session.reset()
    engine.prefill(session, OTHER)
    assert_over(tokens, session, "the session was reset")


@every_writer
@pytest.mark.parametrize("second", WRITERS.values(), ids=WRITERS.keys())
def test_the_latest_writer_has_the_session(engine: Engine, session: Session, begin: Begin, second: Begin) -> None:
    with engine.session() as alone:
        first = begin(engine, session)
        next(first)
        engine.prefill(alone, session.tokens)
        if (pending := session.pending) is not None:
            engine.prefill(alone, [pending])
        if second is WRITERS["decode"]:
            expected: list[Any] = list(engine.decode(alone, 50))
        else:
            expected = [piece.text for piece in engine.stream("A lily is", 50, GREEDY)]
        latest = second(engine, session)
        got = [next(latest)]
        assert_over(first, session, "another decode or stream began|the session was reset")
        got += list(latest)
    assert [getattr(one, "text", one) for one in got] == expected


def test_streams_made_first_and_read_one_after_the_other_all_work(engine: Engine, session: Session) -> None:
    """A stream takes the session when its first piece is asked for, not when it is made."""
    prompts = ["A lily is", "b b b", "A lily is"]
    streams = [engine.stream(prompt, 4, GREEDY, session=session) for prompt in prompts]
    texts = ["".join(piece.text for piece in stream) for stream in streams]
    assert texts == [engine.generate(prompt, 4, GREEDY).text for prompt in prompts]


@every_writer
def test_reading_on_is_the_same_timeline(engine: Engine, session: Session, begin: Begin) -> None:
    writer = begin(engine, session)
    next(writer)
    held = session.position
    engine.prefill(session, OTHER)
    next(writer)
    assert session.tokens.tolist()[held + 1 :] == OTHER  # after the token that was pending
    assert session.pending is not None


def test_what_a_writer_left_goes_on_in_forks(engine: Engine, session: Session) -> None:
    expected = list(engine.decode(session.fork(), 8))
    twins = [session.fork(), session.fork()]
    writers = [engine.decode(twin, 8) for twin in twins]
    assert list(zip(*writers, strict=True)) == [(token, token) for token in expected]
    for twin in twins:
        twin.close()


def test_threads_that_decode_on_one_session(engine: Engine) -> None:
    """Each token that anybody got is in the timeline, once and whole; who was overtaken is told so."""
    with engine.session() as session:
        engine.prefill(session, [1, 2, 3])
        barrier = threading.Barrier(8)
        reasons: list[str] = []

        def write(seed: int) -> list[int]:
            taken: list[int] = []
            barrier.wait()
            try:
                taken.extend(engine.decode(session, 6, Sampling(seed=seed)))
            except InvalidInput as error:
                reasons.append(str(error))
            return taken

        with ThreadPoolExecutor(8) as pool:
            tokens = [token for part in pool.map(write, range(8)) for token in part]
        assert len(tokens) >= 6
        assert all("another decode or stream began" in reason for reason in reasons)
        assert sorted([*session.tokens[3:].tolist(), session.pending]) == sorted(tokens)


def test_a_claim_guards_reading_too(engine: Engine, session: Session) -> None:
    """Two streams that begin at once in two threads do not read into one timeline: the overtaken one reads nothing."""
    old, new = session.native.claim(), session.native.claim()
    before = state(session)
    with pytest.raises(InvalidInput, match="another decode or stream began"):
        engine.read(session, OTHER, None, claim=old)
    assert state(session) == before
    assert engine.read(session, OTHER, None, claim=new).tokens == len(OTHER)
