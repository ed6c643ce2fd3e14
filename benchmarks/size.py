"""Bytes on disk of a turn that sends the whole conversation again, early and late.

Several conversations grow in step in one ledger, so that whole pages even out. Beside the
ledger stands plain storing: each call's prompt as one JSON text, in a table of the same engine.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import psycopg

from benchmarks.ledgers import text
from benchmarks.postgres import PostgresServer, run_sql
from benchmarks.table import Comparison
from remit.ledger import LedgerClient, LedgerEntry

CONVERSATIONS = 8
TURNS = 200
EARLY = (16, 25)
LATE = (191, 200)
MESSAGE_BYTES = 500

Call = Callable[[str, list[dict[str, str]], str], object]
"""Stores one call: session, messages, response."""

_SIZES = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND " \
    "relnamespace = 'public'::regnamespace"  # fmt: skip
_TABLE = "CREATE TABLE calls (session text, prompt text, response text)"


def compare(scratch: Path) -> Iterator[Comparison]:
    """Both engines, the ledger and plain storing."""
    names = f"turns {LATE[0]}-{LATE[1]} vs {EARLY[0]}-{EARLY[1]}"
    with (
        PostgresServer(scratch / "postgres-bytes") as server,
        server.database() as mine,
        server.database() as plain,
    ):
        for engine, ours, bare in (
            ("SQLite", _sqlite_ledger(scratch), _sqlite_plain(scratch)),
            ("PostgreSQL", _postgres_ledger(mine), _postgres_plain(plain)),
        ):
            early, late = ours
            yield Comparison(f"{engine} bytes, {names}", [early], [late], 0, "<= 1.50", "B")
            early, late = bare
            yield Comparison(f"{engine} plain JSON, {names}", [early], [late], 0, "", "B")


def bytes_of_turns(call: Call, size: Callable[[], int]) -> tuple[float, float]:
    """Bytes that one turn adds, in the mean of the early ones and of the late ones."""
    histories = [
        [{"role": "system", "content": text("system", MESSAGE_BYTES)}] for _ in range(CONVERSATIONS)
    ]
    sizes = {0: 0}
    for turn in range(1, TURNS + 1):
        for number, history in enumerate(histories):
            session = f"SES-{number:06d}"
            answer = text(f"answer {number} {turn}", MESSAGE_BYTES)
            question = text(f"question {number} {turn}", MESSAGE_BYTES)
            history.append({"role": "user", "content": question})
            call(session, list(history), answer)
            history.append({"role": "assistant", "content": answer})
        if turn in (EARLY[0] - 1, EARLY[1], LATE[0] - 1, LATE[1]):
            sizes[turn] = size()
    return tuple(  # type: ignore[return-value]
        (sizes[last] - sizes[first - 1]) / (last - first + 1) / CONVERSATIONS
        for first, last in (EARLY, LATE)
    )


def _exchange(ledger: LedgerClient) -> Call:
    def call(session: str, messages: list[dict[str, str]], answer: str) -> None:
        metadata = {"session_id": session, "prompt": messages, "response": answer}
        ledger.write(LedgerEntry("EXCHANGE", session, "DONE", "Answered", [], metadata))

    return call


def _sqlite_ledger(scratch: Path) -> tuple[float, float]:
    path = scratch / "bytes.db"
    with LedgerClient(path) as ledger:
        return bytes_of_turns(_exchange(ledger), lambda: _file_bytes(path))


def _sqlite_plain(scratch: Path) -> tuple[float, float]:
    path = scratch / "plain.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(_TABLE)

    def call(session: str, messages: list[dict[str, str]], answer: str) -> None:
        row = (session, orjson.dumps(messages).decode(), answer)
        connection.execute("INSERT INTO calls VALUES (?, ?, ?)", row)

    try:
        return bytes_of_turns(call, lambda: _file_bytes(path))
    finally:
        connection.close()


def _file_bytes(path: Path) -> int:
    """Bytes in use in a SQLite file, once its log is folded in."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert not busy
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)
    finally:
        connection.close()


def _postgres_ledger(url: str) -> tuple[float, float]:
    with LedgerClient(url) as ledger:
        return bytes_of_turns(_exchange(ledger), lambda: int(run_sql(url, _SIZES)[0][0]))


def _postgres_plain(url: str) -> tuple[float, float]:
    with psycopg.connect(url, autocommit=True) as connection:

        def call(session: str, messages: list[dict[str, str]], answer: str) -> None:
            prompt = orjson.dumps(messages).decode()
            connection.execute("INSERT INTO calls VALUES (%s, %s, %s)", (session, prompt, answer))

        def size() -> int:
            return int(connection.execute(_SIZES).fetchall()[0][0])

        connection.execute(_TABLE)
        return bytes_of_turns(call, size)
