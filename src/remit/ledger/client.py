"""The ledger's public face (SPEC 3.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import orjson

from remit.config import LedgerSettings, default_settings
from remit.errors import InvalidInputError
from remit.ledger.committer import GroupCommitter
from remit.ledger.content import Erased
from remit.ledger.entry import LedgerEntry, entry_id, parse_entry_id
from remit.ledger.errors import (
    EntryNotFoundError,
    LedgerError,
    LedgerFormatError,
    NoSignerError,
)
from remit.ledger.record import Prepared, Sealed, commitments_in, fill, prepare, record_problem
from remit.ledger.scoped import ScopedLedger
from remit.ledger.sqlite import SqliteStore
from remit.ledger.store import EntryRow, Filter, Store, Transaction, Unit
from remit.ledger.verification import Progress, VerificationReport, verify_store

__all__ = ["LedgerClient"]

_T = TypeVar("_T")


class LedgerClient:
    """An open ledger. Safe to share between threads; open one in each process.

    Args:
        path_or_url: the SQLite file of the ledger, made when it is not there.
        settings: content keys and limits; the shipped defaults when left out.
        create: make the ledger when there is none; ``False`` makes that an error.

    Raises:
        LedgerFormatError: what lies there is not a ledger.
        LedgerError: it cannot be opened or made.
    """

    def __init__(
        self,
        path_or_url: str | Path,
        *,
        settings: LedgerSettings | None = None,
        create: bool = True,
    ) -> None:
        settings = settings or default_settings().ledger
        if isinstance(path_or_url, str) and "://" in path_or_url:
            raise LedgerError(
                "This version of Remit keeps its ledger in SQLite only.",
                next_step="Give the path of a file.",
            )
        self._path = Path(path_or_url)
        self._content_keys = frozenset(settings.content_keys)
        self._page_size = settings.page_size
        self._store: Store = SqliteStore(
            self._path,
            content_keys=self._content_keys,
            compress_above=settings.compress_above_bytes,
            lock_timeout_s=settings.lock_timeout_s,
            create=create,
        )
        self._committer = GroupCommitter(self._store, max_batch=settings.max_batch)

    def __repr__(self) -> str:
        return f"LedgerClient({str(self._path)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def location(self) -> str:
        """Where the ledger lies, for people to read."""
        return str(self._path)

    # -- writing -----------------------------------------------------------------------

    def write(self, entry: LedgerEntry, *, subject_id: str | None = None) -> str:
        """Append ``entry`` and return its id once it is durable.

        The entry's ``id``, ``timestamp``, ``previous_hash`` and ``entry_hash`` are filled.

        Args:
            entry: what happened.
            subject_id: the person its content speaks of; kept beside the content for erasure.

        Raises:
            InvalidInputError: the entry cannot be recorded as it is (NaN, a lone surrogate, a
                non-string key, an over-long record, …). Nothing was written.
            LedgerWriteError: the store did not take it. Nothing was written.
        """
        return self._finish([entry], self._submit([entry], subject_id).result())[0]

    def write_many(
        self, entries: Iterable[LedgerEntry], *, subject_id: str | None = None
    ) -> list[str]:
        """Append all ``entries`` in one transaction, or none; returns their ids."""
        batch = list(entries)
        return self._finish(batch, self._submit(batch, subject_id).result()) if batch else []

    async def awrite(self, entry: LedgerEntry, *, subject_id: str | None = None) -> str:
        """:meth:`write` without blocking the event loop."""
        sealed = await asyncio.wrap_future(self._submit([entry], subject_id))
        return self._finish([entry], sealed)[0]

    async def awrite_many(
        self, entries: Iterable[LedgerEntry], *, subject_id: str | None = None
    ) -> list[str]:
        """:meth:`write_many` without blocking the event loop."""
        batch = list(entries)
        if not batch:
            return []
        sealed = await asyncio.wrap_future(self._submit(batch, subject_id))
        return self._finish(batch, sealed)

    def prepare(self, entry: LedgerEntry, *, subject_id: str | None = None) -> Prepared:
        """Check and encode ``entry`` ahead of a :meth:`transact` that appends it.

        Raises:
            InvalidInputError: the entry cannot be recorded as it is.
        """
        return prepare(entry, self._content_keys, subject_id)

    def transact(self, call: Callable[[Transaction], _T]) -> _T:
        """Run ``call`` inside one durable transaction of the ledger's database.

        ``call`` runs in the writer's thread and must not block. Raising from it undoes all
        that it did; the exception comes out here.
        """
        result: _T = self._committer.submit(Unit(call=call)).result()
        return result

    async def atransact(self, call: Callable[[Transaction], _T]) -> _T:
        """:meth:`transact` without blocking the event loop."""
        result: _T = await asyncio.wrap_future(self._committer.submit(Unit(call=call)))
        return result

    def flush(self) -> None:
        """Return when everything handed over before is durable."""
        self.transact(lambda _: None)

    def close(self) -> None:
        """Commit what is waiting and close. Closing twice is harmless."""
        self._committer.close()
        self._store.close()

    def _submit(self, entries: Sequence[LedgerEntry], subject_id: str | None) -> Future[Any]:
        prepared = [prepare(entry, self._content_keys, subject_id) for entry in entries]
        return self._committer.submit(Unit(prepared=prepared))

    @staticmethod
    def _finish(entries: Sequence[LedgerEntry], sealed: Sequence[Sealed]) -> list[str]:
        for entry, place in zip(entries, sealed, strict=True):
            entry.id, entry.timestamp = place.id, place.timestamp
            entry.entry_hash, entry.previous_hash = place.entry_hash, place.previous_hash
        return [place.id for place in sealed]

    # -- reading -----------------------------------------------------------------------

    def read(self, entry_id: str) -> LedgerEntry:
        """The entry with that id, its content in place.

        Raises:
            EntryNotFoundError: there is none.
        """
        return self._entries([self._row(entry_id)])[0]

    def read_record(self, entry_id: str) -> bytes:
        """The canonical record of an entry: the exact bytes that its hash covers."""
        return self._row(entry_id).record

    def read_all(self) -> list[LedgerEntry]:
        """All entries, in ledger order."""
        return list(self.query())

    def read_by_event_type(self, event_type: str) -> list[LedgerEntry]:
        """All entries of one event type, in ledger order."""
        return list(self.query(event_type=event_type))

    def read_by_submission(self, submission_id: str) -> list[LedgerEntry]:
        """All entries of one submission, in ledger order."""
        return list(self.query(submission_id=submission_id))

    def query(
        self,
        *,
        event_type: str | None = None,
        submission_id: str | None = None,
        session_id: str | None = None,
        work_order_id: str | None = None,
        agent_id: str | None = None,
        tier: str | None = None,
        framework_id: str | None = None,
        contract_id: str | None = None,
        model_id: str | None = None,
        outcome: str | None = None,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        after: str | int | None = None,
        limit: int | None = None,
        order: Literal["asc", "desc"] = "asc",
        with_content: bool = True,
    ) -> Iterator[LedgerEntry]:
        """Entries that match all that is given, streamed page by page.

        Args:
            since: first instant, inclusive; ISO 8601 or an aware ``datetime``.
            until: last instant, exclusive.
            after: a cursor: the id or sequence number of the entry to go on behind, in the
                direction of ``order``.
            limit: most entries to give.
            order: ``asc`` (ledger order) or ``desc`` (newest first).
            with_content: ``False`` leaves commitments where content would stand, and is faster.

        Raises:
            InvalidInputError: a bound, a cursor or the order cannot be understood.
        """
        if order not in ("asc", "desc"):
            raise InvalidInputError(f"order is {order!r}; use 'asc' or 'desc'.")
        if limit is not None and limit < 0:
            raise InvalidInputError("limit is negative.")
        given = {
            "event_type": event_type,
            "submission_id": submission_id,
            "session_id": session_id,
            "work_order_id": work_order_id,
            "agent_id": agent_id,
            "tier": tier,
            "framework_id": framework_id,
            "contract_id": contract_id,
            "model_id": model_id,
            "outcome": outcome,
        }
        where = Filter(
            equals={key: value for key, value in given.items() if value is not None},
            since=_instant(since),
            until=_instant(until),
            after=_cursor(after),
            descending=order == "desc",
        )
        return self._stream(where, limit, with_content)

    def count(self) -> int:
        """How many entries there are."""
        head = self._store.head()
        return head[0] + 1 if head else 0

    def count_by_event(self) -> dict[str, int]:
        """How many entries there are of each event type. Reads the whole index."""
        return self._store.count_by_event()

    def head(self) -> tuple[int, str] | None:
        """``(seq, entry_hash)`` of the last entry; ``None`` of an empty ledger."""
        return self._store.head()

    def select(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of one read-only SQL statement over the documented tables."""
        return self._store.select(sql, parameters)

    def orphans(self) -> list[LedgerEntry]:
        """``DISPATCH`` entries with neither ``EXCHANGE`` nor ``EXCHANGE_ORPHANED``."""
        closed: set[str] = set()
        open_ones: list[LedgerEntry] = []
        for event_type in ("EXCHANGE", "EXCHANGE_ORPHANED"):
            for row in self._pages(Filter(equals={"event_type": event_type}), None):
                closed.update(
                    str(orjson.loads(item.record)["metadata"].get("dispatch_entry_id", ""))
                    for item in row
                )
        for rows in self._pages(Filter(equals={"event_type": "DISPATCH"}), None):
            open_ones.extend(self._entries([row for row in rows if row.id not in closed]))
        return open_ones

    # -- proving -----------------------------------------------------------------------

    def verify(self, *, progress: Progress | None = None) -> VerificationReport:
        """Check every record, link, column and content value.

        Args:
            progress: called now and then with ``(entries done, entries in all)``.
        """
        return verify_store(self._store, progress)

    def verify_chain(self) -> tuple[bool, list[str]]:
        """:meth:`verify` as ``(verified, what is wrong)``."""
        report = self.verify()
        return report.verified, [str(problem) for problem in report.problems]

    def checkpoint(self) -> str:
        """A signed checkpoint. This client holds no key.

        Raises:
            NoSignerError: always.
        """
        raise NoSignerError(
            "This ledger client holds no signing key, so it cannot sign a checkpoint.",
            next_step="Signed checkpoints and proofs come with a later version.",
        )

    def prove(self, entry_id: str) -> str:
        """A proof for one entry. This client holds no key.

        Raises:
            EntryNotFoundError: there is no such entry.
            NoSignerError: there is, and nobody to sign.
        """
        self._row(entry_id)
        return self.checkpoint()

    # -- scoping -----------------------------------------------------------------------

    def scoped(self, *, tier: str, work_order_id: str | None = None) -> ScopedLedger:
        """A handle that writes only ``tier`` and reads only what that tier may see."""
        return ScopedLedger(self, tier=tier, work_order_id=work_order_id)

    # -- inside ------------------------------------------------------------------------

    def _row(self, entry_id: str) -> EntryRow:
        seq = parse_entry_id(entry_id)
        row = self._store.get(seq) if seq is not None else None
        if row is None:
            raise EntryNotFoundError(
                f"The ledger {self._path} has no entry {entry_id!r}.",
                next_step="Ids look like LED-0000002a; `remit ledger tail` shows the latest.",
            )
        return row

    def _stream(
        self, where: Filter, limit: int | None, with_content: bool
    ) -> Iterator[LedgerEntry]:
        for rows in self._pages(where, limit):
            yield from self._entries(rows, with_content)

    def _pages(self, where: Filter, limit: int | None) -> Iterator[list[EntryRow]]:
        left = limit
        size = 16 if limit is None else self._page_size  # who looks for the first waits for few
        while left is None or left > 0:
            rows = self._store.page(where, size if left is None else min(size, left))
            if not rows:
                return
            yield rows
            left = None if left is None else left - len(rows)
            where = Filter(where.equals, where.since, where.until, rows[-1].seq, where.descending)
            size = min(size * 4, self._page_size)

    def _entries(self, rows: Sequence[EntryRow], with_content: bool = True) -> list[LedgerEntry]:
        """Rows as entries, with the content of all of them fetched at once."""
        records = [_decode(row) for row in rows]
        lists: dict[str, list[str]] = {}
        wanted: set[str] = set()
        for record in records if with_content else ():
            for item in commitments_in([record["metadata"], record["reason"]]):
                if "$messages" in item:
                    head = item["$messages"]
                    lists[head] = self._store.message_commitments(head)
                    wanted.update(lists[head])
                else:
                    wanted.add(item["$content"][12:])
        stored = self._store.contents(wanted)
        missing = [mac for mac in wanted if mac not in stored]
        erased = self._store.erasures(missing) if missing else {}

        def value(mac: str) -> Any:
            if mac in stored:
                return stored[mac].decode()
            return Erased(entry_id(erased[mac]) if mac in erased else None)

        def resolve(item: dict[str, Any]) -> Any:
            if not with_content:
                return item
            if "$messages" in item:
                return [value(mac) for mac in lists[item["$messages"]]]
            return value(item["$content"][12:])

        return [
            LedgerEntry(
                event_type=record["event_type"],
                submission_id=record["submission_id"],
                decision=record["decision"],
                reason=_text(fill(record["reason"], resolve)),
                prompts_used=record["prompts_used"],
                metadata=fill(record["metadata"], resolve),
                id=record["id"],
                timestamp=record["timestamp"],
                previous_hash=record["previous_hash"],
                entry_hash=row.entry_hash,
            )
            for row, record in zip(rows, records, strict=True)
        ]


def _text(reason: Any) -> str:
    return reason if isinstance(reason, str) else str(reason)


def _decode(row: EntryRow) -> dict[str, Any]:
    try:
        record: dict[str, Any] = orjson.loads(row.record)
        if problem := record_problem(record):
            raise ValueError(problem)
    except ValueError as error:
        raise LedgerFormatError(
            f"The record at sequence number {row.seq} cannot be read: {error}.",
            next_step="Run `remit ledger verify` to see what is damaged.",
        ) from error
    return record


def _instant(value: str | datetime | None) -> str | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError as error:
        raise InvalidInputError(
            f"{value!r} is not a time.", next_step="Use ISO 8601: 2026-01-31T12:00:00Z."
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def _cursor(value: str | int | None) -> int | None:
    if value is None or isinstance(value, int):
        return value
    seq = parse_entry_id(value)
    if seq is None:
        raise InvalidInputError(
            f"The cursor {value!r} is not an entry id.", next_step="Ids look like LED-0000002a."
        )
    return seq
