"""Products of one row on a GPU beside the bandwidth of a copy: how much of it they reach.

    python -m benchmarks.metal_gemv [--device metal:cuda] [--kernels FOLDER] [--rounds 30] [--json]
    python -m benchmarks.metal_gemv --build FOLDER          where clang is; fills the folder for --kernels

lm_head: the kernel with the norm in front, several tables in turn. Projections: those of the gated delta layers, one
dispatch a layer, each layer with its own weights (all together larger than any cache), in one command buffer: once each
after the one before it, as in decoding, and once without barriers. Every result is checked against numpy before the
clock runs. Percentages are of the faster of two copies, bytes read and written, by the driver and by a kernel.
--device metal:host with --tiny only shows that it all runs.
"""

from __future__ import annotations

import argparse
import json
import struct
from pathlib import Path

import numpy as np

from .metal_device import BARRIER, Buffer, CudaDevice, Device, Dispatch, Work, build, open_device
from .metal_words import (
    EPS,
    STORE_BF16,
    STORE_F32,
    Array,
    Matrix,
    Packed,
    bf16,
    floats,
    gemv,
    groups_of,
    head,
    random_rows,
    random_weights,
    upload,
)
from .rounds import Round, line, summary

HEAD_ROWS = 256  # of a threadgroup, head.metal
COUNTS = (2, 4, 8, 16)  # rows of a simdgroup; lily takes 4 for so many outputs


def expand(packed: Packed) -> Array:
    """The weights as float32."""
    each = 32 // packed.bits
    shifts = np.arange(each, dtype=np.uint32) * packed.bits
    codes = (packed.codes[..., None] >> shifts & (2**packed.bits - 1)).reshape(*packed.codes.shape[:-1], -1)
    scales, biases = (np.repeat(floats(part), 64, axis=-1) for part in (packed.scales, packed.biases))
    weights: Array = scales * codes.astype(np.float32) + biases
    return weights


def normed(x: Array, gain: Array) -> Array:
    """As stage_row: RMSNorm, rounded to bf16."""
    values = floats(x)
    return floats(bf16(values / np.sqrt(np.mean(values**2) + EPS) * gain))


def check(name: str, got: Array, expected: Array, tolerance: float) -> None:
    """Stops if a result is not the expected one; a number that is missing is wrong, too."""
    error = float(np.sqrt(np.mean((got - expected) ** 2)) / np.sqrt(np.mean(expected**2)))
    if not error <= tolerance:
        raise SystemExit(f"{name}: off by {error:.2e} of its size, expected at most {tolerance:.0e}")


def copies(device: Device, size: int) -> dict[str, object]:
    """Ways to copy so many bytes, each a call that gives seconds."""
    content = np.random.default_rng(2).integers(0, 256, size, np.uint8)
    source, to = device.buffer(content), device.allocate(size)
    args = struct.pack("I", size // 16)
    commands = device.commands([Dispatch("copy", (source, to, args), (min(132 * 16, groups_of(size, 4096)),), 256)])
    device.run(commands)
    if not np.array_equal(device.read(to, np.uint8), content):
        raise SystemExit("copy: what arrived is something else")
    ways: dict[str, object] = {"copy, a kernel": lambda: device.run(commands)}
    if isinstance(device, CudaDevice):
        ways["copy, the driver"] = lambda: device.seconds_of_copy(to, source)
    return ways


class Head:
    """Tables in turn, so that none is in a cache when its turn comes."""

    def __init__(self, device: Device, vocab: int, hidden: int, tables: int) -> None:
        random = np.random.default_rng(3)
        packed = random_weights(random, vocab, hidden)
        x, gain = random_rows(random, hidden), (1 + 0.15 * random.standard_normal(hidden)).astype(np.float32)
        first = upload(device, packed)
        held = [first, *(copied(device, first) for _ in range(tables - 1))]
        logits = device.allocate(vocab * 4)
        best = device.allocate(groups_of(vocab, HEAD_ROWS) * 8)
        ends = (device.buffer(x), device.buffer(gain))
        device.run(device.commands([head(first, *ends, logits, best, HEAD_ROWS)]))
        rows = random.choice(vocab, min(vocab, 500), replace=False)
        part = Packed(packed.codes[rows], packed.scales[rows], packed.biases[rows])
        check("lm_head", device.read(logits, np.float32)[rows], expand(part) @ normed(x, gain), 1e-5)
        work: list[Dispatch | None] = []
        for table in held:
            work += [head(table, *ends, logits, best, HEAD_ROWS), BARRIER]
        self.work, self.bytes = work, sum(table.bytes for table in held)


class Projections:
    """One dispatch a layer, four matrices each."""

    def __init__(self, device: Device, rows: tuple[int, ...], hidden: int, layers: int) -> None:
        random = np.random.default_rng(4)
        packed = [random_weights(random, many, hidden) for many in rows]
        self.x = random_rows(random, hidden)
        self.gain = (1 + 0.15 * random.standard_normal(hidden)).astype(np.float32)
        first = [upload(device, one) for one in packed]
        self.layers = [first, *([copied(device, one) for one in first] for _ in range(layers - 1))]
        self.stores = [STORE_BF16 if many > 64 else STORE_F32 for many in rows]
        self.results = [
            [device.allocate(many * (2 if store == STORE_BF16 else 4)) for many, store in self._sizes(rows)]
            for _ in range(layers)
        ]
        self.ends = (device.buffer(self.x), device.buffer(self.gain))
        self.bytes = layers * sum(one.bytes for one in first)
        self.expected = [expand(one) @ normed(self.x, self.gain) for one in packed]
        self.device = device

    def _sizes(self, rows: tuple[int, ...]) -> list[tuple[int, int]]:
        return list(zip(rows, self.stores, strict=True))

    def work(self, count: int, serial: bool) -> Work:
        """All layers, once."""
        work: list[Dispatch | None] = []
        for matrices, results in zip(self.layers, self.results, strict=True):
            jobs = list(zip(matrices, results, self.stores, strict=True))
            work.append(gemv(*self.ends, jobs, count))
            if serial:
                work.append(BARRIER)
        return work

    def check(self, count: int) -> None:
        """The last layer's results, fresh."""
        for result in self.results[-1]:
            self.device.write(result, np.full(result.size, 0xFF, np.uint8))
        self.device.run(self.device.commands(self.work(count, serial=True)))
        for result, store, expected in zip(self.results[-1], self.stores, self.expected, strict=True):
            narrow = store == STORE_BF16
            got = floats(self.device.read(result, np.uint16)) if narrow else self.device.read(result, np.float32)
            check(f"projections, {count} rows", got, expected, 4e-3 if narrow else 1e-5)


def copied(device: Device, matrix: Matrix) -> Matrix:
    """The same weights at another place."""
    parts: list[Buffer] = []
    for part in matrix.parts:
        parts.append(device.allocate(part.size))
        device.copy(parts[-1], part)
    return Matrix((parts[0], parts[1], parts[2]), matrix.rows, matrix.cols, matrix.bits)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("--device", choices=("metal:cuda", "metal:host"), default="metal:cuda")
    parser.add_argument("--kernels", type=Path, help="the folder that --build filled")
    parser.add_argument("--build", type=Path, metavar="FOLDER", help="only compile the kernels, as PTX")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    if options.build:
        build(options.build)
        return
    device = open_device(options.device, options.kernels)
    tiny = options.tiny
    hidden, vocab = (256, 520) if tiny else (2048, 248_320)
    ways = dict(copies(device, 1 << 12 if tiny else 1 << 30))
    sizes = dict.fromkeys(ways, 2 * (1 << 12 if tiny else 1 << 30))
    table = Head(device, vocab, hidden, 2 if tiny else 4)
    layers = Projections(device, (192, 64, 32, 32) if tiny else (8192, 4096, 32, 32), hidden, 2 if tiny else 30)
    commands = {"lm_head": (device.commands(table.work), table.bytes)}
    for count in COUNTS:
        layers.check(count)
        for serial in (True, False):
            name = f"projections, {count} rows a simdgroup, {'one after another' if serial else 'no barriers'}"
            commands[name] = (device.commands(layers.work(count, serial)), layers.bytes)
    for name, (made, size) in commands.items():
        ways[name], sizes[name] = (lambda made=made: device.run(made)), size
    found: dict[str, list[Round]] = {name: [] for name in ways}
    for turn in range(options.rounds + 3):
        for name, way in ways.items():
            seconds = way()  # type: ignore[operator]
            if turn >= 3:  # the first ones warm up
                found[name].append((seconds, True))
    figures = {name: summary(found[name], lambda spent, size=sizes[name]: size / spent / 1e9, 2) for name in ways}  # type: ignore[misc]
    copy = max(figures[name]["median"] for name in ways if name.startswith("copy"))
    for name, values in figures.items():
        del values["undisturbed"]
        values |= {"share of copy": round(values["median"] / copy, 3), "rounds": options.rounds}
        values["microseconds"] = round(float(np.median([seconds for seconds, _ in found[name]])) * 1e6, 1)
        shown = f"{name}, GB/s"
        print(
            json.dumps({"device": device.name, "name": shown} | values)
            if options.json
            else line(f"{shown:<68}", values)
        )


if __name__ == "__main__":
    main()
