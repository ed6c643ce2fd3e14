"""One regular and one editable installation of Remit, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.packages.distribution import Distribution, repack_wheel
from tests.packages.distribution.placing import copy_project, editable, regular


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
