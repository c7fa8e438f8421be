"""PTX of the sample kernels: that it is made, with the names and the memory that a driver relies on. Running it takes
an NVIDIA GPU and is not done here."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from metal.clang import needs_clang
from toolchain import MslError, compile_kernels
from toolchain.ptx import find_libdevice, join_masks, lower

KERNELS = Path(__file__).parent / "kernels"
IR = """\
@x = global i32 0
@__msl_k_0_threads = addrspace(4) constant i32 512, align 4
declare ptr addrspace(3) @__msl_tg(i32, i64)
define spir_kernel void @__msl_k_0() #1 {
  %1 = call noundef ptr addrspace(3) @__msl_tg(i32 noundef 0, i64 noundef 64)
  %2 = tail call ptr addrspace(3) @__msl_dynsmem()
}
define dso_local void @__clang_ocl_kern_imp___msl_k_0() #2 {
}
define linkonce_odr dso_local float @_Z3sumPf(ptr %x) #1 {
}
attributes #1 = { noinline nounwind }
"""


def test_a_mask_and_what_completes_it_are_one_operation() -> None:
    mask, other = "\tand.b32 \t%r2, %r1, 491520;\n", "\tor.b32 \t%r3, %r2, 1132462080;"
    assert join_masks(mask + other) == mask + "\tlop3.b32 \t%r3, %r1, 491520, 1132462080, 0xea;"
    for apart in (
        mask + "\tor.b32 \t%r3, %r1, 7;",
        mask + "\tor.b32 \t%r3, %r2, %r4;",
        mask + "\tadd.s32 \t%r3, %r2, 7;",
    ):
        assert join_masks(apart) == apart


def test_the_step_over_the_ir() -> None:
    lowered = lower(IR, {"__msl_k_0": "gemm"})
    assert "@__msl_variable_1 = internal addrspace(3) global [64 x i8] undef, align 16" in lowered
    assert "%1 = getelementptr i8, ptr addrspace(3) @__msl_variable_1, i64 0" in lowered
    assert "%2 = getelementptr i8, ptr addrspace(3) @__msl_dynamic, i64 0" in lowered
    assert 'define spir_kernel void @gemm() "nvvm.maxntid"="512" #1 {' in lowered
    assert "_threads" not in lowered
    assert "define internal void @__clang_ocl_kern_imp___msl_k_0() alwaysinline #2" in lowered
    assert "define internal float @_Z3sumPf(ptr %x) alwaysinline #1" in lowered
    assert "declare ptr addrspace(3) @__msl_tg" not in lowered
    assert "noinline" not in lowered


def test_an_unknown_form_of_a_call_is_an_error() -> None:
    with pytest.raises(MslError, match="in a form that is not known"):
        lower("  invoke ptr @__msl_tg(i32 1)", {})


def compiled(name: str, folder: Path) -> str:
    compile_kernels(KERNELS / f"{name}.metal", "ptx", folder / f"{name}.ptx")
    return (folder / f"{name}.ptx").read_text(encoding="utf-8")


@needs_clang
def test_products_of_matrices_use_the_tensor_cores(tmp_path: Path) -> None:
    text = compiled("gemm", tmp_path)
    assert set(re.findall(r"\.visible \.entry (\w+)\(", text)) == {"gemm_half", "gemm_float", "gemm_bfloat"}
    assert "mma.sync.aligned.m16n8k8" in text
    assert ".func" not in text  # an array handed to one would lie in memory
    assert ".shared .align 16 .b8 __msl_variable_1" in text
    assert [path.name for path in tmp_path.iterdir()] == ["gemm.ptx"]


@needs_clang
def test_function_constants_are_variables_by_index(tmp_path: Path) -> None:
    text = compiled("gemv", tmp_path)
    assert re.search(r"\.visible \.global .* __msl_fc_0\b", text)
    assert re.search(r"\.visible \.global .* __msl_fcd_0\b", text)


@needs_clang
def test_threadgroup_arguments_and_simdgroup_functions(tmp_path: Path) -> None:
    text = compiled("features", tmp_path)
    assert ".extern .shared .align 16 .b8 __msl_dynamic[]" in text
    assert "shfl.sync" in text


def test_libdevice_is_taken_from_the_package_of_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MSL_LIBDEVICE", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(MslError, match="pip install nvidia-nvvm"):
        find_libdevice()
    library = tmp_path / "nvidia" / "cu13" / "nvvm" / "libdevice" / "libdevice.10.bc"
    library.parent.mkdir(parents=True)
    library.touch()
    importlib.invalidate_caches()
    assert find_libdevice() == library


@needs_clang
def test_mathematics_come_from_libdevice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        find_libdevice()
    except MslError as error:
        pytest.skip(str(error))
    source = tmp_path / "exponent.metal"
    source.write_text(
        "#include <metal_stdlib>\nusing namespace metal;\n"
        "kernel void e(device float* a [[buffer(0)]], uint i [[thread_position_in_grid]]) { a[i] = exp(a[i]); }\n"
    )
    compile_kernels(source, "ptx", tmp_path / "exponent.ptx")
    assert "__nv_expf" not in (tmp_path / "exponent.ptx").read_text(encoding="utf-8")
