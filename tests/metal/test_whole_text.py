"""What Apple's compiler gets where lily was built without it: each .metal file with its headers, as one text."""

from __future__ import annotations

from pathlib import Path

import pytest

from lily import metal
from metal.clang import needs_clang
from toolchain import lint


@needs_clang
@pytest.mark.parametrize("source", metal.sources(tensor_units=True), ids=lambda path: path.stem)
def test_each_text_is_complete_and_passes_the_lint(source: Path, tmp_path: Path) -> None:
    text = metal.whole_text(source)
    assert '#include "' not in text
    alone = tmp_path / source.name
    alone.write_text(text, encoding="utf-8")
    assert lint(alone) == []


@needs_clang
def test_a_header_that_is_not_there_once_fails_the_lint(tmp_path: Path) -> None:
    """Both ways in which a text could be put together wrongly."""
    (tmp_path / "size.h").write_text("#pragma once\nconstant constexpr uint kSize = 4;\n", encoding="utf-8")
    source = tmp_path / "f.metal"
    kernel = "kernel void f(device uint *a [[buffer(0)]]) { a[0] = kSize; }\n"
    source.write_text('#include <metal_stdlib>\n#include "size.h"\n#include "size.h"\n' + kernel, encoding="utf-8")
    text = metal.whole_text(source)
    once = "constant constexpr uint kSize = 4;\n"
    assert text.count(once) == 1
    for wrong, complaint in ((text.replace(once, ""), "kSize"), (text.replace(once, 2 * once), "redefinition")):
        source.write_text(wrong, encoding="utf-8")
        assert any(complaint in line for line in lint(source))


def test_a_library_beside_the_sources_takes_the_place_of_the_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(metal, "home", lambda: tmp_path)
    (tmp_path / "f.metal").write_text("// a kernel\n", encoding="utf-8")
    text, archive = metal.apple_kernels()
    assert text.read_text(encoding="utf-8") == "// a kernel\n"
    assert (archive.parent, archive.exists()) == (text.parent, False)
    (tmp_path / "f.metal").write_text("// another one\n", encoding="utf-8")
    assert metal.apple_kernels()[1] != archive
    library = tmp_path / "lily.metallib"
    library.touch()
    assert metal.apple_kernels() == (library,)
    metal4 = tmp_path / "lily_metal4.metallib"
    metal4.touch()
    assert metal.apple_kernels() == (library, metal4)
    assert metal.apple_kernels(tensor_units=False) == (library,)
