"""The ledger's public class: verification, proofs, export, import and attached segments."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from remit.kernel.errors import InvalidInputError
from remit.kernel.loops import Closeable
from remit.kernel.settings import LedgerSettings, default_settings
from remit.ledger.checkpoints import Checkpoints
from remit.ledger.client_erasure import LedgerErasures
from remit.ledger.entry import parse_entry_id
from remit.ledger.entry_reader import as_bytes
from remit.ledger.errors import LedgerFormatError, LedgerRollbackError
from remit.ledger.exports import Exporter, Format
from remit.ledger.group_commit import CheckpointSchedule, GroupCommitter
from remit.ledger.handles import ScopedLedger
from remit.ledger.imports import Import, ImportReport, opened
from remit.ledger.last_signed_head import KeptHead
from remit.ledger.log_identity import require_owner
from remit.ledger.search import TextIndex
from remit.ledger.store import Store
from remit.ledger.store_factory import open_store
from remit.ledger.tlog import SignedCheckpoint, Signer, VerifierKey
from remit.ledger.verification.marks import Marks
from remit.ledger.verification.report import Progress, StateCheck, VerificationReport


class LedgerClient(LedgerErasures, Closeable):
    """An open ledger. Threads can share a client; each process opens its own.

    A client holds connections to the database and one thread, which commits all writes.
    :meth:`close` ends both, as does a ``with`` block.

    Args:
        path_or_url: the SQLite file, or the ``postgresql://…`` URL of a database.
        ledger_path: another name of ``path_or_url``; give one of the two.
        settings: content keys and limits; ``None`` for the shipped defaults.
        create: True to make the file or the tables if there are none; False raises LedgerError
            then. A ledger of an earlier layout is migrated in either case.
        signer: the ledger's private key, with which checkpoints are signed as the ledger grows. A
            ledger without an owner is bound to the key, in a transaction. ``None`` signs nothing.
        verifier_key: the public key that checkpoints are checked by, if there is no ``signer``;
            ``None`` leaves checkpoints unchecked.
        marks: the files from which later checks continue; ``None`` for none.
        checks: checks of other parts' tables, which end a full :meth:`verify`.
        kept: the last head that the key signed, stored outside the database. A ledger that does not
            extend it is not written. ``None`` skips this check.

    Attributes:
        checkpoints: signed tree heads, their cosignatures, and consistency proofs.
        marks: as given.

    Raises:
        InvalidInputError: neither or both of ``path_or_url`` and ``ledger_path`` are given.
        LedgerFormatError: the path or database holds something else, is damaged, or is of a newer
            version; or ``kept`` is given and it holds a segment.
        LedgerKeyError: the ledger belongs to another key than that of ``signer``, or with ``kept``
            than ``verifier_key``; without ``kept``, a ``verifier_key`` is not compared.
        LedgerError: the ledger cannot be opened or made.
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
                "LedgerClient requires the path or URL of one ledger.",
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
        self._segments: list[Store] = []
        self._store = store = self._reopen(create=create, require=require)
        if kept is not None and store.segment is not None:
            store.close()
            raise LedgerFormatError(
                f"{store.location} is a segment of a ledger, not a ledger.",
                next_step="Restore the ledger of the root from a copy.",
            )
        self._index = TextIndex(store, self.transact)
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
        """The key that checkpoints are checked by; ``None`` if unknown."""
        return self.checkpoints.key

    def close(self) -> None:
        """Commit pending entries, sign a last checkpoint if there is a signer and new entries, and
        close.

        Attached segments are closed too. The caller waits until the writer's thread has ended.
        Closing twice, or in two threads, is harmless. In a process forked after opening, nothing
        happens. A failure to sign is logged. Later calls raise LedgerClosedError.
        """
        if self._committer.close():
            with self._closing:
                self.detach()
                self._store.close()

    def attach(self, directories: Iterable[Path]) -> None:
        """Include segments in what this client reads, searches, verifies, exports and erases.

        The segments stay attached until :meth:`detach`, or until the client is closed. All threads
        see them. Attaching a segment twice opens it twice. A segment of an earlier layout is
        migrated on disk. After an error only segments of earlier calls are attached. Until every
        archived range has its segment, queries, erasures and exports raise LedgerError.

        Args:
            directories: directories that ``remit ledger segment --out`` was given.

        Raises:
            LedgerError: a directory or segment cannot be read, no directory has a segment, or an
                archive of an earlier version has to be converted first.
        """
        from remit.ledger.segments import open_segments  # imports this module

        self._segments += open_segments(directories, self._settings)

    def detach(self) -> None:
        """Close all attached segments; does nothing if there is none."""
        while self._segments:
            self._segments.pop().close()

    @property
    def has_segments(self) -> bool:
        """True if segments are attached."""
        return bool(self._segments)

    def records_where(self, condition: str, parameters: Sequence[Any]) -> dict[int, bytes]:
        """Return the canonical records of some entries by sequence number, ascending.

        Entries of attached segments are included. Without attached segments only the database is
        read, so archived entries are left out.

        Args:
            condition: an SQL condition on ``entries``, with ``?`` placeholders.
            parameters: values of the placeholders.

        Raises:
            LedgerError: segments are attached, but not all; the ledger cannot be read; or
                ``condition`` is no valid SQL.
        """
        if self._segments:
            self._require_segments()
        found = {
            seq: as_bytes(record)
            for store in (*self._segments, self._store)
            for seq, record in store.select(
                f"SELECT seq, {store.record_sql} FROM entries WHERE {condition}", parameters
            )
        }
        return dict(sorted(found.items()))

    # -- proving -----------------------------------------------------------------------

    def require_whole(self) -> None:
        """Check, without writing, that the last entry which this client has seen still exists.

        Earlier entries are not compared; :meth:`verify` does that. An archived entry counts as
        present. Before the first write, the ledger is also compared with the head stored with the
        key, if any.

        Raises:
            LedgerRollbackError: the database was replaced, lacks the entry, or does not extend the
                stored head.
            LedgerKeyError: the stored head cannot be read.
            LedgerFormatError: stored tree hashes are missing.
            LedgerError: the database cannot be read.
        """
        self._store.require_seen()
        if not self._store.is_held and (problem := self.checkpoints.problem()):
            raise LedgerRollbackError(problem)

    def verify(
        self,
        *,
        checkpoint: str | bytes | SignedCheckpoint | None = None,
        jobs: int = 1,
        deep: bool = True,
        witnesses: Sequence[VerifierKey] = (),
        since_mark: bool = False,
        progress: Progress | None = None,
    ) -> VerificationReport:
        """Check every record, link, column, content value, tree hash and checkpoint.

        Attached segments are always verified too, each alone and against the record. The head that
        is stored next to the key is compared as well.

        The returned report is complete whatever is stored: a check that cannot be finished is a
        problem in it. Entries that the last mark covers and that are missing or differ are a
        problem; a sound ledger gets a new mark in the client's ``marks``. The
        ledger is not changed.

        Args:
            checkpoint: a signed checkpoint held outside, which exposes a ledger that was cut off or
                rewritten. A malformed one, or another log's, is a problem in the report. ``None``
                for none.
            jobs: number of processes; small ledgers use one.
            deep: True to have the database engine check its file too.
            witnesses: keys whose cosignatures on the checkpoint the report names.
            since_mark: True to continue from this root's last verification. Entries below it are
                read in samples, and the engine does not check its file. Without a mark, or after
                any fault, everything is checked.
            progress: called at once, and then with the number of checked rows and their total;
                ``None`` for none.

        Returns:
            The report, with its problems in ledger order.
        """
        from remit.ledger.verification.verifier import Verifier  # imports multiprocessing

        report = Verifier(
            self._reopen, self._store, self.verifier_key, witnesses, self.marks,
            outside=checkpoint, jobs=jobs, deep=deep, progress=progress,
        ).verify(since_mark=since_mark)  # fmt: skip
        with report.guard("the head kept next to the key"):
            if problem := self.checkpoints.problem():
                report.add(None, "checkpoint", problem)
                report.checkpoint = "failed"
        alone = copy.copy(self)
        alone._segments = []  # The tables follow from the entries of the database, and sums.
        sound = report.verified
        for check in self._checks:
            with report.guard("tables next to the record"):
                report.take("state", check(alone, since_mark), sound=sound)
        if self._segments:
            from remit.ledger.segments import check_segments

            with report.guard("segments"):
                found = check_segments(self, self._segments, jobs, progress)
                report.contents += found.contents
                report.notes += found.notes
                report.problem_count += found.problem_count - len(found.problems)
                for one in found.problems:
                    report.add(one.seq, one.kind, one.message)
        report.sort()
        return report

    def verify_chain(self) -> tuple[bool, list[str]]:
        """Return the result of a full :meth:`verify` as ``(verified, problems)``.

        Each problem is a text; at most 100 are listed, in ledger order. A sound result writes a
        mark. No error is raised: damage is a problem in the result, and so is a check that cannot
        be finished because the ledger is closed or cannot be read.
        """
        report = self.verify()
        return report.verified, [str(problem) for problem in report.problems]

    def checkpoint(self) -> str:
        """Sign the present tree, store the checkpoint and return its text (C2SP tlog-checkpoint).

        If the tree has not grown, the stored checkpoint of it is returned. The head stored with the
        key is replaced before the checkpoint is stored.

        Raises:
            LedgerRollbackError: the ledger does not extend the head stored with the key.
            LedgerFormatError: the ledger does not extend the last stored checkpoint.
            LedgerKeyError: the head stored with the key cannot be read.
            LedgerWriteError: the head or the checkpoint cannot be written.
            NoSignerError: this client holds no key.
            LedgerClosedError: the client is closed.
            LedgerError: called inside a transaction, or the ledger cannot be read.
        """
        return self.checkpoints.sign()

    def prove(self, entry_id: str) -> str:
        """Return a proof that an entry is in the log, verifiable offline (C2SP tlog-proof).

        The proof refers to the smallest stored checkpoint that covers the entry. If there is none,
        a new one is signed and stored. Archived entries can be proven too, without their segment.

        Args:
            entry_id: id of the entry.

        Raises:
            EntryNotFoundError: there is no such entry.
            LedgerFormatError: stored tree hashes are missing.
            NoSignerError: a new checkpoint is needed, and this client holds no key.
            LedgerError: a new checkpoint is refused, as by :meth:`checkpoint`.
            TlogError: the entry does not fit the tree of the checkpoint.
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
        """Write the ledger to files; return the number of entries, archived ones included.

        ``jsonl`` is complete: records, content, erasures, and a signed checkpoint if this client
        can sign or one is stored; :meth:`import_jsonl` reads it. ``tiles`` is a static C2SP
        tlog-tiles directory: records and hashes without content.

        A client that can sign first stores a new checkpoint, if the ledger is writable. The
        export ends at the latest checkpoint, if there is one. A file at the path is replaced
        once the new one is complete; after an error it stays. Folders are made. Tiles are added to
        those of the same log. An open file may be left incomplete.

        Entries of attached segments are written like all others. Without them, archived entries are
        leaf hashes in ``jsonl``.

        Args:
            target: path of a file, path of a directory for tiles, or for jsonl an open binary file.
            format: ``jsonl`` or ``tiles``.
            progress: called with the number of entries done and their total.

        Raises:
            NoSignerError: tiles need a checkpoint, and there is neither one nor a key.
            LedgerError: the target cannot be written, or contains tiles of another log or newer
                ones; only some segments are attached, or for tiles none; a new checkpoint is
                refused, as by :meth:`checkpoint`; the ledger is damaged; or content was erased
                during the export.
            InvalidInputError: there is no such format, or an open file is to get another than
                ``jsonl``.
            TlogError: the file ``checkpoint`` in the target is no checkpoint.
            OSError: an open file cannot be written.
        """
        if self._segments:
            self._require_segments()
        exporter = Exporter(self._store, self.checkpoints, progress, self._segments)
        return exporter.export(target, format)

    def import_jsonl(
        self,
        source: str | Path | IO[bytes],
        *,
        key: VerifierKey | None = None,
        progress: Progress | None = None,
    ) -> ImportReport:
        """Read an export into this ledger, which must be empty; return the counts.

        Every line is checked. One transaction writes everything or nothing. Checkpoints, and tables
        of state, are not restored.

        Args:
            source: path of a JSON-lines file, or an open binary file.
            key: verifier key of the exported log, to check the export's checkpoint; ``None`` leaves
                the origin of the export unchecked.
            progress: called with the number of entries done and their total.

        Raises:
            LedgerFormatError: the ledger is not empty, or a line is malformed or does not hold; or
                ``key`` is given and the export has no checkpoint, or names another key.
            TlogError: the checkpoint is another log's.
            LedgerWriteError: the ledger cannot be written.
            LedgerClosedError: the client is closed.
            LedgerError: the file cannot be read, or the call is inside a transaction.
            OSError: an open file cannot be read.
        """
        with opened(source) as file:
            return self.transact(lambda tx: Import(tx, self._store, key).read(file, progress))

    # -- scoping -----------------------------------------------------------------------

    def scoped(self, *, tier: str, work_order_id: str | None = None) -> ScopedLedger:
        """Return a handle that writes only entries of ``tier`` and reads only visible ones.

        ``hot`` sees all entries of the three tiers and without a tier, ``ho2`` those of ``ho2`` and
        ``ho1``, and ``ho1`` those of ``ho1`` in its work order. The handle shares this client and
        needs no closing.

        Args:
            tier: ``hot``, ``ho2`` or ``ho1``.
            work_order_id: the only work order that the handle writes to; required for ``ho1`` to
                read anything. ``None`` does not limit writing to an order.

        Raises:
            InvalidInputError: there is no such tier.
        """
        return ScopedLedger(self, tier=tier, work_order_id=work_order_id)
