"""Sublayers as lily's Metal backend encodes them (src/lily_ext/metal), as dispatches of metal_device.py, over random
weights: the on-arms of the benchmarks of kernels. tests/metal/test_benchmarks.py compares them with the backend's own,
to the bit.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lily.architecture import Architecture

from .metal_device import BARRIER, Buffer, Device, Dispatch

Array = NDArray[Any]
STORE_F32, STORE_BF16 = 0, 1
NO_EXPERT = 0xFFFFFFFF
EPS = 1e-6


def groups_of(count: int, each: int) -> int:
    """How many groups of `each` hold count."""
    return -(-count // each)


def bf16(values: Array) -> Array:
    """Bit patterns, to nearest, ties to even; values are finite."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def floats(bits: Array) -> Array:
    """The float32 values of bf16 bit patterns."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


@dataclass(frozen=True)
class Packed:
    """Affine weights on the host: uint32 codes [.., rows, cols * bits / 32], bf16 scales and biases."""

    codes: Array
    scales: Array
    biases: Array
    bits: int = 4

    @property
    def packing(self) -> str:
        """As the library's probe names it."""
        return f"affine{self.bits}"


def random_weights(random: np.random.Generator, *shape: int, bits: int = 4) -> Packed:
    """Codes of all values, scales so that a product with a normed row is about one, biases a little off the middle."""
    cols, groups = shape[-1], (*shape[:-1], shape[-1] // 64)
    codes = random.integers(0, 2**32, (*shape[:-1], cols * bits // 32), np.uint32)
    size, spread = cols**-0.5, math.sqrt((4.0**bits - 1) / 12)
    scales = bf16(size / spread * random.uniform(0.7, 1.3, groups).astype(np.float32))
    biases = bf16(-floats(scales) * (2**bits - 1) / 2 + 0.1 * size * random.random(groups, np.float32))
    return Packed(codes, scales, biases, bits)


@dataclass(frozen=True)
class Matrix:
    """Weights on a device, of all experts one after another."""

    parts: tuple[Buffer, Buffer, Buffer]
    rows: int  # of an expert
    cols: int
    bits: int = 4

    @property
    def bytes(self) -> int:
        """Of codes, scales and biases."""
        return sum(part.size for part in self.parts) if self.bits < 16 else self.parts[0].size


def upload(device: Device, packed: Packed) -> Matrix:
    """Copy weights to a device."""
    rows, words = packed.codes.shape[-2:]
    parts = [device.buffer(part) for part in (packed.codes, packed.scales, packed.biases)]
    return Matrix((parts[0], parts[1], parts[2]), rows, words * 32 // packed.bits, packed.bits)


def random_rows(random: np.random.Generator, *shape: int) -> Array:
    """Normal numbers as bf16."""
    return bf16(random.standard_normal(shape, np.float32))


def gemv(x: Buffer, gain: Buffer | None, jobs: list[tuple[Matrix, Buffer, int]], count: int) -> Dispatch:
    """One row times up to four matrices, each with its result and how it is stored; count: rows of a simdgroup."""
    cols = jobs[0][0].cols
    args = struct.pack("IIfI", cols, gain is not None, EPS if gain else 0.0, len(jobs))
    buffers: list[Buffer | bytes] = [x, gain or x]
    groups = 0
    for place in range(4):
        matrix, y, store = jobs[min(place, len(jobs) - 1)]
        own = groups_of(matrix.rows, 8 * count)
        there = place < len(jobs)
        groups += own if there else 0
        args += struct.pack("5I", matrix.bits, matrix.rows, 0, store, own) if there else bytes(20)
        buffers += [*matrix.parts, y]
    return Dispatch(f"gemv_{count}", (*buffers, args), (groups,), 256, groups_of(cols * 2, 16) * 16)


def head(table: Matrix, x: Buffer, gain: Buffer, logits: Buffer, best: Buffer, rows: int) -> Dispatch:
    """The logits of one row; rows: of a threadgroup."""
    args = struct.pack("IIIf", table.cols, table.rows, table.bits, EPS)
    groups = groups_of(table.rows, rows)
    return Dispatch(
        f"head_affine{table.bits}", (*table.parts, x, gain, logits, best, args), (groups,), 256, table.cols * 2
    )


# ---- the mixture of experts, more rows than one: moe.cpp ----


MOE_MATRICES = ("router", "gate", "up", "down", "shared_router", "shared_gate", "shared_up", "shared_down")


def moe_weights(random: np.random.Generator, shape: Architecture) -> dict[str, Packed]:
    """Weights of one layer on the host."""
    s = shape
    return {
        "router": random_weights(random, s.experts, s.hidden, bits=8),
        "gate": random_weights(random, s.experts, s.width, s.hidden),
        "up": random_weights(random, s.experts, s.width, s.hidden),
        "down": random_weights(random, s.experts, s.hidden, s.width),
        "shared_router": random_weights(random, 1, s.hidden, bits=8),
        "shared_gate": random_weights(random, s.shared_width, s.hidden),
        "shared_up": random_weights(random, s.shared_width, s.hidden),
        "shared_down": random_weights(random, s.hidden, s.shared_width),
    }


def tile_rows(rows: int) -> int:
    """As tile_rows of matmul.cpp."""
    return 8 if rows <= 8 else 16 if rows <= 32 else 32 if rows < 512 else 64


class Moe:
    """One layer on a device, for a number of rows: x, what lies between, and the dispatches."""

    SORT_PIECE = 256
    PARTS = 64 << 20

    def __init__(self, device: Device, shape: Architecture, weights: dict[str, Packed], gain: Array, rows: int) -> None:
        self.device, self.shape, self.rows, self.pairs = device, shape, rows, rows * shape.top_k
        self.w = {name: upload(device, weights[name]) for name in MOE_MATRICES}
        self.gain = device.buffer(gain)
        each = self.pairs // shape.experts
        self.tile = 8 if each <= 4 else 16 if each <= 16 else 32
        self.blocks = groups_of(self.pairs, self.tile) + min(shape.experts, self.pairs)
        fit = self.PARTS // (self.pairs * 4) // 128 * 128
        self.slice = min(shape.hidden, max(fit, 128))
        self.pieces = groups_of(self.pairs, self.SORT_PIECE)
        take = device.allocate
        self.x = take(rows * shape.hidden * 2)
        self.normed = take(rows * shape.hidden * 2)
        self.logits, self.shared_logits = take(rows * shape.experts * 4), take(rows * 4)
        self.ids, self.weights, self.shared_weights = take(self.pairs * 4), take(self.pairs * 4), take(rows * 4)
        self.counts = take(self.pieces * shape.experts * 4)
        routing = take(self.blocks * 16 + self.pairs * 8)  # in one piece, so that a host can write it with one copy
        self.routing = routing
        self.map = routing.part(0, self.blocks * 16)
        self.tokens = routing.part(self.blocks * 16, self.pairs * 4)
        self.slots = routing.part(self.blocks * 16 + self.pairs * 4, self.pairs * 4)
        self.h, self.shared_h = take(self.pairs * shape.width * 2), take(rows * shape.shared_width * 2)
        self.parts, self.shared_parts = take(self.pairs * self.slice * 4), take(rows * self.slice * 4)

    def choose(self) -> list[Dispatch | None]:
        """Norm, router, shared expert's first half, and each row's experts."""
        s, tile = self.shape, tile_rows(self.rows)
        norm = struct.pack("IIf", self.rows, s.hidden, EPS)
        route = struct.pack("4I", self.rows, s.experts, s.top_k, 1)
        shared_tile = min(tile, 32)
        return [
            Dispatch("norm", (self.x, self.gain, self.normed, norm), (groups_of(self.rows, 4),), 128),
            BARRIER,
            self._matmul(tile, self.normed, self.w["router"], self.logits, s.experts),
            self._matmul(tile, self.normed, self.w["shared_router"], self.shared_logits, 1),
            self._swiglu(shared_tile, self.w["shared_gate"], self.w["shared_up"], self.shared_h, grouped=False),
            BARRIER,
            Dispatch(
                "moe_route",
                (self.logits, self.shared_logits, self.ids, self.weights, self.shared_weights, route),
                (groups_of(self.rows, 4),),
                128,
            ),
            BARRIER,
        ]

    def sort(self) -> list[Dispatch | None]:
        """The counting sort and the map of blocks, on the device."""
        s = self.shape
        args = struct.pack("6I", self.pairs, s.experts, s.top_k, self.pieces, self.tile, self.blocks)
        piece = self.SORT_PIECE
        return [
            Dispatch("moe_count", (self.ids, self.counts, args), (self.pieces,), piece),
            BARRIER,
            Dispatch("moe_scan", (self.counts, self.map, args), (1,), groups_of(s.experts, 32) * 32),
            BARRIER,
            Dispatch("moe_scatter", (self.ids, self.counts, self.tokens, self.slots, args), (self.pieces,), piece),
            BARRIER,
        ]

    def sorted_by_host(self, ids: Array) -> Array:
        """What `sort` leaves in `routing`, made with numpy from ids [pairs]."""
        order = np.argsort(ids.astype(np.uint16), kind="stable")
        slots = np.empty(self.pairs, np.uint32)
        slots[order] = np.arange(self.pairs, dtype=np.uint32)
        counts = np.bincount(ids, minlength=self.shape.experts)
        ends = np.cumsum(counts)
        blocks = -(-counts // self.tile)
        expert = np.repeat(np.arange(self.shape.experts), blocks)
        within = np.arange(len(expert)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
        first = (ends - counts)[expert] + within * self.tile
        entries = np.zeros((self.blocks, 4), np.uint32)
        entries[:, 0] = NO_EXPERT
        entries[: len(expert), 0] = expert
        entries[: len(expert), 1] = first
        entries[: len(expert), 2] = np.minimum(first + self.tile, ends[expert])
        return np.concatenate([entries.ravel(), (order // self.shape.top_k).astype(np.uint32), slots])

    def open(self, gate: Matrix, up: Matrix) -> list[Dispatch | None]:
        """h of the chosen experts."""
        return [self._swiglu(self.tile, gate, up, self.h, grouped=True), BARRIER]

    def close(self, down: Matrix) -> list[Dispatch | None]:
        """The down products and their sum onto x, slice by slice."""
        s, work, tile = self.shape, list[Dispatch | None](), tile_rows(self.rows)
        for first in range(0, s.hidden, self.slice):
            cols = min(self.slice, s.hidden - first)
            combine = struct.pack("5I", self.rows, s.hidden, s.top_k, first, cols)
            work += [
                self._matmul(self.tile, self.h, down, self.parts, cols, first, grouped=True),
                self._matmul(tile, self.shared_h, self.w["shared_down"], self.shared_parts, cols, first),
                BARRIER,
                Dispatch(
                    "moe_combine",
                    (self.parts, self.shared_parts, self.slots, self.weights, self.shared_weights, self.x, combine),
                    (groups_of(cols, 256), self.rows),
                    64,
                ),
                BARRIER,
            ]
        return work

    def layer(self) -> list[Dispatch | None]:
        """The whole sublayer."""
        return [*self.choose(), *self.sort(), *self.open(self.w["gate"], self.w["up"]), *self.close(self.w["down"])]

    def _matmul(
        self, tile: int, x: Buffer, w: Matrix, y: Buffer, cols: int, first: int = 0, grouped: bool = False
    ) -> Dispatch:
        args = struct.pack("8I", self.rows, w.cols, w.rows, first, cols, 0, STORE_F32, grouped)
        groups = (groups_of(cols, 32 if tile <= 16 else 128), self.blocks if grouped else groups_of(self.rows, tile))
        name = f"matmul_{tile}_" + ("bf16" if w.bits == 16 else f"affine{w.bits}")
        return Dispatch(name, (*w.parts, x, self.map if grouped else x, y, args), groups, 256 if tile == 64 else 128)

    def _swiglu(self, tile: int, gate: Matrix, up: Matrix, h: Buffer, grouped: bool) -> Dispatch:
        rows = self.pairs if grouped else self.rows
        args = struct.pack("4I", rows, gate.cols, gate.rows, grouped)
        groups = (groups_of(gate.rows, 32 if tile <= 16 else 64), self.blocks if grouped else groups_of(rows, tile))
        name = f"swiglu_{tile}_" + ("bf16" if gate.bits == 16 else f"affine{gate.bits}")
        routing = (self.map, self.tokens) if grouped else (self.normed, self.normed)
        return Dispatch(name, (*gate.parts, *up.parts, self.normed, *routing, h, args), groups, 128)


# ---- attention, between its projections: attention.cpp ----


def row_bytes(shape: Architecture) -> int:
    """Of keys and values, of one position in one layer."""
    return shape.kv_bytes_per_token // shape.attention_layers


def block_keys(keys: int) -> int:
    """The keys of a block, as lily cuts them: 128 blocks at the most."""
    return 64 * groups_of(keys, 64 * 128)


def attention_args(shape: Architecture, kv_heads: int, rows: int, keys: int, block: int = 0) -> bytes:
    """Of the last rows of so many keys, which fill the cache; kv_heads: what the query heads are divided among."""
    turns = shape.rotary_dim // 2
    frequencies = [shape.theta ** (-2 * j / shape.rotary_dim) for j in range(turns)]
    scale = math.log2(math.e) / math.sqrt(shape.head_dim)
    sizes = (shape.heads, kv_heads, rows, keys - rows, keys, block, turns)
    return struct.pack("7I2f32f", *sizes, EPS, scale, *frequencies, *[0.0] * (32 - turns))


def halves(cache: Buffer) -> tuple[Buffer, Buffer]:
    """The keys and the values of a cache."""
    size = cache.size // 2
    return cache.part(0, size), cache.part(size, size)


class Step:
    """The attention of the row behind `keys - 1` others over one cache, with blocks of a size."""

    def __init__(
        self, device: Device, shape: Architecture, row: dict[str, Buffer], cache: Buffer, keys: int, block: int
    ) -> None:
        width, self.blocks = shape.heads * shape.head_dim, groups_of(keys, block)
        self._args = attention_args(shape, shape.kv_heads, 1, keys, block)
        self.shape, self.row, self.cache = shape, row, halves(cache)
        self.sums = device.allocate(self.blocks * width * 4)
        self.shares = device.allocate(self.blocks * shape.heads * 8)
        self.mixed = device.allocate(width * 2)

    def work(self) -> list[Dispatch | None]:
        """The step and the join of its blocks."""
        return self.steps(f"attention_step_{self.shape.head_dim}", self.shape.kv_heads)

    def steps(self, kernel: str, across: int) -> list[Dispatch | None]:
        """The same with another kernel for the first half, with so many threadgroups a block."""
        s, r = self.shape, self.row
        inputs = (r["query"], r["key"], r["value"], r["q_norm"], r["k_norm"])
        join = struct.pack("3I", s.heads, s.head_dim, self.blocks)
        return [
            Dispatch(kernel, (*inputs, *self.cache, self.sums, self.shares, self._args), (self.blocks, across), 128),
            BARRIER,
            Dispatch(
                "attention_join",
                (self.sums, self.shares, r["query"], self.mixed, join),
                (s.head_dim // 64, s.heads),
                256,
            ),
            BARRIER,
        ]


class Prompt:
    """The attention of the last rows of a prompt over one cache of `keys` positions, their queries prepared; group: how
    many query heads of a key/value head are packed."""

    TILE = 128  # packed rows of a threadgroup

    def __init__(
        self, device: Device, shape: Architecture, rows_of: dict[str, Buffer], cache: Buffer, keys: int, group: int
    ) -> None:
        query, dim, heads = rows_of["query"], shape.head_dim, shape.heads // group
        self.rows = query.size // (4 * shape.heads * dim)
        self.shape, self.keys, self.group = shape, keys, group
        queries = device.allocate(heads * groups_of(self.rows * group, 8) * 8 * dim * 2)
        unused = device.allocate(heads * keys * dim * 2)  # the kernel prepares keys and values too: here, of anything
        inputs = (query, query, query, rows_of["q_norm"], rows_of["k_norm"])
        args = attention_args(shape, heads, self.rows, keys)
        prepare = Dispatch(f"attention_prepare_{dim}", (*inputs, queries, unused, unused, args), (self.rows,), 128)
        device.run(device.commands([prepare]))
        self.mixed = device.allocate(self.rows * shape.heads * dim * 2)
        args = attention_args(shape, shape.kv_heads, self.rows, keys)
        self._buffers = (queries, *halves(cache), query, self.mixed, args)

    def work(self, kernel: str) -> list[Dispatch | None]:
        """The softmax of all rows, by a kernel that takes queries so packed."""
        tiles = groups_of(self.rows * self.group, self.TILE)
        return [Dispatch(kernel, self._buffers, (tiles, self.shape.heads // self.group), 512), BARRIER]

    def loaded(self) -> int:
        """Bytes of keys and values: each tile loads those up to its last row."""
        ends = range(self.TILE, self.rows * self.group + self.TILE, self.TILE)
        seen = (self.keys - self.rows + groups_of(min(end, self.rows * self.group), self.group) for end in ends)
        return sum(seen) * row_bytes(self.shape) // self.shape.kv_heads * (self.shape.heads // self.group)


def random_projections(
    random: np.random.Generator, device: Device, shape: Architecture, rows: int
) -> dict[str, Buffer]:
    """Projections of rows, and the norms of heads."""
    dim = shape.head_dim
    gains = (1 + 0.15 * random.standard_normal((2, dim))).astype(np.float32)
    content = {
        "query": random_rows(random, rows * 2 * shape.heads * dim),
        "key": random_rows(random, rows * shape.kv_heads * dim),
        "value": random_rows(random, rows * shape.kv_heads * dim),
        "q_norm": gains[0],
        "k_norm": gains[1],
    }
    return {name: device.buffer(array) for name, array in content.items()}
