"""Four ideas of Perplexity's engine, each on and off, on the kernels of metal/: what each buys, beside what is claimed.

    python -m benchmarks.metal_ideas [--device metal:cuda] [--kernels FOLDER] [--rounds 20] [--json]
    python -m benchmarks.metal_ideas --build FOLDER         where clang is; fills the folder for --kernels

routing: 40 layers of experts in one command buffer, against two a layer, with the choice of experts read back in
between, sorted by the host (numpy) and written again; on the clock of the host. fusion: the grouped products of a layer
from codes, against expanding every expert's weights to bf16 in memory first. packing: attention of one row, 10 layers,
the 8 query heads of a key/value head reading it together, against each for itself (metal/attention_head.metal); and of
the last rows of a prompt, tiles of 16 positions of 8 heads against 128 of one (metal/attention_rows_head.metal). fixed
blocks: one row with 128 blocks, against blocks of 256 keys, which is what the claim compares with, and against none.

On-arms are lily's kernels. Both arms start from the same inputs, over poisoned outputs; their results are compared
before the clock runs, and rounds alternate. Claims are speed-ups of a whole prefill or decode on an M5 Max; ours are of
the part that differs. --device metal:host with --tiny only shows that it all runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lily.architecture import QWEN36_35B_A3B, Architecture

from .metal_device import BARRIER, Device, Dispatch, build, open_device
from .metal_words import (
    Array,
    Matrix,
    Moe,
    Prompt,
    Step,
    block_keys,
    floats,
    groups_of,
    moe_weights,
    random_projections,
    random_rows,
    row_bytes,
)


@dataclass(frozen=True)
class Arm:
    """A way to do the work: `run` gives the seconds of one round, `result` what it has left, float32."""

    name: str
    run: Callable[[], float]
    result: Callable[[], Array]


@dataclass(frozen=True)
class Idea:
    """One on-arm and its off-arms, the claim in percent, and how far results may be apart (of their size)."""

    name: str
    claim: float | None
    layers: int  # of a model that one round stands for
    tolerance: float
    on: Arm
    off: list[Arm]
    remark: Callable[[], str] = str  # about the work that was done


@dataclass(frozen=True)
class Sizes:
    """Published sizes, or tiny ones."""

    shape: Architecture
    tokens: tuple[int, int]  # of routing and fusion; of fusion at a longer prompt
    keys: tuple[int, int]  # of packing, of fixed blocks
    rows: int  # of packing in a prompt
    layers: tuple[int, int]  # of experts, of attention


PUBLISHED = Sizes(QWEN36_35B_A3B, (512, 4096), (32_768, 131_072), 4096, (40, 10))
SMALL = replace(QWEN36_35B_A3B, hidden=128, experts=16, top_k=4, width=64, shared_width=64, heads=4)
TINY = Sizes(SMALL, (20, 40), (300, 700), 150, (2, 2))


class Experts:
    """A layer of experts, and its rows."""

    def __init__(self, device: Device, shape: Architecture, tokens: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.device, self.shape = device, shape
        gain = (1 + 0.15 * random.standard_normal(shape.hidden)).astype(np.float32)
        self.weights = moe_weights(random, shape)
        self.moe = Moe(device, shape, self.weights, gain, tokens)
        self.rows = random_rows(random, tokens, shape.hidden)
        self.reset()

    def reset(self) -> None:
        """The rows as they were, and nothing in between."""
        moe = self.moe
        for buffer in (moe.ids, moe.weights, moe.routing, moe.h, moe.parts):
            self.device.write(buffer, np.full(buffer.size, 0xFF, np.uint8))
        self.device.write(moe.x, self.rows)

    def result(self) -> Array:
        """x afterwards, without what it was: the sublayer's own part."""
        return floats(self.device.read(self.moe.x, np.uint16)) - floats(self.rows.ravel())


def routing(device: Device, sizes: Sizes) -> Idea:
    """Routing that stays on the device, and routing by the host."""
    experts, layers = Experts(device, sizes.shape, sizes.tokens[0], 5), sizes.layers[0]
    moe = experts.moe
    whole = device.commands(moe.layer() * layers)
    before = device.commands(moe.choose())
    after = device.commands([*moe.open(moe.w["gate"], moe.w["up"]), *moe.close(moe.w["down"])])

    def resident() -> float:
        experts.reset()
        start = time.perf_counter()
        device.run(whole)
        return time.perf_counter() - start

    def reached() -> str:
        """Layers of the same weights might send all rows to a few experts; then this would be another workload."""
        rows = np.bincount(device.read(moe.ids, np.uint32), minlength=sizes.shape.experts)
        return f"in the last layer {np.count_nonzero(rows)} experts have rows, {rows.max()} at the most"

    def by_host() -> float:
        experts.reset()
        start = time.perf_counter()
        for _ in range(layers):
            device.run(before)
            device.write(moe.routing, moe.sorted_by_host(device.read(moe.ids, np.uint32)))
            device.run(after)
        return time.perf_counter() - start

    return Idea(
        f"routing, {sizes.tokens[0]} tokens",
        *(89.0, layers, 0.0),
        Arm("one command buffer, sorted on the device", resident, experts.result),
        [Arm("two a layer, sorted by the host", by_host, experts.result)],
        reached,
    )


def expanded(device: Device, moe: Moe) -> tuple[dict[str, Matrix], list[Dispatch | None]]:
    """Room for the experts' weights in bf16, and the dispatches that fill it."""
    made, work = {}, list[Dispatch | None]()
    for name in ("gate", "up", "down"):
        w = moe.w[name]
        out = device.allocate(w.parts[0].size * 4)
        words = w.parts[0].size // 4
        work.append(Dispatch("dequantise", (*w.parts, out, struct.pack("I", words)), (groups_of(words, 256),), 256))
        made[name] = Matrix((out, out, out), w.rows, w.cols, 16)
    return made, [*work, BARRIER]


def fusion(device: Device, sizes: Sizes, tokens: int) -> Idea:
    """Grouped products from codes, and from weights expanded before."""
    experts = Experts(device, sizes.shape, tokens, 6)
    moe, w = experts.moe, experts.moe.w
    routed = device.commands([*moe.choose(), *moe.sort()])
    fused = device.commands([*moe.open(w["gate"], w["up"]), *moe.close(w["down"])])
    wide, expand = expanded(device, moe)
    unfused = device.commands([*expand, *moe.open(wide["gate"], wide["up"]), *moe.close(wide["down"])])

    def timed(commands: Any) -> Callable[[], float]:
        def run() -> float:
            experts.reset()
            device.run(routed)
            return device.run(commands)

        return run

    return Idea(
        f"fusion, {tokens} tokens",
        *(77.4, 1, 0.02),
        Arm("codes into the grouped products", timed(fused), experts.result),
        [Arm("weights expanded to bf16 in memory", timed(unfused), experts.result)],
    )


class Caches:
    """Keys and values of some layers, larger together than any cache, and one row's projections."""

    def __init__(self, device: Device, shape: Architecture, keys: int, layers: int) -> None:
        random = np.random.default_rng(7)
        self.device, self.shape, self.keys = device, shape, keys
        self.row = random_projections(random, device, shape, 1)
        first = device.buffer(random_rows(random, keys * row_bytes(shape) // 2))
        self.caches = [first]
        for _ in range(layers - 1):
            self.caches.append(device.allocate(first.size))
            device.copy(self.caches[-1], first)

    def arm(self, name: str, block: int, kernel: str = "", across: int = 0) -> Arm:
        """The step of every layer with such blocks; kernel: another one, with so many threadgroups a block."""
        steps = [Step(self.device, self.shape, self.row, cache, self.keys, block) for cache in self.caches]
        work = [part for step in steps for part in (step.steps(kernel, across) if kernel else step.work())]
        commands = self.device.commands(work)
        return Arm(name, lambda: self.device.run(commands), lambda: self._mixed(steps))

    def _mixed(self, steps: list[Step]) -> Array:
        return np.concatenate([floats(self.device.read(step.mixed, np.uint16)) for step in steps])


def packing(device: Device, sizes: Sizes) -> Idea:
    """Query heads that read keys and values together, and apart."""
    keys, shape = sizes.keys[0], sizes.shape
    caches = Caches(device, shape, keys, sizes.layers[1])
    block = block_keys(keys)
    return Idea(
        f"packing, {keys} keys",
        *(23.8, sizes.layers[1], 4e-3),
        caches.arm("query heads together", block),
        [caches.arm("each query head for itself", block, "attention_head", shape.heads)],
    )


def packing_prompt(device: Device, sizes: Sizes) -> Idea:
    """The same in a prompt, where both have 128 rows to a tile, and so read keys and values about as often."""
    keys, shape, random = sizes.keys[0], sizes.shape, np.random.default_rng(8)
    rows = random_projections(random, device, shape, sizes.rows)
    cache = device.buffer(random_rows(random, keys * row_bytes(shape) // 2))
    together = Prompt(device, shape, rows, cache, keys, shape.heads // shape.kv_heads)
    apart = Prompt(device, shape, rows, cache, keys, 1)

    def arm(name: str, prompt: Prompt, kernel: str) -> Arm:
        commands = device.commands(prompt.work(kernel))
        return Arm(name, lambda: device.run(commands), lambda: floats(device.read(prompt.mixed, np.uint16)))

    return Idea(
        f"packing, {sizes.rows} rows of {keys} keys",
        *(None, 1, 4e-3),
        arm("query heads together", together, f"attention_rows_{shape.head_dim}"),
        [arm("each query head for itself", apart, "attention_rows_head")],
        lambda: f"keys and values loaded: {together.loaded() / 1e9:.3g} GB together, {apart.loaded() / 1e9:.3g} apart",
    )


def blocks(device: Device, sizes: Sizes) -> Idea:
    """A fixed number of blocks, blocks of a fixed size, and none."""
    keys = sizes.keys[1]
    caches = Caches(device, sizes.shape, keys, sizes.layers[1])
    return Idea(
        f"fixed blocks, {keys} keys",
        *(40.2, sizes.layers[1], 4e-3),
        caches.arm("128 blocks at the most", block_keys(keys)),
        [caches.arm("blocks of 256 keys", 256), caches.arm("one block", groups_of(keys, 64) * 64)],
    )


def compare(idea: Idea) -> None:
    """Stops unless every off-arm has the on-arm's result, and that is one."""
    idea.on.run()
    expected = idea.on.result()
    size = float(np.sqrt(np.mean(expected**2)))
    for arm in idea.off:
        arm.run()
        error = float(np.sqrt(np.mean((arm.result() - expected) ** 2)))
        if not (size > 0 and error <= idea.tolerance * size):
            raise SystemExit(
                f"{idea.name}: {arm.name} is off by {error / max(size, 1e-30):.2e} of the size of the result, "
                f"expected at most {idea.tolerance:.0e}"
            )


def measure(idea: Idea, rounds: int) -> list[dict[str, Any]]:
    """Rounds of all arms in turns: milliseconds of each, and what the on-arm gains on it."""
    arms = [idea.on, *idea.off]
    seconds: dict[str, list[float]] = {arm.name: [] for arm in arms}
    for turn in range(rounds):
        for arm in arms if turn % 2 == 0 else arms[::-1]:
            seconds[arm.name].append(arm.run())
    on = statistics.median(seconds[idea.on.name])
    rows = []
    for arm in arms:
        times = sorted(seconds[arm.name])
        middle = statistics.median(times)
        shown = [round(value * 1e3, 4) for value in (middle, times[0], times[-1])]
        row: dict[str, Any] = {"idea": idea.name, "arm": arm.name, "layers": idea.layers, "rounds": rounds}
        row |= dict(zip(("median ms", "lowest ms", "highest ms"), shown, strict=True))
        if arm is not idea.on:
            row |= {"on gains %": round((middle / on - 1) * 100, 1)}
            row |= {} if idea.claim is None else {"claimed %": idea.claim}
        rows.append(row)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """For people."""
    lines = [
        "| idea, point | arm | layers | median ms [lowest to highest] | on gains | claimed |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        gain = [f"{row[key]:+.1f} %" if key in row else "" for key in ("on gains %", "claimed %")]
        times = f"{row['median ms']:.3f} [{row['lowest ms']:.3f} to {row['highest ms']:.3f}]"
        lines.append(f"| {row['idea']} | {row['arm']} | {row['layers']} | {times} | {gain[0]} | {gain[1]} |")
    return "\n".join(lines)


IDEAS: dict[str, Callable[[Device, Sizes], Idea]] = {
    "routing": routing,
    "fusion": lambda device, sizes: fusion(device, sizes, sizes.tokens[0]),
    "fusion-long": lambda device, sizes: fusion(device, sizes, sizes.tokens[1]),
    "packing": packing,
    "packing-prompt": packing_prompt,
    "blocks": blocks,
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0], allow_abbrev=False)
    parser.add_argument("--device", choices=("metal:cuda", "metal:host"), default="metal:cuda")
    parser.add_argument("--kernels", type=Path, help="the folder that --build filled")
    parser.add_argument("--build", type=Path, metavar="FOLDER", help="only compile the kernels, as PTX")
    parser.add_argument("--ideas", nargs="+", choices=IDEAS, default=list(IDEAS))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    if options.build:
        build(options.build)
        return
    device = open_device(options.device, options.kernels)
    print(f"{device.name}; {options.rounds} rounds", flush=True)
    rows: list[dict[str, Any]] = []
    for name in options.ideas:
        idea = IDEAS[name](device, TINY if options.tiny else PUBLISHED)
        compare(idea)
        found = measure(idea, options.rounds)
        rows += found
        print(f"{table(found)}\n{idea.remark()}", flush=True)
        if options.json:
            options.json.write_text(json.dumps({"device": device.name, "figures": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
