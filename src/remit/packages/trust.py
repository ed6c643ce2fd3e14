"""Trust on record: ``trust.json`` follows the ledger, never the other way (ADR 28).

A change is one ``CONFIG_CHANGED`` entry that holds the new file whole; the file is written after
it. A process that dies in between leaves a file that was on record before: the next command
knows it by that, and writes the newest one. A file that never was on record was changed by
something else, and nobody in it is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from remit.kernel.canonical import sha256_hex
from remit.ledger import LedgerClient, LedgerEntry, RecordTooLargeError, Transaction, parse_entry_id
from remit.packages.errors import TrustError
from remit.packages.trust_policy import TRUST_FILE, KeyStatus, TrustedKey, TrustPolicy

__all__ = [
    "TRUST_FILE",
    "KeyStatus",
    "TrustChange",
    "TrustPolicy",
    "TrustedKey",
    "change_trust",
    "read_trust",
    "record_trust_change",
    "recorded_trust",
    "restore_trust",
    "sync_trust",
    "trust_problem",
]

_EVENT = "CONFIG_CHANGED"
_NEWEST = (
    "SELECT seq FROM entries WHERE event_type = ? AND submission_id = ? ORDER BY seq DESC LIMIT 1"
)
_MAX_NAMED = 3  # patterns in one sentence
_RESTORE = "`remit package trust restore` puts back what is on record."


@dataclass(frozen=True, slots=True)
class TrustChange:
    """What came of a change.

    Attributes:
        policy: as it is now.
        entry_id: of the entry that records it; empty when nothing changed.
        what: one line for people; empty likewise.
    """

    policy: TrustPolicy
    entry_id: str
    what: str


def record_trust_change(
    ledger: LedgerClient, policy_bytes: bytes, what: str, by: str, *, after: str | None = None
) -> str:
    """Put a new ``trust.json`` on record, whole; returns the entry's id.

    Args:
        policy_bytes: of the new file, which is written afterwards.
        what: one line that describes the change; stays for good.
        by: who made it.
        after: id of the record that it builds on, empty for the first; ``None`` not to look.

    Raises:
        TrustError: ``trust_moved``: another change came in between; ``too_many_keys``.
    """
    metadata = {
        "file": TRUST_FILE,
        "sha256": _digest(policy_bytes),
        "by": by,
        "policy": policy_bytes.decode(),
    }
    entry = LedgerEntry(_EVENT, TRUST_FILE, "CHANGED", what, metadata=metadata)

    def append(tx: Transaction) -> str:
        if after is not None:
            rows = tx.execute(_NEWEST, (_EVENT, TRUST_FILE))
            if (rows[0][0] if rows else None) != parse_entry_id(after):
                raise TrustError(
                    "trust_moved",
                    "Somebody else changed which keys are trusted at the same moment.",
                    next_step="Look at `remit package trust show`, then try again.",
                )
        return tx.append(prepared)

    try:
        prepared = ledger.prepare(entry)
        return ledger.transact(append)
    except RecordTooLargeError as error:
        raise TrustError(
            "too_many_keys",
            "The list of keys is too long to go on record in one entry (64 KiB).",
            next_step="Use fewer keys, or fewer packages for each.",
        ) from error


def recorded_trust(ledger: LedgerClient) -> str:
    """The digest of the newest ``trust.json`` on record, ``sha256:…``; empty when there is none."""
    entry = _newest(ledger)
    return "" if entry is None else str(entry.metadata.get("sha256", ""))


def read_trust(path: Path, ledger: LedgerClient) -> TrustPolicy:
    """The policy that counts: the one on record. Writes nothing.

    Args:
        path: of the root's ``trust.json``.

    Raises:
        TrustError: ``trust_changed``: the file was changed by something else than Remit;
            ``trust_unreadable``: so is what is on record; ``bad_trust``: the file cannot be read.
    """
    found = _read(path)
    entry = _newest(ledger)
    if not _was_recorded(found, entry, ledger):
        raise _changed(path, entry)
    return TrustPolicy() if entry is None else _policy_of(entry)[0]


def trust_problem(path: Path, ledger: LedgerClient) -> str:
    """What is wrong with the file, as one sentence; empty when it is the one on record."""
    try:
        found, entry = _read(path), _newest(ledger)
        if (_digest(found) if found is not None else "") == recorded_trust(ledger):
            return ""
        if entry is None or not _was_recorded(found, entry, ledger):
            return _changed(path, entry).message
    except TrustError as error:
        return error.message
    state = "is missing" if found is None else "is older than what is on record"
    return f"{path} {state}: the change of {entry.id} was not finished, or somebody else did this."


def sync_trust(path: Path, ledger: LedgerClient) -> TrustPolicy:
    """:func:`read_trust`, and the file written where a change was not finished.

    Hold :func:`remit.packages.lock.package_lock` around it.

    Raises:
        TrustError: as :func:`read_trust`; ``trust_unwritable``.
    """
    policy = read_trust(path, ledger)
    if trust_problem(path, ledger):
        policy.save(path)
    return policy


def change_trust(
    path: Path,
    ledger: LedgerClient,
    change: Callable[[TrustPolicy], TrustPolicy],
    by: str,
    *,
    reason: str = "",
) -> TrustChange:
    """Change the trusted keys: on record first, then in the file.

    Hold :func:`remit.packages.lock.package_lock` around it.

    Args:
        path: of the root's ``trust.json``.
        change: gives the new policy for the one that counts now.
        by: who wants it; stays on record.
        reason: why; stays on record.

    Raises:
        TrustError: as :func:`sync_trust` and :func:`record_trust_change`, or from ``change``.
    """
    newest = _newest(ledger)
    old = sync_trust(path, ledger)
    new = change(old)
    if new == old:
        return TrustChange(old, "", "")
    what = _describe(old, new) + (f": {reason}" if reason else "")
    made = record_trust_change(
        ledger, new.encoded(), what, by, after="" if newest is None else newest.id
    )
    new.save(path)
    return TrustChange(new, made, what)


def restore_trust(path: Path, ledger: LedgerClient) -> TrustPolicy:
    """Put the file on record in the place of whatever lies there.

    Hold :func:`remit.packages.lock.package_lock` around it.

    Raises:
        TrustError: ``nothing_recorded``; ``trust_unreadable``; ``trust_unwritable``.
    """
    entry = _newest(ledger)
    if entry is None:
        raise TrustError(
            "nothing_recorded",
            "No change of the trusted keys is on record, so there is nothing to restore.",
            next_step=f"Move {path} away; `remit package trust add` adds the keys of it that you "
            "trust.",
        )
    policy, _ = _policy_of(entry)
    policy.save(path)
    return policy


def _newest(ledger: LedgerClient) -> LedgerEntry | None:
    found = ledger.query(event_type=_EVENT, submission_id=TRUST_FILE, order="desc", limit=1)
    return next(iter(found), None)


def _policy_of(entry: LedgerEntry) -> tuple[TrustPolicy, bytes]:
    data = str(entry.metadata.get("policy", "")).encode()
    if not data or _digest(data) != entry.metadata.get("sha256"):
        raise TrustError(
            "trust_unreadable",
            f"{entry.id}, which says which keys are trusted, does not hold what it says.",
            next_step="`remit ledger verify` shows whether the ledger was altered.",
        )
    return TrustPolicy.parse(data, f"The list of keys in {entry.id}"), data


def _was_recorded(found: bytes | None, newest: LedgerEntry | None, ledger: LedgerClient) -> bool:
    """Whether the file is one that was on record: the newest or, unfinished, an earlier one."""
    if found is None:  # as it is before the first change
        return True
    if newest is None:
        return False
    digest = _digest(found)
    history = ledger.query(event_type=_EVENT, submission_id=TRUST_FILE, order="desc")
    return any(entry.metadata.get("sha256") == digest for entry in history)


def _changed(path: Path, newest: LedgerEntry | None) -> TrustError:
    if newest is None:
        return TrustError(
            "trust_changed",
            f"{path} was not made by Remit: no change of the trusted keys is on record.",
            next_step="Move it away; `remit package trust add` adds the keys of it that you trust.",
        )
    return TrustError(
        "trust_changed",
        f"{path} was changed by something else than Remit: it is not what {newest.id} recorded, "
        "nor any file before.",
        next_step=f"Find out who did it. {_RESTORE}",
    )


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TrustError(
            "bad_trust",
            f"{path} cannot be read: {error.strerror or error}.",
            next_step="Make it readable for this user.",
        ) from error


def _digest(data: bytes) -> str:
    return f"sha256:{sha256_hex(data)}"


def _describe(old: TrustPolicy, new: TrustPolicy) -> str:
    changes = [
        _describe_key(key, old.get(key.key_id)) for key in new.keys if key != old.get(key.key_id)
    ]
    if new.threshold != old.threshold:
        changes.append(f"{new.threshold} trusted keys have to sign, before {old.threshold}")
    return "; ".join(changes)


def _describe_key(key: TrustedKey, before: TrustedKey | None) -> str:
    if key.status != "active":
        return f"key {key.label} is {key.status}"
    again = " again" if before is not None and before.status != "active" else ""
    what = "all packages" if key.packages == ("*",) else _list(key.packages)
    return f"key {key.label} is trusted{again} for {what}"


def _list(patterns: Sequence[str]) -> str:
    more = len(patterns) - _MAX_NAMED
    return ", ".join(patterns[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
