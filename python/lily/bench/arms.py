"""The arms: one process that loads one engine, measures one prompt length under the contract, and prints one line.

`python -m lily.bench.arms ENGINE OPTIONS` is that process, OPTIONS being JSON. It ends when its standard input does,
which whoever started it holds open. Nothing here decides what to measure.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import DeviceError, LilyError
from .contract import STEPS, Arm, Watch, measure, peak_memory, prompt

Options = Mapping[str, Any]


def run_lily(options: Options) -> Arm:
    """An engine of lily. Options: model, device, threads, activations, length."""
    from ..engine import Engine
    from ..sampling import GREEDY

    length = options["length"]
    chosen = {name: options[name] for name in ("device", "threads", "activations")}
    with Engine.load(options["model"], max_context=length + STEPS + 1, **chosen) as engine:
        ids = prompt(length, engine.vocab)
        session = engine.session()

        def read_and_write() -> Iterator[int]:
            session.reset()
            engine.prefill(session, ids)
            yield from engine.steps(session, GREEDY.sampler(engine.vocab), STEPS + 1)  # a stop id stops nothing here

        return measure(f"lily, {engine.device}, {engine.info['activations']}", read_and_write)


def run_mlx(options: Options) -> Arm:
    """mlx-lm as it runs by default, on the same checkpoint. Options: model, length."""
    device, read_and_write = mlx_lm(options["model"], options["length"], STEPS)
    return measure(device, read_and_write)


def mlx_lm(model: str, length: int, steps: int) -> tuple[str, Callable[[], Iterator[int]]]:
    """Loads it; the device, and what reads `length` tokens and writes one and then `steps` more. Raises DeviceError."""
    from ..checkpoint import open_checkpoint

    try:
        import mlx.core as mx
        from mlx_lm.generate import generate_step
        from mlx_lm.utils import load_model
    except ImportError as error:
        raise DeviceError(
            f"mlx-lm cannot be imported ({error}); install it with pip install 'mlx[cpu]' mlx-lm"
        ) from None
    with open_checkpoint(model) as checkpoint:
        vocab = checkpoint.architecture.vocab
        loaded, _ = load_model(checkpoint.path)
    ids = mx.array(prompt(length, vocab))

    def read_and_write() -> Iterator[int]:
        for token, _ in generate_step(ids, loaded, max_tokens=steps + 1):
            yield int(token)

    return f"mlx-lm on {mx.default_device()}", read_and_write


def run_llama(options: Options) -> Arm:
    """llama.cpp's own llama-bench, which warms up by itself, makes its own ids and reads a prompt of the length before
    it writes. It says nothing of its tokens, so there is no digest. Options: gguf, threads, length."""
    program = shutil.which("llama-bench")
    if program is None:
        raise DeviceError("llama-bench is not on the PATH; build llama.cpp and put its llama-bench there")
    shared = [program, "-m", options["gguf"], "-r", "1", "-o", "json"]
    if options["threads"] is not None:
        shared += ["-t", str(options["threads"])]
    watch = Watch()
    length = options["length"]
    reading = _llama(*shared, "-p", str(length), "-n", "0")
    writing = _llama(*shared, "-p", "0", "-n", str(STEPS), "-d", str(length))
    return Arm(
        device=f"llama.cpp {reading['build_commit']} ({reading['model_type']}, {reading['n_threads']} threads)",
        prefill_seconds=reading["avg_ns"] / 1e9,
        decode_seconds=writing["avg_ns"] / 1e9,
        steps=STEPS,
        digest="",
        foreign=watch.foreign(),
        peak_memory=peak_memory(),
    )


def _llama(*command: str) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise DeviceError(f"llama-bench ended with code {done.returncode}: {done.stderr.strip()[-300:]}")
    (found,) = json.loads(done.stdout)
    return dict(found)


ENGINES: Mapping[str, Callable[[Options], Arm]] = {"lily": run_lily, "mlx-lm": run_mlx, "llama.cpp": run_llama}


def main(engine: str, options: str) -> int:
    """Runs an arm and prints what it found, or one line of what went wrong."""
    try:
        print(ENGINES[engine](json.loads(options)).to_json())
    except (LilyError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    return 0


def _end_with_the_input() -> None:
    while os.read(0, 1024):  # not sys.stdin, whose lock the interpreter wants when it ends
        pass
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_input, daemon=True).start()
    sys.exit(main(*sys.argv[1:]))
