"""What an operation leaves on record: its entries, receipts and registries (SPEC 10)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from remit.kernel.canonical import canonical_json
from remit.ledger import Content, LedgerClient, LedgerEntry, Transaction
from remit.packages.errors import PackageError
from remit.packages.offer import Candidate
from remit.packages.receipts import receipt_bytes, receipt_path
from remit.packages.registry import REGISTRY_FOLDER, InstalledPackage, Registry

__all__ = ["Change", "documents", "is_recorded", "record"]

_PLAIN_MANIFEST = 50_000  # bytes as JSON writes it; a record of 65,535 must hold it and the rest
_DONE = {"install": "installed", "upgrade": "upgraded to", "rollback": "rolled back to"}
_NEWEST = "SELECT max(seq) FROM entries WHERE event_type = ?"


@dataclass(frozen=True, slots=True)
class Change:
    """One package of an operation.

    Attributes:
        candidate: what comes; ``None`` where a package goes.
        previous: what was installed before under that id, if anything was.
        operation: ``install``, ``upgrade``, ``rollback`` or ``remove``.
        widened: what it may do that it might not before, a line each.
        approved_by: who approved that.
    """

    package_id: str
    candidate: Candidate | None
    previous: InstalledPackage | None
    operation: str
    widened: Sequence[str] = ()
    approved_by: str = ""

    def entry(self, operation_id: str, by: str) -> LedgerEntry:
        """The entry that makes it so."""
        before = self.previous.version if self.previous is not None else ""
        if self.candidate is None:
            return LedgerEntry(
                event_type="REMOVED",
                submission_id=self.package_id,
                decision="REMOVED",
                reason=f"{self.package_id} {before} removed",
                metadata={
                    "package_id": self.package_id,
                    "version": before,
                    "operation_id": operation_id,
                    "by": by,
                },
            )
        archive = self.candidate.archive
        manifest = archive.manifest
        text = archive.manifest_json.decode()
        return LedgerEntry(
            event_type="INSTALLED",
            submission_id=self.package_id,
            decision="INSTALLED",
            reason=f"{self.package_id} {_DONE[self.operation]} {manifest.version}",
            metadata={
                "package_id": self.package_id,
                "version": manifest.version,
                "operation": self.operation,
                "operation_id": operation_id,
                "previous_version": before,
                "archive_sha256": archive.digest,
                "manifest_sha256": manifest.digest,
                # What does not fit into a record is kept beside it.
                "manifest": Content(text) if _written(text) > _PLAIN_MANIFEST else text,
                "source": self.candidate.source,
                "signature": dict(self.candidate.signature),
                "permissions_widened": list(self.widened),
                "approved_by": self.approved_by,
                "by": by,
            },
        )


def record(
    ledger: LedgerClient, changes: Sequence[Change], operation_id: str, by: str, last_seq: int
) -> None:
    """Write the entries of one operation, all in one transaction.

    Args:
        ledger: the record.
        changes: what the operation does.
        operation_id: its name.
        by: who did it.
        last_seq: of the registry that the operation was planned on.

    Raises:
        PackageError: ``registry_moved``: another machine changed the packages meanwhile.
        LedgerError: the ledger does not take them; nothing was written.
    """
    entries = [ledger.prepare(change.entry(operation_id, by)) for change in changes]

    def write(tx: Transaction) -> None:
        newest = [tx.execute(_NEWEST, (event,))[0][0] for event in ("INSTALLED", "REMOVED")]
        if max((seq for seq in newest if seq is not None), default=-1) != last_seq:
            raise PackageError(
                "registry_moved",
                "Another machine changed the packages of this ledger at the same time.",
                next_step="Run the command again.",
            )
        for entry in entries:
            tx.append(entry)

    ledger.transact(write)


def _written(text: str) -> int:
    return len(canonical_json(text))


def is_recorded(ledger: LedgerClient, operation_id: str, packages: Iterable[str]) -> bool:
    """Whether the ledger has an operation's entries: one of them, as they come together."""
    return any(
        entry.metadata.get("operation_id") == operation_id
        for package_id in packages
        for event in ("INSTALLED", "REMOVED")
        for entry in ledger.query(event_type=event, submission_id=package_id, with_content=False)
    )


def documents(registry: Registry, packages: Collection[str]) -> Mapping[str, bytes | None]:
    """The files that follow from the registry: ownership and its like, then receipts."""
    found: dict[str, bytes | None] = {
        f"{REGISTRY_FOLDER}/{name}": data for name, data in registry.documents().items()
    }
    for package_id in packages:
        package = registry.packages.get(package_id)
        found[receipt_path(package_id)] = None if package is None else receipt_bytes(package)
    return found
