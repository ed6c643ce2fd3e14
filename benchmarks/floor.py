"""The floor: the same bytes made durable by group commit, and nothing else."""

from __future__ import annotations

import queue
import sqlite3
import threading
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self


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
        connection = sqlite3.connect(self._path, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE payloads (seq INTEGER PRIMARY KEY, payload BLOB)")
        while not self._closing:
            batch = [self._waiting.get()]
            while not self._waiting.empty():
                batch.append(self._waiting.get())
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO payloads (payload) VALUES (?)", [(payload,) for payload, _ in batch]
            )
            connection.execute("COMMIT")
            for _, future in batch:
                future.set_result(None)
        connection.close()


def payload_of(number: int, size: int) -> bytes:
    """A payload of ``size`` bytes that no other number gives."""
    return f"{number:<{size}}".encode()
