"""Runs whole models on devices and prints what each device gave, one JSON object a line. For test_models.py, which
starts it in a process of its own, over an extension that has the stand-in in it.

    timelines.py decoder FOLDER SEED DEVICE...      a timeline that reads, writes, forks, restores and resets
    timelines.py token FOLDER SEED DEVICE...        one token that is read
    timelines.py failures FOLDER SEED DEVICE...     two timelines, on a device of which some steps fail
    timelines.py classifier DEVICE...               the classifier that comes with lily
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import lily
from lily import engine
from lily.errors import DeviceError, LilyError
from lily.gate.classifier import Classifier

TEXT = "Maria Lopez, born 4 May 1981, asks that her card is sent to 12 Elm Street. Call her: +1 212 555 0175."
CHUNK = 64

Given = dict[str, Any]


def digest(values: Any) -> str:
    """Names the bits of an array."""
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]


def decoder(device: str, folder: str, seed: int) -> Given:
    """Two chunks are read at once, and tokens are read one by one and a few at a time."""
    random = np.random.default_rng(seed)
    engine.CHUNK = CHUNK
    given: Given = {}
    with lily.Engine.load(folder, device=device, max_context=2 * CHUNK, threads=1) as loaded:
        prompt, more = (random.integers(0, loaded.vocab, count, dtype=np.int32) for count in (CHUNK + 26, 5))
        with loaded.session() as session:
            given["prefill"] = digest(loaded.prefill(session, prompt).logits)
            given["decode"] = list(loaded.decode(session, 4))
            kept = session.snapshot()
            with session.fork() as twin:
                sampled = loaded.decode(twin, 3, lily.Sampling(temperature=1.0, seed=seed))
                given["fork"] = [*sampled, digest(twin.logits())]
            given["after the fork"] = [*loaded.decode(session, 2), digest(session.logits())]
            session.restore(kept)
            given["restore"] = [digest(loaded.prefill(session, more).logits), *loaded.decode(session, 2)]
            session.reset()
            given["reset"] = [digest(loaded.prefill(session, more).logits), *loaded.decode(session, 2)]
        given["score"] = digest(loaded.score(prompt[:40], top=2).log_probs)
        given["copied"] = loaded.memory["weights_copied"]
    return given


def token(device: str, folder: str, seed: int) -> Given:
    """One row, whatever comes out."""
    with lily.Engine.load(folder, device=device, max_context=CHUNK, threads=1) as loaded, loaded.session() as session:
        try:
            return {"token": digest(loaded.prefill(session, [seed % loaded.vocab]).logits)}
        except LilyError as error:
            return {"token": str(error)}


def failures(device: str, folder: str, seed: int) -> Given:
    """Whatever fails is done again. A greedy decode has a step under way that the next call relies on, so that a step
    of one session can fail while another one waits."""
    random = np.random.default_rng(seed)
    engine.CHUNK = CHUNK
    errors: list[str] = []

    def again(work: Callable[[], Any], failing: bool = True) -> Any:
        if failing:
            os.environ["LILY_STANDIN_FAILURE"] = "Caused GPU Timeout Error"
        try:
            return work()
        except DeviceError as error:
            errors.append(str(error))
        finally:
            os.environ.pop("LILY_STANDIN_FAILURE", None)
        return work()

    with lily.Engine.load(folder, device=device, max_context=2 * CHUNK, threads=1) as loaded:
        prompt, other = (random.integers(0, loaded.vocab, count, dtype=np.int32) for count in (CHUNK + 8, 5))
        with loaded.session() as one, loaded.session() as two:
            read = [digest(again(lambda: loaded.prefill(one, prompt)).logits)]
            tokens = loaded.decode(one, 8)
            wrote = [next(tokens), next(tokens), again(lambda: next(tokens))]  # what fails is the step under way
            read.append(digest(again(lambda: loaded.prefill(two, other), failing=False).logits))
            wrote += [next(tokens), next(tokens)]
            wrote.append(again(lambda: next(loaded.decode(one, 1))))
            wrote.append(again(lambda: next(loaded.decode(one, 1)), failing=False))
            wrote += loaded.decode(one, 2)
    return {"read": read, "wrote": wrote, "errors": errors}


def classifier(device: str) -> Given:
    """Windows of an encoder, and the heads of the classifier."""
    with Classifier.load(device=device, threads=1) as loaded:
        (found,) = loaded.read([TEXT])
    spans = [[span.label, span.start, span.end] for span in found.spans]
    return {"probabilities": digest(found.any_pii), "sensitivity": found.sensitivity, "spans": spans}


def main(work: str, *arguments: str) -> None:
    """See the top of the file."""
    if work == "classifier":
        given = [classifier(device) for device in arguments]
    else:
        folder, seed, *devices = arguments
        run = {"decoder": decoder, "token": token, "failures": failures}[work]
        given = [run(device, folder, int(seed)) for device in devices]
    print("\n".join(map(json.dumps, given)))


if __name__ == "__main__":
    main(*sys.argv[1:])
