"""Installs, removes and rolls back the packages of one root, all or nothing (SPEC 10)."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence

from remit.kernel.canonical import sha256_hex
from remit.kernel.root import Root
from remit.kernel.settings import PackageSettings
from remit.ledger import LedgerClient
from remit.packages.archive import Archive, ArchiveLimits
from remit.packages.checks.files import Overlay, RootDisk
from remit.packages.dependencies import in_order
from remit.packages.errors import PackageError
from remit.packages.gating import check_before, check_whole
from remit.packages.journal import INSTALLED_FOLDER, Operation, Step
from remit.packages.keeping import KeptArchives, holds
from remit.packages.lock import package_lock
from remit.packages.offer import Candidate, Offer, admit
from remit.packages.placement import check_placement
from remit.packages.planning import (
    approved,
    check_distinct,
    check_no_twins,
    earlier,
    installed,
    is_installed,
    manifests,
    plan_install,
)
from remit.packages.receipts import archive_path, envelope_path
from remit.packages.recording import Change, documents, is_recorded, record
from remit.packages.registry import InstalledPackage, Registry
from remit.packages.shipped import ShippedPackages
from remit.packages.trust import TrustPolicy, settle_trust

__all__ = ["PackageManager"]


class PackageManager:
    """The packages of one root.

    Every operation: lock; finish or undo what a killed process left; check everything; stage;
    place; entry in the ledger; registries; receipts. Until the entry is written the root can be
    put back as it was, from then on the rest follows from the entry (ADR 32).

    Args:
        root: the installation.
        ledger: its record.
        settings: ``[packages]``.
        ledger_file: where the ledger lies, relative to the root; empty when it is elsewhere.
        tool_ids: of all tools that there are: what agents of packages may be given.
        routes: names that mean a choice of models.
        by: who acts, for the record.
        step: told before each step, for people to see what goes on.
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
        self._kept = KeptArchives(root, ledger, settings)

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
        offers: Sequence[Offer],
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
            offers: the archives.
            dev: let unsigned ones pass; their record says so.
            approve: what they may do beyond what they might before is approved.
            only_upgrade: refuse those that are not installed in an older version.

        Returns:
            The packages as they are installed now, in the order in which they need each other.

        Raises:
            PackageError: one cannot be installed; nothing was changed.
        """
        with self._locked() as registry:
            policy = settle_trust(self._root.path / TrustPolicy.FILE, self._ledger)
            candidates = [
                admit(
                    offer,
                    policy,
                    self._limits,
                    dev=dev,
                    shipped=self._shipped,
                    envelope_bytes=self._settings.envelope_bytes,
                )
                for offer in offers
            ]
            check_distinct(candidates)
            there = [
                one
                for one in candidates
                if is_installed(one, registry) and self._kept.is_vouched_for(one, registry)
            ]
            changes = plan_install(
                [one for one in candidates if one not in there], registry, only_upgrade=only_upgrade
            )
            self._placed(changes, registry)
            changes = approved(changes, registry, by=self._by, dev=dev, approve=approve)
            with _disk_errors():
                self._kept.put_back(there, registry, self._step)
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
                be whole. Nothing was changed.
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
            candidate = self._kept.candidate(earlier(registry, now, version))
            in_order([candidate.manifest], manifests(registry))
            changes = [Change(package_id, candidate, now, "rollback")]
            self._placed(changes, registry)
            changes = approved(changes, registry, by=self._by, approve=approve)
            return self._carry_out(changes, registry).packages[package_id]

    def restore(self, package_ids: Collection[str] = ()) -> list[str]:
        """Make installed files what they were installed as, from the archives that are kept.

        Args:
            package_ids: of which packages; when empty of all, and what another root removed or
                upgraded on the same ledger is followed here.

        Returns:
            Paths of the files that were put back or taken away.

        Raises:
            PackageError: ``not_installed``, ``archive_lost``, ``linked_folder``, ``unwritable``.
        """
        with self._locked() as registry:
            asked = [installed(registry, name) for name in package_ids or registry.packages]
            with _disk_errors():
                found = self._kept.restore(asked, self._step)
                if not package_ids:
                    found += self._kept.settle(registry, self._step)
            return found

    def recover(self) -> None:
        """Finish or undo what a killed process left; quick when there is nothing."""
        if Operation.is_pending(self._root.path):
            with self._locked():
                pass

    def rebuild(self) -> None:
        """Write registries and receipts anew from the ledger.

        Raises:
            PackageError: ``registry_damaged``, ``unwritable``.
        """
        with self._locked() as registry, _disk_errors():
            self._kept.rewrite(registry, registry.packages, self._step)

    # -- inside ------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Registry]:
        with package_lock(self._root.path, self._settings.lock_timeout_s):
            for operation in Operation.pending(self._root.path):
                if is_recorded(self._ledger, operation.operation_id, operation.packages):
                    self._finish(operation, self.registry())
                else:
                    _undo(operation)
            yield self.registry()

    def _carry_out(self, changes: Sequence[Change], registry: Registry) -> Registry:
        """Do what was planned. What fails before the entries are written changes nothing."""
        files, gone = self._checked(changes, registry)
        operation = self._stage(f"OP-{secrets.token_hex(8)}", changes, files, gone)
        try:
            with _disk_errors():
                operation.put_in_place(self._step)
            self._step("record")
        except BaseException:
            _undo(operation)
            raise
        try:
            record(self._ledger, changes, operation.operation_id, self._by, registry.last_seq)
        except BaseException as error:
            # Whether the entries were written is not always known: the ledger tells. Where it
            # cannot be asked, the journal stays, and the next command asks.
            if not is_recorded(self._ledger, operation.operation_id, operation.packages):
                _undo(operation)
                raise
            if not isinstance(error, Exception):
                raise
        after = self.registry()
        self._finish(operation, after)
        return after

    def _checked(
        self, changes: Sequence[Change], registry: Registry
    ) -> tuple[dict[str, bytes], list[str]]:
        """The files that come, by path, and the paths of those that go, if all may be so."""
        disk = RootDisk(self._root.path, ledger_path=self._ledger_file)
        after, files, gone = self._placed(changes, registry)
        check_before(registry, disk, files)
        check_whole(after, Overlay(disk, files, gone), self._tool_ids, self._routes)
        return files, gone

    def _placed(
        self, changes: Sequence[Change], registry: Registry
    ) -> tuple[Registry, dict[str, bytes], list[str]]:
        """The registry as it would be, with the files that come and the paths that go, if every
        file may come to lie where it says."""
        staying = registry.after(removed=[one.package_id for one in changes if one.previous])
        own = registry.owners.keys() - staying.owners.keys()
        files: dict[str, bytes] = {}
        for one in (change.candidate for change in changes):
            if one is not None:
                check_placement(one.archive, self._root.path, staying, own, self._ledger_file)
                staying = staying.after([_provisional(one)])
                files.update(one.archive.files)
        gone = sorted(own - staying.owners.keys())
        check_no_twins(files, gone)
        return staying, files, gone

    def _stage(
        self,
        operation_id: str,
        changes: Sequence[Change],
        files: Mapping[str, bytes],
        gone: Sequence[str],
    ) -> Operation:
        root = self._root.path
        archives: dict[str, bytes] = {}
        for one in (change.candidate for change in changes):
            if one is not None:
                name, version = one.manifest.package_id, one.manifest.version
                archives[_below(archive_path(name, version))] = one.archive.data
                if one.envelope:
                    archives[_below(envelope_path(name, version))] = one.envelope
        with _disk_errors():
            return Operation.stage(
                root,
                operation_id,
                files={
                    path: data
                    for path, data in files.items()
                    if not holds(root / path, f"sha256:{sha256_hex(data)}")
                },
                drop=gone,
                archives=archives,
                packages=[one.package_id for one in changes],
                step=self._step,
            )

    def _finish(self, operation: Operation, registry: Registry) -> None:
        owners = registry.owners
        drop = [path for path in operation.drop if path not in owners]
        drop += self._kept.outdated(operation.packages, registry)
        try:
            operation.finish(drop, documents(registry, operation.packages), self._step)
        except OSError as error:
            raise PackageError(
                "unfinished",
                f"{', '.join(operation.packages)}: done and on record, but what follows could "
                f"not be written: {error.strerror or error}.",
                next_step="Mend the disk; the next command on packages finishes it.",
            ) from error


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    """Tells what the disk does not take as a :class:`PackageError` (``unwritable``)."""
    try:
        yield
    except OSError as error:
        raise PackageError(
            "unwritable",
            f"The disk does not take it: {error.strerror or error}"
            + (f" ({error.filename})." if error.filename else "."),
            next_step="Free space or make the root writable; nothing was changed.",
        ) from error


def _undo(operation: Operation) -> None:
    try:
        operation.undo()
    except OSError as error:
        raise PackageError(
            "not_undone",
            f"{', '.join(operation.packages)}: nothing is on record, and what was placed already "
            f"could not be taken back: {error.strerror or error}.",
            next_step="Mend the disk; the next command on packages takes it back.",
        ) from error


def _provisional(one: Candidate) -> InstalledPackage:
    archive: Archive = one.archive
    return InstalledPackage(
        archive.manifest, archive.manifest_json, archive.digest, "", "install", "", one.source,
        one.signature, "", "",
    )  # fmt: skip


def _below(path: str) -> str:
    return path.removeprefix(f"{INSTALLED_FOLDER}/")
