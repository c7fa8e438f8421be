"""Compiled kernels in the cache: made once, made again when something changes, whole whoever else is making them."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path

import pytest

from lily import metal
from lily.errors import DeviceError
from metal.clang import needs_clang

TEXT = "kernel void f(device float* a [[buffer(0)]], uint i [[thread_position_in_grid]]) { a[i] = %s; }\n"


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "f.metal"
    path.write_text("#include <metal_stdlib>\n" + TEXT % "1.0f")
    return path


def test_the_sources_are_there() -> None:
    assert (metal.home() / "compat" / "metal_stdlib").is_file()
    assert (metal.home() / "toolchain" / "runtime" / "exec.h").is_file()


@needs_clang
def test_compiled_once(source: Path, tmp_path: Path) -> None:
    first = metal.compiled((source,), "host")
    assert first.executor is not None
    assert first.executor.is_relative_to(tmp_path / "cache" / "lily" / "metal")
    stamps = [path.stat().st_mtime_ns for path in (*first.modules, first.executor)]
    again = metal.compiled((source,), "host")
    assert again == first
    assert [path.stat().st_mtime_ns for path in (*first.modules, first.executor)] == stamps
    assert [path.name for path in first.executor.parent.iterdir()] == ["executor.so"]
    assert [path.name for path in first.modules[0].parent.iterdir()] == ["f.host.so"]


@needs_clang
def test_a_change_of_a_source_or_a_header_is_another_module(source: Path) -> None:
    found = {metal.compiled((source,), "ptx").modules[0]}
    source.write_text(source.read_text() + TEXT.replace("f(", "g(") % "2.0f")
    found.add(metal.compiled((source,), "ptx").modules[0])
    (source.parent / "args.h").write_text("// arguments\n")
    found.add(metal.compiled((source,), "ptx").modules[0])
    assert len(found) == 3


@needs_clang
def test_what_was_not_asked_for_in_30_days_makes_room(source: Path) -> None:
    def age(entry: Path, days: float) -> None:
        then = time.time() - days * 24 * 3600
        os.utime(entry, (then, then))

    (used,) = metal.compiled((source,), "ptx").modules
    assert used.name == "f.ptx"
    entries = {name: metal.cache_folder() / name for name in ("0" * 32, "1" * 32, "of somebody else")}
    for entry, days in zip(entries.values(), (31, 29, 31), strict=True):
        entry.mkdir()
        (entry / "f.ptx").touch()
        age(entry, days)
    age(used.parent, 31)
    assert metal.compiled((source,), "ptx").modules == (used,)
    assert all(entry.exists() for entry in entries.values()), "nothing new has come"
    source.write_text(source.read_text() + TEXT.replace("f(", "g(") % "2.0f")
    (new,) = metal.compiled((source,), "ptx").modules
    assert set(metal.cache_folder().iterdir()) == {used.parent, new.parent, *list(entries.values())[1:]}


@needs_clang
def test_errors_of_the_compiler_are_device_errors(source: Path) -> None:
    source.write_text("#include <metal_stdlib>\nkernel void f(device float* a [[buffer(0)]]) { a = 1; }\n")
    with pytest.raises(DeviceError, match=r"f\.metal:2:\d+: error"):
        metal.compiled((source,), "host")
    with pytest.raises(DeviceError, match="not for 'texture'"):
        metal.compiled((source,), "texture")


@needs_clang
@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked")
def test_two_processes_compile_at_once(source: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(metal.compiled, [((source,), "host")] * 2)
    assert found[0] == found[1] == metal.compiled((source,), "host")
    assert found[0].modules[0].stat().st_size > 0


def test_no_compiler_is_said_so(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = metal.load_toolchain()
    monkeypatch.setenv("MSL_CLANG", "/nowhere/clang")
    tools.find_clang.cache_clear()
    try:
        with pytest.raises(DeviceError, match=r"/nowhere/clang does not run"):
            metal.compiled((source,), "host")
    finally:
        monkeypatch.undo()
        tools.find_clang.cache_clear()
