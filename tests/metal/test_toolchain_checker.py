"""The checker and the lint: every planted bug is reported, at its line; their sound look-alikes are not. And what the
executor refuses, and what the recorder counts."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from metal.clang import needs_clang
from metal.executor import Buffer, KernelError, Module
from toolchain import lint

pytestmark = needs_clang
HERE = Path(__file__).parent
Floats = NDArray[np.float32]


@pytest.fixture(scope="module")
def bugs() -> Module:
    return Module(HERE / "bugs.metal", "check")


def floats(n: int = 64) -> Floats:
    return np.arange(n, dtype=np.float32)


def run(module: Module, kernel: str, buffers: list[Buffer], threads: int, group: int) -> None:
    module.run(kernel, buffers, grid=(threads,), threads=(group,), grid_is_threads=True)


def line_of(kernel: str) -> int:
    """The line of bugs.metal in which a kernel begins."""
    lines = (HERE / "bugs.metal").read_text(encoding="utf-8").splitlines()
    return next(i for i, line in enumerate(lines, 1) if f"void {kernel}(" in line)


@pytest.mark.parametrize(
    ("kernel", "buffers", "threads", "group", "report"),
    [
        ("oob_read", 2, 64, 64, "runs past the end|outside every bound buffer"),
        ("oob_tg", 1, 64, 64, "outside the threadgroup variables"),
        ("missing_barrier", 2, 64, 64, "race|nobody wrote"),
        ("wrong_flag", 2, 64, 64, "race"),
        ("simd_without_barrier", 2, 32, 32, "race"),
        ("simd_barrier_too_weak", 2, 64, 64, "race|nobody wrote"),
        ("uninit", 1, 64, 64, "nobody wrote"),
        ("divergent_barrier", 1, 64, 64, "divergent threadgroup_barrier: 40 of 64 threads"),
        ("two_barriers", 1, 64, 64, "divergent threadgroup_barrier: threads wait at different barriers"),
        ("cross_group", 2, 64, 32, "race"),
        ("inactive_shuffle", 1, 32, 32, "inactive lane"),
        ("too_much_tg", 1, 64, 64, "32772 bytes used, the limit is 32768"),
    ],
)
def test_planted_bugs(bugs: Module, kernel: str, buffers: int, threads: int, group: int, report: str) -> None:
    with pytest.raises(KernelError, match=report) as error:
        run(bugs, kernel, [floats() for _ in range(buffers)], threads, group)
    assert kernel in str(error.value)
    places = [int(line) for line in re.findall(r"bugs\.metal:(\d+)", str(error.value))]
    assert places
    assert all(line_of(kernel) <= line < line_of(kernel) + 10 for line in places)


def test_a_barrier_is_missing_in_a_loop(bugs: Module) -> None:
    with pytest.raises(KernelError, match="race"):
        run(bugs, "missing_second_barrier", [floats(256), floats()], 64, 64)


def test_a_plain_counter_races_and_an_atomic_one_does_not(bugs: Module) -> None:
    count = np.zeros(1, np.uint32)
    with pytest.raises(KernelError, match="race"):
        run(bugs, "plain_counter", [count], 64, 32)
    count[:] = 0
    run(bugs, "atomic_counter", [count], 64, 32)
    assert count[0] == 64


def test_aliased_buffers_race(bugs: Module) -> None:
    shared = floats()
    with pytest.raises(KernelError, match="race"):
        run(bugs, "alias_write", [shared, shared], 64, 64)
    run(bugs, "alias_write", [floats(), floats()], 64, 64)


def test_a_simdgroup_barrier_orders_a_simdgroup(bugs: Module) -> None:
    run(bugs, "simd_with_barrier", [floats(), floats()], 32, 32)


def test_a_matrix_needs_its_whole_simdgroup(bugs: Module) -> None:
    ones = np.ones(64, np.float16)
    with pytest.raises(KernelError, match="only 31 active lanes"):
        run(bugs, "divergent_mma", [ones, ones.copy()], 32, 32)


def test_reports_do_not_depend_on_the_order_of_lanes(bugs: Module) -> None:
    try:
        for order in (0, 1, 7):
            bugs.set(order=order)
            with pytest.raises(KernelError, match=r"race|nobody wrote"):
                run(bugs, "missing_barrier", [floats(), floats()], 64, 64)
            run(bugs, "simd_with_barrier", [floats(), floats()], 32, 32)
    finally:
        bugs.set(order=0)


def test_bytes_are_counted_by_buffer(bugs: Module) -> None:
    run(bugs, "simd_with_barrier", [floats(), floats()], 32, 32)
    read, written = bugs.touched(0), bugs.touched(1)
    assert (read.unique_read, read.loaded, read.read, read.unique_written) == (128, 128, 128, 0)
    assert (written.unique_written, written.written, written.read) == (128, 128, 0)
    count = np.zeros(1, np.uint32)
    run(bugs, "atomic_counter", [count], 64, 32)
    assert (bugs.touched(0).unique_written, bugs.touched(0).written) == (4, 256)
    assert bugs.touched(5).read == 0


def test_what_the_executor_refuses(bugs: Module) -> None:
    with pytest.raises(KernelError, match=r"has no kernel nothing"):
        run(bugs, "nothing", [], 1, 1)
    with pytest.raises(KernelError, match=r"kernel uninit: buffer 0 \(o\) is not set"):
        run(bugs, "uninit", [None], 64, 64)
    with pytest.raises(KernelError, match="2048 threads per threadgroup; expected 1 to 1024"):
        run(bugs, "uninit", [floats()], 2048, 2048)
    with pytest.raises(KernelError, match="the grid is empty"):
        run(bugs, "uninit", [floats()], 0, 64)


def test_lint_refuses_each_wrong_line_and_no_other() -> None:
    lines = (HERE / "lint.metal").read_text(encoding="utf-8").splitlines()
    wrong = {i for i, line in enumerate(lines, 1) if line.endswith("// REJECT")}
    place = re.compile(r"lint\.metal:(\d+)(?::\d+)?: (?:(?:fatal )?error|note: in instantiation)")
    refused = {int(match[1]) for line in lint(HERE / "lint.metal") if (match := place.search(line))}
    assert len(wrong) == 33
    assert refused == wrong


@pytest.mark.parametrize("source", sorted((HERE / "kernels").glob("*.metal")), ids=lambda path: path.stem)
def test_lint_accepts_the_sample_kernels(source: Path) -> None:
    assert lint(source) == []


MATMUL2D = """#include <metal_stdlib>
#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
using namespace metal;
kernel void f(device %(left)s *a [[buffer(0)]], device bfloat *b [[buffer(1)]]) {
    typedef tensor<device %(left)s, dextents<int, 2>, tensor_inline> Left;
    typedef tensor<device bfloat, dextents<int, 2>, tensor_inline> Right;
    constexpr auto descriptor = mpp::tensor_ops::matmul2d_descriptor(%(shape)s, false, true);
    mpp::tensor_ops::matmul2d<descriptor, execution_simdgroup> product;
    Left left(a, dextents<int, 2>(64, 64));
    Right right(b, dextents<int, 2>(64, 64));
    auto sums = product.get_destination_cooperative_tensor<Left, Right, %(result)s>();
    product.run(%(operand)s, right, sums);
}
"""


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({}, None),
        ({"shape": "8, 32, 64"}, None),
        ({"shape": "8, 8, 64"}, "M or N is a multiple of 16"),
        ({"shape": "16, 4, 64"}, "N is a multiple of 8"),
        ({"shape": "16, 32, 8"}, "K is dynamic or a multiple of 16"),
        ({"left": "float", "result": "bfloat"}, "types of operands"),
        ({"left": "char", "result": "half"}, "types of operands"),
        ({"operand": "Left(a, dextents<int, 2>(64, 64))"}, "no matching member function"),
    ],
)
def test_lint_refuses_what_matmul2d_does_not_take(
    tmp_path: Path, change: dict[str, str], complaint: str | None
) -> None:
    whole = {"shape": "16, 32, 64", "left": "bfloat", "result": "float", "operand": "left", **change}
    source = tmp_path / "f.metal"
    source.write_text(MATMUL2D % whole, encoding="utf-8")
    complaints = lint(source)
    assert complaints == [] if complaint is None else any(complaint in line for line in complaints)
