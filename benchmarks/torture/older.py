"""An older copy of the database in the place of the newer one: it must be found, and refused."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from benchmarks.overspend import Installation
from benchmarks.postgres import PostgresServer
from benchmarks.torture.judge import Verdict

_PROMISE = "an older copy is refused"


class OlderCopy:
    """See the module.

    Args:
        installation: whose ledger it is.
        directory: for the copy.
        database: the PostgreSQL server; a file of SQLite when left out.
    """

    def __init__(
        self, installation: Installation, directory: Path, database: PostgresServer | None
    ) -> None:
        self._installation = installation
        self._copy = directory / "older"
        self._database = database

    def take(self) -> None:
        """Copy the database as a backup does, while servers write to it."""
        if self._database is None:
            source = sqlite3.connect(self._installation.address)
            with closing(source), closing(sqlite3.connect(self._copy)) as copy:
                source.backup(copy)
            return
        self._database.copy_to(self._copy)

    def put_back(self, verdict: Verdict) -> None:
        """Put the copy where the database was; nobody runs. Then a server has to refuse it."""
        if self._database is None:
            for suffix in ("", "-wal", "-shm"):
                Path(self._installation.address + suffix).unlink(missing_ok=True)
            shutil.copy(self._copy, self._installation.address)
        else:
            self._database.replace_by(self._copy)
        try:
            server = self._installation.serve()
        except AssertionError as error:
            verdict.hold(_PROMISE, "ledger" in str(error), str(error).strip()[-300:])
            return
        server.end()
        verified = self._installation.told("ledger", "verify")
        verdict.hold(_PROMISE, False, f"a server started on it; verify: {verified['problems']}")
