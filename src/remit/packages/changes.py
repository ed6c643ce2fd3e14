"""What an operation changes, and its entries in the ledger (SPEC 10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remit.kernel.canonical import canonical_json
from remit.ledger import Content, LedgerClient, LedgerEntry, Transaction
from remit.packages.admission import Candidate
from remit.packages.errors import PackageError
from remit.packages.registry import InstalledPackage

__all__ = ["Change", "record", "recorded_packages"]

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
                "manifest": Content(text) if len(canonical_json(text)) > _PLAIN_MANIFEST else text,
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


def recorded_packages(ledger: LedgerClient, operation_id: str) -> list[str]:
    """Ids of the packages that an operation changed; empty when it is not on record."""
    return [
        entry.submission_id
        for event in ("INSTALLED", "REMOVED")
        for entry in ledger.query(event_type=event, with_content=False)
        if entry.metadata.get("operation_id") == operation_id
    ]
