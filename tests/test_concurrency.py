"""Threads, signals, processes: one engine shared by many callers, stopped at any time, and refused after fork()."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lily import Engine, Sampling
from lily.errors import Cancelled, InvalidInput

CHUNK = 64  # of the shared engine


def in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_eight_threads_one_engine(engine: Engine) -> None:
    def answer(seed: int) -> tuple[int, ...]:
        prompt = "a b " * (5 * seed + 1)  # some of one chunk, some of several
        return engine.generate(prompt, max_tokens=12, sampling=Sampling(temperature=1.0, seed=seed)).tokens

    alone = [answer(seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(answer, range(8))) == alone
    assert len(set(alone)) > 1


def test_eight_threads_one_session(engine: Engine) -> None:
    """Steps that claim nothing, of several threads, land in one timeline, one after another, and none is lost."""
    with engine.session() as session:
        engine.prefill(session, [1, 2, 3])

        def write(seed: int) -> list[int]:
            return list(engine.steps(session, Sampling(seed=seed).sampler(engine.vocab), 6))

        with ThreadPoolExecutor(8) as pool:
            tokens = [token for part in pool.map(write, range(8)) for token in part]
        assert len(tokens) == 48
        assert session.position == 3 + 47
        assert sorted([*session.tokens[3:].tolist(), session.pending]) == sorted(tokens)


def test_a_prefill_owns_its_session(engine: Engine) -> None:
    reading, refused = threading.Event(), threading.Event()

    def wait(done: int, total: int) -> None:
        reading.set()
        assert refused.wait(60)

    with engine.session() as session:
        thread = in_thread(lambda: engine.prefill(session, [1] * 100, progress=wait))
        assert reading.wait(60)
        try:
            with pytest.raises(InvalidInput):
                engine.prefill(session, [2])
            with pytest.raises(InvalidInput):
                list(engine.decode(session, 1))
        finally:
            refused.set()
            thread.join()
        assert session.tokens.tolist() == [1] * 100


def test_two_generators_in_one_thread(engine: Engine) -> None:
    options = Sampling(temperature=1.0, seed=2)
    alone = engine.generate("A lily", 10, options).tokens
    streams = [engine.stream("A lily", 10, options) for _ in range(2)]
    taken: list[list[int]] = [[], []]
    for _ in range(11):  # ten tokens and the closing piece
        for index, stream in enumerate(streams):
            if (piece := next(stream, None)) is not None:
                taken[index].extend(piece.tokens)
    assert taken[0] == taken[1] == list(alone)


def test_cancel_stops_a_prefill_within_one_chunk(engine: Engine) -> None:
    cancelled = threading.Event()
    first = threading.Event()

    def progress(done: int, total: int) -> None:
        first.set()
        assert cancelled.wait(60)

    with engine.session() as session:

        def cancel() -> None:
            assert first.wait(60)
            session.cancel()
            cancelled.set()

        thread = in_thread(cancel)
        with pytest.raises(Cancelled, match=rf"after {CHUNK} of 200 tokens"):
            engine.prefill(session, [1] * 200, progress=progress)
        thread.join()
        assert session.position == CHUNK
        assert session.stats.prefill_tokens == CHUNK
        assert engine.prefill(session, [1] * 10).cached_tokens == CHUNK


def test_cancel_stops_a_decode_within_one_token(engine: Engine) -> None:
    taken: list[int] = []
    stopped = threading.Event()
    with engine.session() as session:
        engine.prefill(session, [1, 2, 3])

        def write() -> None:
            try:
                taken.extend(engine.decode(session, 10_000, Sampling(logit_bias=dict.fromkeys(engine.stop_ids, -1000))))
            except Cancelled:
                stopped.set()

        thread = in_thread(write)
        while session.position < 10:
            time.sleep(0.001)
        session.cancel()
        at = session.position
        thread.join()
        assert stopped.is_set()
        assert session.position <= at + 1


def test_the_interpreter_runs_while_the_engine_works(engine: Engine) -> None:
    with engine.session() as session:
        counted = 0
        thread = in_thread(lambda: engine.prefill(session, [1] * 250))
        while thread.is_alive():
            counted += 1
            time.sleep(0.0005)
        thread.join()
        assert session.position == 250
    assert counted > 5


def test_closing_under_work_ends_it_with_an_error(tiny: Path) -> None:
    loaded = Engine.load(tiny, max_context=256)
    session = loaded.session()
    errors: list[BaseException] = []
    working = threading.Event()

    def write() -> None:
        try:
            loaded.prefill(session, [1, 2, 3])
            for _ in loaded.decode(session, 10_000, Sampling(logit_bias=dict.fromkeys(loaded.stop_ids, -1000))):
                working.set()
        except InvalidInput as error:
            errors.append(error)

    thread = in_thread(write)
    assert working.wait(60)
    loaded.close()
    thread.join()
    assert "closed" in str(errors[0])


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


INTERRUPTED = """
import sys, time
from lily import Engine, Sampling
import lily.engine
lily.engine.CHUNK = 16
engine = Engine.load(sys.argv[1], max_context=100_000, threads=1)
session = engine.session()
ready = lambda *_: print("ready", flush=True) if session.position > 30 else None
try:
    if sys.argv[2] == "prefill":
        engine.prefill(session, [1] * 90_000, progress=ready)
    else:
        engine.prefill(session, [1] * 40)
        sampling = Sampling(logit_bias=dict.fromkeys(engine.stop_ids, -1000))
        for token in engine.decode(session, 90_000, sampling):
            ready()
except KeyboardInterrupt:
    held = session.position
    engine.prefill(session, [1, 2, 3])
    print("went on", session.position >= held + 3, flush=True)
"""


@pytest.mark.parametrize("work", ["prefill", "decode"])
def test_ctrl_c_stops_and_the_session_goes_on(tiny: Path, work: str) -> None:
    child = python(INTERRUPTED, tiny, work)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n", child.communicate()
    start = time.monotonic()
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert out.endswith("went on True\n"), err
    assert child.returncode == 0
    assert time.monotonic() - start < 20


FORKED = """
import os, sys
from lily import Engine
from lily.errors import DeviceError
engine = Engine.load(sys.argv[1], max_context=64, threads=2)
session = engine.session()
before = engine.prefill(session, [1, 2, 3]).logits
child = os.fork()
if child == 0:
    prefill, position = lambda: engine.prefill(session, [4]), lambda: session.position
    for call in (prefill, position, engine.session, lambda: engine.forward([1])):
        try:
            call()
        except DeviceError as error:
            assert "load" in str(error) and "child" in str(error), error
        else:
            sys.exit("no error after fork()")
    own = Engine.load(sys.argv[1], max_context=64, threads=2)
    with own.session() as mine:
        assert (own.prefill(mine, [1, 2, 3]).logits == before).all()
    own.close()
    engine.close()
    sys.exit(7)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
assert engine.prefill(session, [4]).cached_tokens == 3
print("both fine")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
def test_fork_after_load_is_refused_by_name(tiny: Path) -> None:
    out, err = python(FORKED, tiny).communicate(timeout=120)
    assert out == "both fine\n", err


FORKED_AND_LEFT = """
import os, sys
from lily import Engine
engine = Engine.load(sys.argv[1], max_context=64, threads=2)
session = engine.session()
engine.prefill(session, [1, 2, 3])
tokens = engine.decode(session, 9)
next(tokens)
child = os.fork()
if child == 0:
    print(repr(session), repr(engine), engine._repr_html_(), sep="\\n", flush=True)
    sys.exit(0)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
def test_a_forked_child_shows_its_objects_and_leaves_in_silence(tiny: Path) -> None:
    child = python(FORKED_AND_LEFT, tiny)
    out, err = child.communicate(timeout=120)
    assert (child.returncode, err) == (0, "")
    session, engine, html = out.splitlines()
    assert session == "<lily.Session made before fork(), usable in the parent process only>"
    assert "on cpu" in engine
    assert "loaded before fork()" in html


CROWDED = """
import resource, sys, threading
from lily import Engine
from lily.errors import DeviceError
used = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
stack = 8 << 20
resource.setrlimit(resource.RLIMIT_STACK, (stack, resource.RLIM_INFINITY))
resource.setrlimit(resource.RLIMIT_AS, (used + 40 * stack, resource.RLIM_INFINITY))
try:
    Engine.load(sys.argv[1], max_context=64, threads=1000)
except DeviceError as error:
    print(error)
with Engine.load(sys.argv[1], max_context=64, threads=2) as engine:
    print(engine.info["threads"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the address space")
def test_threads_that_the_system_refuses(tiny: Path) -> None:
    child = python(CROWDED, tiny)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    message, threads = out.splitlines()
    assert re.match(r"1000 threads were asked for and the system gave \d+ \(.+\); ask for fewer threads, or", message)
    assert threads == "2"


ON_ONE_CORE = """
import os, sys
from lily import Engine, Sampling
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
with Engine.load(sys.argv[1], max_context=256) as engine:
    print(engine.info["threads"], *engine.generate("a b " * 40, 12, Sampling(temperature=1.0, seed=9)).tokens)
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity()")
def test_affinity_of_one_core(tiny: Path) -> None:
    """One thread, and the same tokens as two: the bits do not depend on the number of threads."""
    out, err = python(ON_ONE_CORE, tiny).communicate(timeout=120)
    assert out.split()[:1] == ["1"], err
    with Engine.load(tiny, max_context=256, threads=2) as engine:
        expected = engine.generate("a b " * 40, 12, Sampling(temperature=1.0, seed=9)).tokens
    assert tuple(map(int, out.split()[1:])) == expected
