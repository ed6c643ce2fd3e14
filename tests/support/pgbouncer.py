"""The real PgBouncer before a PostgreSQL server, in transaction mode."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, urlsplit, urlunsplit

from tests.support.postgres import run_sql
from tests.support.waiting import until

__all__ = ["PROGRAM", "PgBouncer"]

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
"""Where it is; ``None`` where it is not installed."""


class PgBouncer:
    """It, on a Unix socket, with fewer sessions than clients: each transaction may get another.

    Args:
        url: of a database of the server.
        sessions: how many it has with the server.
        settings: more lines of its ``[pgbouncer]`` section.
    """

    def __init__(self, url: str, *, sessions: int = 3, settings: str = "") -> None:
        parts = urlsplit(url)
        self._user = parts.username or "postgres"
        server = parse_qs(parts.query)["host"][0]
        self._owner = Path(server).stat()  # alone may connect to it
        # Not below pytest's directory: it is that user's.
        self._place = Path(tempfile.mkdtemp(prefix="remit-pgbouncer-"))
        self.url = urlunsplit(parts._replace(query=f"host={self._place}"))
        self._process: subprocess.Popen[bytes] | None = None
        (self._place / "users").write_text(f'"{self._user}" ""\n')
        self._ini = self._place / "pgbouncer.ini"
        self._ini.write_text(
            f"[databases]\n* = host={server}\n"
            "[pgbouncer]\npool_mode = transaction\nlisten_addr =\nlisten_port = 5432\n"
            f"unix_socket_dir = {self._place}\nauth_type = trust\n"
            f"auth_file = {self._place}/users\nlogfile = {self._place}/log\n"
            f"default_pool_size = {sessions}\nserver_login_retry = 0\n{settings}"
        )

    def __enter__(self) -> Self:
        if os.geteuid() == 0:
            os.chown(self._place, self._owner.st_uid, self._owner.st_gid)
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._place)

    def start(self) -> None:
        assert PROGRAM is not None
        user = self._owner.st_uid if os.geteuid() == 0 else None
        self._process = subprocess.Popen([PROGRAM, "-q", str(self._ini)], user=user)
        until((self._place / ".s.PGSQL.5432").exists, 30)
        until(self._answers, 30)

    def kill(self) -> None:
        """``kill -9``: every client and every session is cut off, wherever it is."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        (self._place / ".s.PGSQL.5432").unlink(missing_ok=True)

    def _answers(self) -> bool:
        try:
            return run_sql(self.url, "SELECT 1") == [(1,)]
        except OSError:
            return False
