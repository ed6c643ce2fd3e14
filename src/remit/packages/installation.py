"""The installed files of one root: changed by way of the ledger, and made to agree with it."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from remit.kernel.canonical import sha256_hex
from remit.kernel.settings import PackageSettings
from remit.ledger import LedgerClient, LedgerEntry, Transaction
from remit.packages.admission import Candidate, IncomingArchive, admit
from remit.packages.errors import PackageError
from remit.packages.files import (
    INSTALLED_FOLDER,
    Operation,
    Step,
    check_folders,
    disk_errors,
    holds,
    remove_file,
)
from remit.packages.plan import Plan
from remit.packages.registry import (
    REGISTRY_FOLDER,
    InstalledPackage,
    Registry,
    archive_path,
    envelope_path,
    receipt_bytes,
    receipt_path,
)
from remit.packages.trust import TrustPolicy, sync_trust

Beside = Callable[[Transaction], Iterable[LedgerEntry]]
"""Gives the entries that stand beside those of an operation, in the transaction of both."""

_NEWEST = "SELECT max(seq) FROM entries WHERE event_type = ?"


class Installation:
    """What is installed in a root, as files. The caller holds the packages' lock.

    An operation is done once its entries are in the ledger, all in one transaction. What is
    staged before that is deleted should they not be written; everything after it follows from the
    entries and may be repeated (ADR 32).

    Args:
        root: the root's directory.
        ledger: its record.
        settings: ``[packages]``.
        step: called before each step.
    """

    def __init__(
        self, root: Path, ledger: LedgerClient, settings: PackageSettings, step: Step
    ) -> None:
        self._root = root
        self._ledger = ledger
        self._settings = settings
        self._step = step

    def registry(self) -> Registry:
        """What is installed, from the ledger."""
        return Registry.from_ledger(self._ledger)

    def apply(
        self, plan: Plan, registry: Registry, by: str, beside: Beside | None = None
    ) -> Registry:
        """Do what was planned on this registry; what fails but ``unfinished`` changed nothing.

        Returns:
            What is installed now.
        """
        operation = Operation(self._root, f"OP-{secrets.token_hex(8)}")
        staged = self._staged(plan)
        try:
            with disk_errors():
                operation.stage(staged, self._step)
            self._step("record")
            self._record(plan, operation.operation_id, registry, by, beside)
        except BaseException as error:
            # Whether the entries were written is not always known, so the ledger decides. Where
            # it cannot answer, the journal stays, and the next command looks again.
            if operation.operation_id not in self.registry().operations:
                with contextlib.suppress(OSError):  # the next command tries again
                    operation.close()
                raise
            if not isinstance(error, Exception):
                raise
        after = self.registry()
        self._finish(operation, after)
        return after

    def recover(self) -> Registry:
        """Finish or undo the operations that a killed process left; what is installed then."""
        pending = Operation.pending(self._root)
        registry = self.registry()
        for operation in pending:
            if operation.operation_id in registry.operations:
                self._finish(operation, registry)
            else:
                with disk_errors():
                    operation.close()
        return registry

    def kept(self, package: InstalledPackage) -> Candidate:
        """A kept archive, admitted on the terms on which it was installed."""
        archive, envelope = (self._root / of(package) for of in (archive_path, envelope_path))
        name, version = package.package_id, package.version
        if not holds(archive, package.archive_sha256):
            raise PackageError(
                "archive_lost",
                f"The archive kept of {name} {version} is not the one in {package.entry_id}."
                if os.path.lexists(archive)
                else f"The archive of {name} {version} is not kept here any longer.",
                next_step="It cannot be installed again as this version; release its content in "
                "a newer one.",
            )
        return admit(
            IncomingArchive(
                archive.read_bytes(),
                envelope.read_bytes() if envelope.is_file() else b"",
                package.source,
            ),
            sync_trust(self._root / TrustPolicy.FILE, self._ledger),
            self._settings,
            dev=bool(package.signature["waived"]),
            installed=True,
            threshold=int(package.signature["threshold"]) or None,
        )

    def is_installed(self, candidate: Candidate, registry: Registry) -> bool:
        """Whether these very bytes are, and the signatures recorded of them are here or come."""
        now = registry.packages.get(candidate.package.package_id)
        if now is None or now.archive_sha256 != candidate.package.archive_sha256:
            return False
        recorded, kept = now.signature["envelope_sha256"], self._root / envelope_path(now)
        return recorded in ("", _digest(candidate.envelope)) or holds(kept, recorded)

    def complete(self, candidates: Sequence[Candidate], registry: Registry) -> None:
        """Write what is missing of installed packages; never changes what is there."""
        files: dict[str, bytes] = {}
        archives: dict[str, bytes] = {}
        for candidate in candidates:
            package = registry.packages[candidate.package.package_id]
            files |= candidate.archive.files
            if _digest(candidate.envelope) == package.signature["envelope_sha256"]:
                files[envelope_path(package)] = candidate.envelope
            if not holds(self._root / archive_path(package), package.archive_sha256):
                archives[archive_path(package)] = candidate.archive.data
        if candidates:
            names = [candidate.package.package_id for candidate in candidates]
            files |= _documents(registry, names)
        missing = {path: data for path, data in files.items() if not (self._root / path).exists()}
        self._put(missing | archives)

    def restore(self, packages: Iterable[InstalledPackage]) -> dict[str, str]:
        """Make the files of packages what they were installed as.

        Everything that can be restored is, before an error is raised about the rest.

        Returns:
            By path of each file that was not as installed, what was there.
        """
        found: dict[str, str] = {}
        refused: list[PackageError] = []
        for package in packages:
            there: dict[str, str] = {}
            for asset in package.manifest.assets:
                try:
                    check_folders(self._root, asset.path)
                    if not holds(self._root / asset.path, asset.sha256):
                        there[asset.path] = _what_is(self._root / asset.path)
                except PackageError as error:
                    refused.append(error)
            if there:
                try:
                    files = self.kept(package).archive.files
                except PackageError as error:
                    refused += [error] * len(there)
                    continue
                self._put({path: files[path] for path in there})
                found |= there
        if refused:
            first = refused[0]
            raise PackageError(
                first.code,
                f"{len(refused)} files were not restored, {len(found)} were"
                + (f" ({', '.join(found)})" if found else "")
                + f". {first.message}",
                next_step=first.next_step,
            )
        return found

    def follow(self, registry: Registry) -> list[str]:
        """Delete what was installed once and is not now, and write registries and receipts: so a
        root follows another one on its ledger.

        Returns:
            Paths of the deleted files.
        """
        gone = self._gone(registry, registry.history)
        gone = [path for path in gone if os.path.lexists(self._root / path)]
        for path in gone:
            self._drop(path)
        folders = [folder.name for folder in (self._root / INSTALLED_FOLDER).glob("PKG-*")]
        self._drop_packages(registry, folders)
        self.write_documents(registry, registry.packages)
        return gone

    def write_documents(self, registry: Registry, packages: Iterable[str]) -> None:
        """Write registries, and receipts of packages, that differ from the ledger."""
        documents = _documents(registry, packages)
        self._put(
            {
                path: data
                for path, data in documents.items()
                if not holds(self._root / path, _digest(data))
            }
        )

    def _staged(self, plan: Plan) -> dict[str, bytes]:
        """What has to be on the disk before the entries are written, by path."""
        owners = plan.after.owners
        files = {
            path: data
            for path, data in plan.files.items()
            if not holds(self._root / path, owners[path].sha256)
        }
        for candidate in (change.candidate for change in plan.changes):
            if candidate is not None:
                files[archive_path(candidate.package)] = candidate.archive.data
                if candidate.envelope:
                    files[envelope_path(candidate.package)] = candidate.envelope
        return files

    def _record(
        self, plan: Plan, operation_id: str, registry: Registry, by: str, beside: Beside | None
    ) -> None:
        """Write the entries of one operation, all in one transaction."""
        entries = [self._ledger.prepare(change.entry(operation_id, by)) for change in plan.changes]

        def write(tx: Transaction) -> None:
            newest = [tx.execute(_NEWEST, (event,))[0][0] for event in ("INSTALLED", "REMOVED")]
            if max((seq for seq in newest if seq is not None), default=-1) != registry.last_seq:
                raise PackageError(
                    "registry_moved",
                    "Another machine changed the packages of this ledger at the same time.",
                    next_step="Run the command again.",
                )
            for entry in entries:
                tx.append(entry)
            for other in beside(tx) if beside is not None else ():
                tx.append(other)

        self._ledger.transact(write)

    def _finish(self, operation: Operation, registry: Registry) -> None:
        """Make the root agree with an operation that is on record; may be repeated."""
        packages = registry.operations[operation.operation_id]
        files: dict[str, str] = {}
        for package in (registry.packages[name] for name in packages if name in registry.packages):
            files |= {asset.path: asset.sha256 for asset in package.manifest.assets}
            files[archive_path(package)] = package.archive_sha256
            files[envelope_path(package)] = str(package.signature["envelope_sha256"])
        try:
            operation.place(files, self._step)
            for path in self._gone(registry, packages):
                self._drop(path)
            self.write_documents(registry, packages)
            self._drop_packages(registry, packages)
            self._step("close")
            operation.close()
        except OSError as error:
            raise PackageError(
                "unfinished",
                f"{', '.join(packages)}: done and on record, but what follows could not be "
                f"written: {error.strerror or error}.",
                next_step="Repair the disk; the next command on packages finishes it.",
            ) from error

    def _gone(self, registry: Registry, packages: Iterable[str]) -> Iterable[str]:
        """Paths of what these packages once brought and nothing needs now.

        Those are files that no package owns and that were not changed, or that are gone already,
        as deleting one that is killed may leave empty folders; and archives beyond those kept for
        rollback.
        """
        for name in packages:
            history = registry.history.get(name, [])
            once: dict[str, set[str]] = {}
            for asset in (asset for known in history for asset in known.manifest.assets):
                once.setdefault(asset.path, set()).add(asset.sha256)
            for path, digests in once.items():
                file = self._root / path
                if path not in registry.owners and (
                    not os.path.lexists(file) or any(holds(file, digest) for digest in digests)
                ):
                    yield path
            versions = list({known.version: known for known in reversed(history)}.values())
            for known in versions[self._settings.keep_versions :]:
                kept = archive_path(known), envelope_path(known)
                yield from (path for path in kept if os.path.lexists(self._root / path))

    def _drop(self, path: str) -> None:
        self._step(f"drop {path}")
        remove_file(self._root, path)

    def _drop_packages(self, registry: Registry, packages: Iterable[str]) -> None:
        """Delete receipts and archives of those packages that are not installed."""
        for name in packages:
            folder = self._root / INSTALLED_FOLDER / name
            if name not in registry.packages and folder.is_dir():
                self._step(f"drop {name}")
                shutil.rmtree(folder)

    def _put(self, files: Mapping[str, bytes]) -> None:
        """Write files of the root, by path: first all of them aside, then each in its place."""
        if files:
            operation = Operation.scratch(self._root)
            try:
                operation.stage(files, self._step)
                operation.place({path: _digest(data) for path, data in files.items()}, self._step)
            finally:
                with contextlib.suppress(OSError):  # the next command deletes it
                    operation.close()


def _documents(registry: Registry, packages: Iterable[str]) -> dict[str, bytes]:
    """Registries and receipts, by path, in the order in which they are written."""
    found = {f"{REGISTRY_FOLDER}/{name}": data for name, data in registry.documents().items()}
    for name in packages:
        if name in registry.packages:
            found[receipt_path(name)] = receipt_bytes(registry.packages[name])
    return found


def _digest(data: bytes) -> str:
    return f"sha256:{sha256_hex(data)}"


def _what_is(path: Path) -> str:
    """What is in the place of an installed file, in a few words.

    Raises:
        PackageError: ``file_in_the_way``: a folder, which is not replaced.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return "nothing"
    if stat.S_ISDIR(mode):
        raise PackageError(
            "file_in_the_way",
            f"{path} is a folder, where a file was installed.",
            next_step="Move it elsewhere, and run the command again.",
        )
    if stat.S_ISREG(mode):
        return "other content"
    return "a link" if stat.S_ISLNK(mode) else "a device, pipe or socket"
