"""Roots that earlier versions left behind when they were killed, unpacked for a test.

``build.py`` made the archives. ``facts.json`` in each states what the root contains.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.postgres import PostgresServer, run_sql

ARCHIVES = Path(__file__).parent

COMMITS = {
    "51d42c2": 2, "659dd33": 3, "146b3d1": 4, "70e2373": 5, "d9d4311": 6, "9db8616": 7,
    "4c35e63": 8,
}  # fmt: skip
"""The layout of each commit's ledger. Each has a SQLite root."""

NAMED = ("51d42c2", "659dd33", "9db8616", "4c35e63")
"""The commits that have a root on PostgreSQL, too."""

ROOTS = [(commit, "sqlite") for commit in COMMITS] + [(commit, "postgresql") for commit in NAMED]


class OldRoot(NamedTuple):
    """A root of an earlier version.

    Attributes:
        path: its directory.
        ledger: path or URL of its ledger.
        facts: what the root contains.
        layout: the layout of its ledger.
    """

    path: Path
    ledger: str
    facts: dict[str, Any]
    layout: int


@pytest.fixture
def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OldRoot:
    """The root of a pair of :data:`ROOTS`, by which a test is parametrized."""
    commit, store = request.param
    if store == "sqlite":
        return unpack(tmp_path, commit)
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.database()
    monkeypatch.setenv("REMIT_DATABASE_URL", url)
    return unpack(tmp_path, commit, url)


def unpack(directory: Path, commit: str, database: str = "") -> OldRoot:
    """Unpack a root into ``directory``, and its ledger into an empty PostgreSQL database."""
    name = "postgres" if database else "root"
    with tarfile.open(ARCHIVES / f"{name}-{commit}.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    facts = json.loads((directory / "facts.json").read_text())
    root = directory / "root"
    if database:
        run_sql(database, (directory / "ledger.sql").read_text())
    return OldRoot(root, database or str(root / "ledger.db"), facts, COMMITS[commit])
