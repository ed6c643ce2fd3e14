"""A PostgreSQL server of its own for a run, from a wheel, with the settings it ships with."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.postgres import run_sql, started

__all__ = ["PostgresServer", "run_sql"]

START_S = 120


class PostgresServer:
    """A server on a Unix socket; stopped when the ``with`` block ends.

    Args:
        directory: for its data; made when it is not there.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._server = started(directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.cleanup()

    @property
    def version(self) -> str:
        """Of the engine."""
        return str(run_sql(self._server.get_uri(), "SHOW server_version")[0][0])

    @property
    def pid(self) -> int:
        """Of its first process; all others are below it."""
        pid = self._server.get_pid()
        assert pid is not None
        return int(pid)

    def url(self, name: str) -> str:
        """Of a database, there or not."""
        return str(self._server.get_uri(database=name))

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a new, empty database, dropped at the end."""
        name = f"b{uuid.uuid4().hex[:12]}"
        self.create(name)
        try:
            yield self.url(name)
        finally:
            self.drop(name)

    def create(self, name: str) -> None:
        """Make an empty database."""
        run_sql(self._server.get_uri(), f"CREATE DATABASE {name}")

    def drop(self, name: str) -> None:
        """Drop a database where it is there."""
        run_sql(self._server.get_uri(), f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def rename(self, old: str, new: str) -> None:
        """Give a database another name; nobody may be connected to it."""
        run_sql(self._server.get_uri(), f"ALTER DATABASE {old} RENAME TO {new}")

    def has(self, name: str) -> bool:
        """Whether there is a database of that name."""
        sql = f"SELECT 1 FROM pg_database WHERE datname = '{name}'"
        return bool(run_sql(self._server.get_uri(), sql))

    def kill(self) -> None:
        """``kill -9`` of the whole server."""
        os.kill(self.pid, signal.SIGKILL)
        time.sleep(0.5)

    def crash(self) -> None:
        """End it as ``pg_ctl stop -m immediate`` does: without a checkpoint, as if it had died."""
        os.kill(self.pid, signal.SIGQUIT)
        time.sleep(0.5)

    def shut_down(self) -> None:
        """End it as its operators do; whoever is connected is thrown out."""
        self._server.stop()

    def start(self) -> None:
        """Start it again; after :meth:`kill` it recovers by itself."""
        end = time.monotonic() + START_S
        while True:  # children of the killed one may hold its shared memory for a moment
            try:
                with self._server._lock:
                    self._server.ensure_postgres_running()
                run_sql(self._server.get_uri(), "SELECT 1")
                return
            except Exception:
                if time.monotonic() > end:
                    raise
                time.sleep(0.3)

    def copy_to(self, directory: Path) -> None:
        """A base backup, as one is taken while everybody writes."""
        directory.mkdir(0o700)
        owner = self._server.pgdata.stat()
        os.chown(directory, owner.st_uid, owner.st_gid)
        command = [self._server.bin_path / "pg_basebackup", "-d", self._server.get_uri(),
                   "-D", directory, "-c", "fast"]  # fmt: skip
        subprocess.run(
            [str(part) for part in command], check=True, capture_output=True, cwd="/",
            user=owner.st_uid if os.geteuid() == 0 else None,
        )  # fmt: skip

    def replace_by(self, directory: Path) -> None:
        """Start again from such a copy, at the same address."""
        self.shut_down()
        shutil.rmtree(self._server.pgdata)
        directory.rename(self._server.pgdata)
        self.start()
