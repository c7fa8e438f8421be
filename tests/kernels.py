"""Runs one sublayer of the library on host arrays and judges the result. Used by tests/ops only.

Every call runs with one and with two threads, which must give the same bits; the Metal kernels run in three orders of
their lanes, and once more under the checker of races and bounds, with the same bits as well. Of random examples only
some do all of that, unless LILY_METAL_TESTS=all: what was left out is told at the end of pytest's output. Matrices are
handed over at an address of a drawn residue mod 16, because a checkpoint does not align its data. What comes back is
compared with the reference in float64 with the documented roundings, within bounds that follow from the formats:

* a bf16 result may sit one step from the reference where the value before the last rounding is close to a tie;
* an intermediate value close to a tie may round the other way. That is rare, and moves a result by about as much as the
  documented roundings do anyway. So no element may be off by more than a few times that noise, and most elements must
  be the same to the bit: about 98 in 100 are, and one rounding too many or too few leaves 30 to 65. One early flip can
  move all of a few rows, so that share is asked of many rows, or of the mean of many draws (check_alike).
"""

import dataclasses
import functools
import os
import zlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import currently_in_test_context, settings
from hypothesis import strategies as st

from lily import _ext, metal
from lily.device import parse_device
from reference import (
    BF16_FLOAT64,
    BYTES_FLOAT64,
    Arithmetic,
    Array,
    Matrix,
    bf16_bits,
    bf16_values,
    half_step,
    round_bf16,
)

INSTRUCTION_SETS: list[str] = _ext.instruction_sets()
# Beside them: devices that run the Metal kernels. "metal" on a Mac, "metal:cuda" on an NVIDIA GPU, when named here.
METAL: list[str] = os.environ.get("LILY_METAL_DEVICES", "metal:host").split(",")
KERNELS: list[str] = [*INSTRUCTION_SETS, *METAL]
# The executor takes a second for the larger examples, most of it under the checker: so one random call of so many runs
# in every way, chosen by its content.
if os.environ.get("LILY_METAL_TESTS", "") not in ("", "all"):
    raise ValueError(f"LILY_METAL_TESTS is {os.environ['LILY_METAL_TESTS']!r}, expected 'all' or nothing")
METAL_SHARE = 1 if os.environ.get("LILY_METAL_TESTS") == "all" else 4
RANDOM_CALLS: Counter[str] = Counter()  # on metal:host, by word
LEFT_OUT: Counter[str] = Counter()  # of them, those that ran in one way only
# Products of two rows and more have kernels of their own for GPUs with tensor units: metal:host tests both sets.
TENSOR_UNITS: list[str] = [f"{device}-m5" for device in METAL if device == "metal:host"]
TILES: list[str] = [*KERNELS, *TENSOR_UNITS]
EPSILON = 2.0**-24  # half a unit in the last place of a float32
HOST_WAYS = ("", ":checked", ":reverse", ":random")  # of running the executor
PACKINGS = ("affine4", "affine8", "bf16")
ALIKE = 0.7  # the least share of elements that must be the same to the bit, of one draw
ALIKE_ON_AVERAGE = 0.85
MANY_ROWS = 16

one_example = settings(max_examples=1, deadline=None, print_blob=True)  # of many draws
few_examples = settings(max_examples=25, deadline=None, print_blob=True)
many_examples = settings(max_examples=100, deadline=None, print_blob=True)

seeds = st.integers(0, 2**32 - 1)
packings = st.sampled_from(PACKINGS)
bases = st.sampled_from((0, 1, 4, 8))
# Lengths 1 to 129, with the edges of vectors, tiles and blocks more often than chance would have them.
row_counts = st.one_of(st.sampled_from((1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129)), st.integers(1, 129))
widths = st.sampled_from((64, 128, 192, 320))
# Sizes of a residual stream: small, so that it does not hide what is added to it, and so small that the eps of a norm
# is as large as the mean square.
loudness = st.sampled_from((2.0**-4, 2.0**-10))
FAINT = 2.0**-10  # the same for a projection that is normed later


def place(array: Array, base: int) -> Array:
    """Copy an array to an address that is base mod 16."""
    memory = np.empty(array.nbytes + 32, np.uint8)
    offset = (base - memory.ctypes.data) % 16
    placed = memory[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    assert placed.ctypes.data % 16 == base
    return placed


class Draw:
    """Random arrays of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def bits(self, *shape: int, scale: float = 1.0) -> Array:
        """Draw normal numbers as bf16 patterns."""
        return bf16_bits(scale * self.random.standard_normal(shape))

    def gains(self, width: int) -> Array:
        """Draw the weight of a norm, around one, float32."""
        return (1 + 0.15 * self.random.standard_normal(width)).astype(np.float32)

    def matrix(self, rows: int, cols: int, packing: str, experts: int | None = None, gain: float = 1.0) -> Matrix:
        """Draw a weight matrix whose products with unit rows have the size of gain."""
        shape = (rows, cols) if experts is None else (experts, rows, cols)
        size = gain * cols**-0.5
        if packing == "bf16":
            return Matrix("bf16", self.bits(*shape, scale=size))
        bits = 4 if packing == "affine4" else 8
        words = self.random.integers(0, 2**32, (*shape[:-1], cols * bits // 32), dtype=np.uint32)
        groups = (*shape[:-1], cols // 64)
        spread = np.sqrt((4.0**bits - 1) / 12)  # of a uniform code
        scales = size / spread * self.random.uniform(0.7, 1.3, groups) * self.random.choice((-1.0, 1.0), groups)
        biases = -scales * (2**bits - 1) / 2 + 0.3 * size * self.random.standard_normal(groups)
        return Matrix(packing, words, bf16_bits(scales), bf16_bits(biases))


def hand_over(value: Any, base: int) -> Any:
    """Turn the reference's arguments into those of the library's probe: dicts of arrays, matrices at the drawn base."""
    if isinstance(value, dict):
        return {name: hand_over(part, base) for name, part in value.items()}
    if isinstance(value, Matrix):
        parts = {"codes": value.codes, "scales": value.scales, "biases": value.biases}
        placed = {name: place(part, base) for name, part in parts.items() if part is not None}
        return {"packing": value.packing, **placed}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: hand_over(getattr(value, field.name), base) for field in fields}
    return value


class Kernels:
    """The sublayers of one instruction set, or of one device for Metal kernels. With byte_inputs, products with affine
    matrices round theirs to 8 bits, on a CPU."""

    def __init__(self, name: str, byte_inputs: bool = False) -> None:
        self.probes = metal_probes(name) if name.startswith("metal") else cpu_probes(name)
        self.byte_inputs = byte_inputs and not name.startswith("metal")
        for probe in self.probes:
            probe.byte_inputs = byte_inputs

    @property
    def arithmetic(self) -> Arithmetic:
        """What a sublayer does."""
        return BYTES_FLOAT64 if self.byte_inputs else BF16_FLOAT64

    def run(self, word: str, *arguments: Any, base: int = 0) -> Any:
        """Call a sublayer on every probe, check that the bits are the same, and return them."""
        first, *others = (
            getattr(probe, word)(*(hand_over(argument, base) for argument in arguments))
            for probe in self.choose(word, arguments)
        )
        for number, other in enumerate(others, 1):
            for one, two in zip(as_tuple(first), as_tuple(other), strict=True):
                assert one.tobytes() == two.tobytes(), f"{word}: run {number} gives other bits than run 0"
        return first

    def choose(self, word: str, arguments: tuple[Any, ...]) -> list[_ext.Probe]:
        """All probes; of a random example on metal:host perhaps the first alone, the same at every replay of it."""
        if len(self.probes) < len(HOST_WAYS) or not currently_in_test_context():
            return self.probes
        RANDOM_CALLS[word] += 1
        content = b"".join(argument.tobytes() for argument in arguments if isinstance(argument, np.ndarray))
        if zlib.crc32(content) % METAL_SHARE == 0:
            return self.probes
        LEFT_OUT[word] += 1
        return self.probes[:1]


def cpu_probes(isa: str) -> list[_ext.Probe]:
    return [_ext.Probe("cpu", isa, threads) for threads in (1, 2)]


def require_metal() -> None:
    """Skips where nothing compiles the Metal kernels."""
    tools = metal.load_toolchain()
    try:
        tools.find_clang()
    except tools.MslError as error:
        pytest.skip(f"no compiler for the Metal kernels: {error}")


@functools.cache
def metal_probes(device: str) -> list[_ext.Probe]:
    """All ways on the executor: each order of lanes, and under the checker. Two on a GPU, whose order is its own."""
    require_metal()
    if not device.startswith("metal:host"):
        return [_ext.Probe(**parse_device(device)) for _ in range(2)]
    return [_ext.Probe(**parse_device(device + way), threads=2) for way in HOST_WAYS]


def left_out() -> str:
    """What the tests of the Metal kernels did not do in this run, or nothing."""
    if not LEFT_OUT:
        return ""
    words = ", ".join(f"{word} {count} of {RANDOM_CALLS[word]}" for word, count in sorted(LEFT_OUT.items()))
    return (
        f"Random calls on metal:host without the checker, in one order of lanes only: {words}.\n"
        f"LILY_METAL_TESTS=all runs each in every way, and {METAL_SHARE} times as many splits in test_splits.py."
    )


def as_tuple(result: Any) -> tuple[Array, ...]:
    return result if isinstance(result, tuple) else (result,)


def rms(x: Array) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


def check_bounded(name: str, actual: Array, expected: Array, bound: Array) -> None:
    """Every element is a number within its own bound."""
    assert actual.shape == expected.shape, f"{name}: shape {actual.shape}, expected {expected.shape}"
    error = np.abs(actual.astype(np.float64) - expected)
    wrong = ~(error <= bound)  # a NaN is wrong too
    if wrong.any():
        first = tuple(int(index) for index in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{name}: {wrong.sum()} of {wrong.size} elements are out of bounds, first {first}: "
            f"{actual[first]!r}, expected {expected[first]!r} within {np.broadcast_to(bound, error.shape)[first]:.3e}"
        )


def check_rounded(name: str, bits: Array, expected: Array, slack: Array) -> None:
    """A bf16 result is the rounding of the expected value, or of a value within slack (of float32 sums) of it."""
    check_bounded(name, bf16_values(bits, np.float64), expected, half_step(expected) + slack)


def check_bf16(name: str, bits: Array, emulated: Array, exact: Array, alike: float = ALIKE) -> None:
    """A bf16 result of a sublayer agrees with the emulation: see the top of the file."""
    actual = bf16_values(bits, np.float64)
    check_bounded(name, actual, emulated, 2 * half_step(emulated) + 8 * noise(emulated, exact))
    share = share_alike(bits, emulated)
    if len(bits) >= MANY_ROWS:
        assert share >= alike, f"{name}: only {share:.3f} of the elements equal the emulation, expected {alike}"


def share_alike(bits: Array, emulated: Array) -> float:
    return float(np.mean(bf16_values(bits, np.float64) == round_bf16(emulated)))


def check_alike(shares: list[float]) -> None:
    """The mean over many draws tells a rounding too many or too few from an unlucky flip, for any number of rows."""
    mean = float(np.mean(shares))
    assert mean >= ALIKE_ON_AVERAGE, f"only {mean:.3f} of the elements equal the emulation, over {len(shares)} draws"


def check_float32(name: str, actual: Array, emulated: Array, exact: Array) -> None:
    """A float32 result of a sublayer is closer to the emulation than the roundings upstream move it."""
    own = noise(emulated, exact)
    check_bounded(name, actual, emulated, 10 * own)
    assert rms(actual - emulated) <= rms(own), f"{name}: off by {rms(actual - emulated):.3e}, noise {rms(own):.3e}"


def noise(emulated: Array, exact: Array) -> Array:
    """Return the size of what the documented roundings do to each row: at least to the tensor as a whole."""
    rows = np.sqrt(np.mean(np.square(emulated - exact), axis=-1, keepdims=True))
    return np.asarray(np.maximum(rows, rms(emulated - exact)) + EPSILON * rms(exact))
