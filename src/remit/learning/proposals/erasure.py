"""Removal of everything learned from content that was erased since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from remit.kernel.root import Root
from remit.learning.proposals.proposal import Proposal, Proposals, is_erased
from remit.ledger import Erased, LedgerClient, LedgerEntry, Transaction, entry_id
from remit.packages import (
    InstalledPackage,
    PackageError,
    PackageManager,
    archive_path,
    envelope_path,
    policy_epoch,
    remove_file,
)

__all__ = ["forget_erased"]

_NEWEST = "SELECT max(seq) FROM entries WHERE event_type = 'ERASURE'"


def forget_erased(root: Root, ledger: LedgerClient, manager: PackageManager) -> list[str]:
    """Remove the proposals and learned packages that hold erased content.

    An open proposal whose evidence or own content was erased loses its archive and its content. A
    learned package that holds content of an erased exchange is removed with its stored archives,
    later versions and recorded routing heads; the version before it is in force again. Fast if
    nothing was erased since the last call; may be repeated after a crash. Removals append
    ``SIGNAL_ROLLED_BACK`` and ``ERASURE`` entries, and begin a policy epoch for each. The file
    ``proposals/.erased`` holds the newest erasure that was handled.

    Args:
        root: the installation.
        ledger: the root's ledger.
        manager: manager of the root's packages.

    Returns:
        Ids of the removed proposals.

    Raises:
        PackageError: a package cannot be rolled back or removed.
    """
    mark = root.path / "proposals" / ".erased"
    ((newest,),) = ledger.select(_NEWEST)
    if newest is None or newest <= _read(mark):
        return []
    proposals = Proposals(root, ledger)
    known = list(proposals.all())
    waiting = [one for one in known if one.state == "open"]
    gone = [one for one in waiting if _erasure_of(ledger, (*one.evidence, *one.holds))]
    for one in known:
        if one.state != "open" and (erasure_id := _erasure_of(ledger, one.holds)):
            _take_away(root, ledger, manager, one, known, erasure_id)
            gone.append(one)
    for one in gone:
        proposals.archive(one.proposal_id).unlink(missing_ok=True)
        if not one.erased:
            why = "It was concluded from content that was erased."
            ledger.erase(one.entry_id, reason=why, requested_by="learning")
    ((newest,),) = ledger.select(_NEWEST)
    mark.parent.mkdir(mode=0o700, exist_ok=True)
    mark.write_text(f"{newest}\n")
    return [one.proposal_id for one in gone]


def _read(mark: Path) -> int:
    try:
        return int(mark.read_text())
    except (OSError, ValueError):
        return -1


def _erasure_of(ledger: LedgerClient, entry_ids: Iterable[str]) -> str:
    """Return the erasure of the first of these entries without content; empty if there is none."""
    for name in entry_ids:
        entry = ledger.read(name)
        if is_erased(entry):
            return next(
                value.erasure_id or "unknown"
                for value in entry.metadata.values()
                if isinstance(value, Erased)
            )
    return ""


def _take_away(
    root: Root,
    ledger: LedgerClient,
    manager: PackageManager,
    held: Proposal,
    known: Iterable[Proposal],
    erasure_id: str,
) -> None:
    """Restore the state before a version of a learned package; delete it and later versions."""
    since = _number(held.version)
    later = [
        one
        for one in known
        if one.package_id == held.package_id
        and not one.rolls_back
        and _number(one.version) >= since
    ]
    now = manager.registry().packages.get(held.package_id)
    if now is not None and _number(now.version) >= since:
        adopted = [one for one in later if one.state == "adopted"]
        back = held.previous_version

        def beside(tx: Transaction) -> Iterator[LedgerEntry]:
            epoch = policy_epoch(tx)
            for number, one in enumerate(adopted, 1):
                yield _entry(one, back, epoch + number, erasure_id)

        try:
            if not back:
                raise PackageError("no_older_version", "There was none before.")
            manager.rollback(held.package_id, back, approve=True, extra_entries=beside)
        except PackageError as error:
            if error.code not in ("no_older_version", "archive_lost"):
                raise
            back = ""
            manager.remove(held.package_id, extra_entries=beside)
    for package in manager.registry().history.get(held.package_id, ()):
        if _number(package.version) >= since:
            _erase_heads(ledger, package)
            for path in (archive_path(package), envelope_path(package)):
                remove_file(root.path, path)


def _erase_heads(ledger: LedgerClient, package: InstalledPackage) -> None:
    """Erase the routing heads of a package, with which decisions were made.

    Heads are recorded under the hash of their file.
    """
    for asset in package.manifest.assets:
        head = f"HEAD-{asset.sha256.removeprefix('sha256:')}"
        for (seq,) in ledger.select("SELECT seq FROM thoughts WHERE thought_id = ?", (head,)):
            name = entry_id(int(seq))
            if not is_erased(ledger.read(name)):  # versions may share a head
                why = "It was learned from content that was erased."
                ledger.erase(name, reason=why, requested_by="learning")


def _entry(one: Proposal, back: str, epoch: int, erasure_id: str) -> LedgerEntry:
    return LedgerEntry(
        "SIGNAL_ROLLED_BACK",
        one.proposal_id,
        "ROLLED_BACK",
        f"{one.package_id} {one.version} rolled back: what it held was erased",
        metadata={
            "proposal_id": one.proposal_id,
            "kind": one.kind,
            "package_id": one.package_id,
            "version": back,
            "previous_version": one.version,
            "policy_epoch": epoch,
            "by": "erasure",
            "role": "",
            "decision_reason": "Content that it holds was erased.",
            "erasure_id": erasure_id,
        },
    )


def _number(version: str) -> int:
    return int(version.partition(".")[0])
