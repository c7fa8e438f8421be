"""The formulas beside the kernels (Traffic of src/lily_ext/metal/record.h) against the bytes that the checker sees every
dispatch touch: of each buffer, unique ones read and written, and those loaded, counted once for each threadgroup.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from kernels import PACKINGS, Draw, hand_over, require_metal

from lily import _ext
from lily.device import parse_device
from ops import test_attention, test_bidirectional, test_gated_delta, test_mlp, test_moe
from reference import AttentionShape, GatedDeltaShape, MlpShape, MoeShape

EPS = 1e-6
SIZES = (0, 1, 2)


class Bench:
    def __init__(self, seed: int, size: int) -> None:
        self.witness = _ext.Witness(parse_device("metal:host:checked")["kernels"])
        self.draw, self.size = Draw(seed), size

    def call(self, word: str, *arguments: Any) -> None:
        getattr(self.witness.probe, word)(*(hand_over(argument, 0) for argument in arguments))


def attention(bench: Bench, rows: int, position: int, head_dim: int, heads: tuple[int, int], packing: str) -> None:
    shape = AttentionShape(64, *heads, head_dim, min(head_dim, 64), theta=1e7, eps=EPS)
    case = test_attention.draw_case(bench.draw, shape, packing, rows, position)
    room = np.zeros((shape.kv_heads, rows + 3, head_dim), np.uint16)
    keys, values = (np.concatenate([past, room], axis=1) for past in (case.keys, case.values))
    bench.call("attention", shape, case.weights, case.x, keys, values, position)


def gated_delta(bench: Bench, rows: int, position: int, dim: int, heads: tuple[int, int], packing: str) -> None:
    shape = GatedDeltaShape(64, *heads, dim, 64, 4, EPS)
    case = test_gated_delta.draw_case(bench.draw, shape, packing, rows, position)
    bench.call("gated_delta", shape, case.weights, case.x, case.state, case.window, position)


def moe(bench: Bench, rows: int, experts: tuple[int, int], widths: tuple[int, int], packing: str, hidden: int = 64) -> None:
    shape = MoeShape(hidden, *experts, *widths, True, EPS)
    weights = test_moe.draw_weights(bench.draw, shape, packing, "affine8")
    bench.call("moe", shape, weights, bench.draw.bits(rows, hidden))


def bidirectional(bench: Bench, lengths: tuple[int, ...], head_dim: int, heads: tuple[int, int], packing: str) -> None:
    shape = AttentionShape(64, *heads, head_dim, 64, 1e4, EPS)
    weights = test_bidirectional.draw_weights(bench.draw, shape, packing)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    table = test_bidirectional.turns(shape, max(lengths))
    bench.call("bidirectional", shape, weights, table, bench.draw.bits(sum(lengths), 64), starts)


def mlp(bench: Bench, rows: int, hidden: int, width: int, packing: str) -> None:
    shape = MlpShape(hidden, width, EPS)
    weights = test_mlp.draw_weights(bench.draw, shape, packing, packing)
    bench.call("mlp", shape, weights, bench.draw.bits(rows, hidden))


def classify(bench: Bench, lengths: tuple[int, ...], hidden: int, labels: int) -> None:
    draws = bench.draw.random.standard_normal
    weights = {
        "norm": bench.draw.gains(hidden),
        "tags": draws((labels, hidden)).astype(np.float32),
        "tags_bias": draws(labels).astype(np.float32),
        "sensitivity": draws((1, hidden)).astype(np.float32),
        "sensitivity_bias": draws(1).astype(np.float32),
    }
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    bench.call("classify", weights, EPS, bench.draw.bits(sum(lengths), hidden), starts)


def head(bench: Bench, vocab: int, hidden: int, packing: str) -> None:
    weights = {"norm": bench.draw.gains(hidden), "table": bench.draw.matrix(vocab, hidden, packing)}
    bench.call("head", weights, EPS, bench.draw.bits(1, hidden))


def embed(bench: Bench, rows: int, hidden: int, packing: str) -> None:
    table = bench.draw.matrix(rows + 9, hidden, packing)
    bench.call("embed", table, bench.draw.random.permutation(rows + 9)[:rows].astype(np.int32))


def matmul(bench: Bench, rows: int, outputs: int, cols: int, packing: str) -> None:
    bench.call("matmul", bench.draw.bits(rows, cols), bench.draw.matrix(outputs, cols, packing, experts=2), 1)


def run_all(bench: Bench) -> None:
    s = bench.size
    for packing in PACKINGS:
        embed(bench, (1, 5, 40)[s], (64, 320, 192)[s], packing)
        head(bench, (64, 300, 1000)[s], (64, 192, 2112)[s], packing)
        for rows in ((2, 9, 33, 512), (5, 20, 100, 513), (8, 32, 65, 520))[s]:
            matmul(bench, rows, (32, 45, 130)[s], (64, 128, 192)[s], packing)
        for rows in ((2, 9, 33), (5, 20, 100), (8, 32, 65))[s]:
            mlp(bench, rows, (64, 128, 192)[s], (64, 192, 128)[s], packing)
        for rows, experts in (((2, (4, 4)), (10, (4, 4)), (20, (4, 4))), ((3, (5, 5)), (15, (5, 5)), (33, (5, 5))), ((4, (8, 8)), (9, (8, 8)), (40, (8, 8))))[s]:
            moe(bench, rows, experts, ((64, 64), (192, 64), (64, 128))[s], packing)
        moe(bench, 1, ((4, 4), (8, 3), (40, 8))[s], ((64, 64), (64, 192), (128, 64))[s], packing, (64, 128, 2112)[s])
        gated_delta(bench, 1, (0, 5, 100)[s], 64, ((1, 1), (1, 2), (2, 4))[s], packing)
        for outputs in ((8192, 1024, 32), (8200, 1030, 40), (8300, 2050, 1000))[s]:
            matmul(bench, 1, outputs, (64, 192, 2112)[s] if outputs < 8192 else 64, packing)
    for dim in (64, 128, 256):
        heads = ((1, 1), (4, 2), (8, 1))[s]
        attention(bench, 1, (0, 70, 200)[s], dim, heads, "affine4")
        attention(bench, (2, 30, 40)[s], (0, 70, 33)[s], dim, heads, "affine4")
        bidirectional(bench, ((2,), (5, 70), (33, 1, 129))[s], dim, heads, "affine4")
    for dim in (64, 128):
        heads = ((1, 1), (1, 2), (2, 4))[s]
        gated_delta(bench, (3, 1, 7)[s], (0, 3, 64)[s], dim, heads, "affine4")
        gated_delta(bench, (9, 64, 150)[s], (0, 3, 100)[s], dim, heads, "affine4")
    classify(bench, ((2,), (5, 70), (33, 1, 12, 1, 4))[s], (64, 128, 192)[s], (3, 37, 4)[s])
    bench.call("norm", bench.draw.bits((3, 9, 20)[s], (64, 65, 128)[s]), bench.draw.gains((64, 65, 128)[s]), EPS)


if __name__ == "__main__":
    import time, collections
    bad = collections.Counter(); good = collections.Counter()
    kernels=collections.defaultdict(set)
    for size in SIZES:
        t=time.time()
        bench = Bench(1, size)
        run_all(bench)
        print("size", size, time.time()-t)
        for r in bench.witness.take():
            kernels[r["kernel"]].add((r["groups"], tuple(x[1] for x in r["touched"])))
            assert len(r["traffic"])==len(r["touched"])
            groups=[]
            for i,((role,read,written,loaded),(place,n,tr,tw,tl)) in enumerate(zip(r["traffic"],r["touched"])):
                for g in groups:
                    if g["lo"]<place+n and place<g["hi"]:
                        g["lo"]=min(g["lo"],place); g["hi"]=max(g["hi"],place+n)
                        break
                else:
                    g=dict(lo=place,hi=place+n,ids=[],said=[0,0,0],seen=[0,0,0]); groups.append(g)
                g["ids"].append(i)
                g["said"]=[a+b for a,b in zip(g["said"],(read,written,loaded))]
                g["seen"]=[a+b for a,b in zip(g["seen"],(tr,tw,tl))]
            for g in groups:
                for what,a,b in zip(("read","written","loaded"),g["said"],g["seen"]):
                    if a!=b: print(f'{size} {r["kernel"]:28} {r["groups"]} buffers {g["ids"]} {what}: said {a} seen {b}')
    for k,v in sorted(kernels.items()): 
        if len(v)<3: print("FEW", k, len(v))
    print(len(kernels))
