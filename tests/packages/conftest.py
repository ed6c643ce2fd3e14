"""Made once: a regular and an editable installation of Remit; four keys that sign packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.packages import PackageKey
from remit.packages.distribution import Distribution, repack_wheel
from tests.packages.distribution.placing import copy_project, editable, regular
from tests.packages.making import key_of


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def from_source(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Distribution:
    return editable(tmp_path_factory.mktemp("editable"), project)


@pytest.fixture(scope="session")
def placed(tmp_path_factory: pytest.TempPathFactory, from_source: Distribution) -> Distribution:
    """What pip made of the wheel; not to be changed."""
    scratch = tmp_path_factory.mktemp("wheel")
    return regular(scratch / "site", repack_wheel(from_source), scratch)


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PackageKey]:
    place = tmp_path_factory.mktemp("keys")
    return {
        name: key_of(place / f"{name}.pem", bytes([number]) * 32, name)
        for number, name in enumerate(("anna", "ben", "carl", "dora"), 1)
    }


@pytest.fixture(scope="session")
def anna(keys: dict[str, PackageKey]) -> PackageKey:
    return keys["anna"]
