"""The build step that compiles the kernels to a .metallib, with a stand-in for Xcode's command that notes its calls."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from apple.standin import ROOT, run

from lily import metal

PROJECT = """
cmake_minimum_required(VERSION 3.24)
project(library LANGUAGES NONE)
include(cmake/metallib.cmake)
"""
# `metal` writes how it was called in place of code, `metallib` joins what it is given.
XCRUN = """#!/bin/sh
[ "$1 $2" = "-sdk macosx" ] || exit 1
shift 2
case "$*" in
"metal --version") exit {version} ;;
"--show-sdk-version") echo {sdk} ;;
"metal "*" -c "*) for last; do :; done; echo "$*" > "$last" ;;
"metallib "*) shift; for last; do :; done; while [ "$1" != -o ]; do cat "$1"; shift; done > "$last" ;;
*) exit 1 ;;
esac
"""


def build(folder: Path, version: int, sdk: str = "26.2") -> Path:
    """Configures, builds and installs; the folder of the libraries. version: how `metal --version` ends."""
    for tool in ("cmake", "ninja"):
        if shutil.which(tool) is None:
            pytest.skip(f"the build needs {tool}, which is not on the PATH")
    (folder / "CMakeLists.txt").write_text(PROJECT, encoding="utf-8")
    for name in ("cmake", "metal"):
        (folder / name).symlink_to(ROOT / name)
    xcrun = folder / "bin" / "xcrun"
    xcrun.parent.mkdir()
    xcrun.write_text(XCRUN.format(version=version, sdk=sdk), encoding="utf-8")
    xcrun.chmod(0o755)
    path = f"{xcrun.parent}{os.pathsep}{os.environ['PATH']}"
    run("cmake", "-G", "Ninja", "-S", str(folder), "-B", str(folder / "build"), PATH=path)
    run("cmake", "--build", str(folder / "build"), PATH=path)
    run("cmake", "--install", str(folder / "build"), "--prefix", str(folder / "package"), PATH=path)
    return folder / "package" / "lily" / "_metal"


def check_calls(library: Path, sources: tuple[Path, ...], *options: str) -> None:
    """The library has what was made of each source with these options, which are those of apple.mm."""
    calls = library.read_text(encoding="utf-8").splitlines()
    for source, call in zip(sources, calls, strict=True):
        assert f"/metal/{source.name} -o " in call
        for option in ("-fno-fast-math", *options):
            assert f" {option} " in call


def test_every_kernel_is_in_the_library(tmp_path: Path) -> None:
    check_calls(
        build(tmp_path, version=0) / "lily.metallib", metal.sources(), "-std=metal3.1", "-mmacosx-version-min=14.0"
    )


def test_without_the_compiler_there_is_no_library_and_no_error(tmp_path: Path) -> None:
    assert not build(tmp_path, version=1).exists()


def test_what_needs_metal_4_is_a_library_of_its_own(tmp_path: Path) -> None:
    sources = tuple(set(metal.sources(tensor_units=True)) - set(metal.sources()))
    assert sources
    library = build(tmp_path, version=0) / "lily_metal4.metallib"
    check_calls(library, sources, "-std=metal4.0", "-mmacosx-version-min=26.2")


def test_an_older_sdk_builds_the_rest(tmp_path: Path) -> None:
    assert [path.name for path in build(tmp_path, version=0, sdk="26.1").iterdir()] == ["lily.metallib"]
