"""Erasing content of a ledger: on request, for a caller, and by age."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from remit.kernel.settings import LedgerSettings
from remit.ledger.client_queries import LedgerQueries
from remit.ledger.erasure import Eraser, ErasureReport
from remit.ledger.errors import ErasureError, LedgerError
from remit.ledger.store import Transaction


class LedgerErasures(LedgerQueries):
    """The erasing methods of :class:`~remit.ledger.LedgerClient`; not used alone.

    Any thread may call them, but none inside a transaction, which raises LedgerError.
    """

    _settings: LedgerSettings
    _eraser: Eraser

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
        interrupted erasure of attached segments is completed first.

        Args:
            entry_id: the entry whose content is erased.
            session_id: the session whose content is erased.
            subject_id: the person whose content is erased, in every session.
            reason: recorded for good; name the request, not the person.
            requested_by: the person who asked, recorded too; ``operator`` if empty.
            dry_run: True to report the result without erasing or appending; the ledger must be
                writable all the same.

        Raises:
            ErasureError: there is nothing to erase, some of it may be in a segment that is not
                attached, or the entry records an installation or an archived range.
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
        report = self._eraser.erase(
            entry_seq=None if entry_id is None else self._locate(entry_id)[1].seq,
            session_id=session_id,
            subject_id=subject_id,
            reason=reason,
            requested_by=requested_by or "operator",
            dry_run=dry_run,
            segments=self._segments,
        )
        self._purge(dry_run)
        return report

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
        return self._eraser.withdraw(
            seqs, reason=reason, requested_by=requested_by,
            digests=None if texts is None else [sha256(text).digest() for text in texts], also=also,
        )  # fmt: skip

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
        interrupted erasure of attached segments is completed first.

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
        days = dict(self.retention_days if days_by_event is None else days_by_event)
        if self._segments:
            self._require_segments()
            self._purge(dry_run)
        reports = self._eraser.retain(
            days, requested_by=requested_by, dry_run=dry_run, segments=self._segments
        )
        self._purge(dry_run)
        return reports

    def compact(self) -> str:
        """Remove erased bytes from the files; return the reason if some remain, else empty.

        On SQLite some remain while other processes read. On PostgreSQL some remain while an older
        transaction is open, and perhaps in the server's write-ahead log.

        Raises:
            LedgerError: the database cannot be compacted.
        """
        return self._store.compact()
