"""The package as it is shipped: version, typing, the stub of the extension, its symbols. The docs are in test_docs.py.

Builds nothing: what needs a build folder or a tool that is not at hand skips, and says so.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lily
from lily import _ext

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(lily.__file__).parent
BUILD = next(iter(ROOT.glob("build/cp310-abi3-*/CMakeFiles")), None)  # of the last `pip install .`


def project_version() -> str:
    found = re.search(r'^version = "([^"]+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return found[1]


def nm(*arguments: str) -> str:
    if shutil.which("nm") is None or sys.platform != "linux":
        pytest.skip("needs nm of the GNU binutils")
    return subprocess.run(["nm", *arguments], check=True, capture_output=True, text=True).stdout


def test_version_is_one() -> None:
    assert lily.__version__ == project_version()
    try:
        installed = importlib.metadata.version("lily")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("lily is imported from its sources, not installed")
    assert installed == project_version()


def test_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()
    assert (PACKAGE / "_ext.pyi").is_file()


def test_public_names_exist() -> None:
    assert lily.__all__ == sorted(lily.__all__)
    for name in lily.__all__:
        assert hasattr(lily, name), name


def test_stub_is_fresh(tmp_path: Path) -> None:
    pytest.importorskip("nanobind.stubgen")
    fresh = tmp_path / "_ext.pyi"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "lily._ext", "-o", str(fresh)]
    subprocess.run(command, check=True, cwd=tmp_path)
    checked_in = ROOT / "python" / "lily" / "_ext.pyi"
    assert checked_in.read_text(encoding="utf-8") == fresh.read_text(encoding="utf-8"), (
        "the bindings changed: CONTRIBUTING.md says how to write the stub again"
    )


def test_extension_hides_its_inside() -> None:
    """Of lily only the module's entry is visible. The standard library makes its own templates visible."""
    assert _ext.__file__
    visible = [line.split(maxsplit=2)[-1] for line in nm("-D", "-C", "--defined-only", _ext.__file__).splitlines()]
    assert "PyInit__ext" in visible
    assert [name for name in visible if re.match(r"((vtable|typeinfo|typeinfo name) for )?lily::", name)] == []


def test_extension_does_not_name_where_it_was_built() -> None:
    assert _ext.__file__
    assert str(ROOT).encode() not in Path(_ext.__file__).read_bytes()


@pytest.mark.skipif(BUILD is None, reason="no build folder; `pip install .` leaves one")
def test_kernels_of_an_instruction_set_share_no_symbol() -> None:
    """A weak symbol is kept once for all instruction sets, perhaps as the copy that this machine cannot run."""
    assert BUILD is not None
    weak = {
        path.relative_to(BUILD).as_posix(): re.findall(r" [VWu] (\S+)$", nm("--defined-only", str(path)), re.MULTILINE)
        for path in sorted(BUILD.glob("*.dir/**/*.o"))
    }
    kernels = {path: names for path, names in weak.items() if path.startswith("lily_cpu_")}
    assert len(kernels) >= 8
    assert [path for path, names in weak.items() if names and path not in kernels], "nothing weak anywhere: look again"
    assert {path: names for path, names in kernels.items() if names} == {}
