"""The kernels for arm64 on a machine that has none: built by a cross compiler, run by qemu, compared with numpy.

The comparisons are those of tests/ops, on a few of their cases; only what runs the sublayer is another program
(tests/neon/driver.cpp), with one thread and with two. On an arm64 machine tests/ops runs NEON itself.
"""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels import Kernels, cpu_probes

from reference import Array

ROOT = Path(__file__).resolve().parent.parent
SETS = ("neondot", "neon")
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
LIBRARIES = "/usr/aarch64-linux-gnu"  # where Debian puts those of the cross compiler
MISSING = [tool for tool in (COMPILER, EMULATOR, "cmake", "ninja") if shutil.which(tool) is None]

pytestmark = [
    pytest.mark.timeout(900),  # 40 s of compiler time, more on a machine that others use too
    pytest.mark.skipif(platform.machine() in ("aarch64", "arm64"), reason="tests/ops runs NEON on this machine"),
    pytest.mark.skipif(bool(MISSING), reason=f"NEON is not tested here, for want of {', '.join(MISSING)}"),
]

BF16, F32 = np.uint16, np.float32
RESULTS: dict[str, tuple[type[np.generic], ...]] = {
    "norm": (BF16,),
    "matmul": (F32,),
    "embed": (BF16,),
    "attention": (BF16, BF16, BF16),
    "gated_delta": (BF16, F32, BF16),
    "moe": (BF16,),
    "bidirectional": (BF16,),
    "mlp": (BF16,),
    "classify": (F32, F32),
    "head": (F32, np.int32),
}


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver, built with the project's own flags."""
    build = tmp_path_factory.mktemp("neon")
    options = [f"-DCMAKE_CXX_COMPILER={COMPILER}", "-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64"]
    for command in (
        ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", "-DLILY_DRIVER=ON", *options],
        ["cmake", "--build", str(build), "--parallel", str(os.cpu_count() or 1)],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning:" not in done.stdout
    return build / "driver"


def written(value: Any) -> bytes:
    """A value as the driver reads it."""
    if isinstance(value, np.ndarray):
        header = f"a {value.dtype} {value.ndim} {' '.join(map(str, value.shape))}\n"
        return header.encode() + value.tobytes()
    if isinstance(value, dict) and "packing" in value:
        parts = [value[name] for name in ("codes", "scales", "biases") if name in value]
        return f"m {value['packing']} {len(parts)}\n".encode() + b"".join(map(written, parts))
    if isinstance(value, dict):
        fields = (f"{name}\n".encode() + written(part) for name, part in value.items())
        return f"f {len(value)}\n".encode() + b"".join(fields)
    return f"n {float(value)!r}\n".encode()


class Emulated:
    """A probe whose calls run in the driver."""

    byte_inputs = False

    def __init__(self, driver: Path, isa: str, threads: int) -> None:
        self._command = [EMULATOR, "-L", LIBRARIES, str(driver), isa, str(threads)]

    def __getattr__(self, word: str) -> Any:
        def call(*arguments: Any) -> Any:
            sent = b"".join(map(written, arguments))
            inputs = "bytes" if self.byte_inputs else "bf16"
            done = subprocess.run([*self._command, inputs, word], input=sent, capture_output=True)
            assert done.returncode == 0, done.stderr.decode()
            results, rest = [], done.stdout
            for dtype in RESULTS[word]:
                header, rest = rest.split(b"\n", 1)
                _, *shape, size = map(int, header.split())
                results.append(np.frombuffer(rest[:size], dtype).reshape(shape))
                rest = rest[size:]
            assert not rest
            return results[0] if len(results) == 1 else tuple(results)

        return call


class Neon(Kernels):
    """What the tests of the sublayers take for an instruction set; one that is not of arm64 runs on this machine."""

    driver: Path

    def __init__(self, isa: str, byte_inputs: bool = False) -> None:
        emulated = isa in SETS
        self.probes: list[Any] = [Emulated(self.driver, isa, n) for n in (1, 2)] if emulated else cpu_probes(isa)
        self.byte_inputs = byte_inputs
        for probe in self.probes:
            probe.byte_inputs = byte_inputs


ONE, MANY = {"rows": 1, "byte_inputs": False}, {"byte_inputs": True}
USUAL = {"packing": "affine4", "base": 1, "hidden": 192}
ATTENTION = {"heads": (4, 2), "head": (128, 32), "size": 2.0**-4, "gain": 1.0, "spare": 5}
DELTA = {"heads": (2, 4), "dims": (64, 128), "size": 2.0**-4, "gain": 1.0}
BIDIRECTIONAL = {"heads": (4, 2), "head_dim": 64}
MOE = {"experts": (17, 5), "widths": (64, 192), "size": 2.0**-4, "renormalize": True, "alike": False, "router": "bf16"}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("norm", "test_norm", {"rows": 3, "cols": 333, "exponent": 1}),
    ("norm", "test_rows_do_not_touch_each_other", {}),
    *(
        ("matmul", "test_matmul", {"rows": rows, "outputs": 37, "groups": 3, "packing": packing, "base": 4})
        for rows in (1, 33)
        for packing in ("affine4", "affine8", "bf16")
    ),
    *(
        ("matmul", "test_inputs_of_8_bits", {"rows": rows, "outputs": 37, "groups": 3, "packing": packing, "base": 4})
        for rows in (1, 2, 33)
        for packing in ("affine4", "affine8")
    ),
    *(
        ("matmul", test, {"rows": 60, "packing": packing} | more)
        for test, more in (
            ("test_the_largest_sums_of_8_bits", {}),
            ("test_every_code_at_every_place", {"byte_inputs": True}),
        )
        for packing in ("affine4", "affine8")
    ),
    *(
        ("embed", "test_embed", {"rows": 9, "cols": 192, "vocab": 50, "packing": packing, "base": 8})
        for packing in ("affine4", "affine8", "bf16")
    ),
    ("attention", "test_attention", USUAL | ATTENTION | ONE | {"position": 150}),
    ("attention", "test_attention", USUAL | ATTENTION | MANY | {"rows": 65, "position": 100, "packing": "affine8"}),
    ("attention", "test_sharp_scores", {"sharpness": 40.0, "rows": 5}),
    ("gated_delta", "test_gated_delta", USUAL | DELTA | ONE | {"position": 20}),
    ("gated_delta", "test_gated_delta", USUAL | DELTA | MANY | {"rows": 70, "position": 30, "packing": "bf16"}),
    ("gated_delta", "test_extreme_decay", {"rows": 64, "rate": 300.0}),
    ("moe", "test_moe", USUAL | MOE | ONE),
    ("moe", "test_moe", USUAL | MOE | MANY | {"rows": 40, "packing": "affine8"}),
    ("moe", "test_ties_go_to_the_lowest_id", {"rows": 2}),
    ("bidirectional", "test_bidirectional", USUAL | BIDIRECTIONAL | {"lengths": (1, 64, 33)}),
    ("mlp", "test_mlp", {"rows": 17, "hidden": 192, "width": 128, "packing": "affine4", "down": "affine8", "base": 1}),
    ("classify", "test_classify", {"lengths": (3, 20), "hidden": 192, "labels": 37, "base": 1}),
    ("head", "test_head", {"rows": 1, "hidden": 192, "vocab": 99, "packing": "affine8", "base": 4}),
    ("head", "test_head", {"rows": 5, "hidden": 192, "vocab": 99, "packing": "affine4", "base": 4}),
]


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize(("word", "test", "case"), CASES)
def test_it_agrees_with_numpy(
    driver: Path, monkeypatch: pytest.MonkeyPatch, isa: str, word: str, test: str, case: dict[str, Any]
) -> None:
    module = importlib.import_module(f"ops.test_{word}")
    monkeypatch.setattr(Neon, "driver", driver, raising=False)
    monkeypatch.setattr(module, "Kernels", Neon)
    function = getattr(module, test)
    drawn = getattr(function, "hypothesis", None)
    if drawn is None:
        function(isa=isa, **case)
    else:
        drawn.inner_test(isa=isa, **case, seed=len(str(case)))


def test_what_the_driver_cannot_do_is_told(driver: Path) -> None:
    x: Array = np.zeros((1, 64), np.uint16)
    with pytest.raises(AssertionError, match=r"weight is f32 \[63\], expected f32 \[64\]|63"):
        Emulated(driver, SETS[0], 1).norm(x, np.ones(63, np.float32), 1e-6)
