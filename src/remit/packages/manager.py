"""Installs, removes and rolls back the packages of one root, all or nothing."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterator, Sequence

from remit.kernel.root import Root
from remit.kernel.settings import PackageSettings
from remit.ledger import LedgerClient
from remit.packages.admission import Candidate, IncomingArchive, admit
from remit.packages.checks.files import RootDisk
from remit.packages.errors import PackageError
from remit.packages.files import Operation, Step, disk_errors
from remit.packages.installation import Beside, Installation
from remit.packages.lock import package_lock
from remit.packages.plan import (
    Change,
    Plan,
    earlier_version,
    installing,
    make_plan,
    require_not_learned,
)
from remit.packages.preconditions import check_after, check_before
from remit.packages.registry import InstalledPackage, Registry
from remit.packages.shipped import sign_shipped
from remit.packages.trust import TrustPolicy, sync_trust


class PackageManager:
    """The packages of one root.

    Every operation takes the lock, finishes or undoes what a killed process left, makes a plan,
    checks everything as it would be, and has the :class:`Installation` apply the plan.

    Args:
        root: the installation.
        ledger: its record.
        settings: ``[packages]``.
        ledger_path: the ledger's file, relative to the root or absolute, or its URL.
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
        ledger_path: str = "",
        tool_ids: Collection[str] = (),
        routes: Collection[str] = (),
        by: str = "operator",
        step: Step = lambda _: None,
    ) -> None:
        self.settings = settings
        self._root = root
        self._ledger = ledger
        self._ledger_path = ledger_path
        self._tool_ids = tool_ids
        self._routes = routes
        self._by = by
        self._installation = Installation(root.path, ledger, settings, step)

    def registry(self) -> Registry:
        """What is installed, from the ledger.

        Raises:
            PackageError: ``registry_damaged``.
        """
        return self._installation.registry()

    def install(
        self,
        archives: Sequence[IncomingArchive],
        *,
        dev: bool = False,
        approve: bool = False,
        only_upgrade: bool = False,
        beside: Beside | None = None,
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
            beside: gives entries that are written in the same transaction; what is learned comes
                and goes with one alone.

        Returns:
            The packages as they are installed now, in the order in which they need each other.

        Raises:
            PackageError: one cannot be installed; nothing was changed.
        """
        with self._locked() as registry:
            policy = sync_trust(self._root.path / TrustPolicy.FILE, self._ledger)
            shipped = functools.partial(sign_shipped, self._root)
            there: list[Candidate] = []
            coming: list[Candidate] = []
            for incoming in archives:
                candidate = admit(incoming, policy, self.settings, dev=dev, shipped=shipped)
                known = self._installation.is_installed(candidate, registry)
                (there if known else coming).append(candidate)
            names = [candidate.package.package_id for candidate in [*there, *coming]]
            if twice := [name for name in names if names.count(name) > 1]:
                raise PackageError(
                    "offered_twice",
                    f"{twice[0]} is to be installed twice at once.",
                    next_step="Choose one of its versions.",
                )
            changes = installing(coming, registry, only_upgrade=only_upgrade)
            plan = self._plan(changes, registry, approve=approve, dev=dev)
            with disk_errors():
                self._installation.complete(there, registry)
            if changes:
                registry = self._carry_out(plan, registry, beside)
            names = [candidate.package.package_id for candidate in there]
            names += [change.package_id for change in plan.changes if change.candidate]
            return [registry.packages[name] for name in names]

    def remove(self, package_id: str, *, beside: Beside | None = None) -> InstalledPackage:
        """Remove a package and its files.

        Args:
            package_id: which package.
            beside: as for :meth:`install`.

        Returns:
            What was removed.

        Raises:
            PackageError: ``not_installed``; ``needed``: others need it; or what stays would not
                be complete. Nothing was changed.
        """
        with self._locked() as registry:
            package = registry.require(package_id)
            changes = [Change(package_id, "remove", None, package)]
            self._carry_out(self._plan(changes, registry), registry, beside)
            return package

    def rollback(
        self,
        package_id: str,
        version: str = "",
        *,
        approve: bool = False,
        beside: Beside | None = None,
    ) -> InstalledPackage:
        """Go back to an archive that was installed before and is kept.

        Args:
            package_id: which package.
            version: to which version; the one before when empty.
            approve: as for :meth:`install`.
            beside: likewise.

        Raises:
            PackageError: ``not_installed``, ``no_older_version``, ``archive_lost``, or what
                :meth:`install` raises. Nothing was changed.
        """
        with self._locked() as registry:
            now = registry.require(package_id)
            candidate = self._installation.kept(earlier_version(registry, now, version))
            changes = [Change(package_id, "rollback", candidate, now)]
            plan = self._plan(changes, registry, approve=approve)
            return self._carry_out(plan, registry, beside).packages[package_id]

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
            packages = [registry.require(name) for name in package_ids or registry.packages]
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
            self._installation.write_documents(registry, registry.packages)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Registry]:
        with package_lock(self._root.path, self.settings.lock_timeout_s):
            yield self._installation.recover()

    def _plan(
        self,
        changes: Sequence[Change],
        registry: Registry,
        *,
        approve: bool = False,
        dev: bool = False,
    ) -> Plan:
        return make_plan(
            changes, registry, self._root.path, self._ledger_path,
            by=self._by, approve=approve, dev=dev,
        )  # fmt: skip

    def _carry_out(self, plan: Plan, registry: Registry, beside: Beside | None = None) -> Registry:
        if beside is None:
            require_not_learned(plan.changes)
        root, ledger_path = self._root.path, self._ledger_path
        now = RootDisk(root, ledger_path=ledger_path)
        check_before(registry, now, [*plan.files, *plan.gone])
        then = RootDisk(root, ledger_path=ledger_path, coming=plan.files, going=plan.gone)
        check_after(plan.after, then, self._tool_ids, self._routes)
        return self._installation.apply(plan, registry, self._by, beside)
