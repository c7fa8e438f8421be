"""The kernels behind the mixture of experts, one at a time: what a whole sublayer cannot show, because it would need
thousands of rows, logits that are no numbers, or slices of memory that is never short in a test."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import PACKINGS, Draw, place

from lily import metal
from metal.clang import needs_clang
from metal.executor import Module
from reference import FLOAT64, Array, Matrix, bf16_values, matmul
from reference.moe import MoeShape, route

pytestmark = needs_clang
NO_EXPERT = 2**32 - 1
PIECE = 256
# The kernels of a file, and for the rows of each tile the outputs and the threads of a threadgroup.
MATMULS: dict[str, tuple[str, dict[int, tuple[int, int]]]] = {
    "matmul": ("matmul", {8: (32, 128), 16: (32, 128), 32: (128, 128), 64: (128, 256)}),
    "matmul_metal4": ("matmul2d", {16: (32, 32), 32: (128, 128), 64: (128, 256)}),
}
few = settings(max_examples=10, deadline=None, print_blob=True)


@pytest.fixture(scope="module", params=["host", "check"])
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def load(name: str, flavour: str) -> Module:
    return Module(metal.home() / f"{name}.metal", flavour)


def garbage(*shape: int, dtype: Any = np.uint32) -> Array:
    """Memory as a kernel finds it: NaN as float32, far too large as a number."""
    return np.full(shape, 0x7FC0FFFF, np.uint32).view(dtype)


def parts(matrix: Matrix) -> list[Array]:
    """The three buffers of a matrix, aligned; a bf16 one has the same thrice."""
    whole = [matrix.codes, matrix.scales, matrix.biases]
    return [place(matrix.codes if part is None else part, 0) for part in whole]


@few
@given(seed=st.integers(0, 2**32 - 1), pairs=st.integers(1, 2000), experts=st.sampled_from((1, 7, 32, 33, 256, 512)))
@pytest.mark.parametrize("tile", [8, 32])
def test_the_sort_is_stable_and_the_map_covers_it(flavour: str, seed: int, pairs: int, experts: int, tile: int) -> None:
    random = np.random.default_rng(seed)
    top_k = 1 if pairs % 2 else 2
    ids = random.integers(0, experts, pairs, dtype=np.uint32)
    ids[: pairs // 2] = ids[0]  # one expert with many
    pieces, blocks = -(-pairs // PIECE), -(-pairs // tile) + min(experts, pairs)
    args = struct.pack("6I", pairs, experts, top_k, pieces, tile, blocks)
    counts, blocks_map, tokens, slots = (garbage(pieces, experts), garbage(blocks, 4), garbage(pairs), garbage(pairs))
    sort = load("moe_sort", flavour)
    sort.run("moe_count", [ids, counts, args], grid=(pieces,), threads=(PIECE,))
    sort.run("moe_scan", [counts, blocks_map, args], grid=(1,), threads=(-(-experts // 32) * 32,))
    sort.run("moe_scatter", [ids, counts, tokens, slots, args], grid=(pieces,), threads=(PIECE,))

    order = np.argsort(ids, kind="stable")
    assert np.array_equal(tokens, order // top_k)
    assert np.array_equal(slots[order], np.arange(pairs))
    used = blocks_map[blocks_map[:, 0] != NO_EXPERT]
    assert np.array_equal(blocks_map[: len(used)], used)
    at = 0
    for expert, first, end, _ in used.tolist():
        assert first == at
        assert 1 <= end - first <= tile
        assert (ids[order[first:end]] == expert).all()
        at = end
    assert at == pairs


@few
@given(seed=st.integers(0, 2**32 - 1), experts=st.sampled_from((3, 40, 512)), renormalize=st.booleans())
def test_routes_are_valid_whatever_the_logits_are(flavour: str, seed: int, experts: int, renormalize: bool) -> None:
    """Numbers come first, in order; what is no number is chosen last; and no expert twice."""
    random = np.random.default_rng(seed)
    top_k, rows = 3, 9
    logits = random.normal(0, 2, (rows, experts)).astype(np.float32)
    logits[0, :] = 0
    logits[0, 1::2] = -0.0  # the same number
    logits[1, :] = np.nan
    logits[2, random.integers(experts)] = np.nan
    logits[3, :] = -np.inf
    logits[3, experts // 2] = 1
    shared = random.normal(0, 2, rows).astype(np.float32)
    ids, weights, shared_weights = garbage(rows, top_k), garbage(rows, top_k, dtype=np.float32), garbage(rows)
    args = struct.pack("4I", rows, experts, top_k, renormalize)
    buffers: list[Array | bytes] = [logits, shared, ids, weights, shared_weights, args]
    load("moe_sort", flavour).run("moe_route", buffers, grid=(3,), threads=(128,))
    assert ids.max() < experts
    assert all(len(set(row)) == top_k for row in ids.tolist())
    ranked = np.where(np.isnan(logits), -np.inf, logits)
    shape = MoeShape(64, experts, top_k, 64, 64, renormalize, 1e-6)
    sound = [0, *range(4, rows)]
    expected_ids, expected_weights = route(shape, ranked[sound].astype(np.float64))
    assert np.array_equal(ids[sound], expected_ids)
    np.testing.assert_allclose(weights[sound], expected_weights, rtol=2e-5)
    assert ids[1].tolist() == list(range(top_k))
    assert ids[3, 0] == experts // 2
    np.testing.assert_allclose(shared_weights.view(np.float32), 1 / (1 + np.exp(-shared.astype(np.float64))), rtol=1e-5)


@pytest.mark.parametrize("file", MATMULS)
@pytest.mark.parametrize("packing", PACKINGS)
@few
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 70), outputs=st.integers(1, 200))
def test_every_tile_gives_the_same_bits(
    flavour: str, file: str, packing: str, seed: int, rows: int, outputs: int
) -> None:
    draw = Draw(seed)
    cols = int(draw.random.choice((64, 192, 320)))
    x, matrix = place(draw.bits(rows, cols), 0), draw.matrix(outputs, cols, packing)
    first = int(draw.random.integers(outputs)) // 4 * 4
    width = min(64, outputs - first)
    kernels, (name, tiles) = load(file, flavour), MATMULS[file]
    found = []
    for tile, (across, threads) in tiles.items():
        y = garbage(rows, width, dtype=np.float32)
        args = struct.pack("8I", rows, cols, outputs, first, width, 0, 0, 0)
        buffers: list[Array | bytes] = [*parts(matrix), x, x, y, args]
        grid = (-(-width // across), -(-rows // tile))
        kernels.run(f"{name}_{tile}_{packing}", buffers, grid=grid, threads=(threads,))
        found.append(y)
    expected = matmul(bf16_values(x, np.float64), matrix, FLOAT64)[:, first : first + width]
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-4)
    assert len({y.tobytes() for y in found}) == 1


@few
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 1000))
def test_the_first_largest_logit_wins(flavour: str, seed: int, count: int) -> None:
    """Of what each threadgroup of head leaves: keys that order as the logits do, ids that rise."""
    random = np.random.default_rng(seed)
    keys = random.integers(1, 4 if seed % 2 else 2**32, count, dtype=np.uint32)
    best = np.ascontiguousarray(np.stack([keys, np.arange(count, dtype=np.uint32) * 64 + 5], axis=1), np.uint32)
    token = garbage(1)
    load("head", flavour).run("argmax", [best, token, struct.pack("I", count)], grid=(1,), threads=(256,))
    assert token[0] == keys.argmax() * 64 + 5
