"""Installations that version 0.1.0 left behind, unpacked for a test.

Each archive holds what that version wrote: an ADMIN session of three turns, a session that was
erased, a virtual key with 5 USD, three thoughts, a checkpoint, and a call whose process was killed
after its dispatch. ``facts.json`` says what there has to be.
"""

from __future__ import annotations

import asyncio
import json
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

from tests.support.postgres import PostgresServer

ARCHIVES = Path(__file__).parent


class OldRoot(NamedTuple):
    """A root of version 0.1.0.

    Attributes:
        path: its directory.
        ledger: path or URL of its ledger.
        facts: what is in it.
        checkpoint: one that was kept outside.
    """

    path: Path
    ledger: str
    facts: dict[str, Any]
    checkpoint: str


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OldRoot:
    if request.param == "sqlite":
        return unpack(tmp_path, "root")
    server: PostgresServer = request.getfixturevalue("postgres")
    url = server.database()
    monkeypatch.setenv("REMIT_DATABASE_URL", url)
    made = unpack(tmp_path, "postgres")
    asyncio.run(_restore(url, (tmp_path / "ledger.sql").read_text()))
    return made._replace(ledger=url)


def unpack(directory: Path, name: str) -> OldRoot:
    """Unpack one of the archives into ``directory``."""
    with tarfile.open(ARCHIVES / f"{name}-0.1.0.tar.gz") as archive:
        archive.extractall(directory, filter="data")
    facts = json.loads((directory / "facts.json").read_text())
    checkpoint = (directory / "checkpoint").read_text()
    root = directory / "root"
    return OldRoot(root, str(root / "ledger.db"), facts, checkpoint)


async def _restore(url: str, dump: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(dump)
    finally:
        await connection.close()
