"""The benchmarks of the Metal kernels: what they run is what lily's backend runs, to the bit, and they tell when two
arms differ. Times are not looked at."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lily import _ext
from lily.device import parse_device
from metal.clang import needs_clang

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from benchmarks import metal_gemv, metal_ideas
from benchmarks.metal_device import Device, open_device
from benchmarks.metal_words import (
    Moe,
    Packed,
    Prompt,
    Step,
    block_keys,
    floats,
    moe_weights,
    random_projections,
    random_rows,
    row_bytes,
)

pytestmark = needs_clang

MOE_SIZES = ("hidden", "experts", "top_k", "width", "shared_width", "renormalize", "eps")


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device("metal:host")


def probe() -> _ext.Probe:
    return _ext.Probe(**parse_device("metal:host"))


def matrix(packed: Packed) -> dict[str, Any]:
    return {"packing": packed.packing, "codes": packed.codes, "scales": packed.scales, "biases": packed.biases}


@pytest.mark.parametrize("tokens", [2, 20, 600])
def test_the_experts_are_those_of_the_backend(device: Device, tokens: int) -> None:
    shape = metal_ideas.TINY.shape
    seed = int(np.random.default_rng().integers(2**32))
    print("seed", seed)
    random = np.random.default_rng(seed)
    weights, x = moe_weights(random, shape), random_rows(random, tokens, shape.hidden)
    gain = (1 + 0.15 * random.standard_normal(shape.hidden)).astype(np.float32)
    moe = Moe(device, shape, weights, gain, tokens)
    device.write(moe.x, x)
    device.run(device.commands(moe.layer()))
    of_backend = probe().moe(
        {name: getattr(shape, name) for name in MOE_SIZES},
        {"norm": gain} | {name: matrix(packed) for name, packed in weights.items()},
        x,
    )
    assert device.read(moe.x, np.uint16).tobytes() == of_backend.tobytes()
    ids = device.read(moe.ids, np.uint32)
    assert moe.sorted_by_host(ids).tobytes() == device.read(moe.routing, np.uint32).tobytes()


def test_the_ideas_run_and_agree(device: Device) -> None:
    for make in metal_ideas.IDEAS.values():
        idea = make(device, metal_ideas.TINY)
        metal_ideas.compare(idea)
        rows = metal_ideas.measure(idea, 1)
        assert [row["arm"] for row in rows] == [idea.on.name, *(arm.name for arm in idea.off)]


def test_arms_that_differ_are_an_error(device: Device) -> None:
    idea = metal_ideas.packing(device, metal_ideas.TINY)
    other = metal_ideas.Caches(device, metal_ideas.TINY.shape, 299, 2).arm("one key less", 64)
    with pytest.raises(SystemExit, match="one key less is off by"):
        metal_ideas.compare(dataclasses.replace(idea, off=[other]))


def test_one_row_is_checked_against_numpy(device: Device) -> None:
    metal_gemv.Head(device, 520, 256, 1)
    layers = metal_gemv.Projections(device, (192, 64, 32, 32), 256, 2)
    layers.check(4)
    layers.expected[2] = layers.expected[2] * np.float32(1.001)
    with pytest.raises(SystemExit, match="projections, 4 rows: off by"):
        layers.check(4)


def test_the_last_row_of_a_prompt_is_a_step(device: Device) -> None:
    """Two kernels, and two ways to say what they get; the step also puts its key and value into the cache."""
    shape, keys, count = metal_ideas.TINY.shape, 200, 24
    seed = int(np.random.default_rng().integers(2**32))
    print("seed", seed)
    random = np.random.default_rng(seed)
    rows = random_projections(random, device, shape, count)
    last = {
        name: buffer if name.endswith("norm") else buffer.part(buffer.size // count * (count - 1), buffer.size // count)
        for name, buffer in rows.items()
    }
    cache = device.buffer(random_rows(random, keys * row_bytes(shape) // 2))
    step = Step(device, shape, last, cache, keys, 64)
    prompt = Prompt(device, shape, rows, cache, keys, shape.heads // shape.kv_heads)
    device.run(device.commands([*step.work(), *prompt.work(f"attention_rows_{shape.head_dim}")]))
    expected = floats(device.read(step.mixed, np.uint16))
    error = floats(device.read(prompt.mixed, np.uint16))[-expected.size :] - expected
    assert 0 < np.sqrt(np.mean(error**2)) <= 4e-3 * np.sqrt(np.mean(expected**2))


def test_the_step_is_cut_as_the_backend_cuts_it() -> None:
    assert [block_keys(keys) for keys in (1, 8192, 8193, 32_768, 131_072)] == [64, 64, 128, 256, 1024]
