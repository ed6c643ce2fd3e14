"""A small installation for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.packages.checks.building import Small


@pytest.fixture
def small(tmp_path: Path) -> Small:
    """One whole package, to be changed."""
    return Small(tmp_path)
