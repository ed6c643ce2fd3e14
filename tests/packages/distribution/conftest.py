"""A small installation, made once; tests change copies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from remit.packages.distribution import Distribution, repack_wheel
from tests.packages.distribution.placing import editable, regular

SMALL = [
    f"src/remit/{name}"
    for name in ("__init__.py", "_version.py", "kernel/errors.py", "ledger/client.py")
]


@pytest.fixture(scope="session")
def small_project(tmp_path_factory: pytest.TempPathFactory, project: Path) -> Path:
    """The same with four modules, so that looking at all of it is quick."""
    top = tmp_path_factory.mktemp("small")
    for name in ("pyproject.toml", "README.md", "LICENSE", *SMALL):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(project / name, top / name)
    (top / "src" / "remit" / "__init__.py").write_text('"""Small."""\n')
    return top


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory, small_project: Path) -> Distribution:
    scratch = tmp_path_factory.mktemp("wheel")
    made = repack_wheel(editable(scratch / "editable", small_project))
    return regular(scratch / "site", made, scratch)


@pytest.fixture
def copied(tmp_path: Path, small: Distribution) -> Distribution:
    """A copy of the small one, to be changed."""
    site = tmp_path / "site"
    shutil.copytree(small.location.parent, site)
    return Distribution.at(site)


@pytest.fixture
def own_source(tmp_path: Path, small_project: Path) -> Distribution:
    """An editable installation of a copy of the small project, to be changed."""
    shutil.copytree(small_project, tmp_path / "project")
    return editable(tmp_path / "editable", tmp_path / "project")
