"""What is installed, derived from the ledger (SPEC 10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import merge
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from remit.kernel.canonical import canonical_json, sha256_hex
from remit.kernel.errors import RemitError
from remit.kernel.installed import OWNERSHIP_FILE
from remit.ledger import LedgerClient, LedgerEntry
from remit.packages.errors import PackageError
from remit.packages.lock import package_lock
from remit.packages.manifest import Manifest

__all__ = [
    "REGISTRY_FOLDER",
    "SHIPPED_SOURCE",
    "InstalledPackage",
    "Owner",
    "Registry",
    "require_ownership",
]

REGISTRY_FOLDER = "HOT/registries"
SHIPPED_SOURCE = "distribution "
"""How the source of a package begins that came with the distribution."""


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """A package as its ``INSTALLED`` entry records it.

    Attributes:
        manifest_json: the manifest's bytes as they were installed.
        archive_sha256: ``sha256:`` and 64 hex digits of the archive.
        entry_id: of its ``INSTALLED`` entry.
        operation: ``install``, ``upgrade`` or ``rollback``.
        operation_id: what one run did together.
        source: ``archive``, ``distribution remit X.Y.Z`` or ``index NAME``.
        signature: ``{"waived", "keyids", "threshold", "envelope_sha256"}``.
        approved_by: who approved its permissions; empty when it widened none.
        installed_at: the entry's timestamp.
    """

    manifest: Manifest
    manifest_json: bytes
    archive_sha256: str
    entry_id: str
    operation: str
    operation_id: str
    source: str
    signature: Mapping[str, Any]
    approved_by: str
    installed_at: str

    @property
    def package_id(self) -> str:
        """Its id."""
        return self.manifest.package_id

    @property
    def version(self) -> str:
        """Its version."""
        return self.manifest.version

    @property
    def ships(self) -> bool:
        """Whether it came with the distribution."""
        return self.source.startswith(SHIPPED_SOURCE)

    @classmethod
    def of(cls, entry: LedgerEntry) -> Self:
        """The package of an ``INSTALLED`` entry.

        Raises:
            PackageError: ``registry_damaged``: the entry does not describe a package.
        """
        data = entry.metadata
        try:
            manifest_json = data["manifest"].encode()
            manifest = Manifest.recorded(manifest_json)
            found = cls(
                manifest, manifest_json, data["archive_sha256"], entry.id, data["operation"],
                data["operation_id"], data["source"], data["signature"], data["approved_by"],
                entry.timestamp,
            )  # fmt: skip
        except (ValueError, KeyError, AttributeError, TypeError, RemitError) as error:
            raise _damaged(entry, "it holds no manifest that can be read") from error
        if manifest.package_id != entry.submission_id or manifest.digest != data["manifest_sha256"]:
            raise _damaged(entry, "its manifest is another package's")
        return found


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a file is, and what it has to hold."""

    package_id: str
    sha256: str
    classification: str


@dataclass(frozen=True)
class Registry:
    """All that is installed. Derived from ``INSTALLED`` and ``REMOVED`` entries and nothing else.

    Attributes:
        packages: by id, in the order of their ids.
        history: by id, every package as it ever was installed, removed ones included, oldest
            first: what an older version or a wider permission is held against.
        last_seq: sequence number of the newest entry that counted; -1 when there is none.
    """

    packages: Mapping[str, InstalledPackage] = field(default_factory=dict)
    history: Mapping[str, tuple[InstalledPackage, ...]] = field(default_factory=dict)
    last_seq: int = -1

    @classmethod
    def from_ledger(cls, ledger: LedgerClient) -> Self:
        """The registry as of now.

        Raises:
            PackageError: ``registry_damaged``: an entry cannot be understood.
        """
        streams = (
            ledger.query(event_type=event, order="asc") for event in ("INSTALLED", "REMOVED")
        )
        return cls.from_entries(merge(*streams, key=_seq))

    @classmethod
    def from_entries(cls, entries: Iterable[LedgerEntry]) -> Self:
        """The registry after ``entries``, given in the order of the ledger."""
        packages: dict[str, InstalledPackage] = {}
        history: dict[str, list[InstalledPackage]] = {}
        last = -1
        for entry in entries:
            last = _seq(entry)
            if entry.event_type == "INSTALLED":
                package = InstalledPackage.of(entry)
                packages[package.package_id] = package
                history.setdefault(package.package_id, []).append(package)
            else:
                packages.pop(entry.submission_id, None)
        return cls(
            MappingProxyType(dict(sorted(packages.items()))),
            {name: tuple(packages) for name, packages in history.items()},
            last,
        )

    def after(
        self, added: Iterable[InstalledPackage] = (), removed: Iterable[str] = ()
    ) -> Registry:
        """What it would be with these packages in and those out."""
        packages = {**self.packages, **{one.package_id: one for one in added}}
        for package_id in removed:
            packages.pop(package_id, None)
        return Registry(dict(sorted(packages.items())), self.history, self.last_seq)

    @property
    def owners(self) -> Mapping[str, Owner]:
        """By path, whose each installed file is."""
        return {
            asset.path: Owner(package_id, asset.sha256, asset.classification)
            for package_id, package in self.packages.items()
            for asset in package.manifest.assets
        }

    def by_classification(self, classification: str) -> list[tuple[str, Owner]]:
        """Paths and owners of the files of one kind, by path."""
        return sorted(
            (item for item in self.owners.items() if item[1].classification == classification),
            key=lambda item: item[0],
        )

    def documents(self) -> dict[str, bytes]:
        """The registries as files of :data:`REGISTRY_FOLDER`, in canonical JSON, by name."""
        specs: dict[str, dict[str, Any]] = {}
        frameworks: dict[str, dict[str, Any]] = {}
        for package_id, package in self.packages.items():
            manifest = package.manifest
            spec = specs.setdefault(manifest.spec_id, {"packages": [], "document": ""})
            spec["packages"].append(package_id)
            framework = frameworks.setdefault(
                manifest.framework_id, {"packages": [], "document": ""}
            )
            framework["packages"].append(package_id)
        for kind, table in (("spec", specs), ("framework", frameworks)):
            for path, _ in self.by_classification(kind):
                name = path.rpartition("/")[2].removesuffix(".json")
                table.setdefault(name, {"packages": []})["document"] = path
        tables = {
            "packages": {
                package_id: {
                    "version": one.version,
                    "manifest_sha256": one.manifest.digest,
                    "archive_sha256": one.archive_sha256,
                    "entry_id": one.entry_id,
                    "plane_id": one.manifest.plane_id,
                    "layer": one.manifest.layer,
                    "spec_id": one.manifest.spec_id,
                    "framework_id": one.manifest.framework_id,
                }
                for package_id, one in self.packages.items()
            },
            "specs": specs,
            "frameworks": frameworks,
            "ownership": {
                path: {
                    "package_id": one.package_id,
                    "sha256": one.sha256,
                    "classification": one.classification,
                }
                for path, one in self.owners.items()
            },
        }
        return {f"{name}.json": canonical_json(table) + b"\n" for name, table in tables.items()}

    @property
    def digest(self) -> str:
        """``sha256:`` and the SHA-256 over all the registries, in hex."""
        return f"sha256:{sha256_hex(b''.join(self.documents().values()))}"


def require_ownership(root: Path, ledger: LedgerClient, wait_s: float) -> None:
    """Make sure that ``ownership.json``, by which files are read, is what the ledger says.

    Args:
        root: the root's directory.
        ledger: its record.
        wait_s: how long to wait for an operation that is about to write the registry, in seconds.

    Raises:
        PackageError: ``registry_differs``, or ``registry_damaged``.
    """
    if _ownership_is_right(root, ledger):
        return
    with package_lock(root, wait_s):
        if _ownership_is_right(root, ledger):
            return
    raise PackageError(
        "registry_differs",
        f"{root / OWNERSHIP_FILE}, which says whose each file is, is not what the ledger says.",
        next_step="Run `remit gate check --all`; `remit package registry --rebuild` writes it "
        "again.",
    )


def _ownership_is_right(root: Path, ledger: LedgerClient) -> bool:
    registry = Registry.from_ledger(ledger)
    if not registry.packages:
        return True  # nothing is installed, and nothing will be read
    try:
        stored = (root / OWNERSHIP_FILE).read_bytes()
    except OSError:
        return False
    return stored == registry.documents()[OWNERSHIP_FILE.rpartition("/")[2]]


def _seq(entry: LedgerEntry) -> int:
    return int(entry.id.removeprefix("LED-"), 16)


def _damaged(entry: LedgerEntry, problem: str) -> PackageError:
    return PackageError(
        "registry_damaged",
        f"{entry.id}, by which {entry.submission_id} was {entry.event_type.lower()}, "
        f"cannot be understood: {problem}.",
        next_step="Run `remit ledger verify`; restore the ledger from a copy if it is damaged.",
    )
