"""The embedded store: one SQLite file, WAL, every commit durable (SPEC 3.5)."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from remit.ledger.content import StoredValue
from remit.ledger.errors import LedgerError, LedgerFormatError, LedgerWriteError
from remit.ledger.record import INDEXED
from remit.ledger.sqlite_batch import SqliteBatch
from remit.ledger.sqlite_file import create_if_absent
from remit.ledger.sqlite_schema import APPLICATION_ID, COLUMNS, CREATE, SCHEMA_VERSION
from remit.ledger.store import EntryRow, Filter, RawContent, RawEntry, RawStep, Unit

__all__ = ["SqliteStore"]

_CHUNK = 400  # parameters in one statement, well under SQLite's limit
_ROW = f"seq, {', '.join(COLUMNS)}, CAST(record AS BLOB)"
_STEPS = """
    SELECT s.step, s.parent, s.commitment, s.position, p.position, c.scope, pc.scope, e.seq
    FROM message_steps AS s
    LEFT JOIN message_steps AS p ON p.step = s.parent
    LEFT JOIN contents AS c ON c.commitment = s.commitment
    LEFT JOIN contents AS pc ON pc.commitment = p.commitment
    LEFT JOIN erasures AS e ON e.commitment = s.commitment"""
_LAYOUT = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"
_NARROWEST_FIRST = (
    "work_order_id",
    "session_id",
    "submission_id",
    "agent_id",
    "contract_id",
    "event_type",
    "framework_id",
    "model_id",
    "outcome",
    "tier",
)


class SqliteStore:
    """A ledger in one SQLite file.

    Args:
        path: the file; made, with its directory, when it is not there.
        content_keys: metadata keys whose values are content.
        compress_above: stored values longer than this many bytes are compressed.
        lock_timeout_s: how long a writer waits for another process's transaction, in seconds.
        create: make the file when it is not there.

    Raises:
        LedgerFormatError: the file is not a ledger, or one of a newer version.
        LedgerError: the file cannot be opened or made.
    """

    def __init__(
        self,
        path: Path,
        *,
        content_keys: frozenset[str],
        compress_above: int,
        lock_timeout_s: float,
        create: bool,
    ) -> None:
        self._path = path
        self._content_keys = content_keys
        self._compress_above = compress_above
        self._timeout = lock_timeout_s
        try:
            if create:
                create_if_absent(path)
            elif not path.exists() or path.stat().st_size == 0:
                raise LedgerError(
                    f"There is no ledger at {path}.",
                    next_step="If there should be one, it was removed. `remit init` starts a new "
                    "one.",
                )
            self._writer = self._connect()
            self._reader = self._connect()
        except OSError as error:
            raise LedgerError(
                f"The ledger {path} cannot be opened: {error.strerror or error}.",
                next_step="Check the path and its permissions.",
            ) from error
        self._reader.execute("PRAGMA query_only=ON")
        self._read_lock = threading.Lock()

    def _connect(self) -> sqlite3.Connection:
        connection = None
        try:
            connection = sqlite3.connect(
                self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA secure_delete=ON")
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            if "not a database" in str(error) or "malformed" in str(error):
                raise LedgerFormatError(
                    f"{self._path} is not a ledger: {error}.",
                    next_step="Give the path of a ledger, or of a file that does not exist yet.",
                ) from error
            raise LedgerError(
                f"The ledger {self._path} cannot be opened: {error}.",
                next_step="Check the path, its permissions and the free space.",
            ) from error
        problem = ""
        if application != APPLICATION_ID:
            problem = "is a SQLite file, but not a ledger."
        elif version > SCHEMA_VERSION:
            problem = f"was written by a newer Remit (layout {version}, known {SCHEMA_VERSION})."
        if problem:
            connection.close()
            raise LedgerFormatError(
                f"{self._path} {problem}", next_step="Give another path, or upgrade Remit."
            )
        return connection

    # -- writing -----------------------------------------------------------------------

    def run(self, units: Sequence[Unit]) -> list[Any]:
        """See :class:`~remit.ledger.store.Store`."""
        writer = self._writer
        results: list[Any] = []
        try:
            writer.execute("BEGIN IMMEDIATE")
            batch = SqliteBatch(writer, self._content_keys, self._compress_above)
            batch.look_up(units)
            for unit in units:
                results.append(batch.do(unit))
            batch.flush()
            writer.execute("COMMIT")
        except BaseException as error:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise LedgerWriteError(
                    f"The ledger {self._path} did not take the write: {error}.",
                    next_step="Nothing was recorded. Check free space, permissions and whether "
                    "another process holds the file, then try again.",
                ) from error
            raise
        return results

    # -- reading -----------------------------------------------------------------------

    def select(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """See :class:`~remit.ledger.store.Store`."""
        try:
            with self._read_lock:
                return self._reader.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise LedgerFormatError(
                f"The ledger {self._path} cannot be read: {error}.",
                next_step="Run `remit ledger verify` to see what is damaged.",
            ) from error

    def get(self, seq: int) -> EntryRow | None:
        """See :class:`~remit.ledger.store.Store`."""
        rows = self.select(f"SELECT {_ROW} FROM entries WHERE seq = ?", (seq,))
        return _entry_row(rows[0]) if rows else None

    def page(self, where: Filter, limit: int) -> list[EntryRow]:
        """See :class:`~remit.ledger.store.Store`."""
        # The narrowest column drives the search; a plus keeps SQLite from using the index of
        # another, of which it cannot know that it holds half the ledger.
        driver = next((column for column in _NARROWEST_FIRST if column in where.equals), "")
        together = {driver, "event_type"} if driver == "session_id" else {driver}
        clauses = [f"{'' if column in together else '+'}{column} = ?" for column in where.equals]
        parameters: list[Any] = list(where.equals.values())
        plus = "+" if driver else ""
        for bound, sign in ((where.since, ">="), (where.until, "<")):
            if bound is not None:
                clauses.append(f"{plus}timestamp {sign} ?")
                parameters.append(bound)
        if where.after is not None:
            clauses.append("seq < ?" if where.descending else "seq > ?")
            parameters.append(where.after)
        condition = f"WHERE {' AND '.join(clauses)} " if clauses else ""
        order = "DESC" if where.descending else "ASC"
        sql = f"SELECT {_ROW} FROM entries {condition}ORDER BY seq {order} LIMIT ?"
        return [_entry_row(row) for row in self.select(sql, (*parameters, limit))]

    def head(self) -> tuple[int, str] | None:
        """See :class:`~remit.ledger.store.Store`."""
        rows = self.select("SELECT seq, entry_hash FROM entries ORDER BY seq DESC LIMIT 1")
        return (rows[0][0], rows[0][1]) if rows else None

    def count_by_event(self) -> dict[str, int]:
        """See :class:`~remit.ledger.store.Store`."""
        rows = self.select(
            "SELECT event_type, count(*) FROM entries GROUP BY event_type ORDER BY event_type"
        )
        return {str(name): int(number) for name, number in rows}

    def contents(self, commitments: Iterable[str]) -> dict[str, StoredValue]:
        """See :class:`~remit.ledger.store.Store`."""
        found: dict[str, StoredValue] = {}
        for chunk in _chunks(list(commitments)):
            rows = self.select(
                "SELECT commitment, codec, value FROM contents "
                f"WHERE commitment IN ({_marks(chunk)})",
                chunk,
            )
            found.update({row[0]: StoredValue(row[1], row[2]) for row in rows})
        return found

    def erasures(self, commitments: Iterable[str]) -> dict[str, int]:
        """See :class:`~remit.ledger.store.Store`."""
        found: dict[str, int] = {}
        for chunk in _chunks(list(commitments)):
            rows = self.select(
                f"SELECT commitment, seq FROM erasures WHERE commitment IN ({_marks(chunk)})", chunk
            )
            found.update(rows)
        return found

    def message_commitments(self, head: str) -> list[str]:
        """See :class:`~remit.ledger.store.Store`."""
        rows = self.select(
            """WITH RECURSIVE walk(step, parent, commitment, position) AS (
                   SELECT step, parent, commitment, position FROM message_steps WHERE step = ?
                   UNION ALL
                   SELECT s.step, s.parent, s.commitment, s.position
                   FROM walk JOIN message_steps AS s ON s.step = walk.parent
               ) SELECT commitment FROM walk ORDER BY position""",
            (head,),
        )
        return [row[0] for row in rows]

    def content_facts(self, commitments: Iterable[str]) -> dict[str, tuple[str, int]]:
        """See :class:`~remit.ledger.store.Store`."""
        found: dict[str, tuple[str, int]] = {}
        for chunk in _chunks(list(commitments)):
            rows = self.select(
                "SELECT commitment, scope, bytes FROM contents "
                f"WHERE commitment IN ({_marks(chunk)})",
                chunk,
            )
            found.update({row[0]: (row[1], row[2]) for row in rows})
        return found

    def erasure_seqs(self) -> list[int]:
        """See :class:`~remit.ledger.store.Store`."""
        return [row[0] for row in self.select("SELECT DISTINCT seq FROM erasures ORDER BY seq")]

    def erased_under(self, seq: int) -> list[str]:
        """See :class:`~remit.ledger.store.Store`."""
        rows = self.select("SELECT commitment FROM erasures WHERE seq = ?", (seq,))
        return [str(row[0]) for row in rows]

    def scan_entries(self) -> Iterator[RawEntry]:
        """See :class:`~remit.ledger.store.Store`."""
        casts = ", ".join(f"CAST({name} AS BLOB)" for name in COLUMNS)
        last = None
        while rows := self.select(
            f"SELECT seq, typeof(record), CAST(record AS BLOB), {casts} FROM entries "
            f"{'' if last is None else 'WHERE seq > ? '}ORDER BY seq LIMIT {_CHUNK}",
            () if last is None else (last,),
        ):
            for seq, kind, record, *columns in rows:
                last = seq
                problem = "" if kind == "text" else f"it is stored as {kind}, not as text"
                yield RawEntry(
                    seq, record or b"", dict(zip(COLUMNS, columns, strict=True)), problem
                )

    def scan_contents(self) -> Iterator[RawContent]:
        """See :class:`~remit.ledger.store.Store`."""
        last = None
        while rows := self.select(
            "SELECT content_id, CAST(commitment AS BLOB), digest, nonce, bytes, "
            "CAST(codec AS BLOB), CAST(value AS BLOB) FROM contents "
            f"{'' if last is None else 'WHERE content_id > ? '}ORDER BY content_id LIMIT {_CHUNK}",
            () if last is None else (last,),
        ):
            for content_id, commitment, digest, nonce, length, codec, value in rows:
                last = content_id
                name = bytes(commitment or b"").decode("utf-8", "replace")
                if (
                    isinstance(digest, bytes)
                    and isinstance(nonce, bytes)
                    and isinstance(length, int)
                    and codec is not None
                    and value is not None
                ):
                    kind = codec.decode("utf-8", "replace")
                    yield RawContent(name, digest, nonce, length, kind, value)
                else:
                    yield RawContent(name, problem=f"content row {content_id} has wrong types")

    def scan_steps(self) -> Iterator[RawStep]:
        """See :class:`~remit.ledger.store.Store`."""
        last = ""
        while rows := self.select(
            f"{_STEPS} WHERE s.step > ? ORDER BY s.step LIMIT {_CHUNK}", (last,)
        ):
            for row in rows:
                last = row[0]
                yield RawStep(*row)

    def step(self, step: str) -> RawStep | None:
        """See :class:`~remit.ledger.store.Store`."""
        rows = self.select(f"{_STEPS} WHERE s.step = ?", (step,))
        return RawStep(*rows[0]) if rows else None

    def integrity_problem(self) -> str:
        """See :class:`~remit.ledger.store.Store`."""
        rows = self.select("PRAGMA integrity_check(1)")
        if rows != [("ok",)]:
            return "; ".join(str(row[0]) for row in rows)
        there = {(kind, name): sql for kind, name, sql in self.select(_LAYOUT)}
        with contextlib.closing(sqlite3.connect(":memory:")) as sound:
            sound.executescript(CREATE)
            expected = {(kind, name): sql for kind, name, sql in sound.execute(_LAYOUT)}
        for key, sql in expected.items():
            if there.get(key) != sql:
                return f"the {key[0]} {key[1]} is not the documented one"
        for kind, name in there:
            if kind == "trigger":
                return f"there is a trigger {name}, which a ledger does not have"
        return ""

    def close(self) -> None:
        """Close both connections; the last process to close folds the WAL into the file."""
        with self._read_lock:
            self._reader.close()
        self._writer.close()


def _entry_row(row: tuple[Any, ...]) -> EntryRow:
    columns = dict(zip(INDEXED, row[6:-1], strict=True))
    return EntryRow(row[0], row[1], row[2], row[3], row[4], row[5], columns, row[-1])


def _chunks(values: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]


def _marks(values: list[Any]) -> str:
    return ", ".join("?" * len(values))
