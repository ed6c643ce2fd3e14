"""What one transaction appends, on any engine: chain, content, tree.

Rows are collected and written in multi-row statements, which is most of the speed of a
large batch; reading through the transaction flushes them first.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from remit.ledger.content import NO_STEP, StoredValue, commit, next_step
from remit.ledger.entry import LedgerEntry, utc_now
from remit.ledger.errors import LedgerFormatError, LedgerWriteError
from remit.ledger.prepared import Prepared, Sealed, prepare
from remit.ledger.reader import as_bytes
from remit.ledger.record import content_scope
from remit.ledger.schema import TABLES
from remit.ledger.store import Stage, StageOpener, Unit
from remit.ledger.tlog.merkle import leaf_hash, tree_root
from remit.ledger.tlog.tiles import TILE_WIDTH

_NONCE_BYTES = 32
_RESTORE_ROWS = 256
_STEP = "SELECT step_id FROM message_steps WHERE content_id = ? AND step = ?"

Key = tuple[str, bytes]
"""Scope and digest of a content value."""

Known = tuple[int, str, bytes]
"""Content id, commitment and nonce of a stored value."""


_MOST_COMPUTED = 8192
_computed: dict[str, tuple[bytes, bytes]] = {}
# By commitment, the nonce and the digest of the value that it was computed of in this process: the
# history that a conversation sends again with every call is not hashed once more each time.


def _holds(known: Known, digest: bytes, encoded: bytes) -> bool:
    """Whether a stored commitment is that of a value."""
    _, commitment, nonce = known
    if _computed.get(commitment) == (nonce, digest):
        return True
    if commit(nonce, encoded) != commitment:
        return False
    _remember(known, digest)
    return True


def _remember(known: Known, digest: bytes) -> None:
    if len(_computed) >= _MOST_COMPUTED:
        _computed.clear()
    _computed[known[1]] = (known[2], digest)


@dataclass(slots=True)
class Head:
    """Where a transaction starts.

    Attributes:
        seq: the last entry's sequence number; -1 of an empty ledger.
        entry_hash: its hash, or the empty string.
        timestamp: its time, or the empty string.
        content_id: the greatest content id.
        step_id: the greatest message step id.
    """

    seq: int
    entry_hash: str
    timestamp: str
    content_id: int
    step_id: int

    @classmethod
    def of(cls, row: Sequence[Any]) -> Head:
        """From a row of these five, all null in an empty ledger."""
        seq, entry_hash, timestamp, content_id, step_id = row
        return cls(
            -1 if seq is None else seq, entry_hash or "", timestamp or "", content_id or 0,
            step_id or 0,
        )  # fmt: skip


def prepared_in(units: Sequence[Unit]) -> Iterable[Prepared]:
    """The prepared entries that belong to a session."""
    return (
        prepared
        for unit in units
        for prepared in (unit.prepared or getattr(unit.step, "prepared", ()))
        if prepared.columns.session_id
    )


def keys_of(units: Sequence[Unit]) -> Iterable[Key]:
    """The keys of their values."""
    return (
        (content_scope(prepared.columns.session_id, 0), digest)
        for prepared in prepared_in(units)
        for digest in prepared.values
    )


def _kind_of(opener: StageOpener) -> Any:
    """What openers share whose stages keep the same rows: a method of several objects, say."""
    return getattr(opener, "__func__", opener)


class Batch(ABC):
    """The units of one transaction. Made after it began; :meth:`flush` before it commits.

    Stored values longer than ``compress_above`` bytes are compressed.
    """

    def __init__(self, head: Head, content_keys: frozenset[str], compress_above: int) -> None:
        self.head = head
        self._content_keys = content_keys
        self.compress_above = compress_above
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in TABLES}
        # By scope and digest, what the table was found to hold, or will hold after a flush.
        self._known: dict[Key, Known | None] = {}
        self._steps: dict[str, int] = {}  # message steps of this batch, by hash
        # By kind; of each one at a time, as two would not see each other's changes.
        self._stages: dict[Any, tuple[StageOpener, Stage]] = {}

    # -- engine-specific -----------------------------------------------------------------

    ENGINE_ERRORS: tuple[type[Exception], ...] = ()
    RECORD_SQL = "record"

    @abstractmethod
    def _read(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """:meth:`execute` of a statement that none of the collected rows concerns."""

    @abstractmethod
    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """:meth:`~remit.ledger.store.Transaction.execute_many`."""

    @abstractmethod
    def _insert_all(self, collected: list[tuple[str, list[tuple[Any, ...]]]]) -> None:
        """Insert rows by table, several in one statement; a subject there already is left."""

    @abstractmethod
    def _find_contents(self, keys: list[Key]) -> Iterable[tuple[str, bytes, int, str, bytes]]:
        """``(scope, digest, content_id, commitment, nonce)`` of those that are stored."""

    @abstractmethod
    def _savepoint(self, verb: str) -> None:
        """``SAVEPOINT``, ``ROLLBACK TO`` or ``RELEASE``."""

    @abstractmethod
    def _is_lost(self, error: Exception) -> bool:
        """Whether ``error`` ends the whole transaction, not only the unit that raised it."""

    # -- units ---------------------------------------------------------------------------

    def look_up(self, units: Sequence[Unit]) -> None:
        """Find which values of prepared entries are stored already, in one statement."""
        self._find(keys_of(units))

    def open_stages(self, units: Sequence[Unit]) -> None:
        """Let the steps among ``units`` read what they need, all of a kind together."""
        steps: dict[StageOpener, list[Any]] = {}
        for unit in units:
            if unit.opener is not None:
                steps.setdefault(unit.opener, []).append(unit.step)
        for opener, items in steps.items():
            kind = _kind_of(opener)
            if kind in self._stages:
                continue
            try:
                self._stages[kind] = opener, opener(self, items)
            except self.ENGINE_ERRORS:
                raise
            except Exception:  # noqa: BLE001 - each step then opens its own, and gets the error
                self._stages.pop(kind, None)

    def do(self, unit: Unit) -> Any:
        """Run one unit; an error of its own is returned, one of the engine's raised."""
        if unit.opener is None and (unit.call is not None or len(unit.prepared) != 1):
            return self._do_in_savepoint(unit)
        # A step or a single entry writes nothing before it is sure to succeed.
        try:
            if unit.opener is None:
                return [self._append(unit.prepared[0])]
            return self._stage_of(unit.opener, unit.step).do(unit.step)
        except self.ENGINE_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001 - raised to the submitter of the unit
            return error

    def _stage_of(self, opener: StageOpener, step: Any) -> Stage:
        kind = _kind_of(opener)
        known = self._stages.get(kind)
        if known is not None:
            if known[0] == opener:
                return known[1]
            known[1].write()  # for the next one to read
            del self._stages[kind]
        # Another unit may have changed what a stage had read.
        stage = opener(self, [step])
        self._stages[kind] = opener, stage
        return stage

    def _do_in_savepoint(self, unit: Unit) -> Any:
        self.flush()
        self._stages.clear()  # the call may change what they have read
        before = replace(self.head)
        self._savepoint("SAVEPOINT")
        try:
            if unit.call is None:
                result: Any = [self._append(prepared) for prepared in unit.prepared]
            else:
                result = unit.call(self)
            self.flush()
            self._savepoint("RELEASE")  # what was sent without waiting may be refused only now
        except Exception as error:
            if self._is_lost(error):
                raise
            for rows in self._rows.values():
                rows.clear()
            self._savepoint("ROLLBACK TO")
            self.head = before
            self._known.clear()  # looked up again
            self._steps.clear()
            result = error
            if isinstance(error, self.ENGINE_ERRORS):  # the same to callers on every engine
                result = LedgerWriteError(
                    f"A statement of the transaction was refused: {error}.",
                    next_step="Nothing of the transaction was recorded. Fix the statement.",
                )
                result.__cause__ = error
            self._savepoint("RELEASE")
        return result

    def flush(self) -> None:
        """Write what was collected."""
        for _, stage in self._stages.values():
            stage.write()
        collected = [(table, rows) for table, rows in self._rows.items() if rows]
        if collected:
            self._insert_all(collected)
            for _, rows in collected:
                rows.clear()

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """:meth:`~remit.ledger.store.Transaction.execute`."""
        self.flush()
        return self._read(sql, parameters)

    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> Iterable[tuple[Any, ...]]:
        """:meth:`~remit.ledger.store.Transaction.ask`."""
        return self.execute(sql, parameters)

    def append(self, entry: LedgerEntry | Prepared) -> str:
        """Append one entry; returns its id."""
        if isinstance(entry, LedgerEntry):
            entry = prepare(entry, self._content_keys)
        return self._append(entry).id

    def forget(self) -> None:
        """Look up content and message steps again, as rows of them were deleted."""
        self.flush()
        self._known.clear()
        self._steps.clear()
        _computed.clear()

    def restore(self, table: str, row: tuple[Any, ...]) -> None:
        """Insert a row of an export, which the caller has checked, as it was."""
        rows = self._rows[table]
        rows.append(row)
        if table == "entries":
            self.head.seq, self.head.entry_hash, self.head.timestamp = row[0], row[2], row[3]
            if (row[0] + 1) % TILE_WIDTH == 0:
                self._complete_tile(row[0] // TILE_WIDTH)
        elif len(rows) >= _RESTORE_ROWS:
            self.flush()

    # -- one entry -----------------------------------------------------------------------

    def _append(self, prepared: Prepared) -> Sealed:
        head = self.head
        seq = head.seq + 1
        # Never earlier than the entry before, whatever the clock says.
        timestamp = max(utc_now(), head.timestamp)
        if prepared.contents:
            sealed = self._append_content(prepared, seq, timestamp)
        else:
            sealed = prepared.seal(seq, timestamp, head.entry_hash, ())
        self._rows["entries"].append(
            (
                seq,
                sealed.id,
                sealed.entry_hash,
                timestamp,
                prepared.event_type,
                prepared.submission_id,
                *prepared.columns,
                sealed.record.decode(),
            )
        )
        head.seq, head.entry_hash, head.timestamp = seq, sealed.entry_hash, timestamp
        if (seq + 1) % TILE_WIDTH == 0:
            self._complete_tile(seq // TILE_WIDTH)
        return sealed

    def _append_content(self, prepared: Prepared, seq: int, timestamp: str) -> Sealed:
        """Seal an entry with content, and collect the rows of what it shows and to whom it belongs.

        Of a message list only what is new with this entry is noted by value, so that a long
        conversation costs rows linear in its length; the list itself is noted by its last step.
        """
        values, rows = self._committed(prepared, content_scope(prepared.columns.session_id, seq))
        shown = {row[0] for row in rows}
        lists: list[tuple[list[Known], list[str]]] = []
        commitments: list[str] = []
        for item in prepared.contents:
            if isinstance(item, list):
                messages = [values[part.digest] for part in item]
                step, steps = NO_STEP, []
                for known in messages:
                    step = next_step(step, known[1])
                    steps.append(step)
                lists.append((messages, steps))
                commitments.append(step)
            else:
                known = values[item.digest]
                shown.add(known[0])
                commitments.append(known[1])
        sealed = prepared.seal(seq, timestamp, self.head.entry_hash, commitments)
        # From here on nothing fails.
        table = self._rows
        if rows:
            table["contents"] += rows
            self.head.content_id += len(rows)
            for content_id, commitment, scope, digest, nonce, *_ in rows:
                self._known[(scope, digest)] = (content_id, commitment, nonce)
        if lists:
            last_steps = {self._add_list(messages, steps) for messages, steps in lists}
            table["shown_lists"] += [(seq, step_id) for step_id in sorted(last_steps)]
        table["shown_contents"] += [(seq, content_id) for content_id in sorted(shown)]
        if prepared.subject_id:
            table["content_subjects"] += [
                (prepared.subject_id, known[0]) for known in values.values()
            ]
        return sealed

    def _committed(
        self, prepared: Prepared, scope: str
    ) -> tuple[dict[bytes, Known], list[tuple[Any, ...]]]:
        """Every content value by digest, and rows for those that are not stored yet."""
        values: dict[bytes, Known] = {}
        rows: list[tuple[Any, ...]] = []
        keys = [(scope, digest) for digest in prepared.values]
        if prepared.columns.session_id and not all(map(self._known.__contains__, keys)):
            self._find(keys)
        content_id = self.head.content_id
        for key, value in zip(keys, prepared.values.values(), strict=True):
            known = self._known.get(key)
            digest, encoded = value.digest, value.encoded
            if known is None:
                nonce = os.urandom(_NONCE_BYTES)
                content_id += 1
                known = (content_id, commit(nonce, encoded), nonce)
                _remember(known, digest)
                rows.append(
                    (content_id, known[1], scope, digest, nonce, len(encoded),
                     *StoredValue.encode(value, self.compress_above))
                )  # fmt: skip
            # Computed again, so that a row that was tampered with gets into no new record.
            elif not _holds(known, digest, encoded):
                raise LedgerFormatError(
                    f"A stored content value of {scope} is not what it was.",
                    next_step="Run `remit ledger verify` to see what is damaged.",
                )
            values[digest] = known
        return values, rows

    def _add_list(self, messages: list[Known], steps: list[str]) -> int:
        """The id of a list's last step, every step of it stored or collected."""
        parent_id, position = 0, len(steps)
        while position > 0:  # a conversation grows at its end: all before is known
            content_id, step = messages[position - 1][0], steps[position - 1]
            found = self._steps.get(step)
            if found is None and content_id not in self._new_contents():
                rows = self._read(_STEP, (content_id, step))
                found = rows[0][0] if rows else None
            if found is not None:
                parent_id = self._steps[step] = found
                break
            position -= 1
        for place in range(position, len(steps)):
            self.head.step_id += 1
            content_id, commitment, _ = messages[place]
            self._rows["message_steps"].append(
                (self.head.step_id, steps[place], parent_id, content_id, commitment, place + 1)
            )
            parent_id = self._steps[steps[place]] = self.head.step_id
        return parent_id

    def _new_contents(self) -> range:
        """Ids of values that are collected and not written: no stored step can name them."""
        rows = self._rows["contents"]
        return range(rows[0][0], rows[-1][0] + 1) if rows else range(0)

    def _find(self, keys: Iterable[Key]) -> None:
        """Look up which of ``keys`` the table holds, as far as that is not known."""
        wanted = [key for key in dict.fromkeys(keys) if key not in self._known]
        if wanted:
            self._learn(wanted, self._find_contents(wanted))

    def _learn(
        self, keys: Iterable[Key], found: Iterable[tuple[str, bytes, int, str, bytes]]
    ) -> None:
        """Note which of ``keys`` the table was found to hold; the others it does not."""
        self._known.update(dict.fromkeys(keys))
        for scope, digest, content_id, commitment, nonce in found:
            self._known[(scope, bytes(digest))] = (content_id, commitment, bytes(nonce))

    def _complete_tile(self, index: int) -> None:
        """Store the root of a subtree of 256 leaves, and of 256 such, as it is completed."""
        first = index * TILE_WIDTH
        rows = self.execute(
            f"SELECT {self.RECORD_SQL} FROM entries WHERE seq >= ? AND seq < ? ORDER BY seq",
            (first, first + TILE_WIDTH),
        )
        hashes = [leaf_hash(as_bytes(row[0])) for row in rows]
        level = 1
        while len(hashes) == TILE_WIDTH:
            self._rows["tree_hashes"].append((level, index, tree_root(hashes)))
            if (index + 1) % TILE_WIDTH:
                return
            first = index - TILE_WIDTH + 1
            rows = self.execute(
                "SELECT hash FROM tree_hashes WHERE level = ? AND idx >= ? ORDER BY idx",
                (level, first),
            )
            hashes = [bytes(row[0]) for row in rows]
            level, index = level + 1, index // TILE_WIDTH
        # Fewer: entries were removed. Verification says so; what comes now is still recorded.
