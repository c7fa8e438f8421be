"""The product with a packed matrix against float64, and the promise that a row does not depend on its neighbours."""

import numpy as np
import pytest
from hypothesis import given, strategies
from kernels import (
    EPSILON,
    INSTRUCTION_SETS,
    TILES,
    Draw,
    Kernels,
    bases,
    check_bounded,
    few_examples,
    many_examples,
    packings,
    row_counts,
    seeds,
)

from reference import BYTES_FLOAT64, FLOAT64, Array, Matrix, bf16_bits, bf16_values, matmul
from reference.matmul import round_to_bytes


def bound(x: Array, matrix: Matrix, expert: int = 0) -> Array:
    """The error of a float32 sum: half a unit for each addition on the longest path, times the sum of the sizes.

    A group of 64 is summed in at least four lanes of pairs (8 additions, 6 to join the lanes), then scaled and added
    to a total of cols / 64 groups twice (code part and bias part). A plain bf16 row is summed in the same lanes.
    """
    size = matrix.magnitude()
    terms = np.abs(x) @ (size if size.ndim == 2 else size[expert]).T
    return np.asarray((16 + 3 * x.shape[1] / 64) * EPSILON * terms)


@pytest.mark.parametrize("isa", TILES)
@many_examples
@given(
    seed=seeds,
    rows=row_counts,
    outputs=strategies.integers(1, 150),
    groups=strategies.sampled_from((1, 2, 3, 5, 8, 32)),
    packing=packings,
    base=bases,
)
def test_matmul(isa: str, seed: int, rows: int, outputs: int, groups: int, packing: str, base: int) -> None:
    draw = Draw(seed)
    matrix = draw.matrix(outputs, 64 * groups, packing)
    x = draw.bits(rows, 64 * groups)
    y = Kernels(isa).run("matmul", x, matrix, 0, base=base)
    values = bf16_values(x, np.float64)
    check_bounded("matmul", y, matmul(values, matrix, FLOAT64), bound(values, matrix))


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@many_examples
@given(
    seed=seeds,
    rows=row_counts,
    outputs=strategies.integers(1, 150),
    groups=strategies.sampled_from((1, 2, 3, 5, 8, 32)),
    packing=packings,
    base=bases,
)
def test_inputs_of_8_bits(isa: str, seed: int, rows: int, outputs: int, groups: int, packing: str, base: int) -> None:
    """Groups of zeros and groups of very different size among them. Every instruction set gives the same bits, except
    for a single row, whose sums are spread over lanes."""
    draw = Draw(seed)
    matrix = draw.matrix(outputs, 64 * groups, packing)
    sizes = draw.random.choice((0.0, 2.0**-30, 1.0, 2.0**20), (rows, groups, 1))
    x = bf16_bits(draw.random.standard_normal((rows, groups, 64)) * sizes).reshape(rows, -1)
    y = Kernels(isa, byte_inputs=True).run("matmul", x, matrix, 0, base=base)
    values = bf16_values(x, np.float64)
    taken = values if packing == "bf16" else round_to_bytes(values)
    check_bounded("matmul", y, matmul(values, matrix, BYTES_FLOAT64), bound(taken, matrix) + 1e-30)
    if packing != "bf16" and rows > 1:
        other = Kernels(INSTRUCTION_SETS[-1], byte_inputs=True).run("matmul", x, matrix, 0, base=base)
        assert np.array_equal(y, other)


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_what_is_not_finite_stays_so_in_8_bits(isa: str) -> None:
    draw = Draw(1)
    for packing in ("affine4", "affine8"):
        for odd in (0x7FC0, 0x7F80, 0xFF80):
            x = draw.bits(3, 128)
            x[1, 70] = odd
            y = Kernels(isa, byte_inputs=True).run("matmul", x, draw.matrix(20, 128, packing), 0)
            assert np.isnan(y[1]).all()
            assert np.isfinite(y[[0, 2]]).all()


@pytest.mark.parametrize("isa", TILES)
@few_examples
@given(seed=seeds, rows=strategies.sampled_from((1, 2, 7, 33)), packing=packings, base=bases)
def test_expert_of_a_stack(isa: str, seed: int, rows: int, packing: str, base: int) -> None:
    draw = Draw(seed)
    stack = draw.matrix(37, 128, packing, experts=5)
    x = draw.bits(rows, 128)
    expert = int(draw.random.integers(5))
    y = Kernels(isa).run("matmul", x, stack, expert, base=base)
    values = bf16_values(x, np.float64)
    check_bounded("matmul", y, matmul(values, stack, FLOAT64, expert), bound(values, stack, expert))


@pytest.mark.parametrize("isa", TILES)
@few_examples
@given(seed=seeds, rows=strategies.integers(3, 129), packing=packings)
def test_a_row_does_not_depend_on_its_neighbours(isa: str, seed: int, rows: int, packing: str) -> None:
    """Any two or more rows of a call give the bits they give in any other call of two or more rows."""
    draw = Draw(seed)
    kernels = Kernels(isa)
    matrix = draw.matrix(45, 192, packing)
    x = draw.bits(rows, 192)
    whole = kernels.run("matmul", x, matrix, 0)
    first = int(draw.random.integers(rows - 1))
    count = int(draw.random.integers(2, rows - first + 1))
    part = kernels.run("matmul", x[first : first + count], matrix, 0)
    assert part.tobytes() == whole[first : first + count].tobytes()


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@pytest.mark.parametrize("packing", ["affine4", "affine8"])
@pytest.mark.parametrize("rows", [1, 2, 60])
def test_the_largest_sums_of_8_bits(isa: str, packing: str, rows: int) -> None:
    """The largest codes meet inputs that are all as large as they can be, of either sign: the sums are still exact."""
    codes, most = np.full((37, 24 if packing == "affine4" else 48), 2**32 - 1, np.uint32), 2 ** int(packing[-1]) - 1
    one, zero = np.full((37, 3), 0x3F80, np.uint16), np.zeros((37, 3), np.uint16)
    signs = np.where(np.arange(rows) % 2 == 0, 1, -1)[:, None]
    x = bf16_bits(127.0 * signs * np.ones((rows, 192)))
    y = Kernels(isa, byte_inputs=True).run("matmul", x, Matrix(packing, codes, one, zero), 0)
    assert np.array_equal(y, np.broadcast_to(192 * 127 * most * signs, (rows, 37)))


@pytest.mark.parametrize(
    ("isa", "byte_inputs"), [*((isa, False) for isa in TILES), *((isa, True) for isa in INSTRUCTION_SETS)]
)
@pytest.mark.parametrize("packing", ["affine4", "affine8"])
@pytest.mark.parametrize("rows", [1, 2, 40, 60])
def test_every_code_at_every_place(isa: str, byte_inputs: bool, packing: str, rows: int) -> None:
    """One input at a time meets each code: an unpacking that swaps or drops one cannot hide in a sum."""
    bits = 4 if packing == "affine4" else 8
    per_word = 32 // bits
    codes = np.random.default_rng(bits).integers(0, 2**bits, (2**bits, 128), dtype=np.uint32)
    codes[:, :128] = (codes[:1] + np.arange(2**bits, dtype=np.uint32)[:, None]) % 2**bits
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    words = np.bitwise_or.reduce(codes.reshape(2**bits, -1, per_word) << shifts, axis=-1)
    one, zero = np.full((2**bits, 2), 0x3F80, np.uint16), np.zeros((2**bits, 2), np.uint16)
    kernels, matrix = Kernels(isa, byte_inputs), Matrix(packing, words, one, zero)
    for first in range(0, 128, rows):
        x = np.zeros((min(rows, 128 - first), 128), np.uint16)
        x[np.arange(len(x)), first + np.arange(len(x))] = 0x42FE  # 127, so that nothing is rounded in 8 bits either
        y = kernels.run("matmul", x, matrix, 0)
        assert np.array_equal(y, 127 * codes[:, first : first + len(x)].T)
