"""An index with one package, and a root that uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from index_tests.making import archive, client, publisher, root_json
from remit_index import PackageIndex


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes that tests start import these tests, and those of the core."""
    here = Path(__file__)
    monkeypatch.setenv("PYTHONPATH", f"{here.parents[1]}:{here.parents[4]}")


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """The directory that holds ``served`` and ``keys``: version 1.0.0 of one package."""
    made = publisher(tmp_path)
    made.create()
    made.publish(archive(tmp_path))
    return tmp_path


@pytest.fixture
def team(served: Path) -> PackageIndex:
    """A root's view of it."""
    index = client(served)
    index.add(root_json(served))
    return index
