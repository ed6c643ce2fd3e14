"""One transaction of the SQLite store: the chain as it grows, written in as few steps as can be.

Every statement lets go of the interpreter's lock and must win it back from the threads that
wait to write. So rows are collected and go in by the dozen.
"""

from __future__ import annotations

import itertools
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from remit.ledger.content import NO_STEP, StoredValue, commit, next_step
from remit.ledger.entry import LedgerEntry
from remit.ledger.errors import LedgerFormatError
from remit.ledger.record import Prepared, Sealed, content_scope, prepare, seal
from remit.ledger.sqlite_schema import COLUMNS
from remit.ledger.store import Unit

__all__ = ["SqliteBatch"]

_NONCE_BYTES = 32
_ROWS = (32, 8, 1)  # sizes of multi-row statements: few enough to stay in SQLite's cache
_CONTENTS = "contents (commitment, scope, digest, nonce, bytes, codec, value)"
_ENTRIES = f"entries (seq, {', '.join(COLUMNS)}, record)"
_ENGINE_FAILURES = frozenset(
    {
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB,
    }
)  # fmt: skip

_Key = tuple[str, bytes]


class SqliteBatch:
    """The units of one transaction. Made after ``BEGIN``; :meth:`flush` before ``COMMIT``.

    Args:
        connection: the writer's, inside a transaction.
        content_keys: metadata keys whose values are content.
        compress_above: stored values longer than this many bytes are compressed.
    """

    def __init__(
        self, connection: sqlite3.Connection, content_keys: frozenset[str], compress_above: int
    ) -> None:
        self._connection = connection
        self._content_keys = content_keys
        self._compress_above = compress_above
        row = connection.execute(
            "SELECT seq, entry_hash FROM entries ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        self._seq: int = row[0] + 1 if row else 0
        self._hash: str = row[1] if row else ""
        self._entries: list[tuple[Any, ...]] = []
        self._contents: list[tuple[Any, ...]] = []
        # By scope and digest, what the table was found to hold, or will hold after a flush.
        self._known: dict[_Key, tuple[str, bytes] | None] = {}

    def look_up(self, units: Sequence[Unit]) -> None:
        """Find at once which values of ready entries are stored already."""
        self._find(
            (content_scope(prepared.session_id, 0), digest)
            for unit in units
            for prepared in unit.prepared
            if prepared.session_id
            for digest in prepared.values
        )

    def do(self, unit: Unit) -> Any:
        """Run one unit; an error of its own is returned, one of the engine's raised."""
        if unit.call is None and len(unit.prepared) == 1:
            # One ready entry writes nothing before it is sure to fit: nothing to undo.
            try:
                return [self._append(unit.prepared[0])]
            except sqlite3.Error:
                raise
            except Exception as error:  # noqa: BLE001 - whatever stopped this unit is its caller's
                return error
        self.flush()
        connection = self._connection
        before = self._seq, self._hash, dict(self._known)
        connection.execute("SAVEPOINT unit")
        try:
            if unit.call is None:
                result: Any = [self._append(prepared) for prepared in unit.prepared]
            else:
                result = unit.call(self)
            self.flush()
        except Exception as error:
            if _is_of_the_engine(error) or not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO unit")
            self._entries.clear()
            self._contents.clear()
            self._seq, self._hash, self._known = before
            result = error
        connection.execute("RELEASE unit")
        return result

    def flush(self) -> None:
        """Write what was collected."""
        if self._contents:
            self._insert(_CONTENTS, self._contents)
        if self._entries:
            self._insert(_ENTRIES, self._entries)

    def append(self, entry: LedgerEntry | Prepared) -> str:
        """See :class:`~remit.ledger.store.Transaction`."""
        if isinstance(entry, LedgerEntry):
            entry = prepare(entry, self._content_keys)
        return self._append(entry).id

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """See :class:`~remit.ledger.store.Transaction`."""
        self.flush()
        return self._connection.execute(sql, parameters).fetchall()

    def _append(self, prepared: Prepared) -> Sealed:
        scope = content_scope(prepared.session_id, self._seq)
        commitments, rows = self._committed(prepared, scope)
        steps: list[tuple[str, str, str, int]] = []

        def chain(macs: list[str]) -> str:
            head = NO_STEP
            for position, mac in enumerate(macs, start=1):
                parent, head = head, next_step(head, mac)
                steps.append((head, parent, mac, position))
            return head

        now = datetime.now(UTC).isoformat(timespec="microseconds")
        sealed = seal(
            prepared,
            seq=self._seq,
            timestamp=f"{now[:-6]}Z",
            previous_hash=self._hash,
            commitments=commitments,
            steps=chain,
        )
        # From here on nothing is refused any more.
        for row in rows:
            self._contents.append(row)
            self._known[(scope, row[2])] = (row[0], row[3])
        if steps:
            self._add_steps(steps)
        if prepared.subject_id and commitments:
            self._connection.executemany(
                "INSERT OR IGNORE INTO content_subjects VALUES (?, ?)",
                [(prepared.subject_id, mac) for mac in commitments.values()],
            )
        self._entries.append(
            (
                sealed.seq,
                sealed.id,
                sealed.entry_hash,
                sealed.timestamp,
                prepared.fields["event_type"],
                prepared.fields["submission_id"],
                *prepared.columns.values(),
                sealed.record.decode(),
            )
        )
        self._seq, self._hash = sealed.seq + 1, sealed.entry_hash
        return sealed

    def _committed(
        self, prepared: Prepared, scope: str
    ) -> tuple[dict[bytes, str], list[tuple[Any, ...]]]:
        """The commitment of every content value, by digest, and rows for those not stored yet."""
        if prepared.session_id:
            self._find((scope, digest) for digest in prepared.values)
        commitments: dict[bytes, str] = {}
        rows = []
        for digest, value in prepared.values.items():
            known = self._known.get((scope, digest))
            if known is not None:
                commitment, nonce = known
                # Computed again: a row that was tampered with must not lead a new record.
                if commit(nonce, value.encoded) != commitment:
                    raise LedgerFormatError(
                        f"A stored content value of {scope} is not what it was.",
                        next_step="Run `remit ledger verify` to see what is damaged.",
                    )
            else:
                nonce = secrets.token_bytes(_NONCE_BYTES)
                commitment = commit(nonce, value.encoded)
                stored = StoredValue.encode(value.encoded, self._compress_above)
                rows.append(
                    (commitment, scope, digest, nonce, len(value.encoded), stored.codec,
                     stored.value)
                )  # fmt: skip
            commitments[digest] = commitment
        return commitments, rows

    def _find(self, keys: Iterator[_Key]) -> None:
        """Look up which of ``keys`` the table holds, as far as that is not known."""
        wanted = [key for key in dict.fromkeys(keys) if key not in self._known]
        for chunk in _chunks(wanted):
            marks = ", ".join(["(?, ?)"] * len(chunk))
            self._known.update(dict.fromkeys(chunk))
            for scope, digest, commitment, nonce in self._connection.execute(
                "SELECT c.scope, c.digest, c.commitment, c.nonce "
                f"FROM (VALUES {marks}) AS k JOIN contents AS c "
                "ON c.scope = k.column1 AND c.digest = k.column2",
                list(itertools.chain.from_iterable(chunk)),
            ):
                self._known[(scope, digest)] = (commitment, nonce)

    def _add_steps(self, steps: list[tuple[str, str, str, int]]) -> None:
        new = []
        for step in reversed(steps):  # a conversation grows at its end: all before is known
            known = self._connection.execute("SELECT 1 FROM message_steps WHERE step = ?", step[:1])
            if known.fetchone():
                break
            new.append(step)
        if new:
            self._insert("message_steps", new)

    def _insert(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        """Insert all ``rows``, several in one statement, and empty the list."""
        width = f"({', '.join('?' * len(rows[0]))})"
        start = 0
        for size in _ROWS:
            while len(rows) - start >= size:
                part = rows[start : start + size]
                self._connection.execute(
                    f"INSERT INTO {table} VALUES {', '.join([width] * size)}",
                    list(itertools.chain.from_iterable(part)),
                )
                start += size
        rows.clear()


def _is_of_the_engine(error: Exception) -> bool:
    """Whether the whole transaction is lost, not only the statement that raised."""
    code = getattr(error, "sqlite_errorcode", None)
    return isinstance(error, sqlite3.Error) and (code is None or code & 0xFF in _ENGINE_FAILURES)


def _chunks(keys: list[_Key], size: int = 200) -> Iterator[list[_Key]]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]
