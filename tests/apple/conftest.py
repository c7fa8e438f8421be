"""The installations of lily with the stand-in that the tests here share."""

from __future__ import annotations

from pathlib import Path

import pytest

from apple.standin import build, install, kernels


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with a lily whose device "metal" is the stand-in."""
    build()
    return install(kernels("host"), tmp_path_factory.mktemp("standin"))


@pytest.fixture(scope="session")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Likewise, with kernels that cannot leave their memory."""
    build()
    return install(kernels("check"), tmp_path_factory.mktemp("checked"))
