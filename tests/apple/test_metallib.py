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
"metal "*" -c "*) for last; do :; done; echo "$*" > "$last" ;;
"metallib "*) shift; for last; do :; done; while [ "$1" != -o ]; do cat "$1"; shift; done > "$last" ;;
*) exit 1 ;;
esac
"""


def build(folder: Path, version: int) -> Path:
    """Configures, builds and installs; where the library is to be. version: how `metal --version` ends."""
    for tool in ("cmake", "ninja"):
        if shutil.which(tool) is None:
            pytest.skip(f"the build needs {tool}, which is not on the PATH")
    (folder / "CMakeLists.txt").write_text(PROJECT, encoding="utf-8")
    for name in ("cmake", "metal"):
        (folder / name).symlink_to(ROOT / name)
    xcrun = folder / "bin" / "xcrun"
    xcrun.parent.mkdir()
    xcrun.write_text(XCRUN.format(version=version), encoding="utf-8")
    xcrun.chmod(0o755)
    path = f"{xcrun.parent}{os.pathsep}{os.environ['PATH']}"
    run("cmake", "-G", "Ninja", "-S", str(folder), "-B", str(folder / "build"), PATH=path)
    run("cmake", "--build", str(folder / "build"), PATH=path)
    run("cmake", "--install", str(folder / "build"), "--prefix", str(folder / "package"), PATH=path)
    return folder / "package" / "lily" / "_metal" / "lily.metallib"


def test_every_kernel_is_in_the_library(tmp_path: Path) -> None:
    calls = build(tmp_path, version=0).read_text(encoding="utf-8").splitlines()
    for source, call in zip(metal.sources(), calls, strict=True):
        assert f"/metal/{source.name} -o " in call
        for option in ("-std=metal3.1", "-fno-fast-math", "-mmacosx-version-min=14.0"):  # those of apple.mm
            assert f" {option} " in call


def test_without_the_compiler_there_is_no_library_and_no_error(tmp_path: Path) -> None:
    assert not build(tmp_path, version=1).exists()
