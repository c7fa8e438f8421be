"""The formulas of bytes beside the kernels, against the bytes that every dispatch really touches.

An encoder says of each buffer how many bytes are read and written, each counted once a dispatch, and how many are
loaded, counted once for each threadgroup that loads them (Traffic of src/lily_ext/metal/record.h); `lily trace` adds
them up. The checker sees every access. Here every kernel runs at three sizes or more, and the two have to be equal, to
the byte.

What a routing leaves open is the exception: the formula of a grouped product of moe holds for the routing that takes
the most. So most cases choose all experts, with as many rows as make that routing; one lets the router choose, and has
bounds instead.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels import PACKINGS, Draw, hand_over, require_metal
from ops import test_attention, test_bidirectional, test_gated_delta, test_mlp, test_moe

from lily import _ext, metal
from lily.device import parse_device
from metal.executor import Module
from reference import AttentionShape, GatedDeltaShape, MlpShape, MoeShape

EPS = 1e-6
COUNTS = ("read", "written", "loaded")


@dataclass
class Account:
    """Bytes of the buffers of a dispatch that lie in the same memory: what is touched there belongs to any of them."""

    begin: int
    end: int
    indices: list[int]
    said: np.ndarray[Any, np.dtype[np.int64]]  # read, written, loaded
    seen: np.ndarray[Any, np.dtype[np.int64]]


def accounts(record: dict[str, Any]) -> list[Account]:
    found: list[Account] = []
    for index, (traffic, touched) in enumerate(zip(record["traffic"], record["touched"], strict=True)):
        begin, end = touched[0], touched[0] + touched[1]
        said, seen = np.array(traffic[1:]), np.array(touched[2:])
        for one in found:
            if begin < one.end and one.begin < end:
                one.begin, one.end = min(begin, one.begin), max(end, one.end)
                one.indices.append(index)
                one.said, one.seen = one.said + said, one.seen + seen
                break
        else:
            found.append(Account(begin, end, [index], said, seen))
    return found


def differences(record: dict[str, Any]) -> list[str]:
    """Where the formulas of a dispatch are not what it touched."""
    return [
        f"{record['kernel']} {record['groups']}, buffer {one.indices}: {said} bytes {what} by the formula, {seen} seen"
        for one in accounts(record)
        for what, said, seen in zip(COUNTS, one.said, one.seen, strict=True)
        if said != seen
    ]


class Words:
    """Calls of the words at small sizes, with matrices of random bits."""

    def __init__(self, seed: int, device: str = "metal:host") -> None:
        self.witness = _ext.Witness(parse_device(f"{device}:checked")["kernels"])
        self.draw = Draw(seed)

    def call(self, word: str, *arguments: Any) -> None:
        getattr(self.witness.probe, word)(*(hand_over(argument, 0) for argument in arguments))

    def norm(self, rows: int, cols: int) -> None:
        self.call("norm", self.draw.bits(rows, cols), self.draw.gains(cols), EPS)

    def matmul(self, packing: str, rows: int, outputs: int, cols: int) -> None:
        self.call("matmul", self.draw.bits(rows, cols), self.draw.matrix(outputs, cols, packing, experts=2), 1)

    def embed(self, packing: str, rows: int, cols: int) -> None:
        """Every row of the table once at the most: the formula takes no id for a repeated one."""
        table = self.draw.matrix(rows + 9, cols, packing)
        self.call("embed", table, self.draw.random.permutation(rows + 9)[:rows].astype(np.int32))

    def head(self, packing: str, vocab: int, hidden: int) -> None:
        weights = {"norm": self.draw.gains(hidden), "table": self.draw.matrix(vocab, hidden, packing)}
        self.call("head", weights, EPS, self.draw.bits(1, hidden))

    def attention(self, head_dim: int, heads: tuple[int, int], rows: int, position: int) -> None:
        shape = AttentionShape(64, *heads, head_dim, min(head_dim, 64), theta=1e7, eps=EPS)
        case = test_attention.draw_case(self.draw, shape, "affine4", rows, position)
        room = np.zeros((shape.kv_heads, rows + 3, head_dim), np.uint16)
        keys, values = (np.concatenate([past, room], axis=1) for past in (case.keys, case.values))
        self.call("attention", shape, case.weights, case.x, keys, values, position)

    def gated_delta(self, packing: str, dim: int, heads: tuple[int, int], rows: int, position: int) -> None:
        shape = GatedDeltaShape(64, *heads, dim, 64, 4, EPS)
        case = test_gated_delta.draw_case(self.draw, shape, packing, rows, position)
        self.call("gated_delta", shape, case.weights, case.x, case.state, case.window, position)

    def moe(
        self, packing: str, rows: int, experts: tuple[int, int], widths: tuple[int, int] = (64, 192), hidden: int = 64
    ) -> None:
        shape = MoeShape(hidden, *experts, *widths, True, EPS)
        weights = test_moe.draw_weights(self.draw, shape, packing, "affine8")
        self.call("moe", shape, weights, self.draw.bits(rows, hidden))

    def bidirectional(self, head_dim: int, heads: tuple[int, int], lengths: tuple[int, ...]) -> None:
        shape = AttentionShape(64, *heads, head_dim, 64, 1e4, EPS)
        weights = test_bidirectional.draw_weights(self.draw, shape, "affine4")
        table, x = test_bidirectional.turns(shape, max(lengths)), self.draw.bits(sum(lengths), 64)
        self.call("bidirectional", shape, weights, table, x, borders(lengths))

    def mlp(self, packing: str, rows: int, hidden: int, width: int) -> None:
        shape = MlpShape(hidden, width, EPS)
        weights = test_mlp.draw_weights(self.draw, shape, packing, packing)
        self.call("mlp", shape, weights, self.draw.bits(rows, hidden))

    def classify(self, lengths: tuple[int, ...], hidden: int, labels: int) -> None:
        shapes = {"norm": (hidden,), "tags": (labels, hidden), "tags_bias": (labels,)}
        shapes |= {"sensitivity": (1, hidden), "sensitivity_bias": (1,)}
        weights = {name: self.draw.random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
        self.call("classify", weights, EPS, self.draw.bits(sum(lengths), hidden), borders(lengths))


def borders(lengths: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def call_products(words: Words, packing: str) -> None:
    """What one row takes, and a table."""
    for rows, cols in ((1, 64), (5, 320), (40, 192)):
        words.embed(packing, rows, cols)
    for vocab, hidden in ((64, 64), (300, 192), (520, 2112)):
        words.head(packing, vocab, hidden)
    for outputs, cols in ((32, 64), (40, 192), (1000, 64), (1024, 64), (1030, 192), (1100, 64)):
        words.matmul(packing, 1, outputs, cols)
    for heads, position in (((1, 1), 0), ((1, 2), 5), ((2, 4), 100)):
        words.gated_delta(packing, 64, heads, 1, position)
    for experts, widths, hidden in (((4, 4), (64, 64), 64), ((8, 3), (64, 192), 128), ((40, 8), (128, 64), 2112)):
        words.moe(packing, 1, experts, widths, hidden)


def call_tiles(words: Words, packing: str) -> None:
    """Every tile of rows, with the ragged ends of each: 8, 16, 32 and 64."""
    for rows, outputs, cols in ((2, 32, 64), (5, 45, 128), (8, 33, 2112), (9, 32, 64), (20, 45, 128), (32, 130, 192)):
        words.matmul(packing, rows, outputs, cols)
    for rows, outputs, cols in (
        (33, 128, 64),
        (65, 45, 64),
        (100, 130, 128),
        (512, 32, 64),
        (513, 45, 64),
        (580, 130, 64),
    ):
        words.matmul(packing, rows, outputs, cols)
    for rows, hidden, width in ((2, 64, 64), (5, 128, 192), (8, 192, 64), (9, 64, 64), (20, 64, 192), (32, 64, 128)):
        words.mlp(packing, rows, hidden, width)
    for rows, hidden, width in ((33, 64, 64), (65, 64, 192), (70, 128, 64)):
        words.mlp(packing, rows, hidden, width)
    # All experts chosen, and so many rows that the blocks are as many as any routing could fill.
    for rows, count in ((2, 5), (3, 3), (4, 2), (5, 3), (6, 3), (8, 2), (17, 1), (33, 4), (65, 4)):
        words.moe(packing, rows, (count, count))


def call_rows(words: Words) -> None:
    """What has no packing of its own."""
    for rows, cols in ((3, 64), (9, 65), (20, 128)):
        words.norm(rows, cols)
    for lengths, hidden, labels in (((2,), 64, 3), ((5, 70), 128, 37), ((33, 1, 12, 1, 4), 192, 4)):
        words.classify(lengths, hidden, labels)
    for dim in (64, 128, 256):
        for heads, position in (((1, 1), 0), ((4, 2), 70), ((8, 1), 200)):
            words.attention(dim, heads, 1, position)
        for heads, rows, position in (((1, 1), 2, 0), ((4, 2), 30, 70), ((8, 1), 40, 33)):
            words.attention(dim, heads, rows, position)
        for heads, lengths in (((1, 1), (2,)), ((4, 2), (5, 70)), ((8, 1), (33, 1, 20, 2, 3))):
            words.bidirectional(dim, heads, lengths)
    for dim in (64, 128):  # few tokens; a chunk or a part of one; few before and after whole chunks
        for heads, rows, position in (((1, 1), 3, 0), ((1, 2), 9, 3), ((2, 4), 64, 0), ((2, 2), 73, 62)):
            words.gated_delta("affine4", dim, heads, rows, position)
        words.gated_delta("affine4", dim, (1, 2), 150, 100)


def drawn_words(device: str) -> Words:
    require_metal()
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    return Words(seed, device)


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    words = drawn_words("metal:host")
    for packing in PACKINGS:
        call_products(words, packing)
        call_tiles(words, packing)
    for outputs in (8192, 8200, 8300):  # the packing is an argument of the kernel
        words.matmul("affine4", 1, outputs, 64)
    call_rows(words)
    taken: list[dict[str, Any]] = words.witness.take()
    return taken


@pytest.fixture(scope="module")
def records_of_tensor_units() -> list[dict[str, Any]]:
    """Of the kernels that stand in for others where a GPU has tensor units."""
    words = drawn_words("metal:host-m5")
    for packing in PACKINGS:
        call_tiles(words, packing)
    names = kernels_of(set(metal.sources(tensor_units=True)) - set(metal.sources()))
    return [record for record in words.witness.take() if record["kernel"] in names]


def kernels_of(files: Iterable[Path]) -> set[str]:
    return {name for path in files for name in Module(path, "check").kernels()}


@pytest.fixture(params=["simdgroups", "tensor units"])
def all_records(request: pytest.FixtureRequest) -> tuple[set[str], list[dict[str, Any]]]:
    """Kernels, and what was recorded of them."""
    if request.param == "simdgroups":
        return kernels_of(metal.sources()), request.getfixturevalue("records")
    names = kernels_of(set(metal.sources(tensor_units=True)) - set(metal.sources()))
    return names, request.getfixturevalue("records_of_tensor_units")


def test_every_kernel_runs_at_three_sizes(all_records: tuple[set[str], list[dict[str, Any]]]) -> None:
    names, records = all_records
    sizes: dict[str, set[Any]] = {name: set() for name in names}
    for record in records:
        sizes[record["kernel"]].add((record["groups"], *(touched[1] for touched in record["touched"])))
    assert not {name: len(seen) for name, seen in sizes.items() if len(seen) < 3}


def test_formulas_are_what_is_touched(all_records: tuple[set[str], list[dict[str, Any]]]) -> None:
    wrong = [line for record in all_records[1] for line in differences(record)]
    assert not wrong, "\n".join(wrong)


def test_a_wrong_formula_is_told(records: list[dict[str, Any]]) -> None:
    """A number off by one, of any buffer that is touched, is a difference."""
    for record in {record["kernel"]: record for record in records}.values():
        for index, (role, *said) in enumerate(record["traffic"]):
            for place in range(3):
                off = [*said[:place], said[place] + 1, *said[place + 1 :]]
                traffic = [*record["traffic"][:index], (role, *off), *record["traffic"][index + 1 :]]
                (line,) = differences({**record, "traffic": traffic})
                assert record["kernel"] in line
                assert f"{COUNTS[place]} by the formula" in line


def test_a_routing_takes_no_more_than_its_formula() -> None:
    """Where the router chooses, the grouped products read the matrices of top_k experts at the least and of all of them
    at the most, for no fewer blocks than the pairs fill and no more than the map holds. All else is equal."""
    words, rows, top_k, experts = drawn_words("metal:host"), 12, 3, 8
    words.moe("affine4", rows, (experts, top_k))
    blocks = experts + (rows * top_k - experts) // 8
    for record in words.witness.take():
        grouped = record["groups"][1] == blocks
        for one in accounts(record):
            for what, said, seen in zip(COUNTS, one.said, one.seen, strict=True):
                free = record["kernel"] == "moe_scatter" or (
                    grouped and record["traffic"][one.indices[0]][0] == "weights"
                )
                least = top_k / experts if free and what != "written" else 1
                assert least * said <= seen <= said, f"{record['kernel']}, buffer {one.indices}: {what} {said}, {seen}"
