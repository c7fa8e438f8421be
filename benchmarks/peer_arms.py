"""One block of a comparison: a fresh process that measures one engine at one work, some times over.

`python -m benchmarks.peer_arms OPTIONS` (JSON) is that process for lily and for mlx-lm; it prints one line. llama.cpp
brings its own, llama-bench, whose progress tells when each repetition begins. The first repetition warms up and does
not count, because engines that do not fit into memory together push each other's weights out of it. What is compared
with what, and how often: cpu_peers.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lily import Engine
from lily.bench.arms import mlx_lm
from lily.bench.contract import Watch, prompt
from lily.errors import DeviceError
from lily.sampling import GREEDY

from .rounds import Round, quiet, timed

ROOT = Path(__file__).resolve().parent.parent

Options = Mapping[str, Any]
"""work (reading, writing, loading or encoding), tokens of the prompt, steps after it, repeats, threads, and what an
engine needs of: model, gguf, packing, activations."""


@dataclass(frozen=True)
class Block:
    """The repetitions that count, in seconds and whether they were undisturbed."""

    device: str
    rounds: list[Round]


def lily(options: Options) -> Block:
    """Reads the prompt, or reads it once and writes after it again and again."""
    room = options["tokens"] + options["steps"] + 1
    chosen = {name: options[name] for name in ("threads", "activations")}
    with Engine.load(options["model"], device="cpu", max_context=room, **chosen) as engine:
        session, ids = engine.session(), prompt(options["tokens"], engine.vocab)
        device = f"lily, {engine.device}, {engine.info['activations']}"
        rounds: list[Round] = []
        if options["work"] == "reading":
            for _ in range(options["repeats"] + 1):
                session.reset()
                rounds.append(timed(lambda: engine.prefill(session, ids)))
            return Block(device, rounds[1:])
        engine.prefill(session, ids)
        start = session.snapshot()
        for _ in range(options["repeats"] + 1):
            session.restore(start)
            steps = engine.steps(session, GREEDY.sampler(engine.vocab), options["steps"] + 1)
            next(steps)  # the token that the prompt's logits give
            rounds.append(timed(lambda steps=steps: deque(steps, 0)))  # type: ignore[misc]
        return Block(device, rounds[1:])


def mlx(options: Options) -> Block:
    """The same; it has nothing to go back to, so every repetition reads the prompt."""
    device, read_and_write = mlx_lm(options["model"], options["tokens"], options["steps"])
    rounds = []
    for _ in range(options["repeats"] + 1):
        tokens = read_and_write()
        reading = timed(lambda tokens=tokens: next(tokens))  # type: ignore[misc]
        writing = timed(lambda tokens=tokens: deque(tokens, 0))  # type: ignore[misc]
        rounds.append(reading if options["work"] == "reading" else writing)
    return Block(device, rounds[1:])


def first_token(options: Options) -> Block:
    """From nothing to the first token; the caller has the clock."""
    lily({**options, "work": "reading", "repeats": 0})
    return Block("lily", [])


def encoder(options: Options) -> Block:
    """An encoder of the reference classifier's size on random weights, of the packing asked for."""
    from .encoder_speed import FULL, load  # which brings what tests need, and the clock of loading runs already

    tokens: int = options["tokens"]
    ids = np.random.default_rng(1).integers(0, FULL.vocab, tokens).astype(np.int32)
    lengths = np.array([tokens], np.int32)
    with tempfile.TemporaryDirectory() as folder:
        model = load(Path(folder), options["packing"], options["threads"])
        rounds = [timed(lambda: model.logits(ids, lengths)) for _ in range(options["repeats"] + 1)]
        device = f"lily, {model.device_name}, {options['packing']}"
        model.close()
    return Block(device, rounds[1:])


ARMS: Mapping[tuple[str, str], Callable[[Options], Block]] = {
    ("lily", "reading"): lily,
    ("lily", "writing"): lily,
    ("lily", "loading"): first_token,
    ("lily", "encoding"): encoder,
    ("mlx-lm", "reading"): mlx,
    ("mlx-lm", "writing"): mlx,
}


def measure(engine: str, options: Options) -> Block:
    """One block in fresh processes. Raises DeviceError with the last line that a failing one said."""
    if options["work"] == "loading":
        command = load_command(engine, options)
        found = [until_it_answers(command) for _ in range(options["repeats"] + 1)]
        return Block(engine, found[1:])
    if engine == "llama.cpp":
        return llama_bench(options)
    (line,) = (line for line, _ in said(arm_command(engine, options)) if line.startswith("{"))
    found_there = json.loads(line)
    return Block(found_there["device"], [(seconds, undisturbed) for seconds, undisturbed in found_there["rounds"]])


def arm_command(engine: str, options: Options) -> list[str]:
    """This file as a process."""
    return [sys.executable, "-m", "benchmarks.peer_arms", engine, json.dumps(dict(options))]


def load_command(engine: str, options: Options) -> list[str]:
    """A process that loads, reads a prompt, and says something."""
    if engine == "llama.cpp":
        return [*llama(options), "-p", "0", "-n", "0", "-pg", f"{options['tokens']},1", "-r", "1", "--no-warmup"]
    return arm_command(engine, options)


def llama(options: Options) -> list[str]:
    """What all calls of llama-bench have in common."""
    return [options["llama_bench"], "-m", options["gguf"], "-t", str(options["threads"]), "-o", "jsonl", "--progress"]


def llama_bench(options: Options) -> Block:
    """llama.cpp's own benchmark. A repetition lasts from the line that announces it to the next one."""
    tokens = str(options["tokens"])
    work = ["-p", "0", "-n", str(options["steps"]), "-d", tokens]
    if options["work"] != "writing":
        work = ["-p", tokens, "-n", "0"]
    undisturbed: list[bool] = []
    watch = None
    for line, process in said([*llama(options), *work, "-r", str(options["repeats"] + 1)]):
        announced = line.startswith("llama-bench: benchmark")
        if watch is not None and (announced or line.startswith("{")):
            undisturbed.append(quiet(watch))
            watch = None
        if announced and " run " in line and "warmup" not in line and "depth" not in line:
            watch = Watch(process)
        if line.startswith("{"):
            found = json.loads(line)
    seconds = [nanoseconds / 1e9 for nanoseconds in found["samples_ns"]]
    rounds = list(zip(seconds, undisturbed, strict=True))
    device = f"llama.cpp {found['build_commit']}, {found['model_type']}, {found['n_threads']} threads"
    return Block(device, rounds[1:])


def until_it_answers(command: Sequence[str]) -> Round:
    """From the start of a process to the first line of JSON that it prints."""
    start = time.perf_counter()
    watch: Watch | None = None
    answer: Round | None = None
    for line, process in said(command):
        watch = watch or Watch(process)
        if line.startswith("{"):
            answer = time.perf_counter() - start, quiet(watch)
    if answer is None:
        raise DeviceError(f"{Path(command[0]).name} ended without an answer")
    return answer


def said(command: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The lines of a process, errors among them, as they come, each with the process's number; first an empty one."""
    line = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT) as process:
        try:
            yield "", process.pid
            assert process.stdout is not None
            for line in process.stdout:
                yield line, process.pid
        finally:
            process.kill() if process.poll() is None and sys.exc_info()[0] is not None else process.wait()
    if process.returncode:
        raise DeviceError(f"{Path(command[0]).name} ended with code {process.returncode}: {line.strip()[-300:]}")


def main(engine: str, options: str) -> None:
    """Measures, and prints one line."""
    chosen = json.loads(options)
    block = ARMS[engine, chosen["work"]](chosen)
    print(json.dumps({"device": block.device, "rounds": block.rounds}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
