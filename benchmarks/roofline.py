"""Where each sublayer of the decoder stands between the memory and the multipliers of this machine.

    python -m benchmarks.roofline [--rows 512] [--contexts 512,32768] [--threads N] [--activations bf16] [--json]

First the ceilings: bytes that threads read together, products that they add up, each in a loop that does nothing else.
Then every sublayer on random weights of the exact shape, for one row (decode) and for a chunk of rows (prefill), on its
own: before each call other memory is read through the caches, so that weights and caches of keys come from memory, as
they do in a model of many layers. Inputs are warm in a model and cold here, which costs a decode step about 1 %.

Parts are the same products on their own, and "the rest" is what the sublayer takes beside them. Bytes and
multiply-adds are those that the result needs at least. rounds.py says which calls count. A whole model: cpu_peers.py.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lily import _ext
from lily.architecture import QWEN36_35B_A3B, Architecture
from lily.bench.contract import Watch

from .rounds import Round, quiet, summary, within

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from kernels import Draw, hand_over

from reference import AttentionShape, GatedDeltaShape, Matrix, MoeShape

NUMBERS = ("f32", "bf16", "bytes")
BATCH = 0.2  # seconds of calls between two looks at what else runs: the system counts in hundredths
PEAK_PASSES = 9


@dataclass(frozen=True)
class Work:
    """A sublayer, or a part of one: one call of it, and what that call needs at least."""

    name: str
    call: Callable[[], object] | None  # None for what is left of a sublayer beside its parts
    bytes: float
    products: float
    numbers: str  # that it multiplies, one of NUMBERS


@dataclass(frozen=True)
class Sublayer:
    """With its parts and the name of the rest. context: positions of the cache, where that matters."""

    whole: Work
    times: int  # that a token or a chunk goes through it; 0 for what is inside the others
    parts: Sequence[Work] = ()
    rest: str = ""
    rest_numbers: str = "bf16"
    context: int | None = None

    def works(self) -> list[Work]:
        """The whole, the parts, and what is beside them."""
        if not self.parts:
            return [self.whole]
        left = self.whole.bytes - sum(part.bytes for part in self.parts)
        products = self.whole.products - sum(part.products for part in self.parts)
        return [self.whole, *self.parts, Work(f"  {self.rest}, the rest", None, left, products, self.rest_numbers)]


def packed(matrix: Matrix) -> int:
    """Bytes of a matrix as it lies in memory."""
    return sum(part.nbytes for part in (matrix.codes, matrix.scales, matrix.biases) if part is not None)


class Decoder:
    """One layer of each kind, drawn once, and the sublayers made of them for some number of rows."""

    def __init__(self, shape: Architecture, probe: _ext.Probe, draw: Draw, byte_inputs: bool) -> None:
        self.shape, self.probe, self.draw, self.byte_inputs = shape, probe, draw, byte_inputs
        self.probe.byte_inputs, self.numbers = byte_inputs, "bytes" if byte_inputs else "bf16"
        a = shape
        keys, values, queries = a.key_heads * a.key_dim, a.value_heads * a.value_dim, a.heads * a.head_dim
        self.table = draw.matrix(a.vocab, a.hidden, "affine4")
        self.attention_in = draw.matrix(2 * queries + 2 * a.kv_heads * a.head_dim, a.hidden, "affine4")
        self.attention_out = draw.matrix(a.hidden, queries, "affine4")
        self.delta_in = draw.matrix(2 * keys + 2 * values + 2 * a.value_heads, a.hidden, "affine4")
        self.delta_out = draw.matrix(a.hidden, values, "affine4")
        self.router = draw.matrix(a.experts, a.hidden, "affine8", gain=2.0)
        self.experts = {
            "gate": draw.matrix(a.width, a.hidden, "affine4", experts=a.experts),
            "up": draw.matrix(a.width, a.hidden, "affine4", experts=a.experts),
            "down": draw.matrix(a.hidden, a.width, "affine4", experts=a.experts),
        }
        self.shared = {
            "gate": draw.matrix(a.shared_width, a.hidden, "affine4"),
            "up": draw.matrix(a.shared_width, a.hidden, "affine4"),
            "down": draw.matrix(a.hidden, a.shared_width, "affine4"),
        }

    def sublayers(self, rows: int, contexts: Sequence[int]) -> Iterator[Sublayer]:
        """In the order of a layer, each to be called before the next one is asked for."""
        yield from self._embed_and_norm(rows)
        yield self._delta(rows)
        for context in contexts:
            yield self._attention(rows, max(context, rows))
        yield self._moe(rows)
        yield self._head()

    def _stream(self, rows: int) -> Callable[[], np.ndarray[Any, Any]]:
        """Another input at every call, so that a router chooses other experts."""
        drawn = [self.draw.bits(rows, self.shape.hidden) for _ in range(16 if rows < 64 else 2)]
        turn = iter(range(1 << 62))
        return lambda: drawn[next(turn) % len(drawn)]

    def _product(self, name: str, matrix: Matrix, rows: int, exact: bool = False) -> Work:
        cols = matrix.codes.shape[-1] * (4 if matrix.packing == "affine8" else 8)
        x, held = self.draw.bits(rows, cols), hand_over(matrix, 0)
        moved = packed(matrix) + 2 * rows * cols + 4 * rows * matrix.codes.shape[0]
        products = rows * matrix.codes.shape[0] * cols

        def multiply() -> object:
            self.probe.byte_inputs = self.byte_inputs and not exact
            try:
                return self.probe.matmul(x, held)
            finally:
                self.probe.byte_inputs = self.byte_inputs

        return Work(f"  {name}", multiply, moved, products, "bf16" if exact else self.numbers)

    def _embed_and_norm(self, rows: int) -> Iterator[Sublayer]:
        a, probe = self.shape, self.probe
        table = hand_over(self.table, 0)
        ids = self.draw.random.integers(0, a.vocab, rows).astype(np.int32)
        row = packed(self.table) / a.vocab
        yield Sublayer(
            Work("embed", lambda: probe.embed(table, ids), rows * (row + 2 * a.hidden), rows * a.hidden, "f32"), 1
        )
        x, gains = self.draw.bits(rows, a.hidden), self.draw.gains(a.hidden)
        moved = 4 * rows * a.hidden + gains.nbytes
        yield Sublayer(
            Work("norm, inside the others", lambda: probe.norm(x, gains, a.eps), moved, 2 * rows * a.hidden, "f32"), 0
        )

    def _delta(self, rows: int) -> Sublayer:
        a, draw, probe = self.shape, self.draw, self.probe
        keys, values = a.key_heads * a.key_dim, a.value_heads * a.value_dim
        cuts = np.cumsum([0, 2 * keys + values, values, a.value_heads, a.value_heads])
        qkv, z, first, second = (
            rows_of(self.delta_in, int(start), int(end)) for start, end in itertools.pairwise(cuts)
        )
        shape = GatedDeltaShape(a.hidden, a.key_heads, a.value_heads, a.key_dim, a.value_dim, a.conv_width, a.eps)
        weights = hand_over(
            {
                "norm": draw.gains(a.hidden),
                "qkv": qkv,
                "z": z,
                "a": first,
                "b": second,
                "conv": (0.5 * draw.random.standard_normal((a.conv_width, a.channels))).astype(np.float32),
                "decay_rate": (16 * 1000 ** -draw.random.random(a.value_heads)).astype(np.float32),
                "dt_bias": (5 * draw.random.random(a.value_heads) - 4).astype(np.float32),
                "head_norm": draw.gains(a.value_dim),
                "out": self.delta_out,
            },
            0,
        )
        state = (0.1 * draw.random.standard_normal((a.value_heads, a.value_dim, a.key_dim))).astype(np.float32)
        window = draw.bits(a.conv_width - 1, a.channels)
        x, sizes = self._stream(rows), hand_over(shape, 0)
        parts = [
            self._product("projections in", self.delta_in, rows),
            self._product("projection out", self.delta_out, rows),
        ]
        recurrence = rows * (3 * a.value_heads * a.value_dim * a.key_dim + a.conv_width * a.channels)
        return Sublayer(
            Work(
                "gated_delta",
                lambda: probe.gated_delta(sizes, weights, x(), state, window, 0),
                sum(part.bytes for part in parts) + 2 * state.nbytes + 2 * window.nbytes,
                sum(part.products for part in parts) + recurrence,
                self.numbers,
            ),
            a.delta_layers,
            parts,
            "convolution, recurrence",
            "f32",
        )

    def _attention(self, rows: int, context: int) -> Sublayer:
        a, draw, probe = self.shape, self.draw, self.probe
        queries, width = a.heads * a.head_dim, a.kv_heads * a.head_dim
        weights = hand_over(
            {
                "norm": draw.gains(a.hidden),
                "q": rows_of(self.attention_in, 0, 2 * queries),
                "k": rows_of(self.attention_in, 2 * queries, 2 * queries + width),
                "v": rows_of(self.attention_in, 2 * queries + width, 2 * queries + 2 * width),
                "o": self.attention_out,
                "q_norm": draw.gains(a.head_dim),
                "k_norm": draw.gains(a.head_dim),
            },
            0,
        )
        shape = AttentionShape(a.hidden, a.heads, a.kv_heads, a.head_dim, a.rotary_dim, a.theta, a.eps)
        cache = draw.bits(a.kv_heads, context, a.head_dim)
        x, sizes = self._stream(rows), hand_over(shape, 0)
        parts = [
            self._product("projections in", self.attention_in, rows),
            self._product("projection out", self.attention_out, rows),
        ]
        seen = rows * (context - rows) + rows * (rows + 1) // 2  # keys, over all rows
        return Sublayer(
            Work(
                f"attention at {context:,} keys",
                lambda: probe.attention(sizes, weights, x(), cache, cache, context - rows),
                sum(part.bytes for part in parts) + 2 * cache.nbytes,
                sum(part.products for part in parts) + 2 * seen * queries,
                self.numbers,
            ),
            a.attention_layers,
            parts,
            "scores and values",
            context=context,
        )

    def _moe(self, rows: int) -> Sublayer:
        a, draw, probe = self.shape, self.draw, self.probe
        shape = MoeShape(a.hidden, a.experts, a.top_k, a.width, a.shared_width, a.renormalize, a.eps)
        shared_router = draw.matrix(1, a.hidden, "affine8")
        weights = hand_over(
            {
                "norm": draw.gains(a.hidden),
                "router": self.router,
                **self.experts,
                "shared_router": shared_router,
                **{f"shared_{name}": matrix for name, matrix in self.shared.items()},
            },
            0,
        )
        x, sizes = self._stream(rows), hand_over(shape, 0)
        dense = hand_over({"norm": draw.gains(a.hidden), **self.shared}, 0)
        mlp = {"hidden": a.hidden, "width": a.shared_width, "eps": a.eps}
        activations = 4 * rows * a.hidden
        one = 3 * a.hidden * a.shared_width
        parts = [
            self._product("router", self.router, rows, exact=True),
            Work(
                "  shared expert",
                lambda: probe.mlp(mlp, dense, x()),
                sum(map(packed, self.shared.values())) + activations,
                rows * one,
                self.numbers,
            ),
        ]
        chosen = a.experts * (1 - (1 - a.top_k / a.experts) ** rows)  # of routers that choose evenly
        moved = chosen / a.experts * sum(map(packed, self.experts.values())) + activations
        return Sublayer(
            Work(
                "moe",
                lambda: probe.moe(sizes, weights, x()),
                sum(part.bytes for part in parts) + moved,
                sum(part.products for part in parts) + rows * a.top_k * 3 * a.hidden * a.width,
                self.numbers,
            ),
            a.layers,
            parts,
            "experts",
            self.numbers,
        )

    def _head(self) -> Sublayer:
        a, probe = self.shape, self.probe
        weights = hand_over({"norm": self.draw.gains(a.hidden), "table": self.table}, 0)
        x = self._stream(1)
        moved = packed(self.table) + 4 * a.vocab
        return Sublayer(Work("head", lambda: probe.head(weights, a.eps, x()), moved, a.vocab * a.hidden, "bf16"), 1)


def rows_of(matrix: Matrix, start: int, end: int) -> Matrix:
    """Some rows of a matrix of affine weights."""
    assert matrix.scales is not None
    assert matrix.biases is not None
    return Matrix(matrix.packing, matrix.codes[start:end], matrix.scales[start:end], matrix.biases[start:end])


def ceilings(isa: str, threads: int, mebibytes: int, pieces: int = 400) -> dict[str, float]:
    """Bytes a second that one thread and all threads read, and products a second of each kind of numbers."""
    found = {}
    for name, count in (("read, 1 thread", 1), ("read", threads)):
        work, seconds = _ext.read_peak(isa, count, mebibytes << 20, PEAK_PASSES)
        found[name] = work / statistics.median(seconds)
    for numbers in NUMBERS:
        work, seconds = _ext.product_peak(isa, threads, numbers, pieces, PEAK_PASSES)
        found[numbers] = work / statistics.median(seconds)
    return found


def timed(probe: _ext.Probe, works: Sequence[Work], seconds: float) -> dict[str, list[Round]]:
    """The calls of a sublayer and of its parts, in turns for some seconds each: the first does not count, and those
    between two looks at the machine are disturbed together."""
    calls = {work.name: work.call for work in works if work.call is not None}
    for call in calls.values():
        call()
    found: dict[str, list[Round]] = {name: [] for name in calls}
    for _ in within(seconds * len(calls)):
        for name, call in calls.items():
            spent: list[float] = []
            watch, start = Watch(), time.perf_counter()
            while not spent or time.perf_counter() - start < min(BATCH, seconds):
                call()
                spent.append(probe.seconds)
            undisturbed = quiet(watch)
            found[name] += [(one, undisturbed) for one in spent]
    return found


def report(
    decoder: Decoder, rows: int, contexts: Sequence[int], peaks: dict[str, float], seconds: float
) -> list[dict[str, Any]]:
    """A row for each sublayer and part: its time, what it needs, and its share of a token or chunk at its context."""
    found: list[dict[str, Any]] = []
    totals = dict.fromkeys((max(context, rows) for context in contexts), 0.0)
    for sublayer in decoder.sublayers(rows, list(totals)):
        works = sublayer.works()
        rounds = timed(decoder.probe, works, seconds)
        rest = 0.0
        for work in works:
            if work.call is None:
                took, undisturbed = rest, ""
            else:
                figures = summary(rounds[work.name], lambda spent: 1e6 * spent, 3)
                took, undisturbed = figures["median"] / 1e6, figures["undisturbed"]
                rest = took if work is sublayer.whole else rest - took
            numbers = work.numbers if peaks[work.numbers] else "f32"
            found.append(
                {
                    "op": work.name,
                    "microseconds": 1e6 * took,
                    "bytes": work.bytes,
                    "multiply_adds": work.products,
                    # A rest of nothing is the noise of the others.
                    "of_bandwidth": work.bytes / took / peaks["read"] if took > 0 else None,
                    "of_products": work.products / took / peaks[numbers] if took > 0 else None,
                    "numbers": numbers,
                    "times": sublayer.times,
                    "context": sublayer.context,
                    "undisturbed": undisturbed,
                }
            )
            if work is sublayer.whole:
                for context in totals if sublayer.context is None else [sublayer.context]:
                    totals[context] += sublayer.times * took
    for row in found:
        total = totals[row["context"] or next(iter(totals))]
        row["share"] = row["times"] * row["microseconds"] / 1e6 / total
    found += [{"op": f"all, {context:,} keys", "microseconds": 1e6 * total} for context, total in totals.items()]
    return found


def lines(title: str, rows: list[dict[str, Any]]) -> Iterator[str]:
    """The table for people."""
    yield f"\n{title}"
    yield (
        f"{'':<34}{'us':>10}{'x':>4}{'MB':>9}{'M mult-adds':>13}{'of reading':>12}{'of products':>13}{'share':>8}"
        "  undisturbed"
    )
    for row in rows:
        if "share" not in row:
            yield f"{row['op']:<34}{row['microseconds']:>10,.0f}"
            continue
        share = f"{row['share']:.1%}" if row["times"] else ""
        bandwidth, products = ("-" if row[of] is None else f"{row[of]:.0%}" for of in ("of_bandwidth", "of_products"))
        yield (
            f"{row['op']:<34}{row['microseconds']:>10,.1f}{row['times'] or '':>4}{row['bytes'] / 1e6:>9,.2f}"
            f"{row['multiply_adds'] / 1e6:>13,.2f}{bandwidth:>12}{products:>8}"
            f" {row['numbers']:<5}{share:>7}  {row['undisturbed']}"
        )


def cache_bytes() -> int:
    """Of the last cache, where the system tells, and never less than 32 MiB."""
    least = 32 << 20
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text().strip()
    except OSError:
        return least
    return max(least, int(text.removesuffix("K")) << 10)


def main(arguments: Sequence[str] | None = None, shape: Architecture = QWEN36_35B_A3B) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("--rows", type=int, default=512, help="of a prefill chunk (%(default)s)")
    parser.add_argument("--contexts", default="512,32768", metavar="N,N", help="keys of attention (%(default)s)")
    parser.add_argument("--threads", type=int, default=0, help="left out, one for each CPU")
    parser.add_argument("--activations", choices=("int8", "bf16"), default="int8", help="(%(default)s)")
    parser.add_argument("--seconds", type=float, default=1.5, help="for each sublayer and part (%(default)s)")
    parser.add_argument("--mebibytes", type=int, default=512, help="that each thread reads (%(default)s)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    contexts = [int(part) for part in options.contexts.split(",")]
    probe = _ext.Probe("cpu", threads=options.threads)
    probe.evict = min(2 * cache_bytes(), options.mebibytes << 20)
    isa, threads = probe.isa, probe.threads
    before = ceilings(isa, threads, options.mebibytes)
    decoder = Decoder(shape, probe, Draw(1), options.activations == "int8")
    tables = {
        "decode, 1 row": report(decoder, 1, contexts, before, options.seconds),
        f"prefill, {options.rows} rows": report(decoder, options.rows, contexts, before, options.seconds),
    }
    after = ceilings(isa, threads, options.mebibytes)
    if options.json:
        print(json.dumps({"isa": isa, "threads": threads, "ceilings": before, "ceilings_after": after} | tables))
        return
    print(f"cpu ({isa}, {threads} threads), prefill with inputs of {options.activations}")
    for name, first in before.items():
        unit = "GB/s" if name.startswith("read") else "G multiply-adds/s"
        print(f"{name:<16}{first / 1e9:>8.1f} before, {after[name] / 1e9:.1f} after, {unit}")
    for title, rows in tables.items():
        print("\n".join(lines(title, rows)), flush=True)


if __name__ == "__main__":
    main()
