"""The toolchain and the executor on sample kernels, against numpy: in three orders of lanes, and with the checker."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from metal.clang import needs_clang
from metal.executor import Module
from reference.numbers import bf16_bits, bf16_values

pytestmark = needs_clang
KERNELS = Path(__file__).parent / "kernels"
RUNS = ["host ascending", "host descending", "host random", "check ascending"]
ORDERS = {"ascending": 0, "descending": 1, "random": 20_26}


class Samples:
    """The sample kernels in one flavour and order."""

    def __init__(self, run: str) -> None:
        self.flavour, order = run.split()
        self.order = ORDERS[order]

    def load(self, name: str) -> Module:
        module = Module(KERNELS / f"{name}.metal", self.flavour)
        module.set(order=self.order)
        return module


@pytest.fixture(params=RUNS)
def samples(request: pytest.FixtureRequest) -> Iterator[Samples]:
    found = Samples(request.param)
    yield found
    found.load("features").set(order=0)


def relative_error(found: NDArray[Any], expected: NDArray[Any]) -> float:
    return float(np.linalg.norm(found.astype(np.float64) - expected) / np.linalg.norm(expected))


def draw(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng([2026, seed, *shape]).normal(0, 1, shape).astype(np.float32)


def quantized(rows: int, columns: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float32]]:
    """Random 4-bit codes, packed eight to a word; with scales of groups of 64."""
    rng = np.random.default_rng([2026, rows, columns])
    codes = rng.integers(0, 16, (rows, columns), dtype=np.uint32)
    packed = sum(codes[:, i::8] << np.uint32(4 * i) for i in range(8))
    return codes, np.asarray(packed, np.uint32), (rng.random((rows, columns // 64)) * 0.02 + 0.005).astype(np.float32)


@pytest.mark.parametrize("kernel", ["qgemv4_half", "qgemv4w_half", "qgemv4_bfloat"])
def test_matrix_vector_product_of_codes(samples: Samples, kernel: str) -> None:
    rows, columns = 16, 1024
    codes, packed, scales = quantized(rows, columns)
    biases = -8 * scales + draw(*scales.shape) * np.float32(0.01)
    x = draw(columns)
    half = not kernel.endswith("bfloat")
    encode = (lambda a: a.astype(np.float16)) if half else bf16_bits
    decode = (lambda a: a.astype(np.float64)) if half else (lambda a: bf16_values(a).astype(np.float64))
    scales_in, biases_in, x_in = encode(scales), encode(biases), encode(x)
    y = np.full(rows, np.nan, np.float16) if half else np.full(rows, 0xFFFF, np.uint16)
    module = samples.load("gemv")
    buffers = [packed, scales_in, biases_in, x_in, y, struct.pack("IIf", rows, columns, 1.0)]
    module.run(kernel, buffers, grid=(rows // 8,), threads=(64,))
    weights = codes * np.repeat(decode(scales_in), 64, 1) + np.repeat(decode(biases_in), 64, 1)
    expected = weights @ decode(x_in)
    assert relative_error(decode(y), expected) < (2e-3 if half else 1e-2)
    if kernel == "qgemv4_half":  # an optional buffer, and the function constant that turns it on
        residual = encode(draw(rows, seed=1))
        constants = {0: ctypes.c_bool(True)}
        module.run(kernel, [*buffers, residual], grid=(rows // 8,), threads=(64,), constants=constants)
        assert relative_error(decode(y), expected + decode(residual)) < 2e-3
        module.run(kernel, [*buffers, residual], grid=(rows // 8,), threads=(64,))
        assert relative_error(decode(y), expected) < 2e-3


@pytest.mark.parametrize("name", ["half", "float", "bfloat"])
def test_matrix_product_of_simdgroups(samples: Samples, name: str) -> None:
    m, n, k = 64, 96, 48
    a, b = draw(m, k), draw(k, n)
    tolerance = {"half": 2e-3, "float": 1e-6, "bfloat": 1e-2}[name]
    if name == "bfloat":
        left, right, out = bf16_bits(a), bf16_bits(b), np.full((m, n), 0xFFFF, np.uint16)
        expected = bf16_values(left).astype(np.float64) @ bf16_values(right).astype(np.float64)
    else:
        kind = np.float16 if name == "half" else np.float32
        left, right, out = a.astype(kind), b.astype(kind), np.full((m, n), np.nan, kind)
        expected = left.astype(np.float64) @ right.astype(np.float64)
    samples.load("gemm").run(
        f"gemm_{name}", [left, right, out, struct.pack("III", m, n, k)], grid=(n // 32, m // 32), threads=(128,)
    )
    assert relative_error(bf16_values(out) if name == "bfloat" else out, expected) < tolerance


def test_vectors(samples: Samples) -> None:
    a, out = draw(100, 4), np.full((100, 4), np.nan, np.float32)
    samples.load("features").run(
        "vectors", [a, out, struct.pack("I", 100)], grid=(128,), threads=(32,), grid_is_threads=True
    )
    table = np.array([1, 2.5, -3, 4], np.float32)[np.arange(100) % 4]
    swapped = a[:, ::-1].copy()
    swapped[:, :2] += a[:, :1] * table[:, None]
    half = swapped.astype(np.float16).astype(np.float32)
    expected = half * 0.5
    expected += np.stack([half[:, 0], half[:, 1], np.full(100, 1.0), np.full(100, 0.25)], 1, dtype=np.float32)
    expected[:, :3] += np.cross(a[:, :3], swapped[:, :3])
    expected[:, 3] += np.where(a[:, 0] > 0, 2, 1)
    np.testing.assert_allclose(out, expected, rtol=1e-3, atol=1e-3)


def test_simdgroup_functions(samples: Samples) -> None:
    n = 256
    a, out = draw(n), np.full((9, n), np.nan, np.float32)
    samples.load("features").run("simds", [a, out], grid=(n,), threads=(128,), grid_is_threads=True)
    groups, found = a.reshape(-1, 32), out.reshape(9, -1, 32)
    np.testing.assert_allclose(found[0], np.broadcast_to(groups.sum(1, keepdims=True), groups.shape), atol=1e-4)
    np.testing.assert_array_equal(found[1], np.broadcast_to(groups.max(1, keepdims=True), groups.shape))
    np.testing.assert_array_equal(found[2], groups[:, np.arange(32) ^ 5])
    np.testing.assert_allclose(found[3], np.cumsum(groups, 1) - groups, atol=1e-4)
    np.testing.assert_array_equal(found[4], np.broadcast_to(np.arange(1, 33), groups.shape))
    np.testing.assert_array_equal(found[5], np.broadcast_to(groups[:, 7:8], groups.shape))
    np.testing.assert_array_equal(found[6][:, :31], groups[:, 1:])
    part = np.broadcast_to(groups[:, :12].sum(1, keepdims=True), (n // 32, 12))
    np.testing.assert_allclose(found[7][:, :12], part, atol=1e-4)  # in a branch: the active lanes only
    np.testing.assert_array_equal(found[7][:, 12:], 0)
    np.testing.assert_array_equal(found[8], np.broadcast_to((groups > 0).sum(1, keepdims=True), groups.shape))


def test_threadgroup_memory_atomics_and_constants(samples: Samples) -> None:
    a, count, out = draw(1024).astype(np.float16), np.zeros(1, np.uint32), np.full(4, np.nan, np.float32)
    samples.load("features").run(
        "reduce",
        [a, count, out],
        grid=(4,),
        threads=(256,),
        threadgroup_memory=(64,),
        constants={1: ctypes.c_uint(21)},
    )
    np.testing.assert_allclose(out, a.astype(np.float32).reshape(4, -1).sum(1) + 42, atol=1e-2)
    assert count[0] == (a > 0).sum()


def test_matmul2d_of_tensors_with_ragged_edges(samples: Samples) -> None:
    m, n, k = 100, 72, 48
    a, b, out = bf16_bits(draw(m, k)), bf16_bits(draw(n, k)), np.full((m, n), np.nan, np.float32)
    samples.load("matmul2d").run(
        "mm_nt",
        [a, b, out, struct.pack("IIII", m, n, k, 0)],
        grid=((n + 31) // 32, (m + 63) // 64),
        threads=(128,),
    )
    assert relative_error(out, 2 * bf16_values(a).astype(np.float64) @ bf16_values(b).T) < 1e-5


def test_matmul2d_of_registers(samples: Samples) -> None:
    a, b, out = draw(16, 16).astype(np.float16), draw(16, 32).astype(np.float16), draw(16, 32)
    expected = out + a.astype(np.float64) @ b.astype(np.float64)
    samples.load("matmul2d").run("mm_regs", [a, b, out], grid=(1,), threads=(32,))
    assert relative_error(out, expected) < 1e-5


def test_results_do_not_depend_on_the_number_of_workers() -> None:
    module = Samples("host ascending").load("gemm")
    m, n, k = 64, 64, 32
    a, b = draw(m, k), draw(k, n)
    found = []
    for workers in (1, 3):
        module.set(workers=workers)
        out = np.full((m, n), np.nan, np.float32)
        module.run("gemm_float", [a, b, out, struct.pack("III", m, n, k)], grid=(2, 2), threads=(128,))
        found.append(out)
    module.set(workers=0)
    np.testing.assert_array_equal(found[0], found[1])
