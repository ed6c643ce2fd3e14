"""The archives that a root keeps, and what is put back from them (SPEC 10)."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from remit.kernel.canonical import sha256_hex
from remit.kernel.root import Root
from remit.kernel.settings import PackageSettings
from remit.ledger import LedgerClient
from remit.packages.archive import ArchiveLimits
from remit.packages.errors import PackageError
from remit.packages.journal import INSTALLED_FOLDER, Step, put_file, remove_file
from remit.packages.offer import Candidate, Offer, admit
from remit.packages.paths import path_problem
from remit.packages.placement import check_folders, is_reserved
from remit.packages.receipts import archive_path, envelope_path
from remit.packages.recording import documents
from remit.packages.registry import REGISTRY_FOLDER, InstalledPackage, Registry
from remit.packages.trust import TrustPolicy, settle_trust

__all__ = ["KeptArchives", "holds"]


class KeptArchives:
    """The archives of one root, each as it was installed. Its methods need the packages' lock.

    Args:
        root: the installation.
        ledger: its record.
        settings: ``[packages]``.
    """

    def __init__(self, root: Root, ledger: LedgerClient, settings: PackageSettings) -> None:
        self._root = root.path
        self._ledger = ledger
        self._settings = settings

    def candidate(self, package: InstalledPackage) -> Candidate:
        """An archive that was installed before, as it was let in then.

        Raises:
            PackageError: ``archive_lost``, or what :func:`remit.packages.admit` raises.
        """
        name, version = package.package_id, package.version
        again = "It does not come back as this version; bring its content in a newer one."
        try:
            data = (self._root / archive_path(name, version)).read_bytes()
        except OSError as error:
            raise PackageError(
                "archive_lost",
                f"The archive of {name} {version} is not kept here any longer.",
                next_step=again,
            ) from error
        if f"sha256:{sha256_hex(data)}" != package.archive_sha256:
            raise PackageError(
                "archive_lost",
                f"The archive kept of {name} {version} is not the one that {package.entry_id} "
                "tells of.",
                next_step=again,
            )
        envelope = self._root / envelope_path(name, version)
        signature = package.signature
        return admit(
            Offer(data, envelope.read_bytes() if envelope.is_file() else b"", package.source),
            settle_trust(self._root / TrustPolicy.FILE, self._ledger),
            ArchiveLimits.from_settings(self._settings),
            dev=bool(signature["waived"]),
            installed=True,
            threshold=int(signature["threshold"]) or None,
        )

    def outdated(self, packages: Iterable[str], registry: Registry) -> list[str]:
        """Paths of archives and signatures beyond those that are kept for rollback."""
        found = []
        for package_id in packages:
            versions: list[str] = []
            for known in reversed(registry.history.get(package_id, ())):
                if known.version not in versions:
                    versions.append(known.version)
            for version in versions[self._settings.keep_versions :]:
                found += [archive_path(package_id, version), envelope_path(package_id, version)]
        return found

    def is_vouched_for(self, one: Candidate, registry: Registry) -> bool:
        """Whether the signatures with which it was installed are here, or come again."""
        package = registry.packages[one.manifest.package_id]
        recorded = package.signature["envelope_sha256"]
        if not recorded or f"sha256:{sha256_hex(one.envelope)}" == recorded:
            return True
        kept = self._root / envelope_path(package.package_id, package.version)
        return holds(kept, str(recorded))

    def put_back(self, candidates: Sequence[Candidate], registry: Registry, step: Step) -> None:
        """Put back what is missing of installed packages; never changes what is there.

        Raises:
            PackageError: ``linked_folder``.
            OSError: the disk does not take it.
        """
        files: dict[str, bytes] = {}
        for one in candidates:
            package = registry.packages[one.manifest.package_id]
            files.update(one.archive.files)
            kept = archive_path(package.package_id, package.version)
            if not holds(self._root / kept, package.archive_sha256):
                self._put(kept, one.archive.data, step)
            signed = package.signature["envelope_sha256"]
            if one.envelope and f"sha256:{sha256_hex(one.envelope)}" == signed:
                files[envelope_path(package.package_id, package.version)] = one.envelope
        names = [one.manifest.package_id for one in candidates]
        told = documents(registry, names) if candidates else {}
        files.update({path: data for path, data in told.items() if data is not None})
        for path, data in files.items():
            if not (self._root / path).exists():
                self._put(path, data, step)

    def restore(self, packages: Iterable[InstalledPackage], step: Step) -> list[str]:
        """Make the files of packages what they were installed as; returns paths.

        Raises:
            PackageError: ``archive_lost``, ``linked_folder``.
            OSError: the disk does not take it.
        """
        found = []
        for package in packages:
            wrong = [
                asset.path
                for asset in package.manifest.assets
                if not holds(self._root / asset.path, asset.sha256)
            ]
            files = self.candidate(package).archive.files if wrong else {}
            for path in wrong:
                self._put(path, files[path], step)
            found += wrong
        return found

    def settle(self, registry: Registry, step: Step) -> list[str]:
        """Take away what this root was told is installed and the ledger says is not; write the
        registries and receipts anew. That is how a root follows another one on its ledger.

        Only files that are as they were installed go. Returns their paths.

        Raises:
            OSError: the disk does not take it.
        """
        owners = registry.owners
        gone = [
            path
            for path, digest in self._told().items()
            if path not in owners
            and not path_problem(path)[0]
            and not is_reserved(path)
            and holds(self._root / path, digest)
        ]
        for path in gone:
            step(f"drop {path}")
            check_folders(self._root, path)
            remove_file(self._root, path)
        for package_id in self._receipts():
            if package_id not in registry.packages:
                step(f"drop {package_id}")
                shutil.rmtree(self._root / INSTALLED_FOLDER / package_id)
        self.rewrite(registry, registry.packages, step)
        return gone

    def rewrite(self, registry: Registry, packages: Collection[str], step: Step) -> None:
        """Write registries and receipts that are not as the ledger has them.

        Raises:
            OSError: the disk does not take it.
        """
        for path, data in documents(registry, packages).items():
            if data is not None and not holds(self._root / path, f"sha256:{sha256_hex(data)}"):
                self._put(path, data, step)

    def _put(self, path: str, data: bytes, step: Step) -> None:
        check_folders(self._root, path)
        step(f"restore {path}")
        put_file(self._root, path, data)

    def _told(self) -> dict[str, str]:
        """Path and hash of what this root thinks is installed."""
        try:
            table = json.loads((self._root / REGISTRY_FOLDER / "ownership.json").read_bytes())
            return {str(path): str(told["sha256"]) for path, told in table.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def _receipts(self) -> list[str]:
        folder = self._root / INSTALLED_FOLDER
        return [one.name for one in sorted(folder.glob("PKG-*"))]


def holds(path: Path, digest: str) -> bool:
    """Whether there is a file, no link, with that hash (``sha256:`` and 64 hex digits)."""
    try:
        regular = stat.S_ISREG(os.lstat(path).st_mode)  # opening a pipe would wait for ever
        return regular and f"sha256:{sha256_hex(path.read_bytes())}" == digest
    except OSError:
        return False
