"""What a test of the Metal toolchain needs of the machine: a clang, and what to say where there is none."""

from __future__ import annotations

import pytest

from toolchain import MslError, find_clang


def _missing() -> str:
    try:
        find_clang()
    except MslError as error:
        return str(error)
    return ""


needs_clang = pytest.mark.skipif(bool(_missing()), reason=_missing() or "there is a clang")
