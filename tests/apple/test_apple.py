"""The driver for Apple's Metal runs on Linux, over a stand-in for Metal that runs the same kernels on the executor."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from apple.standin import HERE, python

from lily import metal

MLP = ("norm", "matmul", "mlp", "matmul_metal4")  # the texts that the sublayer of words.py needs


def words(package: Path, *kernels: Path, **environment: str) -> list[str]:
    return python(package, HERE / "words.py", *kernels, **environment).split()


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ...]:
    """What is loaded where lily was built without a compiler for Metal: texts, and the archive for their code. The
    compiler of the stand-in keeps its own cache."""
    compiler = f"env XDG_CACHE_HOME={metal.cache_folder().parents[1]} {sys.executable} {HERE / 'compiler.py'}"
    monkeypatch.setenv("LILY_STANDIN_COMPILER", compiler)
    with monkeypatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path))
        *texts, archive = metal.apple_kernels()
    assert [text.name for text in texts] == [source.name for source in metal.sources(tensor_units=True)]
    assert archive.parent == texts[0].parent
    return (*(text for text in texts if text.stem in MLP), archive)


def test_a_word_gives_the_bits_of_the_host_driver(package: Path) -> None:
    apple, host = words(package)
    assert apple == host


def test_a_gpu_with_tensor_units_runs_kernels_of_its_own(package: Path, texts: tuple[Path, ...]) -> None:
    """From the libraries, and from texts, of which one is in Metal 4; and no other GPU loads that one."""
    apple, host = words(package, LILY_STANDIN_M5="1")
    assert apple == host
    assert apple != words(package)[0]
    assert words(package, *texts, LILY_STANDIN_M5="1") == [apple, host]
    without = tuple(text for text in texts if "metal4" not in text.name)
    assert words(package, *without, LILY_STANDIN_M5="1")[0] == words(package)[0]


def test_a_missing_barrier_shows(package: Path) -> None:
    """The stand-in runs what no barrier orders last to first: without barriers the same word goes wrong."""
    apple, host = words(package, LILY_STANDIN_NO_BARRIERS="1")
    assert apple != host


def test_texts_are_compiled_once_and_archived(package: Path, texts: tuple[Path, ...]) -> None:
    archive = texts[-1]
    apple, host = words(package, *texts)
    assert apple == host
    first = archive.stat()
    assert {"norm", "matmul_64_bf16"} & {line.split()[0] for line in archive.read_text().splitlines()}
    assert words(package, *texts) == [apple, host]
    assert (archive.stat().st_ino, archive.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    archive.write_text("of another system\n", encoding="utf-8")
    assert words(package, *texts) == [apple, host]
    assert archive.stat().st_size == first.st_size
    assert [path.name for path in archive.parent.glob("*binarchive*")] == [archive.name]


def test_an_archive_that_cannot_be_written_is_an_error(package: Path, texts: tuple[Path, ...], tmp_path: Path) -> None:
    script = f"""
import numpy as np, pytest
from lily import _ext, errors
probe = _ext.Probe("metal", kernels={[*map(str, texts[:-1]), str(tmp_path / "none" / "lily.binarchive")]!r})
with pytest.raises(errors.DeviceError, match="cannot keep compiled kernels in .*none/lily.binarchive: .*written"):
    probe.norm(np.zeros((1, 64), np.uint16), np.ones(64, np.float32), 1e-6)
"""
    python(package, "-c", script)


@pytest.mark.usefixtures("texts")
def test_a_text_that_does_not_compile_is_an_error(package: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.metal"
    wrong.write_text("kernel void f(float *a [[buffer(0)]]) {}\n", encoding="utf-8")
    script = f"""
import pytest
from lily import _ext, errors
with pytest.raises(errors.DeviceError, match="Metal cannot load the kernels of .*wrong.metal: the compiler"):
    _ext.Probe("metal", kernels=[{str(wrong)!r}])
"""
    python(package, "-c", script)


def test_a_kernel_that_is_not_there_is_named(package: Path, tmp_path: Path) -> None:
    library = package / "lily" / "_metal" / "lily.metallib"
    empty = tmp_path / "empty.metallib"
    empty.write_text(library.read_text(encoding="utf-8").splitlines()[0] + "\n", encoding="utf-8")
    script = f"""
import numpy as np, pytest
from lily import _ext, errors
probe = _ext.Probe("metal", kernels=[{str(empty)!r}])
with pytest.raises(errors.DeviceError, match="no kernel norm among those of metal"):
    probe.norm(np.zeros((1, 64), np.uint16), np.ones(64, np.float32), 1e-6)
"""
    python(package, "-c", script)
