"""The units of a transaction on any engine, and the rows that the units add to the tables.

Rows are collected and written in multi-row statements, which gives a large batch most of its speed.
Reading through the transaction flushes them first.
"""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from remit.ledger.clock import WALL_WATCH, utc_now
from remit.ledger.contents import NO_STEP, EncodedValue, StoredValue, commit, next_step
from remit.ledger.entry import LedgerEntry
from remit.ledger.entry_reader import as_bytes
from remit.ledger.errors import LedgerError, LedgerFormatError, LedgerWriteError
from remit.ledger.record import content_scope
from remit.ledger.record_builder import COMMITMENTS, Key, Prepared, Sealed, new_commitment, prepare
from remit.ledger.store import Stage, StageOpener, Unit
from remit.ledger.tlog.merkle import leaf_hash
from remit.ledger.tlog.tiles import TILE_WIDTH
from remit.ledger.tree import completed_roots
from remit.ledger.usage import quarter_of

_NONCE_BYTES = 32
_RESTORE_ROWS = 256
_STEP = "SELECT step_id FROM message_steps WHERE content_id = ? AND step = ?"

Known = tuple[int, str, bytes]
"""Content id, commitment and nonce of a stored value."""

_Found = tuple[str, bytes, int, str, bytes]  # scope, digest, content id, commitment, nonce

Rows = dict[str, list[tuple[Any, ...]]]
"""Collected rows, keyed by table."""


class Batch(ABC):
    """An open transaction: does units, and collects the rows that they add until a flush or read.

    The engine's subclass begins the transaction before it makes the batch, calls :meth:`set_head`,
    and commits after :meth:`flush`. One thread uses a batch, and only within its transaction.

    Args:
        content_keys: metadata keys whose values are content.
        compress_above: stored values longer than this many bytes are compressed.

    Attributes:
        ENGINE_ERRORS: exceptions of the database engine; each subclass names its own.
        RECORD_SQL: SQL expression that reads the column ``record``.
        is_segment: True if the database is a segment, to which no entry is added.
        cache: see :class:`~remit.ledger.store.Transaction`.
        seq: sequence number of the last entry, appended ones included; -1 in an empty ledger.
        begun_at: that number at the start of the transaction, set by the engine; -1 until it is
            known, as while a stage opens.
        entry_hash: hash of that entry, or the empty string.
        last_timestamp: timestamp of that entry, or the empty string.
        seen_hash: hash of the entry that the store saw last; ``None`` if that entry is missing.
    """

    ENGINE_ERRORS: tuple[type[Exception], ...] = ()
    RECORD_SQL = "record"
    is_segment = False
    begun_at = -1
    _is_alone = False  # True if the transaction has one unit, whose failure undoes all.
    _sealed: Sealed  # the last appended record

    def __init__(self, content_keys: frozenset[str], compress_above: int) -> None:
        self._content_keys = content_keys
        self.compress_above = compress_above
        self.cache: dict[str, Any] = {}
        self._rows: Rows = defaultdict(list)
        # Stored values, and those stored by the next flush, by scope and digest.
        self._known: dict[Key, Known | None] = {}
        self._asked: tuple[dict[Key, None], Iterable[_Found]] | None = None  # not read yet
        self._steps: dict[str, int] = {}  # message steps of this batch, by hash
        # Of each kind one at a time, as two would not see each other's changes.
        self._stages: dict[StageOpener, Stage] = {}

    def set_head(self, row: Sequence[Any]) -> None:
        """Set the state of the ledger at the start of the transaction.

        Args:
            row: sequence number, hash and timestamp of the last entry, greatest content id,
                greatest step id, and the hash at the number that the store saw last; all null in an
                empty ledger.
        """
        seq, entry_hash, timestamp, content_id, step_id, self.seen_hash = row
        self.seq = -1 if seq is None else seq
        self.entry_hash, self.last_timestamp = entry_hash or "", timestamp or ""
        self._content_id, self._step_id = content_id or 0, step_id or 0

    @property
    @abstractmethod
    def now_ms(self) -> int:
        """The shared clock of all writers, as :attr:`~remit.ledger.store.Clock.now_ms`."""

    @property
    def wall_ms(self) -> int:
        """The wall clock, as :attr:`~remit.ledger.store.Clock.wall_ms`; a server has one clock."""
        return self.now_ms

    @abstractmethod
    def _read(self, sql: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Run a statement that does not concern the collected rows; return its rows."""

    @abstractmethod
    def _insert_all(self, collected: Rows) -> None:
        """Insert collected rows by table; a subject that exists already is skipped."""

    @abstractmethod
    def _find_contents(self, keys: list[Key]) -> Iterable[_Found]:
        """Return the stored values among ``keys``; the rows may be read when iterated."""

    @abstractmethod
    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a portable statement once for each of ``rows``."""

    @abstractmethod
    def _savepoint(self, verb: str) -> None:
        """Run ``SAVEPOINT``, ``ROLLBACK TO`` or ``RELEASE`` for the only savepoint.

        A unit that is alone has none: ``ROLLBACK TO`` then begins the transaction anew.
        """

    @abstractmethod
    def _is_lost(self, error: Exception) -> bool:
        """Return True if ``error`` ends the whole transaction, not only its unit."""

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Have all open stages write, insert the collected rows, run a portable statement, and
        return its rows.

        The engine's own exception (:attr:`ENGINE_ERRORS`) is raised if it refuses a statement. Let
        it pass: the unit is then undone, and its submitter gets LedgerWriteError.

        Args:
            sql: the statement, with ``?`` placeholders.
            parameters: values of the placeholders.
        """
        if self._stages or self._rows:
            self.flush()
        return self._read(sql, parameters)

    @abstractmethod
    def ask(self, sql: str, parameters: Sequence[Any] = ()) -> Iterable[tuple[Any, ...]]:
        """Do as :meth:`execute`; an engine may read the rows only when they are iterated."""

    def append(self, entry: LedgerEntry | Prepared) -> str:
        """Collect the rows of an entry, its content and usage; return the id. A flush writes them.

        The entry gets the next sequence number and the wall clock's time, which may lie before the
        last entry's; a step of a second or more is logged, at most once a minute. Fields of
        ``entry`` itself are not filled. A value that the session has already is reused, not stored
        again. An entry that completes a tile of 256 also stores the tile's tree hashes, which
        flushes.

        Raises:
            InvalidInputError: the entry cannot be recorded.
            RecordTooLargeError: the record would exceed 65,535 bytes.
            LedgerFormatError: a stored content value that it repeats is damaged.
            LedgerError: the database is a segment.
        """
        if self.is_segment:
            raise LedgerError(
                "No entry can be added to a segment.",
                next_step="Write to the ledger that the segment belongs to.",
            )
        prepared = entry if isinstance(entry, Prepared) else prepare(entry, self._content_keys)
        seq, timestamp = self.seq + 1, utc_now()
        if timestamp < self.last_timestamp:
            WALL_WATCH.went_back(self.last_timestamp, timestamp)
        if prepared.contents:
            sealed = self._append_content(prepared, seq, timestamp)
        else:
            sealed = prepared.seal(seq, timestamp, self.entry_hash, ())
        self._rows["entries"].append((
            seq, sealed.id, sealed.entry_hash, timestamp, prepared.event_type,
            prepared.submission_id, *prepared.columns, sealed.record.decode(),
        ))  # fmt: skip
        if prepared.usage is not None:
            self._rows["usage"].append((quarter_of(timestamp[:16]), *prepared.usage))
        elif prepared.made_key is not None:
            self._rows["usage_keys"].append(prepared.made_key)
        self.seq, self.entry_hash, self.last_timestamp = seq, sealed.entry_hash, timestamp
        if (seq + 1) % TILE_WIDTH == 0:
            self._complete_tile(seq // TILE_WIDTH)
        self._sealed = sealed
        return sealed.id

    def forget(self) -> None:
        """Flush, and forget known content values and message steps, which are then looked up again.

        The commitments that this process remembers are forgotten too, also those of other ledgers.
        Call this after rows of content were deleted.
        """
        self.flush()
        self._asked = None
        self._known.clear()
        self._steps.clear()
        COMMITMENTS.clear()

    def restore(self, table: str, row: tuple[Any, ...]) -> None:
        """Collect a row of an export or archive unchanged and unchecked.

        A row of ``entries`` becomes the last entry, and completes tiles as :meth:`append` does.
        Other tables are flushed at 256 rows.

        Args:
            table: name of the table.
            row: values of all columns, in their order.
        """
        rows = self._rows[table]
        rows.append(row)
        if table == "entries":
            self.seq, self.entry_hash, self.last_timestamp = row[0], row[2], row[3]
            if (row[0] + 1) % TILE_WIDTH == 0:
                self._complete_tile(row[0] // TILE_WIDTH)
        elif len(rows) >= _RESTORE_ROWS:
            self.flush()

    def _append_content(self, prepared: Prepared, seq: int, timestamp: str) -> Sealed:
        """Seal an entry with content, and collect the rows of its values and their subjects.

        Only the new messages of a message list are stored by value, so that a long conversation
        costs rows linear in its length. The list itself is stored by its last step.
        """
        values, new, rows = self._committed(prepared, seq)
        subject, named = prepared.subject, None
        if subject is not None:
            named = self._named(subject, seq, None if prepared.keys else values, rows)
        shown = set(range(self._content_id + 1, self._content_id + len(rows) + 1))
        lists: list[tuple[list[Known], list[str]]] = []
        commitments: list[str] = []
        for item in prepared.contents:
            if isinstance(item, list):
                messages, steps, step = [], [], NO_STEP
                for part in item:
                    messages.append(known := values[part.digest])
                    steps.append(step := next_step(step, known[1]))
                lists.append((messages, steps))
                commitments.append(step)
            else:
                known = named if item is subject and named else values[item.digest]
                shown.add(known[0])
                commitments.append(known[1])
        table = self._rows
        sealed = prepared.seal(seq, timestamp, self.entry_hash, commitments)
        # From here on nothing fails.
        if rows:
            table["contents"] += rows
            self._content_id += len(rows)
            self._known |= new
        if lists:
            last_steps = set(itertools.starmap(self._add_list, lists))
            table["shown_lists"] += zip(itertools.repeat(seq), sorted(last_steps))
        if shown:
            table["shown_contents"] += zip(itertools.repeat(seq), sorted(shown))
        if named and prepared.subject_id:
            table["content_subjects"].append((prepared.subject_id, named[0]))
        return sealed

    def _named(
        self,
        subject: EncodedValue,
        seq: int,
        beside: dict[bytes, Known] | None,
        rows: list[tuple[Any, ...]],
    ) -> Known:
        """Return the value that names the subject of the entry ``seq``, as a row of its own.

        Args:
            subject: the value.
            seq: sequence number of the entry.
            beside: values of the same scope by digest, of which an equal one is reused.
            rows: receives the row of a new value.
        """
        if beside and subject.digest in beside:
            return beside[subject.digest]
        nonce, encoded = os.urandom(_NONCE_BYTES), subject.encoded
        known = (self._content_id + len(rows) + 1, commit(nonce, encoded), nonce)
        codec, stored = StoredValue.encode(subject, self.compress_above)
        key = (content_scope(None, seq), subject.digest)
        rows.append((known[0], known[1], *key, nonce, len(encoded), codec, stored))
        return known

    def _committed(
        self, prepared: Prepared, seq: int
    ) -> tuple[dict[bytes, Known], dict[Key, Known | None], list[tuple[Any, ...]]]:
        """Return the content values by digest, the new values by key, and new rows."""
        if self._asked is not None:
            asked, self._asked = self._asked, None
            self._learn(*asked)
        values: dict[bytes, Known] = {}
        new: dict[Key, Known | None] = {}
        rows: list[tuple[Any, ...]] = []
        keys: Sequence[Key] = prepared.keys
        if not keys:
            scope = content_scope(None, seq)
            keys = [(scope, digest) for digest in prepared.values]
        elif not self._known.keys() >= set(keys):
            wanted = [key for key in keys if key not in self._known]
            self._learn(wanted, self._find_contents(wanted))
        content_id = self._content_id
        for key, value in zip(keys, prepared.values.values(), strict=True):
            known = self._known.get(key)
            encoded, digest = value.encoded, value.digest
            nonce = os.urandom(_NONCE_BYTES) if known is None else known[2]
            # Also of a stored value, so that a row that was tampered with gets into no new record.
            commitment = COMMITMENTS.get((nonce, digest)) or new_commitment(nonce, digest, encoded)
            if known is None:
                content_id += 1
                new[key] = known = (content_id, commitment, nonce)
                codec, stored = StoredValue.encode(value, self.compress_above)
                rows.append((content_id, commitment, *key, nonce, len(encoded), codec, stored))
            elif commitment != known[1]:
                raise LedgerFormatError(
                    f"A stored content value of {key[0]} is not what it was.",
                    next_step="Run `remit ledger verify` to see what is damaged.",
                )
            values[digest] = known
        return values, new, rows

    def _add_list(self, messages: list[Known], steps: list[str]) -> int:
        """Return the id of a list's last step, after each step is stored or collected."""
        parent_id, position = 0, len(steps)
        # A value that is collected and not written is named by no stored step.
        contents = self._rows.get("contents")
        first_new = contents[0][0] if contents else self._content_id + 1
        while position > 0:  # a conversation grows at its end: all before is known
            content_id, step = messages[position - 1][0], steps[position - 1]
            found = self._steps.get(step)
            if found is None and content_id < first_new:
                rows = self._read(_STEP, (content_id, step))
                found = rows[0][0] if rows else None
            if found is not None:
                parent_id = self._steps[step] = found
                break
            position -= 1
        for place in range(position, len(steps)):
            self._step_id += 1
            content_id, commitment, _ = messages[place]
            self._rows["message_steps"].append(
                (self._step_id, steps[place], parent_id, content_id, commitment, place + 1)
            )
            parent_id = self._steps[steps[place]] = self._step_id
        return parent_id

    def _learn(self, keys: Iterable[Key], found: Iterable[_Found]) -> None:
        """Remember the stored values among ``keys``; the others are not stored."""
        self._known.update(dict.fromkeys(keys))
        for scope, digest, content_id, commitment, nonce in found:
            self._known[(scope, bytes(digest))] = (content_id, commitment, bytes(nonce))

    def _complete_tile(self, index: int) -> None:
        """Store the roots of the subtrees that an entry completed: of 256 leaves, of 256² …"""
        first = index * TILE_WIDTH
        rows = self.execute(
            f"SELECT {self.RECORD_SQL} FROM entries WHERE seq >= ? AND seq < ? ORDER BY seq",
            (first, first + TILE_WIDTH),
        )
        self.complete_tile(index, [leaf_hash(as_bytes(row[0])) for row in rows])

    def complete_tile(self, index: int, hashes: list[bytes]) -> None:
        """Collect the tree hashes that a tile completes, which :meth:`flush` writes.

        Fewer than 256 leaf hashes complete none. A higher level is read by :meth:`execute`.

        Args:
            index: number of the tile, from 0.
            hashes: its leaf hashes.
        """
        for row in completed_roots(self.execute, index, hashes):
            self._rows["tree_hashes"].append(row)

    def open(self, units: Sequence[Unit]) -> None:
        """Look up stored values, and open one stage for all steps of a kind.

        The rows of all units are thus read together. The stored values are those of prepared
        entries, also of steps; the answer is held for the first entry with content. Values of
        entries that are not prepared, or have no session, are not looked up. A stage that fails
        here is opened again by each step, which gets the error. Of openers that are one method of
        several objects, only the first is opened here. Errors of the engine
        (:attr:`ENGINE_ERRORS`) are raised.

        Args:
            units: units of the transaction, before any of them runs.
        """
        self._is_alone = len(units) == 1
        keys: dict[Key, None] = {}
        steps: dict[StageOpener, list[Any]] = {}
        for unit in units:
            for prepared in unit.prepared or getattr(unit.step, "prepared", ()):
                if prepared.keys:
                    keys |= dict.fromkeys(prepared.keys)
            if unit.opener is not None:
                steps.setdefault(unit.opener, []).append(unit.step)
        if keys:
            self._asked = keys, self._find_contents([*keys])
        for opener, items in steps.items():
            if self._stages and self._of_kind(opener):
                continue
            try:
                self._stages[opener] = opener(self, items)
            except self.ENGINE_ERRORS:
                raise
            except Exception:  # noqa: BLE001 - each step then opens its own, and gets the error
                self._stages.pop(opener, None)

    def do(self, unit: Unit) -> Any:
        """Run a unit; return its result, or its own error, which is not raised.

        A unit with an error leaves no rows. A unit with a call, or with several entries, flushes
        first, and runs in a savepoint if the transaction has other units. If the engine refused a
        statement there, the error is a LedgerWriteError. A step opens its stage if none is open,
        and first has open stages of the same kind write.

        Returns:
            A list with the sealed record of each prepared entry, or the result of the call or step;
            or the error.

        Raises:
            ENGINE_ERRORS: the engine failed; the whole transaction is lost.
            Exception: an error in a savepoint that ended the transaction, unchanged.
        """
        opener = unit.opener
        if opener is None and (unit.call is not None or len(unit.prepared) != 1):
            return self._do_apart(unit)
        # A step or a single entry writes nothing before it is sure to succeed.
        try:
            if opener is None:
                self.append(unit.prepared[0])
                return [self._sealed]
            return (self._stages.get(opener) or self._open(opener, unit.step)).do(unit.step)
        except self.ENGINE_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001 - raised to the submitter of the unit
            return error

    def _open(self, opener: StageOpener, step: Any) -> Stage:
        for other in self._of_kind(opener):
            self._stages.pop(other).write()  # The new stage reads these rows.
        stage = self._stages[opener] = opener(self, [step])
        return stage

    def _of_kind(self, opener: StageOpener) -> list[StageOpener]:
        """Return the open stages of the same kind: of the same method of any object."""
        kind = getattr(opener, "__func__", opener)
        return [other for other in self._stages if getattr(other, "__func__", other) == kind]

    def _do_apart(self, unit: Unit) -> Any:
        self.flush()
        self._stages.clear()  # The call may change rows that they have read.
        self.cache.clear()
        before = (self.seq, self.entry_hash, self.last_timestamp, self._content_id, self._step_id)
        self._savepoint("SAVEPOINT")
        try:
            if unit.call is None:
                result: Any = [self._sealed for one in unit.prepared if self.append(one)]
            else:
                result = unit.call(self)
            self.flush()
            self._savepoint("RELEASE")  # A pipelined statement may be refused only now.
        except Exception as error:
            if self._is_lost(error):
                raise
            self._rows = defaultdict(list)
            self._savepoint("ROLLBACK TO")
            self.set_head((*before, self.seen_hash))
            self._asked = None
            self._known.clear()  # looked up again
            self._steps.clear()
            result = error
            if isinstance(error, self.ENGINE_ERRORS):  # the same to callers on every engine
                result = LedgerWriteError(
                    f"The database refused a statement of the transaction: {error}.",
                    next_step="Nothing of the transaction was recorded. Fix the statement.",
                )
                result.__cause__ = error
            self._savepoint("RELEASE")
        self.cache.clear()
        return result

    def flush(self) -> None:
        """Have all stages write, then insert the collected rows; nothing is committed.

        The engine's own exception (:attr:`ENGINE_ERRORS`) is raised if it refuses a statement.
        """
        for stage in self._stages.values():
            stage.write()
        if self._rows:
            collected, self._rows = self._rows, defaultdict(list)
            self._insert_all(collected)
