"""Installation, removal and rollback of the packages of one root, all or nothing.

An operation takes these steps:

1. take the lock, and finish or undo what a killed process left;
2. make a :class:`Plan`: which packages and files come and go, and who approved their permissions;
3. check the root as it is, and as the plan would make it, by the gates of :mod:`preconditions`;
4. stage the new files in the journal;
5. write all entries of the operation in one transaction;
6. move the staged files to their places, delete the old ones, write registries and receipts.

The operation is done at step 5: the journal is deleted if the transaction fails, and step 6 follows
from the ledger alone and may be repeated (ADR 32).
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from remit.kernel.installed_files import digest_of
from remit.kernel.root import Root
from remit.kernel.settings import PackageSettings
from remit.ledger import LedgerClient, LedgerEntry, Transaction
from remit.packages.archive_checks import Candidate, IncomingArchive, admit
from remit.packages.checks.root_disk import RootDisk
from remit.packages.errors import PackageError
from remit.packages.install_plan import (
    Change,
    Plan,
    earlier_version,
    make_plan,
    planned_installation,
    require_not_learned,
)
from remit.packages.journal import (
    INSTALLED_FOLDER,
    Operation,
    Step,
    disk_errors,
    has_digest,
    package_lock,
)
from remit.packages.package_files import PackageFiles
from remit.packages.preconditions import check_after, check_before
from remit.packages.registry import (
    InstalledPackage,
    Registry,
    archive_path,
    envelope_path,
)
from remit.packages.shipped import sign_shipped
from remit.packages.trust import TrustChange, prepare_trust, sync_trust
from remit.packages.trust_policy import TrustPolicy

ExtraEntries = Callable[[Transaction], Iterable[LedgerEntry]]
"""Returns entries to write in the transaction of an operation, after the operation's own."""

_NEWEST = "SELECT max(seq) FROM entries WHERE event_type = ?"


class PackageManager:
    """The packages of one root: installs, removes, rolls back and restores them.

    An operation takes the packages' lock, and first finishes or undoes operations of killed
    processes. Changes are recorded as ``INSTALLED`` and ``REMOVED`` entries in the ledger. An
    object holds no state of the packages: each call reads the ledger. LedgerError is raised if the
    ledger cannot be read or written.

    Args:
        root: the installation.
        ledger: the root's ledger.
        settings: the section ``[packages]``; ``lock_timeout_s`` limits the wait for the lock.
        ledger_path: the ledger's file, relative to the root or absolute, or its URL.
        tool_ids: ids of all existing tools; agents of packages may be given no others.
        routes: names of routes, which agents may name instead of a model.
        by: the acting person or program, for the ledger.
        step: called with a text before each step on the disk, to show progress.
    """

    def __init__(
        self,
        root: Root,
        ledger: LedgerClient,
        settings: PackageSettings,
        *,
        ledger_path: str = "",
        tool_ids: Collection[str] = (),
        routes: Collection[str] = (),
        by: str = "operator",
        step: Step = lambda _: None,
    ) -> None:
        self.settings = settings
        self._root = root
        self._path = root.path
        self._ledger = ledger
        self._ledger_path = ledger_path
        self._tool_ids = tool_ids
        self._routes = routes
        self._by = by
        self._step = step
        self._files = PackageFiles(root.path, settings.keep_versions, step)

    def registry(self) -> Registry:
        """Return the installed packages, read from the ledger.

        Raises:
            PackageError: ``registry_damaged``: an entry does not describe a package.
            LedgerError: the ledger cannot be read.
        """
        return Registry.from_ledger(self._ledger)

    def install(
        self,
        archives: Sequence[IncomingArchive],
        *,
        dev: bool = False,
        approve: bool = False,
        only_upgrade: bool = False,
        extra_entries: ExtraEntries | None = None,
        trusting: Callable[[TrustPolicy], TrustPolicy] = lambda policy: policy,
        reason: str = "",
    ) -> list[InstalledPackage]:
        """Install packages together: all or none.

        An interrupted operation and an unfinished change of ``trust.json`` are completed first. A
        package that is installed with the same bytes stays; its missing files are written again
        once the operation is planned, before the gates. If the stored signatures of such a package
        are lost, as after an import of the ledger, the package is installed again. The call writes
        the packages' files, archives, receipts and the registries, and appends one ``INSTALLED``
        entry per package. A shipped package that supersedes others removes them. If all packages
        are installed already, no gate is checked and no entry is written.

        Args:
            archives: the packages, in any order; without any, only interrupted work is completed.
            dev: True to accept unsigned packages, and record that their signature was waived; also
                approves the permissions of packages that were never installed here.
            approve: True to approve permissions that the installed version does not have.
            only_upgrade: True to refuse packages that are not installed.
            extra_entries: called in the operation's transaction, returns further entries to write
                there; its error undoes the operation. Learned packages are refused without it.
            trusting: returns the trusted keys for the present ones. A change is recorded in the
                same transaction, and written to ``trust.json`` at the end.
            reason: the reason of that change, for the record.

        Returns:
            The installed packages: first those that were installed already, then the others, each
            after its dependencies.

        Raises:
            PackageError: a package cannot be installed; no package was changed. By ``code``: an
                error of :func:`prepare_trust`, of :func:`admit`, of ``planned_installation``, of
                ``make_plan`` or of ``check_after``; ``offered_twice``: two archives have one
                package id; ``learned``: a package is learned, and ``extra_entries`` is ``None``;
                ``gate_failed``: installed files were changed, or a gate refuses the planned
                packages; ``registry_moved``: another machine changed packages of this ledger;
                ``busy``: another process holds the lock; ``unwritable``: the disk does not accept a
                change; ``registry_damaged``: an entry of the ledger does not describe a package;
                ``journal_damaged``: the journal contains something that no operation left. After
                ``unfinished`` this or an interrupted operation is recorded, but its files could not
                be written; the next command on packages writes them. ``trust_unwritable`` may come
                after the installation too; the next such command writes ``trust.json``.
            LedgerError: the ledger cannot be read or written. If the outcome of the write is
                unknown, the next command on packages finishes or undoes the operation.
            OSError: the root or a part of it cannot be examined.
        """
        with self._locked() as registry:
            file = self._path / TrustPolicy.FILE
            trust = prepare_trust(file, self._ledger, trusting, self._by, reason=reason)
            shipped = functools.partial(sign_shipped, self._root)
            present: list[Candidate] = []
            new: list[Candidate] = []
            for incoming in archives:
                candidate = admit(incoming, trust.policy, self.settings, dev=dev, shipped=shipped)
                (present if self._is_installed(candidate, registry) else new).append(candidate)
            names = [candidate.package.package_id for candidate in [*present, *new]]
            if twice := [name for name in names if names.count(name) > 1]:
                raise PackageError(
                    "offered_twice",
                    f"The command names {twice[0]} twice.",
                    next_step="Choose one of its versions.",
                )
            changes = planned_installation(new, registry, only_upgrade=only_upgrade)
            registry, installed = self._carry_out(
                changes, registry, extra_entries, approve=approve, dev=dev, present=present,
                trust=trust,
            )  # fmt: skip
            if trust.append is not None and installed:
                trust.policy.save(file)
            names = [candidate.package.package_id for candidate in present]
            return [registry.packages[name] for name in [*names, *installed]]

    def remove(
        self, package_id: str, *, extra_entries: ExtraEntries | None = None
    ) -> InstalledPackage:
        """Remove a package and its files, and return the removed package.

        The call deletes the files, stored archives and receipt of the package, writes the
        registries, and appends a ``REMOVED`` entry.

        Args:
            package_id: the package.
            extra_entries: as for :meth:`install`.

        Raises:
            PackageError: ``not_installed``: no installed package has the id; ``needed``: another
                package depends on this one; ``learned``: the package is learned, and
                ``extra_entries`` is ``None``; ``gate_failed``: installed files were changed, or the
                remaining packages would not be complete; or ``registry_moved``, ``busy``,
                ``unwritable``, ``registry_damaged`` or ``journal_damaged`` as for :meth:`install`.
                Nothing was changed. ``unfinished``: as for :meth:`install`.
            LedgerError, OSError: as for :meth:`install`.
        """
        with self._locked() as registry:
            package = registry.require(package_id)
            changes = [Change(package_id, "remove", None, package)]
            self._carry_out(changes, registry, extra_entries)
            return package

    def rollback(
        self,
        package_id: str,
        version: str = "",
        *,
        approve: bool = False,
        extra_entries: ExtraEntries | None = None,
    ) -> InstalledPackage:
        """Install an earlier version of a package again, from its stored archive.

        The call replaces the installed files, writes receipt and registries, and appends an
        ``INSTALLED`` entry; an unfinished ``trust.json`` is written first. Gates are checked as by
        :meth:`install`. A version that was installed unsigned needs no signature now.

        Args:
            package_id: the package.
            version: the wanted version; if empty, the most recently installed other version.
            approve: as for :meth:`install`.
            extra_entries: as for :meth:`install`.

        Returns:
            The package as installed now.

        Raises:
            PackageError: ``not_installed``: no installed package has the id; ``no_older_version``:
                the version was never installed here, or is the present one; ``archive_lost``: its
                stored archive is missing or has other bytes; or an error of :meth:`install`, such
                as ``permissions_widened``: the earlier version has permissions that the installed
                one lacks, and ``approve`` is false. No package was changed, except after
                ``unfinished``.
            LedgerError, OSError: as for :meth:`install`.
        """
        with self._locked() as registry:
            now = registry.require(package_id)
            candidate = self._stored_candidate(earlier_version(registry, now, version))
            changes = [Change(package_id, "rollback", candidate, now)]
            registry, _ = self._carry_out(changes, registry, extra_entries, approve=approve)
            return registry.packages[package_id]

    def restore(self, package_ids: Collection[str] = ()) -> dict[str, str]:
        """Write installed files again if they differ from the stored archives.

        No entry is appended.

        Args:
            package_ids: the packages to restore. If empty, all packages are restored, unchanged
                files that no package owns any more and surplus stored archives are deleted, and
                differing registries and receipts are written.

        Returns:
            By path of each written or deleted file, a few words on what was there before; empty
            text for a deleted file. Registries and receipts are not listed.

        Raises:
            PackageError: ``not_installed``: no installed package has one of the ids;
                ``unwritable``: the disk does not accept a change; ``busy``, ``registry_damaged``,
                ``journal_damaged`` or ``unfinished`` as for :meth:`install`. Some files were not
                restored, all others were, and the rest of an empty ``package_ids`` was not done:
                ``linked_folder``: a part above a file is a link or file; ``file_in_the_way``: a
                folder has the path of a file; ``archive_lost``: the stored archive is missing or
                has other bytes; an error of :func:`sync_trust`, or of :func:`admit` for a stored
                archive.
            LedgerError: the ledger cannot be read.
            OSError: the journal cannot be read.
        """
        with self._locked() as registry, disk_errors():
            restored = self._files.restore(
                [registry.require(name) for name in package_ids or registry.packages],
                lambda package: self._stored_candidate(package).archive,
            )
            if package_ids:
                return restored
            paths = self._files.obsolete(registry, registry.history)
            obsolete = [path for path in paths if os.path.lexists(self._path / path)]
            self._files.delete(obsolete)
            folders = (self._path / INSTALLED_FOLDER).glob("PKG-*")
            self._files.delete_folders(registry, [folder.name for folder in folders])
            self._files.write_documents(registry, registry.packages)
            return restored | dict.fromkeys(obsolete, "")

    def recover(self) -> None:
        """Finish or undo the operations of killed processes; takes the lock only if there are any.

        Raises:
            PackageError: ``busy``: another process holds the lock; ``unwritable``: the lock or the
                journal cannot be written; ``unfinished``: the files of a recorded operation cannot
                be written; ``registry_damaged``: an entry does not describe a package;
                ``journal_damaged``: the journal contains something that no operation left.
            LedgerError: the ledger cannot be read.
            OSError: the journal cannot be read.
        """
        if Operation.is_pending(self._path):
            with self._locked():
                pass

    def rebuild(self) -> None:
        """Write registries and receipts again from the ledger.

        Only files that differ from the ledger are written. No entry is appended.

        Raises:
            PackageError: ``registry_damaged``: an entry does not describe a package; ``busy``:
                another process holds the lock; ``unwritable``: the disk does not accept a change;
                ``unfinished`` or ``journal_damaged`` as for :meth:`recover`.
            LedgerError: the ledger cannot be read.
            OSError: the journal cannot be read.
        """
        with self._locked() as registry, disk_errors():
            self._files.write_documents(registry, registry.packages)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Registry]:
        """Hold the packages' lock; yield the registry once interrupted operations are settled."""
        with package_lock(self._path, self.settings.lock_timeout_s):
            pending = Operation.pending(self._path)
            registry = self.registry()
            for operation in pending:
                if operation.operation_id in registry.operations:
                    self._files.finish(operation, registry)
                else:
                    with disk_errors():
                        operation.close()
            yield registry

    def _carry_out(
        self,
        changes: Sequence[Change],
        registry: Registry,
        extra_entries: ExtraEntries | None,
        *,
        approve: bool = False,
        dev: bool = False,
        present: Sequence[Candidate] = (),
        trust: TrustChange | None = None,
    ) -> tuple[Registry, list[str]]:
        """Plan, check, record and write an operation.

        Any error except ``unfinished`` means that no package was changed.

        Args:
            changes: the packages to install and to remove.
            registry: the installed packages.
            extra_entries: as for :meth:`install`.
            approve: as for :meth:`install`.
            dev: as for :meth:`install`.
            present: installed packages whose missing files to write once the plan is made.
            trust: a change of the trusted keys to record with the packages.

        Returns:
            The new registry, and the ids of the installed packages, each after its dependencies.
        """
        path, ledger_path = self._path, self._ledger_path
        plan = make_plan(
            changes, registry, path, ledger_path, by=self._by, approve=approve, dev=dev
        )
        with disk_errors():
            self._files.write_missing(present, registry)
        if not changes:
            return registry, []
        if extra_entries is None:
            require_not_learned(plan.changes)
        now = RootDisk(path, ledger_path=ledger_path)
        check_before(registry, now, [*plan.files, *plan.removed])
        then = RootDisk(path, ledger_path=ledger_path, added=plan.files, removed=plan.removed)
        check_after(plan.after, then, self._tool_ids, self._routes)
        operation = Operation(path, f"OP-{secrets.token_hex(8)}")
        try:
            with disk_errors():
                operation.stage(self._files_to_stage(plan), self._step)
            self._step("record")
            self._record(plan, operation.operation_id, registry, extra_entries, trust)
        except BaseException as error:
            # A lost connection leaves open whether the transaction was committed, so the ledger
            # decides. If the ledger cannot answer either, the journal stays for the next command.
            if operation.operation_id not in self.registry().operations:
                with contextlib.suppress(OSError):  # The next command deletes the journal.
                    operation.close()
                raise
            if not isinstance(error, Exception):
                raise
        after = self.registry()
        self._files.finish(operation, after)
        return after, [change.package_id for change in plan.changes if change.candidate]

    def _files_to_stage(self, plan: Plan) -> dict[str, bytes]:
        """Return the files that must be on the disk before the entries are written, by path."""
        owners = plan.after.owners
        files = {
            path: data
            for path, data in plan.files.items()
            if not has_digest(self._path / path, owners[path].sha256)
        }
        for candidate in (change.candidate for change in plan.changes):
            if candidate is not None:
                files[archive_path(candidate.package)] = candidate.archive.data
                if candidate.envelope:
                    files[envelope_path(candidate.package)] = candidate.envelope
        return files

    def _record(
        self,
        plan: Plan,
        operation_id: str,
        registry: Registry,
        extra_entries: ExtraEntries | None,
        trust: TrustChange | None,
    ) -> None:
        """Write the entries of one operation in one transaction.

        Raises:
            PackageError: ``registry_moved``: another machine changed packages of this ledger; or an
                error of :class:`TrustChange`.
        """
        entries = [
            self._ledger.prepare(change.entry(operation_id, self._by)) for change in plan.changes
        ]

        def write(tx: Transaction) -> None:
            newest = [tx.execute(_NEWEST, (event,))[0][0] for event in ("INSTALLED", "REMOVED")]
            if max((seq for seq in newest if seq is not None), default=-1) != registry.last_seq:
                raise PackageError(
                    "registry_moved",
                    "Another machine changed the packages of this ledger at the same time.",
                    next_step="Run the command again.",
                )
            if trust is not None and trust.append is not None:
                trust.append(tx)
            for entry in entries:
                tx.append(entry)
            for other in extra_entries(tx) if extra_entries is not None else ():
                tx.append(other)

        self._ledger.transact(write)

    def _stored_candidate(self, package: InstalledPackage) -> Candidate:
        """Return the stored archive of a package, admitted on the terms of its installation.

        Raises:
            PackageError: ``archive_lost``: the archive is missing or has other bytes; or its
                signatures do not verify.
        """
        archive, envelope = (self._path / of(package) for of in (archive_path, envelope_path))
        name, version = package.package_id, package.version
        if not has_digest(archive, package.archive_sha256):
            raise PackageError(
                "archive_lost",
                f"The stored archive of {name} {version} differs from the archive recorded in "
                f"{package.entry_id}."
                if os.path.lexists(archive)
                else f"The archive of {name} {version} is no longer stored here.",
                next_step="This version cannot be installed again; release its content as a "
                "newer version.",
            )
        return admit(
            IncomingArchive(
                archive.read_bytes(),
                envelope.read_bytes() if envelope.is_file() else b"",
                package.source,
            ),
            sync_trust(self._path / TrustPolicy.FILE, self._ledger),
            self.settings,
            dev=bool(package.signature["waived"]),
            installed=True,
            threshold=int(package.signature["threshold"]) or None,
        )

    def _is_installed(self, candidate: Candidate, registry: Registry) -> bool:
        """Return True if these bytes are installed and their recorded signatures are available."""
        now = registry.packages.get(candidate.package.package_id)
        if now is None or now.archive_sha256 != candidate.package.archive_sha256:
            return False
        recorded, stored = now.signature["envelope_sha256"], self._path / envelope_path(now)
        return recorded in ("", digest_of(candidate.envelope)) or has_digest(stored, recorded)
