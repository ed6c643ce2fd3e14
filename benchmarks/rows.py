"""What the record of one call costs the database: statements, rows, bytes, and the writer's CPU.

    python -m benchmarks.rows [--database postgresql://…] [--concurrency 1 64] [--requests N]

A server of a new root answers calls of callers in a process of its own, each with a prompt that no
other has. Bytes are those of the write-ahead log, which each commit writes. CPU is that of the
writer's thread, so a busy machine has little part in it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.gateways import ours, rig
from benchmarks.gateways.launch import Launch
from remit.ledger.postgres.connection import Answer, Writer
from remit.server import serve

_SETTLED_S = 1.5  # PostgreSQL tells its counts of rows after a second
_TOLD = ("statements", "rows", "bytes", "cpu_us", "commits")


class _Counter:
    """The counts of one server, whose connections are traced."""

    def __init__(self, root: Path, database: str) -> None:
        self._log, self._database = root / "ledger.db-wal", database
        self._connections: list[sqlite3.Connection] = []
        self.statements = self.commits = 0
        self._connect, self._queued = sqlite3.connect, Writer._queued

    def watch(self) -> None:
        """Trace all connections that are made from here on."""
        counter, queued = self, self._queued

        def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = counter._connect(*arguments, **options)
            connection.set_trace_callback(counter._count)
            counter._connections.append(connection)
            return connection

        def count(writer: Writer, sql: str, rows: Iterable[Sequence[Any]]) -> Answer:
            counter._count(sql)
            return queued(writer, sql, rows)

        sqlite3.connect = connect  # type: ignore[assignment]
        Writer._queued = count  # type: ignore[assignment, method-assign]

    def _count(self, sql: str) -> None:
        self.statements += not sql.startswith("--")
        self.commits += sql == "COMMIT"

    def now(self) -> dict[str, float]:
        """All until now."""
        (thread,) = (one for one in threading.enumerate() if one.name == "remit-ledger")
        assert thread.ident is not None
        cpu = time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        if self._database:
            with psycopg.connect(self._database) as reader:
                rows, size = reader.execute(
                    "SELECT (SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) "
                    "FROM pg_stat_user_tables), pg_current_wal_lsn() - '0/0'::pg_lsn"
                ).fetchone() or (0, 0)
        else:
            rows = 0
            for connection in self._connections:
                with contextlib.suppress(sqlite3.ProgrammingError):  # closed before the first call
                    rows += connection.total_changes
            size = self._log.stat().st_size
        found = (self.statements, float(rows), float(size), cpu * 1e6, self.commits)
        return dict(zip(_TOLD, found, strict=True))


def _serve(root: Path, port: int, database: str, *, traced: bool) -> None:
    """Serve a root, and print the counts for each line of the standard input."""
    counter = _Counter(root, database)
    if traced:
        counter.watch()

    def answer() -> None:
        for _ in sys.stdin:
            print(json.dumps(counter.now()), flush=True)
        os._exit(0)

    threading.Thread(target=answer, daemon=True).start()
    serve(root, dev=False, flags={"server.port": port}, ready=lambda url: print(url, flush=True))


def _measure(
    launch: Launch, database: str, requests: Sequence[tuple[int, int]], *, traced: bool
) -> list[dict[str, float]]:
    """Return the counts of one call for each number of callers and requests."""
    port = str(launch.command[launch.command.index("--port") + 1])
    root = str(launch.command[launch.command.index("--root") + 1])
    command = [sys.executable, "-m", "benchmarks.rows", "--database", database]
    command += ["--serve", root, port, "traced" if traced else ""]
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, **launch.environment},
    )  # fmt: skip
    told, asked = server.stdout, server.stdin
    assert told is not None
    assert asked is not None
    told.readline()

    def ask() -> dict[str, float]:
        time.sleep(_SETTLED_S)
        print(file=asked, flush=True)
        found: dict[str, float] = json.loads(told.readline())
        return found

    each = []
    for callers, wanted in requests:
        rig.measure(launch.target, callers, core=None, requests=2 * callers, warm_s=0)
        before = ask()
        done = rig.measure(launch.target, callers, core=None, requests=wanted, warm_s=0)
        after = ask()
        each.append({name: (after[name] - before[name]) / done.sent for name in _TOLD})
    server.kill()
    server.wait()
    return each


def main() -> None:
    """Measure one store, and print a row for each number of callers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rows", description=__doc__)
    parser.add_argument("--database", default="", help="an empty PostgreSQL database")
    parser.add_argument("--concurrency", type=int, nargs="*", default=[1, 64])
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        root, port, traced = given.serve
        _serve(Path(root), int(port), given.database, traced=bool(traced))
        return
    environment = {"REMIT_DATABASE_URL": given.database} if given.database else {}
    requests = [(callers, max(given.requests, 10 * callers)) for callers in given.concurrency]
    with tempfile.TemporaryDirectory() as place, rig.upstream(None) as upstream:
        launch = ours.remit(upstream.url, Path(place), environment=environment)
        # A traced connection writes out each statement, which costs more than the statement.
        counts, times = (
            _measure(launch, given.database, requests, traced=traced) for traced in (True, False)
        )
    print("callers  commits  statements  rows  bytes  CPU of the writer (µs), each of a call")
    for (callers, _), count, spent in zip(requests, counts, times, strict=True):
        print(
            f"{callers:7} {count['commits']:8.2f} {count['statements']:11.1f} "
            f"{count['rows']:5.1f} {count['bytes']:6.0f} {spent['cpu_us']:6.0f}"
        )


if __name__ == "__main__":
    main()
