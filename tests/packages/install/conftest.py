"""Roots that are made once and copied."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.packages.hostile import Stage
from tests.packages.install.world import small_root
from tests.support.roots import new_root


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with all that ships. Nobody changes it."""
    return new_root(tmp_path_factory.mktemp("made") / "root")


@pytest.fixture(scope="session")
def untouched(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A root with all that ships, for tests that prove that they left it as it was."""
    top = tmp_path_factory.mktemp("untouched")
    return Stage(made, top).copy(top)


@pytest.fixture
def stage(made: Path, tmp_path: Path) -> Stage:
    """A root of one's own with all that ships."""
    shutil.copytree(made, tmp_path / "root")
    return Stage(tmp_path / "root", tmp_path / "scratch")


@pytest.fixture(scope="session")
def small_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("small")
    return small_root(top / "root", top / "scratch")


@pytest.fixture
def small(small_made: Path, tmp_path: Path) -> Path:
    """A root of one's own with one package."""
    shutil.copytree(small_made, tmp_path / "small")
    return tmp_path / "small"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"
