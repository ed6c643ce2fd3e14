"""The floor: the same bytes made durable, and nothing else."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from benchmarks.rounds import rate_in_loop

_TABLE = "CREATE TABLE payloads (seq bigserial PRIMARY KEY, payload bytea)"


class BareCommitter:
    """One thread that inserts all waiting payloads into one table, a commit for each batch.

    It waits for the disk as often as the ledger does, but hashes nothing, encodes nothing,
    keeps no index and commits to no content.

    Args:
        path: the SQLite file to make.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting: queue.SimpleQueue[tuple[bytes, Future[None]]] = queue.SimpleQueue()
        self._closing = False
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing = True
        self.submit(b"")  # wakes the thread, so that it sees
        self._thread.join()

    def submit(self, payload: bytes) -> Future[None]:
        """Hand over one payload; the future resolves when it is durable."""
        future: Future[None] = Future()
        self._waiting.put((payload, future))
        return future

    def _work(self) -> None:
        self._open()
        while not self._closing:
            batch = [self._waiting.get()]
            while not self._waiting.empty():
                batch.append(self._waiting.get())
            self._insert([payload for payload, _ in batch])
            for _, future in batch:
                future.set_result(None)
        self._close()

    def _open(self) -> None:
        self._connection: Any = sqlite3.connect(self._path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE payloads (seq INTEGER PRIMARY KEY, payload BLOB)")

    def _insert(self, payloads: list[bytes]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "INSERT INTO payloads (payload) VALUES (?)", [(payload,) for payload in payloads]
        )
        self._connection.execute("COMMIT")

    def _close(self) -> None:
        self._connection.close()


class PostgresCommitter(BareCommitter):
    """The same on PostgreSQL: one connection, one statement for all that wait.

    Args:
        url: of an empty database.
    """

    def __init__(self, url: str) -> None:
        super().__init__(Path())
        self._url = url

    def _open(self) -> None:
        self._connection = psycopg.connect(self._url, autocommit=True)
        self._connection.execute(_TABLE)

    def _insert(self, payloads: list[bytes]) -> None:
        self._connection.execute(
            "INSERT INTO payloads (payload) SELECT unnest(%b::bytea[])", (payloads,)
        )

    def _close(self) -> None:
        self._connection.close()


def rate_of_inserts(url: str, writers: int, size: int) -> float:
    """Payloads per second as an ordinary program stores them on PostgreSQL.

    So many tasks of one event loop, each with a connection of its own; a row, a commit.

    Args:
        url: of an empty database.
        writers: how many.
        size: bytes of a payload.
    """

    async def run() -> float:
        free = [await psycopg.AsyncConnection.connect(url, autocommit=True) for _ in range(writers)]
        connections = list(free)
        await free[0].execute(_TABLE)

        async def call(number: int) -> None:
            connection = free.pop()
            await connection.execute(
                "INSERT INTO payloads (payload) VALUES (%b)", (payload_of(number, size),)
            )
            free.append(connection)

        try:
            return await rate_in_loop(writers, call)
        finally:
            for connection in connections:
                await connection.close()

    return asyncio.run(run())


def payload_of(number: int, size: int) -> bytes:
    """A payload of ``size`` bytes that no other number gives."""
    return f"{number:<{size}}".encode()
