"""The registry: installed packages, derived from the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from heapq import merge
from operator import attrgetter
from pathlib import Path
from typing import Any, Self

from remit.kernel.canonical import canonical_json
from remit.kernel.errors import RemitError
from remit.kernel.installed_files import OWNERSHIP_FILE, digest_of
from remit.ledger import (
    AFTER_DAMAGE,
    KERNEL_ROWS,
    LedgerClient,
    LedgerEntry,
    Transaction,
    is_authentic,
)
from remit.packages.errors import PackageError
from remit.packages.journal import INSTALLED_FOLDER, package_lock
from remit.packages.manifest import Manifest

REGISTRY_FOLDER = "HOT/registries"
SHIPPED_SOURCE = "distribution "
"""The beginning of the source of packages that came with the distribution."""

LEARNED_PACKAGES = "PKG-LEARNED-*"
"""The pattern of learned packages' ids in the trust of a key."""

_EPOCH = (
    "SELECT count(*) FROM entries WHERE event_type IN "
    f"('SIGNAL_ADOPTED', 'SIGNAL_ROLLED_BACK', 'SIGNAL_CANARY') AND {KERNEL_ROWS}"
)


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """A package as recorded in its ``INSTALLED`` entry, or in the entry to be written; immutable.

    Attributes:
        manifest: the package's manifest.
        archive_sha256: ``sha256:`` and 64 hex digits of the archive.
        source: the origin, such as ``archive``, ``distribution remit X.Y.Z``, ``proposal ID`` or
            ``index NAME``.
        signature: the record that ``check_envelope`` returns: ``{"waived", "keyids", "threshold",
            "envelope_sha256"}``.
        entry_id: the ``INSTALLED`` entry; empty if there is none yet.
        operation: ``install``, ``upgrade`` or ``rollback``.
        operation_id: the id that all changes of one operation share.
        approved_by: the person or program that approved its permissions; empty if it widened none.
        installed_at: the entry's timestamp.
    """

    manifest: Manifest
    archive_sha256: str
    source: str
    signature: Mapping[str, Any]
    entry_id: str = ""
    operation: str = ""
    operation_id: str = ""
    approved_by: str = ""
    installed_at: str = ""

    @property
    def package_id(self) -> str:
        """The package's id, from its manifest."""
        return self.manifest.package_id

    @property
    def version(self) -> str:
        """The installed version, from the manifest."""
        return self.manifest.version

    @property
    def ships(self) -> bool:
        """True if the package came with the distribution."""
        return self.source.startswith(SHIPPED_SOURCE)

    @classmethod
    def of(cls, entry: LedgerEntry) -> Self:
        """Return the package of an ``INSTALLED`` entry.

        Args:
            entry: the entry; its event type, and whether it is authentic, are not checked.

        Raises:
            PackageError: ``registry_damaged``: the entry has no readable manifest, or the manifest
                of another package.
        """
        data = entry.metadata
        try:
            found = cls(
                Manifest.recorded(data["manifest"].encode()), data["archive_sha256"],
                data["source"], data["signature"], entry.id, data["operation"],
                data["operation_id"], data["approved_by"], entry.timestamp,
            )  # fmt: skip
            expected = entry.submission_id, data["manifest_sha256"]
        except (ValueError, KeyError, AttributeError, TypeError, RemitError) as error:
            raise _damaged(entry, "it contains no readable manifest") from error
        if (found.package_id, found.manifest.digest) != expected:
            raise _damaged(entry, "its manifest belongs to another package")
        return found


@dataclass(frozen=True, slots=True)
class Owner:
    """The package that owns an installed file, with the expected content; immutable.

    Attributes:
        package_id: the owning package.
        sha256: ``sha256:`` and 64 hex digits of the installed content.
        classification: the kind of file, such as ``contract``.
    """

    package_id: str
    sha256: str
    classification: str


@dataclass(frozen=True)
class Registry:
    """The installed packages, derived only from ``INSTALLED`` and ``REMOVED`` entries; immutable.

    The registry is the state at the time of :meth:`from_ledger`, and does not follow the ledger.
    The owners of files and the content of the registry files derive from it.

    Attributes:
        packages: installed packages by id, sorted by id.
        history: by id, the package at each of its installations, oldest first. Removed packages are
            included; a version that was installed twice occurs twice.
        operations: by operation id, the ids of the packages that the operation changed.
        last_seq: the sequence number of the newest ``INSTALLED`` or ``REMOVED`` entry, of writers
            without permission too; -1 if there is none.
    """

    packages: Mapping[str, InstalledPackage] = field(default_factory=dict)
    history: Mapping[str, list[InstalledPackage]] = field(default_factory=dict)
    operations: Mapping[str, list[str]] = field(default_factory=dict)
    last_seq: int = -1

    @classmethod
    def from_ledger(cls, ledger: LedgerClient) -> Self:
        """Return the present registry. Entries of writers without permission have no effect.

        Args:
            ledger: ledger of the root. All ``INSTALLED`` and ``REMOVED`` entries are read.

        Raises:
            PackageError: ``registry_damaged``: an entry does not describe a package.
            LedgerError: the ledger cannot be read.
        """
        packages: dict[str, InstalledPackage] = {}
        history: dict[str, list[InstalledPackage]] = {}
        operations: dict[str, list[str]] = {}
        last = -1
        events = [ledger.query(event_type=event, order="asc") for event in ("INSTALLED", "REMOVED")]
        for entry in merge(*events, key=attrgetter("seq")):
            last, package_id = entry.seq, entry.submission_id
            if not is_authentic(entry):
                continue
            if entry.event_type == "INSTALLED":
                packages[package_id] = InstalledPackage.of(entry)
                history.setdefault(package_id, []).append(packages[package_id])
            else:
                packages.pop(package_id, None)
            operations.setdefault(str(entry.metadata.get("operation_id")), []).append(package_id)
        return cls(dict(sorted(packages.items())), history, operations, last)

    def permitted_tools(self) -> list[str]:
        """Return the permitted tools and patterns in the manifests of all installed packages.

        The list follows the order of the packages, and may name a tool several times.
        """
        return [name for one in self.packages.values() for name in one.manifest.permissions.tools]

    def require(self, package_id: str) -> InstalledPackage:
        """Return the installed package with an id.

        Args:
            package_id: id of the package.

        Raises:
            PackageError: ``not_installed``: no installed package has the id.
        """
        if package_id not in self.packages:
            raise PackageError(
                "not_installed",
                f"{package_id} is not installed.",
                next_step="`remit package list` lists the installed packages.",
            )
        return self.packages[package_id]

    def after(
        self, added: Iterable[InstalledPackage] = (), removed: Iterable[str] = ()
    ) -> Registry:
        """Return a registry with packages added and removed; this one stays unchanged.

        ``added`` replaces packages with the same ids; ids in ``removed`` that are not installed are
        ignored. History and operations stay the same.

        Args:
            added: packages to add.
            removed: ids of packages to remove, after the addition.

        Returns:
            The registry, with packages sorted by id.
        """
        packages = {**self.packages, **{package.package_id: package for package in added}}
        for package_id in removed:
            packages.pop(package_id, None)
        return Registry(
            dict(sorted(packages.items())), self.history, self.operations, self.last_seq
        )

    @cached_property
    def owners(self) -> Mapping[str, Owner]:
        """The owner of each installed file, by path; computed once.

        If two packages name a file, the later one by id counts.
        """
        return {
            asset.path: Owner(package_id, asset.sha256, asset.classification)
            for package_id, package in self.packages.items()
            for asset in package.manifest.assets
        }

    def by_classification(self, classification: str) -> list[tuple[str, Owner]]:
        """Return paths and owners of the files of one classification, sorted by path.

        Args:
            classification: a kind of file, such as ``contract``.
        """
        owners = sorted(self.owners.items(), key=lambda item: item[0])
        return [(path, owner) for path, owner in owners if owner.classification == classification]

    def documents(self) -> dict[str, bytes]:
        """Return the files of :data:`REGISTRY_FOLDER`, canonical JSON by file name.

        The names are ``packages.json``, with version, hashes, entry, plane, layer, specification
        and framework of each package; ``specs.json`` and ``frameworks.json``, with the packages and
        the document's path of each id (empty if it is not installed); and ``ownership.json``, with
        owner, hash and classification of each file. Nothing is written. The same packages give the
        same bytes.
        """
        tables = {
            "packages": {
                package_id: {
                    "version": package.version,
                    "manifest_sha256": package.manifest.digest,
                    "archive_sha256": package.archive_sha256,
                    "entry_id": package.entry_id,
                    "plane_id": package.manifest.plane_id,
                    "layer": package.manifest.layer,
                    "spec_id": package.manifest.spec_id,
                    "framework_id": package.manifest.framework_id,
                }
                for package_id, package in self.packages.items()
            },
            "specs": self._referenced("spec"),
            "frameworks": self._referenced("framework"),
            "ownership": {path: asdict(owner) for path, owner in self.owners.items()},
        }
        return {f"{name}.json": canonical_json(table) + b"\n" for name, table in tables.items()}

    def _referenced(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return, by id of a specification or framework, its packages and its document's path.

        ``kind`` is ``spec`` or ``framework``.
        """
        found: dict[str, dict[str, Any]] = {}
        for package_id, package in self.packages.items():
            document_id = getattr(package.manifest, f"{kind}_id")
            row = found.setdefault(document_id, {"packages": [], "document": ""})
            row["packages"].append(package_id)
        for path, _ in self.by_classification(kind):
            document_id = path.rpartition("/")[2].removesuffix(".json")
            found.setdefault(document_id, {"packages": []})["document"] = path
        return found

    def differing(self, root: Path) -> list[str]:
        """Return the names of registry files in a root that differ from the ledger.

        A missing file differs. Nothing is written.

        Args:
            root: the root's directory.

        Raises:
            OSError: a file cannot be read.
        """
        found = []
        for name, data in self.documents().items():
            file = root / REGISTRY_FOLDER / name
            if not file.is_file() or file.read_bytes() != data:
                found.append(name)
        return found

    @property
    def digest(self) -> str:
        """``sha256:`` and the SHA-256 over all registry files, in hex."""
        return digest_of(b"".join(self.documents().values()))


def receipt_path(package_id: str) -> str:
    """Return the path of a package's receipt, relative to the root. The file need not exist.

    Example: ``HOT/installed/PKG-KERNEL-001/receipt.json``.

    Args:
        package_id: id of the package.
    """
    return f"{INSTALLED_FOLDER}/{package_id}/receipt.json"


def archive_path(package: InstalledPackage) -> str:
    """Return the path of an installed version's stored archive, relative to the root.

    The file need not exist. Its name is the version, in a folder next to the receipt:
    ``archives/1.2.0.tar.gz``.

    Args:
        package: the version.
    """
    return f"{INSTALLED_FOLDER}/{package.package_id}/archives/{package.version}.tar.gz"


def envelope_path(package: InstalledPackage) -> str:
    """Return the path of an installed version's stored signatures, relative to the root.

    The name of the file is the version, in a folder next to the receipt:
    ``archives/1.2.0.intoto.json``. No file exists if the signatures were waived.

    Args:
        package: the version.
    """
    return f"{INSTALLED_FOLDER}/{package.package_id}/archives/{package.version}.intoto.json"


def receipt_bytes(package: InstalledPackage) -> bytes:
    """Return a package's receipt, derived from its entry: indented JSON in UTF-8 with sorted keys.

    The receipt has id, version, title, plane, layer, specification and framework of the package;
    the operation with its id, entry, time, source and approval; the hashes of archive and manifest;
    the signature record; and path and hash of each asset. Nothing is written.

    Args:
        package: the package as recorded.
    """
    manifest = package.manifest
    of_manifest = (
        "package_id", "version", "title", "plane_id", "layer", "spec_id", "framework_id",
    )  # fmt: skip
    of_package = (
        "operation", "operation_id", "installed_at", "entry_id", "source", "archive_sha256",
        "approved_by",
    )  # fmt: skip
    receipt = {
        "schema_version": "1.0",
        **{name: getattr(manifest, name) for name in of_manifest},
        **{name: getattr(package, name) for name in of_package},
        "manifest_sha256": manifest.digest,
        "signature": dict(package.signature),
        "assets": [{"path": asset.path, "sha256": asset.sha256} for asset in manifest.assets],
    }
    return json.dumps(receipt, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def policy_epoch(record: LedgerClient | Transaction) -> int:
    """Return the policy epoch: the number of adoptions and rollbacks of learned packages, and of
    starts and stops of canaries.

    Entries ``SIGNAL_ADOPTED``, ``SIGNAL_ROLLED_BACK`` and ``SIGNAL_CANARY`` of writers with
    permission count.

    Args:
        record: the ledger, or a transaction, which sees its own entries too.

    Returns:
        The number, 0 before the first adoption or canary.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    read = record.select if isinstance(record, LedgerClient) else record.execute
    return int(read(_EPOCH)[0][0])


def require_ownership(root: Path, ledger: LedgerClient, wait_s: float) -> None:
    """Raise PackageError unless the root's ``ownership.json`` agrees with the ledger.

    Readers of packaged files trust that file. Does nothing if no package is installed. If it
    differs, the packages' lock is awaited and the file is compared again. Writes no registry.

    Args:
        root: the root's directory.
        ledger: the root's ledger.
        wait_s: seconds to wait for an operation that is about to write the file.

    Raises:
        PackageError: ``registry_differs``: the file differs from the ledger; ``registry_damaged``:
            an entry does not describe a package; ``busy``: another process held the lock longer
            than ``wait_s``; ``unwritable``: the lock's file cannot be opened.
        OSError: a registry file cannot be read.
        LedgerError: the ledger cannot be read.
    """
    name = Path(OWNERSHIP_FILE).name
    registry = Registry.from_ledger(ledger)
    if not registry.packages or name not in registry.differing(root):
        return  # Without packages, no file is read by its owner.
    with package_lock(root, wait_s):
        if name not in Registry.from_ledger(ledger).differing(root):
            return
    raise PackageError(
        "registry_differs",
        f"{root / OWNERSHIP_FILE}, which names the owner of each file, differs from the ledger.",
        next_step="Run `remit gate check --all`; `remit package registry --rebuild` writes it "
        "again.",
    )


def _damaged(entry: LedgerEntry, problem: str) -> PackageError:
    return PackageError(
        "registry_damaged",
        f"{entry.id} ({entry.event_type} of {entry.submission_id}) cannot be read: {problem}.",
        next_step=AFTER_DAMAGE,
    )
