"""Lawful erasure, which deletes content and nonces and keeps records, chain and proofs."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from remit.kernel.errors import InvalidInputError
from remit.ledger.archived_ranges import ARCHIVED
from remit.ledger.caller_deletion import (
    WITHDRAWN,
    calls_in_flight,
    erasable,
    feedback_on,
    session_of,
    withdrawn_from,
)
from remit.ledger.contents import StoredValue
from remit.ledger.entry import LedgerEntry, entry_id, parse_entry_id
from remit.ledger.entry_reader import chunks, marks
from remit.ledger.errors import ErasureError
from remit.ledger.record import erasure_digest, is_plain_text
from remit.ledger.search import Run, TextIndex, quotable, quotes
from remit.ledger.store import Execute, Store, Transaction
from remit.ledger.subjects import BY_SUBJECT

# The content that a session shows, and the subjects of its entries.
_BY_SESSION = """
    SELECT content_id FROM contents WHERE scope = ?
    UNION
    SELECT s.content_id FROM entries AS e JOIN shown_contents AS s ON s.seq = e.seq
    JOIN contents AS c ON c.content_id = s.content_id
    WHERE e.session_id = ? AND c.scope = 'e:' || e.seq"""
# Everything that an entry shows: its values, and every message of its lists.
_BY_ENTRY = """
    WITH RECURSIVE walk(step_id) AS (
        SELECT step_id FROM shown_lists WHERE seq = ?
        UNION
        SELECT s.parent_id FROM walk JOIN message_steps AS s ON s.step_id = walk.step_id
    )
    SELECT content_id FROM shown_contents WHERE seq = ?
    UNION
    SELECT s.content_id FROM walk JOIN message_steps AS s ON s.step_id = walk.step_id
    WHERE s.content_id IS NOT NULL"""

# A manifest too long for a record is content and defines the installed files; verification relies
# on the archived ranges.
_KEPT_EVENTS = ("INSTALLED", ARCHIVED)

# Entries that one ERASURE can name and stay within the limit of a record.
CACHED = "cached"
"""Token of the rows of ``idempotency`` that belong to the answer cache; an erasure deletes them."""

_MAX_ENTRIES = 1_000


@dataclass(slots=True)
class _Found:
    """The values of an erasure that a single database contains.

    Attributes:
        commitments: commitments of the values.
        scopes: scopes of the values.
        entries: number of entries that showed one of the values first.
    """

    commitments: set[str] = field(default_factory=set)
    scopes: set[str] = field(default_factory=set)
    entries: int = 0


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """The result of an erasure, or with ``dry_run`` the expected result.

    Attributes:
        erasure_id: id of the ``ERASURE`` entry; empty with ``dry_run``.
        values: number of erased content values; 0 for a withdrawal that found none.
        entries: number of entries that showed one of them first.
        sessions: sessions of the values, sorted; values outside sessions add none.
        remainder: reason why erased bytes are still in the database's files, and the number of
            calls in flight that may record more content; empty if neither applies.
    """

    erasure_id: str
    values: int
    entries: int
    sessions: list[str]
    remainder: str = ""


class Eraser:
    """The eraser of a ledger's content, which lives as long as its client.

    The eraser writes to the database alone; values in segments are only searched, and deleted by
    the caller. Threads may share the object. Each ``ERASURE`` entry commits together with the
    deletion that it records; files are compacted afterwards.

    Args:
        store: the store of the ledger.
        run: runs a function in a transaction.
    """

    def __init__(self, store: Store, run: Run) -> None:
        self._store = store
        self._run = run
        self._index = TextIndex(store, run)

    def erase(
        self,
        *,
        entry_seq: int | None = None,
        session_id: str | None = None,
        subject_id: str | None = None,
        reason: str,
        requested_by: str,
        dry_run: bool = False,
        segments: Sequence[Store] = (),
    ) -> ErasureReport:
        """Erase content as :meth:`LedgerClient.erase` does, but only in the database.

        One transaction appends the ``ERASURE`` entry, and deletes the values, feedback on entries
        that show the values, and every row of the answer cache. For an entry or a person, values of
        the same session that quote an erased text of 16 or more characters are erased too. Then the
        files are compacted; ``remainder`` names remaining bytes and calls in flight.

        Args:
            entry_seq: the entry whose content is erased. Give this, ``session_id`` or
                ``subject_id``.
            session_id: the session whose content is erased.
            subject_id: the person whose content is erased.
            reason: recorded for good.
            requested_by: the person who asked, recorded too.
            dry_run: True to report the result without erasing.
            segments: the ledger's segments, searched too. The caller deletes the values in them.

        Raises:
            InvalidInputError: none or several targets were given, a target is no plain text, or
                there is no reason.
            ErasureError: there is nothing to erase, or the entry records an installation or an
                archived range.
            LedgerWriteError: the ledger cannot be written. Nothing was erased.
            LedgerError: the ledger or a segment cannot be read, or the files cannot be compacted;
                in the latter case the content is erased from the tables.
        """
        given = {"entry": entry_seq, "session": session_id, "subject": subject_id}
        kinds = [name for name, value in given.items() if value is not None]
        if len(kinds) != 1:
            raise InvalidInputError("Name one of: an entry, a session, a subject.")
        (kind,) = kinds
        if kind != "entry" and not is_plain_text(given[kind]):
            raise InvalidInputError(f"The {kind} is not a text that can be recorded.")
        if not reason.strip():
            raise InvalidInputError(
                "An erasure requires a reason.",
                next_step="The reason is recorded permanently: name the request, not the person.",
            )
        metadata: dict[str, Any] = {"target": kind}
        parameters: tuple[Any, ...]
        if session_id is not None:
            metadata["erased_session_id"] = session_id
            query, parameters = _BY_SESSION, (f"s:{session_id}", session_id)
        elif subject_id is not None:
            query, parameters = BY_SUBJECT, (subject_id, subject_id)
        else:
            seq = entry_seq or 0
            metadata["erased_entry_id"] = entry_id(seq)
            rows = self._store.select("SELECT event_type FROM entries WHERE seq = ?", (seq,))
            if rows and rows[0][0] == ARCHIVED:
                raise ErasureError(
                    f"{entry_id(seq)} records an archived range, and contains no personal data.",
                    next_step="Name an entry, a session or a person.",
                )
            if rows and rows[0][0] in _KEPT_EVENTS:
                raise ErasureError(
                    f"{entry_id(seq)} records an installation, from which the registries are "
                    "rebuilt.",
                    next_step="Use `remit package remove` instead.",
                )
            query, parameters = _BY_ENTRY, (seq, seq)
        entry = _entry(metadata, reason, requested_by)
        return self._erase(
            query, parameters, entry, segments, widen=session_id is None, dry_run=dry_run
        )

    def withdraw(
        self,
        seqs: Sequence[int],
        *,
        reason: str,
        requested_by: str,
        digests: Collection[bytes] | None = None,
        also: Callable[[Transaction], None] | None = None,
    ) -> list[ErasureReport]:
        """Erase the content that only the given entries show; see :meth:`LedgerClient.withdraw`.

        At most 1,000 entries share a transaction. Files are compacted once, if anything was
        erased. An empty ``seqs`` does nothing and does not call ``also``. Without
        ``digests``, feedback on the entries is withdrawn too, and an entry without content still
        gets an ``ERASURE`` at its first withdrawal. Each ``ERASURE`` also empties the answer cache.

        Args:
            seqs: sequence numbers of the entries.
            reason, requested_by: recorded for good; may be empty.
            digests: SHA-256 of the only values to erase; the entries are then not withdrawn. None
                for all values.
            also: called in the last transaction; ``None`` for nothing.

        Returns:
            A report for each ``ERASURE`` entry that was written, by group and session.

        Raises:
            LedgerError: the ledger cannot be written or compacted; earlier groups stay erased.
            Exception: an error of ``also``, which undoes the last transaction.
        """
        reports: list[ErasureReport] = []
        groups = [seqs[at : at + _MAX_ENTRIES] for at in range(0, len(seqs), _MAX_ENTRIES)]
        for group in groups:
            is_last = group is groups[-1]

            def call(
                tx: Transaction, group: Sequence[int] = group, is_last: bool = is_last
            ) -> list[ErasureReport]:
                done = self._withdraw_in(tx, group, reason, requested_by, digests)
                if is_last and also is not None:
                    also(tx)
                return done

            reports += self._run(call)
        if any(report.values for report in reports):
            remainder = self._store.compact()
            reports = [replace(report, remainder=remainder) for report in reports]
        return reports

    def _withdraw_in(
        self,
        tx: Transaction,
        seqs: Sequence[int],
        reason: str,
        requested_by: str,
        digests: Collection[bytes] | None,
    ) -> list[ErasureReport]:
        """Withdraw entries in a transaction, with an ``ERASURE`` for each session."""
        by_session: dict[str, set[int]] = defaultdict(set)
        for seq in {*seqs, *(feedback_on(tx, seqs) if digests is None else ())}:
            by_session[session_of(tx, seq)].add(seq)
        reports = []
        for session_id, own in sorted(by_session.items()):
            earlier = withdrawn_from(tx, session_id) if session_id else set()
            ids = sorted(erasable(tx, session_id, own, earlier, digests))
            new = sorted(own - earlier) if digests is None else []
            if not ids and not new:
                continue
            entry = _entry(
                {"target": "call", WITHDRAWN: [entry_id(seq) for seq in new]}, reason,
                requested_by, session_id,
            )  # fmt: skip
            reports.append(self._erase_in(tx, ids, entry, []))
        return reports

    def retain(
        self,
        days_by_event: dict[str, float],
        *,
        requested_by: str,
        dry_run: bool = False,
        segments: Sequence[Store] = (),
    ) -> list[ErasureReport]:
        """Erase content older than the limit of its event type; write an ``ERASURE`` per type.

        A value has the age and the event type of the entry that first showed it. Feedback on
        entries that show such a value is erased too, whatever its age. Types without old content
        get no entry and no report. Each type is a transaction, after which files are compacted.

        Args:
            days_by_event: days by event type; ``*`` is every type not named here, but never
                ``INSTALLED`` or ``ARCHIVED``.
            requested_by: the person or program that asked, for the record.
            dry_run: True to report the result without erasing.
            segments: the ledger's segments, as for :meth:`erase`.

        Returns:
            A report for each event type that had old content, in the order of ``days_by_event``.

        Raises:
            InvalidInputError: ``INSTALLED`` or ``ARCHIVED`` is named, on which the installed files
                and archived ranges depend.
            LedgerError: the ledger cannot be written or compacted; erasures of earlier types stay.
        """
        if kept := sorted(set(_KEPT_EVENTS) & set(days_by_event)):
            raise InvalidInputError(
                f"{kept[0]} cannot have a retention period: the registries are rebuilt from it."
            )
        now = datetime.now(UTC)
        named = [*_KEPT_EVENTS, *(name for name in days_by_event if name != "*")]
        reports = []
        for event_type, days in days_by_event.items():
            limit = (now - timedelta(days=days)).isoformat(timespec="microseconds")[:-6] + "Z"
            if event_type == "*":
                condition, types = f"e.event_type NOT IN ({marks(named)})", named
            else:
                condition, types = "e.event_type = ?", [event_type]
            query = (
                "SELECT s.content_id FROM entries AS e JOIN shown_contents AS s ON s.seq = e.seq "
                f"WHERE e.timestamp < ? AND {condition} AND NOT EXISTS (SELECT 1 FROM "
                "shown_contents AS b WHERE b.content_id = s.content_id AND b.seq < s.seq)"
            )
            metadata: dict[str, Any] = {"target": "retention", "erased_event_type": event_type}
            metadata["retention_days"] = days
            entry = _entry(metadata, f"Retention of {event_type}: {days:g} days", requested_by)
            with contextlib.suppress(ErasureError):  # nothing is that old
                reports.append(
                    self._erase(
                        query, (limit, *types), entry, segments, widen=False, dry_run=dry_run
                    )
                )
        return reports

    def _erase(
        self, query: str, parameters: tuple[Any, ...], entry: LedgerEntry,
        segments: Sequence[Store], *, widen: bool, dry_run: bool,
    ) -> ErasureReport:  # fmt: skip
        """Erase the content whose ids a query finds, in a transaction; compact the files.

        With ``widen``, values that quote an erased text are erased too. The query finds the content
        of each segment as well.

        Raises:
            ErasureError: the query finds no content.
        """

        def call(tx: Any) -> ErasureReport:
            selects: list[Execute] = [tx.execute, *(one.select for one in segments)]
            ids = [{int(row[0]) for row in select(query, parameters)} for select in selects]
            if widen:
                texts = self._texts_of(zip(selects, ids, strict=True))
                for select, own in zip(selects, ids, strict=True):
                    own |= self._containing(select, own, texts)
            feedback = _feedback_on(selects, ids)
            for own, more in zip(ids, feedback, strict=True):
                own |= more
            found = [_found(*pair) for pair in zip(selects[1:], ids[1:], strict=True)]
            ids[0] |= _stored(tx, found)
            running = calls_in_flight(tx, entry.metadata)
            if not any(ids):
                raise ErasureError(
                    f"There is no content to erase. {running}".strip(),
                    next_step="The content may already be erased: `remit ledger query "
                    "--event-type ERASURE` lists all erasures.",
                )
            report = self._erase_in(tx, sorted(ids[0]), None if dry_run else entry, found)
            return replace(report, remainder=running)

        report: ErasureReport = self._run(call)
        copies = "" if dry_run else self._store.compact()
        return replace(report, remainder=f"{copies} {report.remainder}".strip())

    def _erase_in(
        self, tx: Any, ids: list[int], entry: LedgerEntry | None, segments: list[_Found]
    ) -> ErasureReport:
        """Delete content, nonces and index rows under ``entry``; without an entry only report."""
        found = [_found(tx.execute, ids), *segments]
        commitments = sorted(set[str]().union(*(one.commitments for one in found)))
        scopes = set[str]().union(*(one.scopes for one in found))
        sessions = sorted(scope[2:] for scope in scopes if scope.startswith("s:"))
        entries = sum(one.entries for one in found)
        if entry is None:
            return ErasureReport("", len(commitments), entries, sessions)
        entry.metadata["erased_count"] = len(commitments)
        entry.metadata["erased_hash"] = erasure_digest(commitments)
        erasure_id = tx.append(entry)
        seq = parse_entry_id(erasure_id)
        tx.execute_many(
            "INSERT INTO erasures VALUES (?, ?)", [(commitment, seq) for commitment in commitments]
        )
        delete_contents(tx, self._index, ids)
        # Any of these rows may lead to the content, or tell by its hash what was asked.
        tx.execute(f"DELETE FROM idempotency WHERE token = '{CACHED}'")
        return ErasureReport(erasure_id, len(commitments), entries, sessions)

    @staticmethod
    def _texts_of(found: Iterable[tuple[Execute, set[int]]]) -> dict[str, set[str]]:
        """Return by scope the texts of values whose quotes are erased too."""
        texts: dict[str, set[str]] = {}
        for execute, ids in found:
            for chunk in chunks(sorted(ids)):
                inside = f"content_id IN ({marks(chunk)})"
                for scope, codec, value in execute(
                    f"SELECT scope, codec, value FROM contents WHERE {inside}", chunk
                ):
                    texts.setdefault(str(scope), set()).update(quotable(StoredValue(codec, value)))
        return texts

    @staticmethod
    def _containing(
        execute: Execute, ids: set[int], texts_by_scope: dict[str, set[str]]
    ) -> set[int]:
        """Return the ids of values that contain a text to be erased of the same scope."""
        found = set()
        for scope, texts in texts_by_scope.items():
            if not texts:
                continue
            for content_id, codec, value in execute(
                "SELECT content_id, codec, value FROM contents WHERE scope = ?", (scope,)
            ):
                if content_id not in ids and quotes(StoredValue(codec, value), texts):
                    found.add(int(content_id))
        return found


def delete_contents(tx: Any, index: TextIndex, ids: list[int]) -> None:
    """Delete values with their nonces, persons and indexed words, in a transaction.

    Message steps stay and refer to no value any more. The transaction then forgets what it
    remembers of stored values. No ``ERASURE`` is written.

    Args:
        tx: the transaction, which also inserts the rows of ``erasures``.
        index: the text index of the database.
        ids: content ids of the values; unknown ids are ignored.

    Raises:
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    index.forget(tx, ids)
    for chunk in chunks(ids):
        inside = f"WHERE content_id IN ({marks(chunk)})"
        tx.execute(f"DELETE FROM shown_contents {inside}", chunk)
        tx.execute(f"DELETE FROM content_subjects {inside}", chunk)
        tx.execute(f"UPDATE message_steps SET content_id = NULL {inside}", chunk)
        tx.execute(f"DELETE FROM contents {inside}", chunk)
    index.lower_mark(tx)
    tx.forget()


def _found(execute: Execute, ids: Iterable[int]) -> _Found:
    """Return the commitments and scopes of some values of a database."""
    found, seqs = _Found(), set[int]()
    for chunk in chunks(sorted(ids)):
        inside = f"WHERE content_id IN ({marks(chunk)})"
        for commitment, scope in execute(f"SELECT commitment, scope FROM contents {inside}", chunk):
            found.commitments.add(str(commitment))
            found.scopes.add(str(scope))
        sql = f"SELECT min(seq) FROM shown_contents {inside} GROUP BY content_id"
        seqs.update(row[0] for row in execute(sql, chunk))
    found.entries = len(seqs)
    return found


def _feedback_on(selects: Sequence[Execute], ids: Sequence[set[int]]) -> list[set[int]]:
    """Return, by database, the content of feedback on entries that show the given values."""
    rated: set[str] = set()
    for select, own in zip(selects, ids, strict=True):
        for chunk in chunks(sorted(own)):
            sql = (
                "SELECT DISTINCT e.id FROM shown_contents AS s JOIN entries AS e ON e.seq = s.seq "
                f"WHERE s.content_id IN ({marks(chunk)})"
            )
            rated.update(str(row[0]) for row in select(sql, chunk))
    return [
        {
            int(row[0])
            for chunk in chunks(sorted(rated))
            for row in select(
                "SELECT s.content_id FROM entries AS f JOIN shown_contents AS s ON s.seq = f.seq "
                f"WHERE f.submission_id IN ({marks(chunk)}) AND f.event_type || '' = 'FEEDBACK'",
                chunk,
            )
        }
        for select in selects
    ]


def _stored(tx: Transaction, segments: Sequence[_Found]) -> set[int]:
    """Return the ids of values of segments that the database also holds."""
    commitments = set[str]().union(*(one.commitments for one in segments))
    return {
        int(content_id)
        for scope in sorted(set[str]().union(*(one.scopes for one in segments)))
        for content_id, commitment in tx.execute(
            "SELECT content_id, commitment FROM contents WHERE scope = ?", (scope,)
        )
        if commitment in commitments
    }


def _entry(
    metadata: dict[str, Any], reason: str, requested_by: str, submission_id: str = ""
) -> LedgerEntry:
    return LedgerEntry(
        event_type="ERASURE",
        submission_id=submission_id or requested_by,
        decision="ERASED",
        reason=reason,
        metadata={**metadata, "requested_by": requested_by},
    )
