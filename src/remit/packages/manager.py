"""Installs, removes and rolls back the packages of one root, all or nothing (SPEC 10)."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterator, Sequence

from remit.kernel.root import Root
from remit.kernel.settings import PackageSettings
from remit.ledger import LedgerClient
from remit.packages.admission import Candidate, IncomingArchive, admit
from remit.packages.archive import ArchiveLimits
from remit.packages.changes import Change, record, recorded_packages
from remit.packages.checks.files import Overlay, RootDisk
from remit.packages.dependencies import in_order
from remit.packages.errors import PackageError
from remit.packages.files import Step, disk_errors, holds
from remit.packages.installation import Installation
from remit.packages.journal import Operation
from remit.packages.lock import package_lock
from remit.packages.placement import check_placement
from remit.packages.plan import (
    approved,
    check_distinct,
    check_no_twins,
    earlier,
    installed,
    is_installed,
    manifests,
    plan_install,
)
from remit.packages.preconditions import check_before, check_whole
from remit.packages.receipts import archive_path, envelope_path
from remit.packages.registry import InstalledPackage, Registry
from remit.packages.shipped import ShippedPackages
from remit.packages.trust import TrustPolicy, sync_trust

__all__ = ["PackageManager"]


class PackageManager:
    """The packages of one root.

    Every operation: lock; finish or undo what a killed process left; check everything; stage;
    entry in the ledger; files, registries, receipts. Until the entry is written nothing that
    was installed changes, from then on the rest follows from the entry (ADR 32).

    Args:
        root: the installation.
        ledger: its record.
        settings: ``[packages]``.
        ledger_file: where the ledger is, relative to the root; empty when it is elsewhere.
        tool_ids: of all tools that there are: what agents of packages may be given.
        routes: names that mean a choice of models.
        by: who acts, for the record.
        step: called before each step, to show progress.
    """

    def __init__(
        self,
        root: Root,
        ledger: LedgerClient,
        settings: PackageSettings,
        *,
        ledger_file: str = "",
        tool_ids: Collection[str] = (),
        routes: Collection[str] = (),
        by: str = "operator",
        step: Step = lambda _: None,
    ) -> None:
        self._root = root
        self._ledger = ledger
        self._settings = settings
        self._limits = ArchiveLimits.from_settings(settings)
        self._ledger_file = ledger_file
        self._tool_ids = tool_ids
        self._routes = routes
        self._by = by
        self._step = step
        self._shipped = ShippedPackages(root)
        self._installation = Installation(root.path, ledger, settings, step)

    @property
    def settings(self) -> PackageSettings:
        """What reading and keeping packages may cost."""
        return self._settings

    def registry(self) -> Registry:
        """What is installed, from the ledger.

        Raises:
            PackageError: ``registry_damaged``.
        """
        return Registry.from_ledger(self._ledger)

    def install(
        self,
        archives: Sequence[IncomingArchive],
        *,
        dev: bool = False,
        approve: bool = False,
        only_upgrade: bool = False,
    ) -> list[InstalledPackage]:
        """Install packages together: all of them or none.

        One that is installed already, in this version and with these bytes, is left as it is;
        what is missing of it is put back, once all the others may be installed. Where its
        signatures are lost, as after an import of the ledger, it is installed again with new ones.

        Args:
            archives: the archives.
            dev: let unsigned ones pass; their record says so.
            approve: what they may do beyond what they might before is approved.
            only_upgrade: refuse those that are not installed in an older version.

        Returns:
            The packages as they are installed now, in the order in which they need each other.

        Raises:
            PackageError: one cannot be installed; nothing was changed.
        """
        with self._locked() as registry:
            policy = sync_trust(self._root.path / TrustPolicy.FILE, self._ledger)
            candidates = [
                admit(
                    incoming,
                    policy,
                    self._limits,
                    dev=dev,
                    shipped=self._shipped,
                    envelope_bytes=self._settings.envelope_bytes,
                )
                for incoming in archives
            ]
            check_distinct(candidates)
            there = [
                one
                for one in candidates
                if is_installed(one, registry) and self._installation.is_vouched_for(one, registry)
            ]
            changes = plan_install(
                [one for one in candidates if one not in there], registry, only_upgrade=only_upgrade
            )
            self._placed(changes, registry)
            changes = approved(changes, registry, by=self._by, dev=dev, approve=approve)
            with disk_errors():
                self._installation.complete(there, registry)
            if changes:
                registry = self._carry_out(changes, registry)
            asked = [one.manifest.package_id for one in there]
            asked += [one.package_id for one in changes if one.candidate is not None]
            return [registry.packages[name] for name in asked]

    def remove(self, package_id: str) -> InstalledPackage:
        """Take a package and its files away.

        Returns:
            What was removed.

        Raises:
            PackageError: ``not_installed``; ``needed``: others need it; or what stays would not
                be complete. Nothing was changed.
        """
        with self._locked() as registry:
            package = installed(registry, package_id)
            in_order([], manifests(registry), [package_id])
            self._carry_out([Change(package_id, None, package, "remove")], registry)
            return package

    def rollback(
        self, package_id: str, version: str = "", *, approve: bool = False
    ) -> InstalledPackage:
        """Go back to an archive that was installed before and is kept.

        Args:
            package_id: which package.
            version: to which version; the one before when empty.
            approve: as for :meth:`install`.

        Raises:
            PackageError: ``not_installed``, ``no_older_version``, ``archive_lost``, or what
                :meth:`install` raises. Nothing was changed.
        """
        with self._locked() as registry:
            now = installed(registry, package_id)
            candidate = self._installation.candidate(earlier(registry, now, version))
            in_order([candidate.manifest], manifests(registry))
            changes = [Change(package_id, candidate, now, "rollback")]
            self._placed(changes, registry)
            changes = approved(changes, registry, by=self._by, approve=approve)
            return self._carry_out(changes, registry).packages[package_id]

    def restore(self, package_ids: Collection[str] = ()) -> dict[str, str]:
        """Make installed files what they were installed as, from the archives that are kept.

        Args:
            package_ids: of which packages; when empty of all, and what another root removed or
                upgraded on the same ledger is followed here.

        Returns:
            By path of each file that was written or deleted, what was there before; empty text
            for a file that was deleted as it is not installed any longer.

        Raises:
            PackageError: ``not_installed``, ``archive_lost``, ``unwritable``; ``linked_folder`` or
                ``file_in_the_way``: some files could not be restored, all others were.
        """
        with self._locked() as registry, disk_errors():
            packages = [installed(registry, name) for name in package_ids or registry.packages]
            found = self._installation.restore(packages)
            if not package_ids:
                found |= dict.fromkeys(self._installation.follow(registry), "")
            return found

    def recover(self) -> None:
        """Finish or undo what a killed process left; quick when there is nothing."""
        if Operation.is_pending(self._root.path):
            with self._locked():
                pass

    def rebuild(self) -> None:
        """Write registries and receipts again from the ledger.

        Raises:
            PackageError: ``registry_damaged``, ``unwritable``.
        """
        with self._locked() as registry, disk_errors():
            self._installation.rewrite(registry, registry.packages)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Registry]:
        with package_lock(self._root.path, self._settings.lock_timeout_s):
            for operation in Operation.pending(self._root.path):
                if packages := recorded_packages(self._ledger, operation.operation_id):
                    self._finish(operation, packages, self.registry())
                else:
                    with disk_errors():
                        operation.close()
            yield self.registry()

    def _carry_out(self, changes: Sequence[Change], registry: Registry) -> Registry:
        """Do what was planned. What fails before the entries are written changes nothing."""
        operation = Operation(self._root.path, f"OP-{secrets.token_hex(8)}")
        files = self._checked(changes, registry)
        try:
            with disk_errors():
                operation.stage(files, self._step)
            self._step("record")
            record(self._ledger, changes, operation.operation_id, self._by, registry.last_seq)
        except BaseException as error:
            # Whether the entries were written is not always known, so the ledger decides. Where
            # it cannot answer, the journal stays, and the next command asks again.
            if not recorded_packages(self._ledger, operation.operation_id):
                with contextlib.suppress(OSError):  # the next command tries again
                    operation.close()
                raise
            if not isinstance(error, Exception):
                raise
        after = self.registry()
        self._finish(operation, [change.package_id for change in changes], after)
        return after

    def _checked(self, changes: Sequence[Change], registry: Registry) -> dict[str, bytes]:
        """The files to stage, by path, if everything may change as planned."""
        disk = RootDisk(self._root.path, ledger_path=self._ledger_file)
        after, files, gone = self._placed(changes, registry)
        check_before(registry, disk, [*files, *gone])
        check_whole(after, Overlay(disk, files, gone), self._tool_ids, self._routes)
        staged = {
            path: data
            for path, data in files.items()
            if not holds(self._root.path / path, after.owners[path].sha256)
        }
        for candidate in (change.candidate for change in changes):
            if candidate is not None:
                manifest = candidate.manifest
                where = manifest.package_id, manifest.version
                staged[archive_path(*where)] = candidate.archive.data
                if candidate.envelope:
                    staged[envelope_path(*where)] = candidate.envelope
        return staged

    def _placed(
        self, changes: Sequence[Change], registry: Registry
    ) -> tuple[Registry, dict[str, bytes], list[str]]:
        """The registry as it would be, the files that come and the paths of those that go.

        Raises:
            PackageError: a file may not be where it says.
        """
        staying = registry.after(removed=[one.package_id for one in changes if one.previous])
        own = registry.owners.keys() - staying.owners.keys()
        files: dict[str, bytes] = {}
        for candidate in (change.candidate for change in changes):
            if candidate is not None:
                archive = candidate.archive
                check_placement(archive, self._root.path, staying, own, self._ledger_file)
                staying = staying.after([_provisional(candidate)])
                files.update(archive.files)
        gone = sorted(own - staying.owners.keys())
        check_no_twins(files, gone)
        return staying, files, gone

    def _finish(self, operation: Operation, packages: Collection[str], registry: Registry) -> None:
        try:
            self._installation.finish(operation, packages, registry)
        except OSError as error:
            raise PackageError(
                "unfinished",
                f"{', '.join(packages)}: done and on record, but what follows could not be "
                f"written: {error.strerror or error}.",
                next_step="Repair the disk; the next command on packages finishes it.",
            ) from error


def _provisional(candidate: Candidate) -> InstalledPackage:
    archive = candidate.archive
    return InstalledPackage(
        archive.manifest, archive.manifest_json, archive.digest, "", "install", "",
        candidate.source, candidate.signature, "", "",
    )  # fmt: skip
