"""Lawful erasure: content and nonces are deleted; records, chain and proofs stay."""

from __future__ import annotations

import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from remit.kernel.errors import InvalidInputError
from remit.ledger.contents import StoredValue
from remit.ledger.entry import LedgerEntry, entry_id, parse_entry_id
from remit.ledger.errors import ErasureError
from remit.ledger.ranges import ARCHIVED
from remit.ledger.reader import chunks, marks
from remit.ledger.record import columns_of, is_plain_text
from remit.ledger.search import Run, TextIndex, quotable, quotes
from remit.ledger.store import Execute, Store, Transaction
from remit.ledger.subjects import BY_SUBJECT
from remit.ledger.withdrawal import WITHDRAWN, erasable, feedback_on, session_of, withdrawn_from

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
# on the ranges that archives took.
_KEPT_EVENTS = ("INSTALLED", ARCHIVED)

# Entries that one ERASURE can name and stay within the limit of a record.
_MAX_ENTRIES = 1_000


@dataclass(slots=True)
class Beside:
    """The archived part of an erasure.

    Attributes:
        commitments: commitments of the archived values.
        sessions: sessions of the values.
        entries: number of entries that showed one of the values first.
        texts: by scope, texts whose quotes in the database are erased too.
    """

    commitments: set[str] = field(default_factory=set)
    sessions: set[str] = field(default_factory=set)
    entries: int = 0
    texts: dict[str, set[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ErasureReport:
    """The result of an erasure; with ``dry_run``, the result that it would have.

    Attributes:
        erasure_id: id of the ``ERASURE`` entry; empty if nothing was erased.
        values: number of erased content values.
        entries: number of entries that showed one of them first.
        sessions: sessions of the values.
        remainder: content that could not be erased yet, and the way to erase it; empty if none.
    """

    erasure_id: str
    values: int
    entries: int
    sessions: list[str]
    remainder: str = ""


def erasure_digest(commitments: list[str]) -> str:
    """Return the digest of erased values for an ``ERASURE`` entry: SHA-256 over their commitments.

    The commitments (64 hex digits each) are sorted and concatenated.
    """
    return hashlib.sha256("".join(sorted(commitments)).encode()).hexdigest()


def is_erasure_of(record: dict[str, Any], commitments: list[str]) -> bool:
    """Return True if a record is the kernel's ``ERASURE`` of exactly these commitments.

    Args:
        record: the parsed record.
        commitments: commitments of the erased values, in any order.
    """
    metadata = record["metadata"]
    return bool(
        record["event_type"] == "ERASURE"
        and columns_of(metadata).tier in (None, "hot")
        and metadata.get("erased_count") == len(commitments)
        and metadata.get("erased_hash") == erasure_digest(commitments)
    )


class Eraser:
    """The eraser of one ledger's content.

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
        beside: Beside | None = None,
    ) -> ErasureReport:
        """Erase content as :meth:`LedgerClient.erase` does.

        Args:
            entry_seq: the entry whose content is erased. Give this, ``session_id`` or
                ``subject_id``.
            session_id: the session whose content is erased.
            subject_id: the person whose content is erased.
            reason: recorded for good.
            requested_by: the person who asked, recorded too.
            dry_run: True to report the result without erasing.
            beside: the archived part of the erasure, which the caller erases; ``None`` if nothing
                was archived.

        Raises:
            InvalidInputError: none or several targets were given, or no reason.
            ErasureError: there is nothing to erase, or the entry may not be erased.
            LedgerWriteError: the ledger cannot be written. Nothing was erased.
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
            query, parameters, entry, beside or Beside(), widen=session_id is None, dry_run=dry_run
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
        """Erase the content that only these entries show; see :meth:`LedgerClient.withdraw`.

        At most 1,000 entries share a transaction.

        Args:
            seqs: sequence numbers of the entries.
            reason: recorded for good.
            requested_by: the caller, recorded too.
            digests: SHA-256 of the only values to erase; the entries are then not withdrawn. None
                for all values.
            also: called in the last transaction.

        Returns:
            A report for each ``ERASURE`` entry that was written.

        Raises:
            LedgerError: the ledger cannot be written; earlier groups stay erased.
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
        """Withdraw entries in one transaction: an ``ERASURE`` for each of their sessions."""
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
            reports.append(self._erase_in(tx, ids, entry, Beside()))
        return reports

    def quoted(self, query: str, parameters: tuple[Any, ...]) -> dict[str, set[str]]:
        """Return the texts of content whose quotes an erasure erases too, by the content's scope.

        Args:
            query: SQL that finds the content's ids.
            parameters: parameters of the query.
        """
        rows = self._store.select(query, parameters)
        return self._texts_of(self._store.select, {int(row[0]) for row in rows})

    def retain(
        self,
        days_by_event: dict[str, float],
        *,
        requested_by: str,
        dry_run: bool = False,
        archived: Callable[[str, str], Beside] | None = None,
    ) -> list[ErasureReport]:
        """Erase content older than the limit of its event type; write an ``ERASURE`` per type.

        A value has the age and the event type of the entry that first showed it. Types without old
        content get no entry and no report.

        Args:
            days_by_event: days by event type; ``*`` means every other type.
            requested_by: the person or program that asked, for the record.
            dry_run: True to report the result without erasing.
            archived: returns the archived content of an event type (``*``: every other) that is
                older than a time; ``None`` if nothing was archived.

        Returns:
            A report for each event type that had old content, in the order of ``days_by_event``.

        Raises:
            InvalidInputError: ``INSTALLED`` or ``ARCHIVED`` is named, on which the installed files
                and the archive depend.
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
                "SELECT c.content_id FROM contents AS c JOIN entries AS e ON e.seq = "
                "(SELECT min(s.seq) FROM shown_contents AS s WHERE s.content_id = c.content_id) "
                f"WHERE e.timestamp < ? AND {condition}"
            )
            metadata = {
                "target": "retention",
                "erased_event_type": event_type,
                "retention_days": days,
            }
            entry = _entry(metadata, f"Retention of {event_type}: {days:g} days", requested_by)
            beside = archived(event_type, limit) if archived is not None else Beside()
            with contextlib.suppress(ErasureError):  # nothing is that old
                reports.append(
                    self._erase(query, (limit, *types), entry, beside, widen=False, dry_run=dry_run)
                )
        return reports

    def _erase(
        self, query: str, parameters: tuple[Any, ...], entry: LedgerEntry, beside: Beside, *,
        widen: bool, dry_run: bool,
    ) -> ErasureReport:  # fmt: skip
        """Erase the content whose ids a query finds, in one transaction; compact the files.

        With ``widen``, values that quote an erased text are erased too.

        Raises:
            ErasureError: the query finds no content.
        """

        def call(tx: Any) -> ErasureReport:
            ids = {int(row[0]) for row in tx.execute(query, parameters)}
            if widen:
                ids |= self._containing(tx, ids, beside.texts)
            ids |= _feedback_on(tx, ids)
            ids |= _stored(tx, beside)
            if not ids and not beside.commitments:
                raise ErasureError(
                    "There is no content to erase.",
                    next_step="The content may already be erased: `remit ledger query "
                    "--event-type ERASURE` "
                    "lists all erasures.",
                )
            return self._erase_in(tx, sorted(ids), None if dry_run else entry, beside)

        report: ErasureReport = self._run(call)
        return report if dry_run else replace(report, remainder=self._store.compact())

    def _erase_in(
        self, tx: Any, ids: list[int], entry: LedgerEntry | None, beside: Beside
    ) -> ErasureReport:
        """Delete content, nonces and index rows under ``entry``; without one only report."""
        commitments: list[str] = []
        scopes: set[str] = set()
        seqs: set[int] = set()
        for chunk in chunks(ids):
            inside = f"WHERE content_id IN ({marks(chunk)})"
            for commitment, scope in tx.execute(
                f"SELECT commitment, scope FROM contents {inside}", chunk
            ):
                commitments.append(str(commitment))
                scopes.add(str(scope))
            seqs.update(
                row[0]
                for row in tx.execute(
                    f"SELECT min(seq) FROM shown_contents {inside} GROUP BY content_id", chunk
                )
            )
        sessions = sorted(
            {scope[2:] for scope in scopes if scope.startswith("s:")} | beside.sessions
        )
        commitments += sorted(beside.commitments.difference(commitments))
        if entry is None:
            return ErasureReport("", len(commitments), len(seqs) + beside.entries, sessions)
        entry.metadata |= {
            "erased_count": len(commitments),
            "erased_hash": erasure_digest(commitments),
        }
        erasure_id = tx.append(entry)
        seq = parse_entry_id(erasure_id)
        self._index.forget(tx, ids)
        tx.execute_many(
            "INSERT INTO erasures VALUES (?, ?)", [(commitment, seq) for commitment in commitments]
        )
        for chunk in chunks(ids):
            inside = f"WHERE content_id IN ({marks(chunk)})"
            tx.execute(f"DELETE FROM shown_contents {inside}", chunk)
            tx.execute(f"DELETE FROM content_subjects {inside}", chunk)
            tx.execute(f"UPDATE message_steps SET content_id = NULL {inside}", chunk)
            tx.execute(f"DELETE FROM contents {inside}", chunk)
        self._index.lower_mark(tx)
        tx.forget()
        entries = len(seqs) + beside.entries
        return ErasureReport(erasure_id, len(commitments), entries, sessions)

    @staticmethod
    def _texts_of(execute: Execute, ids: set[int]) -> dict[str, set[str]]:
        """Return by scope the texts of values whose quotes are erased too."""
        found: dict[str, set[str]] = {}
        for chunk in chunks(sorted(ids)):
            for scope, codec, value in execute(
                f"SELECT scope, codec, value FROM contents WHERE content_id IN ({marks(chunk)})",
                chunk,
            ):
                found.setdefault(str(scope), set()).update(quotable(StoredValue(codec, value)))
        return found

    def _containing(self, tx: Transaction, ids: set[int], beside: dict[str, set[str]]) -> set[int]:
        """Return the ids of values that contain a text to be erased of the same scope.

        ``beside`` gives further texts by scope.
        """
        texts_by_scope = self._texts_of(tx.execute, ids)
        for scope, texts in beside.items():
            texts_by_scope.setdefault(scope, set()).update(texts)
        found = set()
        for scope, texts in texts_by_scope.items():
            if not texts:
                continue
            for content_id, codec, value in tx.execute(
                "SELECT content_id, codec, value FROM contents WHERE scope = ?", (scope,)
            ):
                if content_id not in ids and quotes(StoredValue(codec, value), texts):
                    found.add(int(content_id))
        return found


def _feedback_on(tx: Transaction, ids: set[int]) -> set[int]:
    """Return the content of feedback on entries that show any of these values."""
    found: set[int] = set()
    for chunk in chunks(sorted(ids)):
        rows = tx.execute(
            "SELECT DISTINCT f.seq FROM shown_contents AS s JOIN entries AS e ON e.seq = s.seq "
            "JOIN entries AS f ON f.submission_id = e.id AND f.event_type || '' = 'FEEDBACK' "
            f"WHERE s.content_id IN ({marks(chunk)})",
            chunk,
        )
        for part in chunks([row[0] for row in rows]):
            shown = tx.execute(
                f"SELECT content_id FROM shown_contents WHERE seq IN ({marks(part)})", part
            )
            found.update(int(row[0]) for row in shown)
    return found


def _stored(tx: Transaction, beside: Beside) -> set[int]:
    """Return the ids of an archive's values that the database also holds."""
    return {
        int(content_id)
        for name in beside.sessions
        for content_id, commitment in tx.execute(
            "SELECT content_id, commitment FROM contents WHERE scope = ?", (f"s:{name}",)
        )
        if commitment in beside.commitments
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
