"""The installed files of one root: made to agree with the ledger, from staged or kept archives."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from remit.kernel.canonical import sha256_hex
from remit.kernel.settings import PackageSettings
from remit.ledger import LedgerClient
from remit.packages.admission import Candidate, IncomingArchive, admit
from remit.packages.archive import ArchiveLimits
from remit.packages.errors import PackageError
from remit.packages.files import (
    INSTALLED_FOLDER,
    Step,
    check_folders,
    holds,
    put_file,
    remove_file,
)
from remit.packages.journal import Operation
from remit.packages.paths import path_problem
from remit.packages.placement import is_reserved
from remit.packages.receipts import archive_path, envelope_path, receipt_bytes, receipt_path
from remit.packages.registry import REGISTRY_FOLDER, InstalledPackage, Registry
from remit.packages.trust import TrustPolicy, sync_trust

__all__ = ["Installation", "documents"]


class Installation:
    """What is installed in a root, as files. The caller holds the packages' lock.

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

    def candidate(self, package: InstalledPackage) -> Candidate:
        """A kept archive, admitted on the terms on which it was installed.

        Raises:
            PackageError: ``archive_lost``, or what :func:`remit.packages.admit` raises.
        """
        name, version = package.package_id, package.version
        kept = self._root / archive_path(name, version)
        if not holds(kept, package.archive_sha256):
            missing = not os.path.lexists(kept)
            raise PackageError(
                "archive_lost",
                f"The archive of {name} {version} is not kept here any longer."
                if missing
                else f"The archive kept of {name} {version} is not the one in {package.entry_id}.",
                next_step="It cannot be installed again as this version; release its content in "
                "a newer one.",
            )
        envelope = self._root / envelope_path(name, version)
        return admit(
            IncomingArchive(
                kept.read_bytes(),
                envelope.read_bytes() if envelope.is_file() else b"",
                package.source,
            ),
            sync_trust(self._root / TrustPolicy.FILE, self._ledger),
            ArchiveLimits.from_settings(self._settings),
            dev=bool(package.signature["waived"]),
            installed=True,
            threshold=int(package.signature["threshold"]) or None,
        )

    def finish(self, operation: Operation, packages: Collection[str], registry: Registry) -> None:
        """Make the root agree with an operation that is on record; may be repeated.

        Args:
            operation: what is staged.
            packages: ids of the packages that it changed.
            registry: what is installed now.

        Raises:
            PackageError: ``linked_folder``.
            OSError: the disk does not accept it.
        """
        owners = registry.owners
        files: dict[str, str] = {}
        for package in (registry.packages[name] for name in packages if name in registry.packages):
            name, version = package.package_id, package.version
            files |= {asset.path: asset.sha256 for asset in package.manifest.assets}
            files[archive_path(name, version)] = package.archive_sha256
            files[envelope_path(name, version)] = str(package.signature["envelope_sha256"])
        operation.place(files, self._step)
        for name in packages:
            earlier = registry.history.get(name, ())
            for path, digest in {
                asset.path: asset.sha256 for known in earlier for asset in known.manifest.assets
            }.items():
                # One that is gone already may have left empty folders, if it was killed there.
                there = os.path.lexists(self._root / path)
                if path not in owners and (not there or holds(self._root / path, digest)):
                    self._drop(path)
            for path in self._outdated(earlier):
                self._drop(path)
        for path, data in documents(registry, packages).items():
            self._step(f"write {path}")
            put_file(self._root, path, data)
        for name in packages:
            if name not in registry.packages:
                self._drop_package(name)
        self._step("close")
        operation.close()

    def _outdated(self, history: Sequence[InstalledPackage]) -> Iterable[str]:
        """Archives and signatures of one package beyond those that are kept for rollback."""
        versions = list(dict.fromkeys(known.version for known in reversed(history)))
        for version in versions[self._settings.keep_versions :]:
            name = history[-1].package_id
            for path in (archive_path(name, version), envelope_path(name, version)):
                if os.path.lexists(self._root / path):
                    yield path

    def is_vouched_for(self, candidate: Candidate, registry: Registry) -> bool:
        """Whether the signatures with which it was installed are here, or come again."""
        package = registry.packages[candidate.manifest.package_id]
        recorded = str(package.signature["envelope_sha256"])
        if not recorded or f"sha256:{sha256_hex(candidate.envelope)}" == recorded:
            return True
        return holds(self._root / envelope_path(package.package_id, package.version), recorded)

    def complete(self, candidates: Sequence[Candidate], registry: Registry) -> None:
        """Write what is missing of installed packages; never changes what is there.

        Raises:
            PackageError: ``linked_folder``.
            OSError: the disk does not accept it.
        """
        files: dict[str, bytes] = {}
        for candidate in candidates:
            package = registry.packages[candidate.manifest.package_id]
            files.update(candidate.archive.files)
            kept = archive_path(package.package_id, package.version)
            if not holds(self._root / kept, package.archive_sha256):
                self._put(kept, candidate.archive.data)
            signed = package.signature["envelope_sha256"]
            if candidate.envelope and f"sha256:{sha256_hex(candidate.envelope)}" == signed:
                files[envelope_path(package.package_id, package.version)] = candidate.envelope
        if candidates:
            files |= documents(registry, [one.manifest.package_id for one in candidates])
        for path, data in files.items():
            if not (self._root / path).exists():
                self._put(path, data)

    def restore(self, packages: Iterable[InstalledPackage]) -> dict[str, str]:
        """Make the files of packages what they were installed as.

        Everything that can be restored is, before an error is raised about the rest.

        Returns:
            By path of each file that was not as installed, what was there.

        Raises:
            PackageError: ``archive_lost``; ``linked_folder`` or ``file_in_the_way``: something
                is in the place of a file or above it that is not replaced.
            OSError: the disk does not accept it.
        """
        found: dict[str, str] = {}
        refused: list[PackageError] = []
        for package in packages:
            wrong = [
                asset.path
                for asset in package.manifest.assets
                if not holds(self._root / asset.path, asset.sha256)
            ]
            files = self.candidate(package).archive.files if wrong else {}
            for path in wrong:
                try:
                    check_folders(self._root, path)
                    what = _what_is(self._root / path)
                    if what == "a folder":
                        raise PackageError(
                            "file_in_the_way",
                            f"{self._root / path} is a folder, where a file was installed.",
                            next_step="Move it away, and restore again.",
                        )
                    self._put(path, files[path])
                    found[path] = what
                except PackageError as error:
                    refused.append(error)
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
        """Delete what ``ownership.json`` says is installed and the ledger says is not, and write
        registries and receipts again: so a root follows another one on its ledger.

        Only files that are as they were installed are deleted.

        Returns:
            Paths of the deleted files.

        Raises:
            OSError: the disk does not accept it.
        """
        owners = registry.owners
        gone = [
            path
            for path, digest in self._owned_files().items()
            if path not in owners
            and not path_problem(path)[0]
            and not is_reserved(path)
            and holds(self._root / path, digest)
        ]
        for path in gone:
            self._drop(path)
        for folder in sorted((self._root / INSTALLED_FOLDER).glob("PKG-*")):
            if folder.name not in registry.packages:
                self._drop_package(folder.name)
        self.rewrite(registry, registry.packages)
        return gone

    def rewrite(self, registry: Registry, packages: Collection[str]) -> None:
        """Write registries and receipts that differ from the ledger.

        Raises:
            OSError: the disk does not accept it.
        """
        for path, data in documents(registry, packages).items():
            if not holds(self._root / path, f"sha256:{sha256_hex(data)}"):
                self._put(path, data)

    def _owned_files(self) -> dict[str, str]:
        """Path and hash of what this root's registry says is installed."""
        try:
            table = json.loads((self._root / REGISTRY_FOLDER / "ownership.json").read_bytes())
            return {str(path): str(owner["sha256"]) for path, owner in table.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _drop(self, path: str) -> None:
        check_folders(self._root, path)
        self._step(f"drop {path}")
        remove_file(self._root, path)

    def _drop_package(self, package_id: str) -> None:
        folder = self._root / INSTALLED_FOLDER / package_id
        if folder.is_dir():
            self._step(f"drop {package_id}")
            shutil.rmtree(folder)

    def _put(self, path: str, data: bytes) -> None:
        check_folders(self._root, path)
        self._step(f"restore {path}")
        put_file(self._root, path, data)


def documents(registry: Registry, packages: Iterable[str]) -> dict[str, bytes]:
    """Registries and receipts, by path, in the order in which they are written."""
    found = {f"{REGISTRY_FOLDER}/{name}": data for name, data in registry.documents().items()}
    for name in packages:
        if name in registry.packages:
            found[receipt_path(name)] = receipt_bytes(registry.packages[name])
    return found


def _what_is(path: Path) -> str:
    """What is in the place of an installed file, in a few words."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return "nothing"
    if stat.S_ISREG(mode):
        return "other content"
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a link" if stat.S_ISLNK(mode) else "a device, pipe or socket"
