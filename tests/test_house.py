"""The rules of the house that a machine can check: who may know whom, short files, files that say what they are for.

The table of docs/internals.md ("Who may know whom") is written here a second time, as what each part may include or
import. A file that no row covers is a breach too: a new part of the house needs a row. What a compiler or a linter
already checks is not repeated here.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 600
EXTENSION = "src/lily_ext/"
VOCABULARY = ["backend.h", "tensor.h", "error.h"]
TIMELINE = ["session.h", "weights.h", "sampler.h", "arena.h"]

# Part -> (its files, what they may include with quotes), as patterns of whole paths below src/lily_ext; first row wins.
CPP: Mapping[str, tuple[str, list[str]]] = {
    "vocabulary": (r"(backend|tensor|error)\.h", VOCABULARY),
    "cpu": (r"cpu/.*", [*VOCABULARY, "contract.h", "cpu/.*"]),
    "timeline": (r"(session|weights|sampler|arena)\.(h|cpp)", [*VOCABULARY, *TIMELINE]),
    "decoder": (r"decoder\.(h|cpp)", [*VOCABULARY, *TIMELINE, "decoder.h"]),
    "encoder": (r"encoder\.(h|cpp)", [*VOCABULARY, "weights.h", "arena.h", "encoder.h"]),
    "viterbi": (r"viterbi\.(h|cpp)", ["error.h", "viterbi.h"]),
    "metal": (r"metal/.*", [*VOCABULARY, "contract.h", "metal/.*", r"(args|toolchain/runtime/exec)\.h"]),
    "contract": (r"contract\.(h|cpp)", [*VOCABULARY, "contract.h"]),
    "engine": (
        r"(engine|probe)\.(h|cpp)",
        [*VOCABULARY, *TIMELINE, "decoder.h", "(engine|probe).h", "cpu/backend_cpu.h", "metal/backend_metal.h"],
    ),
    "witness": (
        r"witness\.(h|cpp)",
        [*VOCABULARY, "(probe|witness).h", "metal/(backend_metal|record).h"],
    ),
    "trace": (
        r"trace\.(h|cpp)",
        [*VOCABULARY, *TIMELINE, "decoder.h", "trace.h", "metal/(backend_metal|record).h"],
    ),
    "bindings": (
        r"(probe_)?bindings\.(h|cpp)",
        [*VOCABULARY, *TIMELINE, "(bindings|engine|probe|witness|trace|decoder|encoder|viterbi).h"],
    ),
}
INTRINSICS = {"immintrin.h", "arm_neon.h", "x86intrin.h", "arm_bf16.h"}

# Module of python/lily -> the packages that it may import, beside the standard library and lily itself.
PACKAGES = {"numpy", "tokenizers", "safetensors"}
PYTHON: Mapping[str, set[str]] = {
    "hub": PACKAGES | {"huggingface_hub"},
    "chat": PACKAGES | {"jinja2"},
    "gate.policy_file": PACKAGES | {"tomli"},
    "bench.arms": PACKAGES | {"mlx", "mlx_lm"},
    "bench.plot": PACKAGES | {"matplotlib"},
    "verify.sides": PACKAGES | {"mlx", "mlx_lm"},
}
# Folder of python/lily (and what is below it) -> the parts of lily that its modules may not import.
FORBIDDEN: Mapping[str, set[str]] = {
    "": {"server"},
    "gate": {"server", "hub"},
    "verify": {"server", "hub", "_ext"},
    "bench": {"server", "_ext"},
    "server": {"_ext"},
}


def includes(text: str) -> Iterator[tuple[str, str]]:
    """Each include of a C++ file as (opening mark, name)."""
    for match in re.finditer(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', text, re.MULTILINE):
        yield match[1], match[2]


def cpp_breaches(path: str, text: str) -> list[str]:
    """What a file at `path`, relative to src/lily_ext, includes against the table."""
    row = next((name for name, (files, _) in CPP.items() if re.fullmatch(files, path)), None)
    if row is None:
        return [f"{path} is in no row of the table"]
    breaches = []
    for mark, name in includes(text):
        if mark == "<":
            if name.startswith(("nanobind", "Python.h")) and row != "bindings":
                breaches.append(f"{path} includes <{name}>: only the bindings may")
            if name in INTRINSICS and path != "cpu/simd.h":
                breaches.append(f"{path} includes <{name}>: only cpu/simd.h may")
            continue
        target = Path(EXTENSION, path).parent.joinpath(name)
        resolved = Path(*_without_dots(target.parts)).relative_to(EXTENSION).as_posix()
        if not any(re.fullmatch(allowed, resolved) for allowed in CPP[row][1]):
            breaches.append(f"{path} ({row}) includes {resolved}")
    return breaches


def _without_dots(parts: tuple[str, ...]) -> list[str]:
    kept: list[str] = []
    for part in parts:
        if part == "..":
            kept.pop()
        elif part != ".":
            kept.append(part)
    return kept


def python_breaches(module: str, text: str) -> list[str]:
    """What a module of python/lily, given by its dotted name below lily, imports against the table."""
    allowed = PYTHON.get(module, PACKAGES) | set(sys.stdlib_module_names)
    folder = module.split(".", maxsplit=1)[0] if "." in module else ""
    breaches = []
    for name in imports(f"lily.{module}", text):
        top, _, below = name.partition(".")
        if top == "lily":
            if below.split(".")[0] in FORBIDDEN[folder]:
                breaches.append(f"{module} imports {name}")
        elif top not in allowed:
            breaches.append(f"{module} imports {name}")
    return breaches


def imports(module: str, text: str) -> Iterator[str]:
    """The full name of each thing that a module imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".")[: -node.level] if node.level else []
            yield from (".".join([*package, *filter(None, [node.module]), alias.name]) for alias in node.names)


def sources(*patterns: str) -> list[Path]:
    found = [path for pattern in patterns for path in ROOT.glob(pattern) if "__pycache__" not in path.parts]
    return sorted(found)


def relative(paths: list[Path]) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in paths]


CPP_FILES = sources("src/lily_ext/**/*.h", "src/lily_ext/**/*.cpp")
PACKAGE_FILES = sources("python/lily/**/*.py")
TOOLCHAIN_FILES = sources("metal/toolchain/**/*.py")
METAL_FILES = TOOLCHAIN_FILES + sources("metal/**/*.h", "metal/**/*.cpp", "metal/**/*.metal")
OTHER_FILES = sources("tests/**/*.py", "examples/**/*.py", "benchmarks/**/*.py")
WRITTEN_FILES = CPP_FILES + PACKAGE_FILES + METAL_FILES + OTHER_FILES


def test_there_is_a_house() -> None:
    assert len(CPP_FILES) > 10
    assert len(PACKAGE_FILES) > 5


@pytest.mark.parametrize("path", CPP_FILES, ids=relative(CPP_FILES))
def test_includes(path: Path) -> None:
    name = path.relative_to(ROOT / EXTENSION).as_posix()
    assert cpp_breaches(name, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", PACKAGE_FILES, ids=relative(PACKAGE_FILES))
def test_imports(path: Path) -> None:
    module = ".".join(path.relative_to(ROOT / "python" / "lily").with_suffix("").parts)
    assert python_breaches(module, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", TOOLCHAIN_FILES, ids=relative(TOOLCHAIN_FILES))
def test_the_toolchain_needs_nothing_but_python(path: Path) -> None:
    names = {name.split(".")[0] for name in imports(f"toolchain.{path.stem}", path.read_text(encoding="utf-8"))}
    assert names <= set(sys.stdlib_module_names) | {"toolchain"}


@pytest.mark.parametrize("path", WRITTEN_FILES, ids=relative(WRITTEN_FILES))
def test_short_and_introduced(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_LINES
    if path.suffix == ".py":
        assert ast.get_docstring(ast.parse("\n".join(lines))), f"{path.name} does not say what it is for"
    else:
        assert lines[0].startswith("// "), f"{path.name} does not say what it is for"


@pytest.mark.parametrize(
    ("path", "text", "breach"),
    [
        ("session.cpp", '#include "cpu/pool.h"', "session.cpp (timeline) includes cpu/pool.h"),
        ("decoder.h", '#include "engine.h"', "decoder.h (decoder) includes engine.h"),
        ("cpu/moe.cpp", '#include "../session.h"', "cpu/moe.cpp (cpu) includes session.h"),
        ("engine.cpp", '#include "cpu/kernels.h"', "engine.cpp (engine) includes cpu/kernels.h"),
        (
            "engine.cpp",
            "#  include <nanobind/nanobind.h>",
            "engine.cpp includes <nanobind/nanobind.h>: only the bindings may",
        ),
        ("cpu/moe.cpp", "#include <immintrin.h>", "cpu/moe.cpp includes <immintrin.h>: only cpu/simd.h may"),
        ("utils.h", "", "utils.h is in no row of the table"),
    ],
)
def test_a_breach_of_includes_is_seen(path: str, text: str, breach: str) -> None:
    assert cpp_breaches(path, text) == [breach]


@pytest.mark.parametrize(
    ("module", "text", "breach"),
    [
        ("engine", "import huggingface_hub", "engine imports huggingface_hub"),
        ("engine", "def f():\n    from jinja2.sandbox import Undefined", "engine imports jinja2.sandbox.Undefined"),
        ("engine", "from . import _ext, server", "engine imports lily.server"),
        ("gate.policy", "from ..hub import fetch", "gate.policy imports lily.hub.fetch"),
        ("server.app", "from lily import _ext", "server.app imports lily._ext"),
        ("synth", "import mlx.core as mx", "synth imports mlx.core"),
    ],
)
def test_a_breach_of_imports_is_seen(module: str, text: str, breach: str) -> None:
    assert python_breaches(module, text) == [breach]


def test_what_the_table_allows_is_no_breach() -> None:
    assert cpp_breaches("cpu/moe.cpp", '#include "../tensor.h"\n#include "simd.h"\n#include <cmath>') == []
    assert cpp_breaches("engine.cpp", '#include "cpu/backend_cpu.h"') == []
    assert cpp_breaches("bindings.cpp", '#include <nanobind/ndarray.h>\n#include "engine.h"') == []
    assert python_breaches("hub", "from huggingface_hub import snapshot_download\nfrom lily import errors") == []
    assert python_breaches("engine", "from . import _ext, hub\nimport numpy as np") == []
    assert python_breaches("gate.policy", "from ..errors import LilyError\nfrom .spans import Span") == []
