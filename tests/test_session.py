"""Sessions of the extension: snapshot, restore, fork, reset, memory, close, threads and processes.

A small model in memory stands for the real one. What is read and written is in test_reading.py, the public classes of
Python are tested elsewhere.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import CONTEXT, SMALL, Arrays, greedy, prompt, read, same_content, tiny_engine, tiny_model

from lily import _ext, errors


@pytest.fixture(scope="module")
def weights() -> Arrays:
    return tiny_model(seed=11)[0]


@pytest.fixture(scope="module")
def engine(weights: Arrays) -> Iterator[_ext.Engine]:
    made = tiny_engine(weights, dict(SMALL))
    yield made
    made.close()


# ---- snapshot, restore, fork, reset


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 140), steps=st.integers(0, 5))
def test_a_snapshot_is_the_whole_timeline(engine: _ext.Engine, seed: int, count: int, steps: int) -> None:
    session = read(engine, prompt(seed, count))
    greedy(engine, session, steps)
    snapshot = session.snapshot()
    assert snapshot.position == session.position
    pending, logits, tokens = session.pending, session.logits(), session.tokens
    expected = greedy(engine, session, 6)
    other = read(engine, prompt(seed + 1, 200))
    for target in (session, other, engine.session()):
        target.restore(snapshot)
        assert (target.pending, target.position) == (pending, len(tokens))
        assert np.array_equal(target.logits(), logits)
        assert np.array_equal(target.tokens, tokens)
        assert greedy(engine, target, 6) == expected
        target.close()


def test_a_fork_goes_its_own_way(engine: _ext.Engine) -> None:
    session = read(engine, prompt(51, 70))
    engine.step(session, _ext.Sampler())
    twin = session.fork()
    assert same_content(engine, session, twin)
    expected = greedy(engine, session.fork(), 8)
    engine.prefill(twin, prompt(52, 50), None)
    assert greedy(engine, session, 8) == expected
    session.close()
    assert twin.position == 121


def test_a_reset_session_is_as_new(engine: _ext.Engine) -> None:
    session = read(engine, prompt(53, 100))
    engine.step(session, _ext.Sampler())
    session.reset()
    assert (session.position, session.pending) == (0, None)
    with pytest.raises(errors.InvalidInput):
        session.logits()
    engine.prefill(session, prompt(54, 80), None)
    assert same_content(engine, session, read(engine, prompt(54, 80)))


def test_a_snapshot_of_another_engine_is_refused(engine: _ext.Engine, weights: Arrays) -> None:
    other = tiny_engine(weights, dict(SMALL))
    foreign = read(other, prompt(55, 5))
    session = read(engine, prompt(56, 6))
    with pytest.raises(errors.InvalidInput, match=r"the snapshot is of engine \d+, this session belongs to engine \d+"):
        session.restore(foreign.snapshot())
    with pytest.raises(errors.InvalidInput, match=r"belongs to engine \d+, not to this engine"):
        engine.prefill(foreign, prompt(55, 1), None)
    with pytest.raises(errors.InvalidInput, match="not to this engine"):
        engine.step(foreign, _ext.Sampler())
    assert session.position == 6
    other.close()


# ---- memory and close


def test_all_memory_is_reserved_at_the_start(weights: Arrays) -> None:
    engine = tiny_engine(weights, dict(SMALL), max_context=CONTEXT)
    before = engine.memory()
    assert before["sessions"] == 0
    assert before["weights_mapped"] == sum(values.nbytes for _, values in weights.values())
    assert before["weights_converted"] > 0
    assert before["scratch"] > 0
    session = engine.session()
    caches = 2 * 2 * 2 * CONTEXT * 64
    states = 2 * 3 * 4 * (4 * 64 * 64)
    assert session.memory >= caches + states
    assert session.memory < 1.1 * (caches + states) + 20_000
    held = engine.memory()
    assert held["sessions"] == session.memory
    engine.prefill(session, prompt(70, 200), None)
    greedy(engine, session, 5)
    engine.forward(prompt(70, 200))
    assert engine.memory() == held
    twin = session.fork()
    assert engine.memory()["sessions"] == session.memory + twin.memory
    session.close()
    assert (session.memory, session.capacity) == (0, CONTEXT)
    del twin
    assert engine.memory() == before
    engine.close()


def test_untouched_memory_of_other_sessions_counts() -> None:
    """Pages that nobody wrote yet are free to the system, but they are promised: sessions that fit one by one and not
    together are refused when they are made, not when they fill up."""
    wide = tiny_model(seed=22, layers=16, attention_every=1, heads=8, kv_heads=8)
    with pytest.raises(errors.OutOfMemory) as caught:
        tiny_engine(*wide, max_context=2**24, chunk=32).session()
    match = re.search(r"a session of (\d+) tokens: (\d+) MB are needed and (\d+) MB are free", str(caught.value))
    assert match is not None, caught.value
    tokens, needed, free = map(int, match.groups())
    engine = tiny_engine(*wide, max_context=int(0.4 * free / needed * tokens), chunk=32)
    kept = [engine.session(), engine.session()]
    with pytest.raises(
        errors.OutOfMemory, match=r"MB are free, of which \d+ MB are promised to open engines and sessions; lower"
    ):
        engine.session()
    kept[0].close()
    kept.append(engine.session())
    engine.close()
    other = tiny_engine(*wide, max_context=int(0.6 * free / needed * tokens), chunk=32)
    other.session()  # a closed engine has given everything back
    other.close()


def session_calls(engine: _ext.Engine, session: _ext.Session, snapshot: _ext.Snapshot) -> list[Callable[[], object]]:
    return [
        lambda: session.tokens,
        lambda: session.position,
        lambda: session.pending,
        session.logits,
        session.snapshot,
        session.fork,
        session.reset,
        lambda: session.restore(snapshot),
        lambda: engine.prefill(session, prompt(71, 3), None),
        lambda: engine.step(session, _ext.Sampler()),
    ]


def test_a_closed_session_says_so(engine: _ext.Engine) -> None:
    session = read(engine, prompt(71, 3))
    snapshot = session.snapshot()
    session.close()
    session.close()
    session.cancel()
    for call in session_calls(engine, session, snapshot):
        with pytest.raises(errors.InvalidInput, match="the session is closed"):
            call()


def test_a_closed_engine_says_so(weights: Arrays) -> None:
    engine = tiny_engine(weights, dict(SMALL))
    session = read(engine, prompt(72, 3))
    snapshot = session.snapshot()
    engine.close()
    engine.close()
    assert session.memory == 0
    calls = session_calls(engine, session, snapshot)
    calls += [engine.session, engine.memory, lambda: engine.forward(prompt(72, 3))]
    for call in calls:
        with pytest.raises(errors.InvalidInput, match="the engine is closed"):
            call()
    session.close()


def test_close_in_the_middle_of_a_call(weights: Arrays) -> None:
    engine = tiny_engine(weights, dict(SMALL))
    session = engine.session()
    with pytest.raises(errors.InvalidInput, match="the session is closed"):
        engine.prefill(session, prompt(73, 200), lambda *_: session.close())
    with pytest.raises(errors.InvalidInput, match="the engine is closed"):
        engine.forward(prompt(73, 200), lambda *_: engine.close())


def test_weights_are_let_go_at_close(weights: Arrays) -> None:
    memory = np.zeros(16, np.uint8)
    held = sys.getrefcount(memory)
    table = _ext.Weights([memory], [])
    assert sys.getrefcount(memory) > held
    del table
    assert sys.getrefcount(memory) == held


# ---- threads and processes


def test_eight_threads_on_one_engine(weights: Arrays) -> None:
    engine = tiny_engine(weights, dict(SMALL), threads=2)
    expected = []
    for number in range(8):
        session = read(engine, prompt(80 + number, 70 + number))
        expected.append((greedy(engine, session, 6), session.logits().tobytes()))
        session.close()
    results: list[Any] = [None] * 8

    def work(number: int) -> None:
        session = read(engine, prompt(80 + number, 70 + number))
        steps = greedy(engine, session, 6)
        results[number] = (steps, session.fork().logits().tobytes())
        engine.memory()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == expected
    engine.close()


def test_sessions_and_the_engine_close_under_a_running_thread(weights: Arrays) -> None:
    engine = tiny_engine(weights, dict(SMALL), threads=2)
    sessions = [read(engine, prompt(90 + number, 10)) for number in range(4)]
    ends: list[str] = []

    def work(session: _ext.Session) -> None:
        sampler = _ext.Sampler()
        try:
            while True:
                engine.step(session, sampler)
                if session.position > 100:
                    session.reset()
                    engine.prefill(session, prompt(90, 10), None)
        except errors.InvalidInput as error:
            ends.append(str(error))

    threads = [threading.Thread(target=work, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    sessions[0].close()
    threads[0].join()
    engine.close()
    for thread in threads:
        thread.join()
    assert ends[0].startswith("the session is closed")
    assert all(end.startswith("the engine is closed") for end in ends[1:])
    assert len(ends) == 4


def test_another_session_goes_on_during_a_long_prefill(weights: Arrays) -> None:
    # Chunks long enough for a waiting thread to be there when one ends, whatever else the machine does.
    engine = tiny_engine(weights, dict(SMALL), chunk=256, max_context=4096)
    other = read(engine, prompt(94, 3))
    steps = 0
    seen: list[int] = []
    stop = threading.Event()

    def work() -> None:
        nonlocal steps
        sampler = _ext.Sampler()
        while not stop.is_set() and steps < 4000:
            engine.step(other, sampler)
            steps += 1

    thread = threading.Thread(target=work)
    thread.start()
    engine.prefill(engine.session(), prompt(93, 4096), lambda *_: seen.append(steps))
    stop.set()
    thread.join()
    # The lock is taken for each chunk, not for the call. How often each side comes to its turn is up to the system.
    assert len(seen) == 16
    assert len(set(seen)) >= 4
    engine.close()


def test_another_thread_runs_while_the_engine_works(weights: Arrays) -> None:
    # A thread that needs the interpreter for every pass keeps going during one long call.
    engine = tiny_engine(weights, dict(SMALL), chunk=512, max_context=2048)
    passes = 0
    stop = threading.Event()

    def spin() -> None:
        nonlocal passes
        while not stop.is_set():
            passes += 1

    thread = threading.Thread(target=spin)
    thread.start()
    # One call is long enough on a machine that is idle; on a busy one the thread may get no time during it.
    deadline = time.monotonic() + 60
    kept_going = False
    while not kept_going and time.monotonic() < deadline:
        before = passes
        engine.score(prompt(95, 2048), 1)
        kept_going = passes > before
    stop.set()
    thread.join()
    assert kept_going
    engine.close()


def script_of(code: str) -> str:
    """The code with the modules of this folder at hand."""
    return f"import sys; sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}\n" + code


FORKED = """
import os, sys
import numpy as np
from lily import _ext, errors
from tiny import tiny_engine, tiny_model

engine = tiny_engine(*tiny_model(seed=1), threads=2)
session = engine.session()
tokens = np.arange(70, dtype=np.int32)
engine.prefill(session, tokens, None)
snapshot = session.snapshot()
calls = [lambda: engine.prefill(session, tokens, None), lambda: engine.step(session, _ext.Sampler()), session.fork,
         lambda: engine.forward(tokens), lambda: session.position, lambda: session.restore(snapshot), engine.memory]
child = os.fork()
if child == 0:
    refused = 0
    for call in calls:
        try:
            call()
        except errors.DeviceError as error:
            assert "load the model in the child process" in str(error), error
            refused += 1
    session.close()
    engine.close()
    del calls, session, engine, snapshot
    fresh = tiny_engine(*tiny_model(seed=1), threads=2)
    fresh.forward(tokens)
    print("refused", refused, flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
engine.step(session, _ext.Sampler())
print("parent goes on", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="fork without exec is a habit of Linux")
def test_a_forked_child_is_refused_by_name() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script_of(FORKED)], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "refused 7\nparent goes on\n"), done.stderr


LIMITED = """
import resource
from lily import errors
from tiny import tiny_engine, tiny_model

engine = tiny_engine(*tiny_model(seed=1), max_context=2**24, chunk=32)
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, resource.RLIM_INFINITY))
try:
    engine.session()
except errors.OutOfMemory as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the address space")
def test_a_limit_of_the_process_is_told_from_a_lack_of_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script_of(LIMITED)], capture_output=True, text=True, timeout=120
    )
    assert re.match(
        r"a session of 16777216 tokens: \d+ MB are needed and \d+ MB are free, but the system refused them "
        r"\(Cannot allocate memory; ulimit -v is \d+ MB\); raise the limit, lower max_context, or close sessions$",
        done.stdout,
    ), done
