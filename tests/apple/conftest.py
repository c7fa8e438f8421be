"""The installation of lily with the stand-in that the tests here share."""

from __future__ import annotations

from pathlib import Path

import pytest
from apple.standin import build, install


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with a lily whose device "metal" is the stand-in."""
    build()
    return install(tmp_path_factory.mktemp("standin"))
