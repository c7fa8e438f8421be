"""Whole models on the driver for Apple's Metal, over the stand-in: the same kernels give the bits of metal:host."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from apple.standin import HERE, python

from lily.repack import repack
from lily.synth import TINY, write_checkpoint

# The smallest sizes whose tensors all have 16 bytes or more, so that an aligned copy of them needs no other.
SHAPE = dataclasses.replace(
    TINY, hidden=512, layers=4, vocab=320, head_dim=64, rotary_dim=16, key_heads=2, key_dim=64, value_dim=64,
    experts=8, top_k=2, width=64, shared_width=64,
)  # fmt: skip
SEED = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("models") / "small", SHAPE, seed=SEED)


@pytest.fixture(scope="module")
def aligned(folder: Path) -> Path:
    return repack(folder, folder.parent / "aligned").path


def given(package: Path, work: str, *arguments: str | Path, **environment: str) -> list[dict[str, Any]]:
    printed = python(package, HERE / "timelines.py", work, *arguments, **environment)
    return [json.loads(line) for line in printed.splitlines()]


def test_a_decoder_gives_the_bits_of_the_host_driver(package: Path, folder: Path) -> None:
    apple, host = given(package, "decoder", folder, str(SEED), "metal", "metal:host")
    assert apple == host
    assert len(set(map(str, apple.values()))) == len(apple)


def test_the_weights_are_copied_only_where_they_do_not_lie_right(package: Path, folder: Path, aligned: Path) -> None:
    (copied,) = given(package, "decoder", folder, str(SEED), "metal")
    (mapped,) = given(package, "decoder", aligned, str(SEED), "metal")
    assert copied.pop("copied") > 4_000_000
    assert mapped.pop("copied") == 0
    assert copied == mapped


def test_a_copy_of_the_weights_is_logged(package: Path, folder: Path, aligned: Path) -> None:
    script = f"""
import logging, sys, lily
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
for folder in ({str(folder)!r}, {str(aligned)!r}):
    lily.Engine.load(folder, device="metal", max_context=16).close()
"""
    loaded, copied, again = python(package, "-c", script).splitlines()
    assert "copied 4.1 MB of it to the device; where files are aligned (lily repack)" in copied
    assert f"loaded {folder} on metal (stand-in) in" in loaded
    assert f"loaded {aligned} on metal (stand-in) in" in again


def test_a_missing_barrier_shows_in_a_decoder(package: Path, tmp_path: Path) -> None:
    """One layer and one token: where there are more, experts that are read before they are chosen are anywhere."""
    folder = write_checkpoint(tmp_path / "one", dataclasses.replace(SHAPE, layers=1), seed=SEED)
    apple, host = given(package, "token", folder, str(SEED), "metal", "metal:host")
    assert apple == host
    wrong, host = given(package, "token", folder, str(SEED), "metal", "metal:host", LILY_STANDIN_NO_BARRIERS="1")
    assert apple == host != wrong


def test_the_classifier_gives_the_bits_of_the_host_driver(package: Path) -> None:
    apple, host = given(package, "classifier", "metal", "metal:host")
    assert apple == host
    assert {label for label, _, _ in apple["spans"]} >= {"private_person", "private_phone"}
    wrong, host = given(package, "classifier", "metal", "metal:host", LILY_STANDIN_NO_BARRIERS="1")
    assert apple == host != wrong


def test_a_failed_command_buffer_is_an_error_and_can_be_done_again(package: Path, aligned: Path) -> None:
    apple, host = given(package, "failures", aligned, str(SEED), "metal", "metal:host")
    assert apple.pop("errors") == 3 * ["a command buffer failed on the GPU: Caused GPU Timeout Error"]
    assert host.pop("errors") == []
    assert apple == host


@pytest.mark.parametrize("bytes_in_all", [4_000_000, 4_500_000])
def test_what_the_working_set_does_not_hold_is_refused(
    package: Path, folder: Path, aligned: Path, bytes_in_all: int
) -> None:
    """The weights are 4.1 MB, in both files; what else an engine needs is more than 0.4 MB."""
    script = f"""
import pytest, lily
for folder in ({str(folder)!r}, {str(aligned)!r}):
    with pytest.raises(lily.errors.OutOfMemory) as found:
        lily.Engine.load(folder, device="metal")
    print(found.value)
"""
    for message in python(package, "-c", script, LILY_STANDIN_WORKING_SET=str(bytes_in_all)).splitlines():
        assert message.startswith("the weights of one file: 5 MB are needed") == (bytes_in_all < 4_100_000)
        assert f"and {-(-bytes_in_all // 1_000_000)} MB in all; lower max_context, close" in message


def test_closing_waits_for_the_step_that_reads_the_weights(package: Path, aligned: Path) -> None:
    """A greedy decode leaves a step under way. Nobody but the engine holds the memory of these weights."""
    script = f"""
import mmap
import numpy as np
from lily import _ext
from lily.checkpoint import open_checkpoint
from lily.device import parse_device

def mapped(file):
    memory = mmap.mmap(-1, file.nbytes)
    memory[:] = file.tobytes()
    return np.frombuffer(memory, np.uint8)

with open_checkpoint({str(aligned)!r}) as checkpoint:
    weights = _ext.Weights([mapped(file) for file in checkpoint.files], checkpoint.tensors)
    arguments = parse_device("metal")
    engine = _ext.Engine(weights, checkpoint.config, threads=1, max_context=64, chunk=64, **arguments)
del weights
session, sampler = engine.session(), _ext.Sampler()
engine.prefill(session, np.arange(9, dtype=np.int32), None)
for _ in range(2):
    engine.step(session, sampler)
engine.close()
"""
    python(package, "-c", script)
