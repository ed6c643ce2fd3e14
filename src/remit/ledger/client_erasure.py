"""Lawful erasure on request, for a caller, and by age, which keeps records, chain and proofs."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from remit.kernel.errors import InvalidInputError
from remit.kernel.settings import LedgerSettings
from remit.ledger.archived_ranges import ARCHIVED
from remit.ledger.caller_deletion import (
    WITHDRAWN,
    calls_in_flight,
    erasable,
    feedback_on,
    repeated_erasure,
    session_of,
    withdrawn_from,
)
from remit.ledger.checkpoints import Checkpoints
from remit.ledger.client_queries import LedgerQueries
from remit.ledger.client_writes import LedgerWrites
from remit.ledger.clock import time_text
from remit.ledger.entry import LedgerEntry, entry_id as format_id, parse_entry_id
from remit.ledger.entry_reader import PUT_INFO, marks
from remit.ledger.erasure import (
    CACHED,
    COMPACTED,
    COMPACTION_DUE,
    ErasureReport,
    Found,
    compaction_due,
    containing,
    content_id_of,
    delete_contents,
    feedback_of,
    first_erased,
    found_in,
    stored_of,
    texts_of,
)
from remit.ledger.errors import ErasureError, LedgerError
from remit.ledger.record import erasure_digest, is_plain_text
from remit.ledger.store import Execute, Transaction
from remit.ledger.subjects import BY_SUBJECT, erased_name

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

_NAMED = ("entry", "session", "subject")  # targets that an operator can name again
_MAX_ENTRIES = 1_000  # entries that one ERASURE can name within the limit of a record


class LedgerErasures(LedgerWrites, LedgerQueries):
    """The erasing methods of :class:`~remit.ledger.LedgerClient`; not used alone.

    Any thread may call them, but none inside a transaction, which raises LedgerError.
    """

    _settings: LedgerSettings
    checkpoints: Checkpoints

    def erase(
        self,
        entry_id: str | None = None,
        *,
        session_id: str | None = None,
        subject_id: str | None = None,
        reason: str,
        requested_by: str = "",
        dry_run: bool = False,
    ) -> ErasureReport:
        """Erase content for good; records, chain and proofs stay.

        Give exactly one of the first three arguments. For an entry, the shown content is erased
        wherever the session shows it. For an entry or a person, a text of 16 or more characters is
        erased with every value of that session that quotes it. Feedback on entries that show erased
        values is erased too. An ``ERASURE`` entry is appended, and the database's files are
        compacted. Content in attached segments is erased after it. All cached answers are deleted.
        Bytes that remain, and calls in flight that may record more, are named in ``remainder``. An
        interrupted erasure of attached segments is completed first. If the content was erased
        before, the files are completed, and the report has 0 values and the earlier ``ERASURE``.
        Content of a person that was erased without the ledger's key, by age or by a caller leaves
        no trace of the person.

        Args:
            entry_id: the entry whose content is erased.
            session_id: the session whose content is erased.
            subject_id: the person whose content is erased, in every session.
            reason: recorded for good; name the request, not the person.
            requested_by: the person who asked, recorded too; ``operator`` if empty.
            dry_run: True to report the result without erasing or appending; the ledger must be
                writable all the same.

        Raises:
            ErasureError: there never was content to erase, some of it may be in a segment that is
                not attached, or the entry records an installation or an archived range.
            EntryNotFoundError: there is no such entry.
            EntryArchivedError: the entry is in a segment that is not attached.
            InvalidInputError: none or several targets were given, a target is no plain text, or
                there is no reason.
            LedgerWriteError: the ledger cannot be written. Nothing was erased.
            LedgerError: attached segments are not all of them, or the ledger cannot be read; or a
                segment cannot be written, or the files cannot be compacted. In the last two cases
                the erasure is recorded.
        """
        if self._segments:
            self._require_segments()
            self._purge(dry_run)  # Complete an erasure that was interrupted.
        elif self.archived_to:
            self._require_here(entry_id, session_id, subject_id)
        entry_seq = None if entry_id is None else self._locate(entry_id)[1].seq
        given = {"entry": entry_seq, "session": session_id, "subject": subject_id}
        kinds = [name for name, value in given.items() if value is not None]
        if len(kinds) != 1:
            raise InvalidInputError("Give an entry, a session or a subject.")
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
        mark = ""
        if session_id is not None:
            metadata["erased_session_id"] = session_id
            query, parameters = _BY_SESSION, (f"s:{session_id}", session_id)
        elif subject_id is not None:
            query, parameters = BY_SUBJECT, (subject_id, subject_id)
            signer = self.checkpoints.signer
            mark = "" if signer is None else erased_name(signer, subject_id)
        else:
            seq = entry_seq or 0
            metadata["erased_entry_id"] = format_id(seq)
            self._require_erasable(seq)
            query, parameters = _BY_ENTRY, (seq, seq)
        entry = _entry(metadata, reason, requested_by or "operator")
        report = self._erase(
            query, parameters, entry, widen=session_id is None, dry_run=dry_run, mark=mark
        )
        self._purge(dry_run)
        return report

    def _require_erasable(self, seq: int) -> None:
        """Raise ErasureError if an entry records an archived range or an installation."""
        rows = self._store.select("SELECT event_type FROM entries WHERE seq = ?", (seq,))
        if rows and rows[0][0] == ARCHIVED:
            raise ErasureError(
                f"{format_id(seq)} records an archived range, and contains no personal data.",
                next_step="Name an entry, a session or a person.",
            )
        if rows and rows[0][0] in _KEPT_EVENTS:
            raise ErasureError(
                f"{format_id(seq)} records an installation, from which the registries are rebuilt.",
                next_step="Use `remit package remove` instead.",
            )

    def _purge(self, dry_run: bool) -> None:
        """Delete erased values from the attached segments.

        Raises:
            LedgerError: a segment cannot be written. The erasure is recorded.
        """
        from remit.ledger.segments import purge

        for store in () if dry_run else self._segments:
            try:
                purge(self._store, store)
            except LedgerError as error:
                raise LedgerError(
                    f"Erased content is still in the segment {store.location}: {error.message}",
                    next_step="The erasure is recorded. Make room, then run `remit ledger segment "
                    "--finish --archive DIR`.",
                ) from error

    def withdraw(
        self,
        entry_ids: Sequence[str],
        *,
        reason: str,
        requested_by: str,
        texts: Sequence[bytes] | None = None,
        also: Callable[[Transaction], None] | None = None,
    ) -> list[ErasureReport]:
        """Erase the content that only the given entries show, for the caller who made the entries.

        A value that another entry of the session shows stays, and so does every text that quotes an
        erased value. A value is erased together with the last entry that shows it; entries
        withdrawn earlier do not count. Feedback on the entries is withdrawn with them. At most
        1,000 entries share a transaction, in which each session with something new to withdraw gets
        an ``ERASURE`` entry, which deletes all cached answers. The database's files are compacted
        if anything was erased. An empty list does nothing, and does not call ``also``.

        Args:
            entry_ids: all entries of one call, batch, file or conversation.
            reason: recorded for good; name the request, not the person.
            requested_by: the caller, recorded too.
            texts: the exact JSON texts of the only values to erase, such as one item of a list. The
                entries themselves are then not withdrawn. None for all values.
            also: called in the last transaction of the erasure, to delete rows that refer to the
                entries; ``None`` for nothing.

        Returns:
            A report for each session of each 1,000 entries that had anything left to withdraw;
            empty if none had.

        Raises:
            ErasureError: some of the content may be in a segment. Nothing was erased.
            EntryNotFoundError: there is no such entry.
            EntryArchivedError: an entry was archived; attached segments do not help.
            LedgerWriteError: the ledger cannot be written; earlier groups of 1,000 entries stay
                erased.
            LedgerError: the files cannot be compacted. The content is erased from the tables.
            Exception: an error of ``also``; the last group of entries is not withdrawn.
        """
        seqs = [self._row(entry_id).seq for entry_id in entry_ids]
        if self.archived_to:
            for entry_id in entry_ids:
                self._require_here(entry_id, None, None)
        digests = None if texts is None else [sha256(text).digest() for text in texts]
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

            reports += self.transact(call)
        if any(report.values for report in reports) or compaction_due(self.select):
            remainder = self.compact()
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
                {"target": "call", WITHDRAWN: [format_id(seq) for seq in new]}, reason,
                requested_by, session_id,
            )  # fmt: skip
            reports.append(self._erase_in(tx, ids, entry, []))
        return reports

    def _require_here(self, entry_id: str | None, session_id: str | None, subject: Any) -> None:
        """Raise ErasureError if content of the target may be in a segment that is not attached."""
        if entry_id is not None:
            rows = self.select(
                "SELECT session_id FROM entries WHERE seq = ?", (self._row(entry_id).seq,)
            )
            session_id = rows[0][0] if rows else None
        if subject is not None or (session_id is not None and self.has_left(session_id)):
            raise ErasureError(
                "Some entries of this ledger are archived, and their segments may contain content "
                "to be erased.",
                next_step="Nothing was erased. Name the segments: `remit ledger erase … "
                "--archive DIR`.",
            )

    @property
    def retention_days(self) -> Mapping[str, float]:
        """Days that content may be stored by the settings, by event type; ``*`` for all others."""
        return self._settings.retention_days

    def retain(
        self,
        days_by_event: Mapping[str, float] | None = None,
        *,
        requested_by: str = "retention",
        dry_run: bool = False,
    ) -> list[ErasureReport]:
        """Erase content older than the limit of its event type; return a report for each type.

        A value has the age and the event type of the entry that first showed it. Feedback on
        entries that show such a value is erased too, whatever its age, and so are all cached
        answers. Content in attached segments is erased too; other segments are not reached. Each
        event type with old content gets an ``ERASURE`` entry and a report, in the order of
        ``days_by_event``; other types get none. The database's files are compacted after each. An
        interrupted erasure is completed first in attached segments, and last in the files.

        Args:
            days_by_event: days by event type, ``*`` for all others but ``INSTALLED`` and
                ``ARCHIVED``; ``None`` for the settings.
            requested_by: the person or program that asked, for the record.
            dry_run: True to report the result without erasing or appending; the ledger must be
                writable all the same.

        Raises:
            InvalidInputError: an event type is named whose content may not be erased by age:
                ``INSTALLED`` or ``ARCHIVED``.
            LedgerWriteError: the ledger cannot be written. After this and the next error, erasures
                of earlier types stay.
            LedgerError: attached segments are not all of them, or one cannot be written; the ledger
                cannot be read; or the files cannot be compacted.
        """
        days_of = dict(self.retention_days if days_by_event is None else days_by_event)
        if self._segments:
            self._require_segments()
            self._purge(dry_run)
        if kept := sorted(set(_KEPT_EVENTS) & set(days_of)):
            raise InvalidInputError(
                f"{kept[0]} cannot have a retention period: the registries are rebuilt from it."
            )
        now = datetime.now(UTC)
        named = [*_KEPT_EVENTS, *(name for name in days_of if name != "*")]
        reports = []
        for event_type, days in days_of.items():
            limit = time_text(now - timedelta(days=days))
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
                    self._erase(query, (limit, *types), entry, widen=False, dry_run=dry_run)
                )
        self._purge(dry_run)
        if not reports and not dry_run and compaction_due(self.select):
            self.compact()
        return reports

    def _erase(
        self,
        query: str,
        parameters: tuple[Any, ...],
        entry: LedgerEntry,
        *,
        widen: bool,
        dry_run: bool,
        mark: str = "",
    ) -> ErasureReport:
        """Erase the content whose ids a query finds, in a transaction; compact the files.

        With ``widen``, values that quote an erased text are erased too. The query finds the content
        of each segment as well. ``mark`` names the row of ``ledger_info`` about a person.

        Raises:
            ErasureError: the query finds no content, and none was erased.
        """

        def call(tx: Any) -> ErasureReport:
            selects: list[Execute] = [tx.execute, *(one.select for one in self._segments)]
            ids = [
                {content_id_of(row[0]) for row in select(query, parameters)} for select in selects
            ]
            if widen:
                texts = texts_of(zip(selects, ids, strict=True))
                for select, own in zip(selects, ids, strict=True):
                    own |= containing(select, own, texts)
            feedback = feedback_of(selects, ids)
            for own, more in zip(ids, feedback, strict=True):
                own |= more
            found = [found_in(*pair) for pair in zip(selects[1:], ids[1:], strict=True)]
            ids[0] |= stored_of(tx, found)
            running = calls_in_flight(tx, entry.metadata)
            if not any(ids):
                earlier = repeated_erasure(tx, entry.metadata, mark)
                return ErasureReport(earlier, 0, 0, [], running)
            report = self._erase_in(tx, sorted(ids[0]), None if dry_run else entry, found)
            return replace(report, remainder=running)

        report: ErasureReport = self.transact(call)
        if not report.values and not report.erasure_id:
            report = replace(report, erasure_id=self._first_erasure(entry.metadata))
        is_vain = not report.values and not report.erasure_id
        left = "" if dry_run or is_vain else self.compact()
        remainder = f"{left} {report.remainder}".strip()
        if is_vain:
            raise ErasureError(
                f"There is no content to erase. {remainder}".strip(),
                next_step="Check the spelling of the id. `remit ledger query --event-type ERASURE` "
                "lists all erasures.",
            )
        return replace(report, remainder=remainder)

    def _first_erasure(self, target: Mapping[str, Any]) -> str:
        """Return the id of an erasure that reached an entry or session; empty without one."""
        entries: Iterable[LedgerEntry] = ()
        if named := target.get("erased_entry_id"):
            entries = [self.read(named)]
        elif named := target.get("erased_session_id"):
            entries = self.query(session_id=named, limit=None)
        values = (one for entry in entries for one in (entry.reason, *entry.metadata.values()))
        gone = first_erased(values)
        return (gone and gone.erasure_id) or ""

    def _erase_in(
        self, tx: Any, ids: list[int], entry: LedgerEntry | None, segments: list[Found]
    ) -> ErasureReport:
        """Delete content, nonces and index rows under ``entry``; without an entry only report."""
        found = [found_in(tx.execute, ids), *segments]
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
        signer = self.checkpoints.signer
        if signer is not None and entry.metadata["target"] in _NAMED:
            names = {erased_name(signer, person) for one in found for person in one.persons}
            tx.execute_many(PUT_INFO, [(name, erasure_id) for name in sorted(names)])
        tx.execute(PUT_INFO, (COMPACTION_DUE, erasure_id))
        # Any of these rows may lead to the content, or tell by its hash what was asked.
        tx.execute(f"DELETE FROM idempotency WHERE token = '{CACHED}'")
        return ErasureReport(erasure_id, len(commitments), entries, sessions)

    def compact(self) -> str:
        """Remove erased bytes from the files; return the reason if some remain, else empty.

        On SQLite some remain while other processes read. On PostgreSQL some remain while an older
        transaction is open, and perhaps in the server's write-ahead log. Copies that interrupted
        runs of `remit ledger segment` left are removed, and named if they are elsewhere.

        Raises:
            LedgerError: the database cannot be compacted.
        """
        from remit.ledger.segments import remove_copies

        due = compaction_due(self.select)
        is_complete, remainder = self._store.compact()
        if due and is_complete:
            self.transact(lambda tx: tx.execute(COMPACTED, due))
        return f"{remainder} {remove_copies(self)}".strip()


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
