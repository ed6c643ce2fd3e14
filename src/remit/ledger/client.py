"""The ledger's public class: writing, reading, proofs, export and erasure."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from remit.kernel.errors import InvalidInputError
from remit.kernel.loops import Closeable
from remit.kernel.settings import LedgerSettings, default_settings
from remit.ledger.checkpoints import Checkpoints, CheckpointSchedule
from remit.ledger.committer import GroupCommitter
from remit.ledger.entry import parse_entry_id
from remit.ledger.erasure import Eraser, ErasureReport
from remit.ledger.errors import ErasureError, LedgerRollbackError
from remit.ledger.exports import Exporter, Format
from remit.ledger.handles import ScopedLedger
from remit.ledger.imports import Import, ImportReport, opened
from remit.ledger.kept_head import KeptHead
from remit.ledger.marks import Marks
from remit.ledger.owner import require_owner
from remit.ledger.queries import LedgerQueries, to_seq
from remit.ledger.report import Progress, StateCheck, VerificationReport
from remit.ledger.search import TextIndex
from remit.ledger.store import Transaction
from remit.ledger.stores import open_store
from remit.ledger.tlog import SignedCheckpoint, Signer, VerifierKey
from remit.ledger.writes import LedgerWrites


class LedgerClient(LedgerWrites, LedgerQueries, Closeable):
    """An open ledger. Safe to share between threads; open one in each process.

    Args:
        path_or_url: the SQLite file of the ledger, made when it is not there; or the
            ``postgresql://…`` URL of a database, whose tables are made when they are not there.
        ledger_path: another name of ``path_or_url``; give one of the two.
        settings: content keys and limits; the shipped defaults when left out.
        create: make the ledger when there is none; ``False`` makes that an error.
        signer: the ledger's key. With it checkpoints are signed as the ledger grows.
        verifier_key: the public key to check checkpoints by; the signer's when left out.
        marks: where its checks keep what the next ones may go on from; nowhere when left out.
        checks: of what others keep in this database; a whole :meth:`verify` ends with them.
        kept: the last head that the key signed, outside the database: a ledger that does not lead
            to it is not written.

    Attributes:
        checkpoints: signed tree heads, their cosignatures, consistency proofs.

    Raises:
        InvalidInputError: neither or both of ``path_or_url`` and ``ledger_path`` are given.
        LedgerFormatError: the path or database holds something else.
        LedgerKeyError: it is a ledger of another key.
        LedgerError: it cannot be opened or made.
    """

    def __init__(
        self,
        path_or_url: str | Path | None = None,
        *,
        ledger_path: str | Path | None = None,
        settings: LedgerSettings | None = None,
        create: bool = True,
        signer: Signer | None = None,
        verifier_key: VerifierKey | None = None,
        marks: Marks | None = None,
        checks: Sequence[StateCheck] = (),
        kept: KeptHead | None = None,
    ) -> None:
        place = path_or_url if ledger_path is None else ledger_path
        if place is None or (path_or_url is not None and ledger_path is not None):
            raise InvalidInputError(
                "LedgerClient needs the path or URL of one ledger.",
                next_step='Give it once: LedgerClient("ledger.db").',
            )
        self.marks = marks
        self._checks = checks
        self._settings = settings = settings or default_settings().ledger
        self._reopen = functools.partial(open_store, str(place), settings, create=False)
        self._content_keys = frozenset(settings.content_keys)
        key = verifier_key if signer is None else signer.verifier_key
        require = None
        if kept is not None and key is not None:  # a root's
            require = functools.partial(require_owner, key)
        self._store = store = self._reopen(create=create, require=require)
        self._index = TextIndex(store, self.transact)
        self._eraser = Eraser(store, self.transact)
        self.checkpoints = Checkpoints(store, self.transact, key, signer, kept)
        if kept is not None:
            store.guard, store.missed = self.checkpoints.hold, kept.note_seen
        schedule = CheckpointSchedule(
            self.checkpoints,
            store,
            every_entries=settings.checkpoint_every_entries,
            every_s=settings.checkpoint_every_s,
        )
        self._committer = GroupCommitter(store, schedule if signer is not None else None)
        self._closing = threading.RLock()
        if signer is not None:
            try:
                self.checkpoints.bind(signer.verifier_key)
            except BaseException:
                self.close()
                raise

    def __repr__(self) -> str:
        return f"LedgerClient({self.location!r})"

    @property
    def verifier_key(self) -> VerifierKey | None:
        """The key that checkpoints are checked by, when this client knows it."""
        return self.checkpoints.key

    def close(self) -> None:
        """Commit pending entries and close. Closing twice, or in two threads, is harmless."""
        if self._committer.close():
            with self._closing:
                self._store.close()

    # -- proving -----------------------------------------------------------------------

    def require_whole(self) -> None:
        """Make sure, without writing, that what this client has seen is still there.

        Raises:
            LedgerRollbackError: the database was replaced, or lacks entries that were in it.
            LedgerError: it cannot be read.
        """
        self._store.require_seen()
        if not self._store.is_held and (problem := self.checkpoints.problem()):
            raise LedgerRollbackError(problem)

    def verify(
        self,
        *,
        checkpoint: str | bytes | SignedCheckpoint | None = None,
        first: str | int = 0,
        jobs: int = 1,
        deep: bool = True,
        witnesses: Sequence[VerifierKey] = (),
        since_mark: bool = False,
        progress: Progress | None = None,
    ) -> VerificationReport:
        """Check every record, link, column, content value, tree hash and checkpoint.

        Whatever is stored, the report is made: a check that cannot be finished is a problem in it.

        Args:
            checkpoint: a signed checkpoint held outside: it exposes a ledger that was cut off or
                rewritten. One that is malformed or another log's is a problem in the report.
            first: id or sequence number; what is before is left out.
            jobs: processes to use; small ledgers take one.
            deep: have the database engine check its file as well.
            witnesses: keys whose cosignatures on the checkpoint the report names.
            since_mark: go on from this root's last verification: of what that one read, only some
                is read again, and the database engine does not check its file. Without a mark, or
                where anything is wrong, all is checked.
            progress: called at once, and then with the rows done and their total.

        Raises:
            InvalidInputError: ``first`` is no entry id.
        """
        from remit.ledger.verification import Verifier  # imports multiprocessing

        start = max(0, to_seq(first) or 0)
        verifier = Verifier(self._reopen, self._store, self.verifier_key, witnesses, self.marks)
        report = verifier.verify(checkpoint, start, jobs, deep, progress, since_mark)
        with report.guard("the head kept next to the key"):
            if problem := self.checkpoints.problem():
                report.add(None, "checkpoint", problem)
                report.checkpoint = "failed"
        for check in () if start else self._checks:
            with report.guard("tables next to the record"):
                report.take("state", check(self, since_mark))
        report.sort()
        return report

    def verify_chain(self) -> tuple[bool, list[str]]:
        """Return the result of :meth:`verify` as ``(verified, problems)``."""
        report = self.verify()
        return report.verified, [str(problem) for problem in report.problems]

    def checkpoint(self) -> str:
        """Sign the tree as it is, store the checkpoint and return it (C2SP tlog-checkpoint).

        Raises:
            LedgerFormatError: the ledger does not lead to the checkpoint signed before.
            NoSignerError: this client holds no key.
        """
        return self.checkpoints.sign()

    def prove(self, entry_id: str) -> str:
        """Return a proof that an entry is in the log, verifiable offline (C2SP tlog-proof).

        The proof refers to the smallest stored checkpoint that covers the entry, or to a new one.

        Raises:
            EntryNotFoundError: there is no such entry.
            NoSignerError: a checkpoint is needed, and this client holds no key.
        """
        seq = parse_entry_id(entry_id)
        signed = self.checkpoints.covering(seq) if seq is not None and seq < 1 << 62 else None
        if seq is None or (signed is None and seq >= self.archived_to):
            seq = self._row(entry_id).seq  # before a checkpoint is signed for it
        return str(self.checkpoints.prove(seq, signed))

    # -- exporting ------------------------------------------------------------------------

    def export(
        self,
        target: str | Path | IO[bytes],
        *,
        format: Format = "jsonl",  # noqa: A002 - the field's word
        progress: Progress | None = None,
    ) -> int:
        """Write the ledger out; returns how many entries.

        ``jsonl`` is complete: records, content, erasures, and a signed checkpoint where this
        client can sign or one is stored; :meth:`import_jsonl` reads it.
        ``tiles`` is a static C2SP tlog-tiles directory: records and hashes, no content.
        ``parquet`` is a table for analysis, content in place (extra ``parquet``).

        Args:
            target: a file, a directory for tiles, or for jsonl an open binary file.
            format: which.
            progress: called with the entries done and their total.

        Raises:
            NoSignerError: tiles need a checkpoint, and there is neither one nor a key.
            LedgerError: the target cannot be written.
        """
        return Exporter(self._store, self.checkpoints, progress).export(target, format)

    def import_jsonl(
        self,
        source: str | Path | IO[bytes],
        *,
        key: VerifierKey | None = None,
        progress: Progress | None = None,
    ) -> ImportReport:
        """Import an export into this ledger, which must be empty: all of it, checked, or nothing.

        Args:
            source: a file of JSON lines.
            key: the verifier key of the log it comes from, to check the export's checkpoint.
            progress: called with the entries done and their total.

        Raises:
            LedgerFormatError: a line is malformed or does not hold.
            TlogError: the export is another log's.
        """
        with opened(source) as file:
            return self.transact(lambda tx: Import(tx, self._store, key).read(file, progress))

    # -- erasing -----------------------------------------------------------------------

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

        Give exactly one of the first three. By entry, what the entry shows is erased wherever
        its session shows it; a longer text also with every value of that session that quotes it.

        Args:
            entry_id: the entry whose content goes.
            session_id: the session whose content goes.
            subject_id: the person whose content goes, in every session.
            reason: stays on record; name the request, not the person.
            requested_by: who asked, on record too.
            dry_run: only report what would be erased.

        Raises:
            ErasureError: there is nothing to erase, or some of it may be in an archive.
            EntryArchivedError: the entry is in an archive.
            InvalidInputError: none or several were given, or no reason.
        """
        if self.archived_to:
            self._require_here(entry_id, session_id, subject_id)
        return self._eraser.erase(
            entry_seq=None if entry_id is None else self._row(entry_id).seq,
            session_id=session_id,
            subject_id=subject_id,
            reason=reason,
            requested_by=requested_by or "operator",
            dry_run=dry_run,
        )

    def withdraw(
        self,
        entry_ids: Sequence[str],
        *,
        reason: str,
        requested_by: str,
        texts: Sequence[bytes] | None = None,
        also: Callable[[Transaction], None] | None = None,
    ) -> list[ErasureReport]:
        """Erase, for the caller who made these entries, the content that no other entry shows.

        A value that another entry of the session shows stays, and so does every text that quotes
        an erased value. Entries withdrawn earlier do not count: a value is erased together with
        the last entry that shows it. The entries' feedback is withdrawn with them.

        Args:
            entry_ids: all entries of one call, batch, file or conversation.
            reason: recorded for good; name the request, not the person.
            requested_by: the caller, recorded too.
            texts: the exact JSON texts of the only values to erase, such as one item of a list.
                The entries then are not withdrawn: their other values stay. None for all values.
            also: runs in the transaction of the erasure, to delete the rows that lead to it.

        Returns:
            A report for each session of the entries; none if there was nothing left to withdraw.

        Raises:
            ErasureError: some of the content may be in an archive. Nothing was erased.
            EntryArchivedError: an entry is in an archive.
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
        """Refuse to erase here alone what may be in an archive too."""
        if entry_id is not None:
            rows = self.select(
                "SELECT session_id FROM entries WHERE seq = ?", (self._row(entry_id).seq,)
            )
            session_id = rows[0][0] if rows else None
        if subject is not None or (session_id is not None and self.has_left(session_id)):
            raise ErasureError(
                "Entries of this ledger were archived, and what is to be erased may be in the "
                "archive.",
                next_step="Nothing was erased. Name the archive: `remit ledger erase … "
                "--archive DIR`.",
            )

    @property
    def retention_days(self) -> Mapping[str, float]:
        """For how many days the settings let content be kept, by event type."""
        return self._settings.retention_days

    def retain(
        self,
        days_by_event: Mapping[str, float] | None = None,
        *,
        requested_by: str = "retention",
        dry_run: bool = False,
    ) -> list[ErasureReport]:
        """Erase content that is older than its class of event may be kept; in the database, not
        in archives (:func:`remit.ledger.archive.retain_archived`).

        Args:
            days_by_event: days by event type, ``*`` for all others; the settings' when left out.
            requested_by: who asked, on record.
            dry_run: only report what would be erased.
        """
        days = dict(self.retention_days if days_by_event is None else days_by_event)
        return self._eraser.retain(days, requested_by=requested_by, dry_run=dry_run)

    def compact(self) -> str:
        """Make erased bytes leave the files; returns what could not be done, or nothing."""
        return self._store.compact()

    # -- scoping -----------------------------------------------------------------------

    def scoped(self, *, tier: str, work_order_id: str | None = None) -> ScopedLedger:
        """A handle that writes only ``tier`` and reads only what that tier may see."""
        return ScopedLedger(self, tier=tier, work_order_id=work_order_id)
