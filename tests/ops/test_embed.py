"""Embedding rows, bit for bit: one float32 (scale * code is exact, the sum with the bias rounds once), then bf16."""

import numpy as np
import pytest
from hypothesis import given, strategies
from kernels import KERNELS, Draw, Kernels, bases, many_examples, packings, row_counts, seeds, widths

from reference import BF16, bf16_bits, embed


@pytest.mark.parametrize("isa", KERNELS)
@many_examples
@given(seed=seeds, rows=row_counts, cols=widths, vocab=strategies.integers(1, 300), packing=packings, base=bases)
def test_embed(isa: str, seed: int, rows: int, cols: int, vocab: int, packing: str, base: int) -> None:
    draw = Draw(seed)
    table = draw.matrix(vocab, cols, packing)
    ids = draw.random.integers(0, vocab, rows, dtype=np.int32)
    ids[-1] = vocab - 1
    x = Kernels(isa).run("embed", table, ids, base=base)
    assert np.array_equal(x, bf16_bits(embed(table, ids, BF16)))
