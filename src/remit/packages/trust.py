"""The trusted keys in the ledger, and ``trust.json`` as their copy (ADR 28).

A change is one ``CONFIG_CHANGED`` entry with the text of the new file; the file is written after
the entry. If a process dies between the two, the file is one that was recorded before, and the next
change writes the newest. A file that was never recorded is rejected. Hold
:func:`remit.packages.package_lock` around every function here that writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from remit.kernel.installed_files import digest_of
from remit.ledger import (
    KERNEL_ROWS,
    LedgerClient,
    LedgerEntry,
    RecordTooLargeError,
    Transaction,
    is_authentic,
    parse_entry_id,
)
from remit.packages.errors import PackageError
from remit.packages.trust_policy import TrustPolicy, read_policy_file

_EVENT = "CONFIG_CHANGED"
_NEWEST = (
    f"SELECT seq FROM entries WHERE event_type = ? AND submission_id = ? AND {KERNEL_ROWS} "
    "ORDER BY seq DESC LIMIT 1"
)
_MAX_PATTERNS = 3  # A message names no more patterns of a key.


def recorded_trust(ledger: LedgerClient) -> str:
    """Return the digest ``sha256:…`` of the newest recorded ``trust.json``; empty if none is.

    Entries of writers without permission are ignored.

    Args:
        ledger: the root's ledger.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    entry = next(_history(ledger), None)
    return "" if entry is None else str(entry.metadata.get("sha256", ""))


def read_trust(path: Path, ledger: LedgerClient) -> TrustPolicy:
    """Return the trusted keys as recorded; writes nothing.

    A missing or older file is no error: the recorded keys count. The policy has no keys if neither
    a file nor an entry exists.

    Args:
        path: the root's ``trust.json``.
        ledger: the root's ledger.

    Raises:
        PackageError: ``trust_changed``: the file has content that no entry records;
            ``trust_unreadable``: the recorded policy does not have its hash; ``bad_trust``: the
            file cannot be read, or the recorded policy is not valid.
        LedgerError: the ledger cannot be read.
    """
    return _state(path, ledger)[0]


def trust_problem(path: Path, ledger: LedgerClient) -> str:
    """Return one sentence if ``trust.json`` is not the newest recorded one; empty otherwise.

    A missing, older, changed or unreadable file is a problem; a root without file and record has
    none. Writes nothing, and raises no PackageError.

    Args:
        path: the root's ``trust.json``.
        ledger: the root's ledger.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    try:
        return _state(path, ledger)[2]
    except PackageError as error:
        return error.message


def sync_trust(path: Path, ledger: LedgerClient) -> TrustPolicy:
    """Return the trusted keys as recorded, and write ``trust.json`` if a change was not finished.

    The file is written if it is missing or older than the recorded policy.

    Args:
        path: the root's ``trust.json``.
        ledger: the root's ledger.

    Raises:
        PackageError: as :func:`read_trust`; ``trust_unwritable``: the file cannot be written.
        LedgerError: the ledger cannot be read.
    """
    policy, _, problem = _state(path, ledger)
    if problem:
        policy.save(path)
    return policy


@dataclass(frozen=True, slots=True)
class TrustChange:
    """A change of the trusted keys that is prepared, and not recorded yet; immutable.

    Attributes:
        policy: the new policy, to be saved once the change is recorded.
        what: one line about the change; empty without a change.
        append: appends the ``CONFIG_CHANGED`` entry in a transaction, and returns the entry's id;
            None if the policy stays equal.
            PackageError ``trust_moved``: another change was recorded since the preparation;
            ``too_many_keys``: the policy does not fit into an entry.
    """

    policy: TrustPolicy
    what: str
    append: Callable[[Transaction], str] | None


def change_trust(
    path: Path,
    ledger: LedgerClient,
    change: Callable[[TrustPolicy], TrustPolicy],
    by: str,
    *,
    reason: str = "",
) -> tuple[TrustPolicy, str, str]:
    """Change the trusted keys: first in the ledger, then in the file.

    Appends one ``CONFIG_CHANGED`` entry and replaces the file; neither if the policy stays equal.
    An unfinished earlier change is written to the file first.

    Args:
        path: the root's ``trust.json``.
        ledger: the root's ledger.
        change: returns the new policy for the present one.
        by: the acting person or program, for the entry.
        reason: the reason, for the entry.

    Returns:
        The new policy, the id of the entry, and one line about the change. The texts are empty if
        nothing changed.

    Raises:
        PackageError: as :func:`prepare_trust` and :class:`TrustChange`. After ``trust_unwritable``
            the new policy may be recorded already; a recorded policy counts, and the next change or
            :func:`sync_trust` writes the file.
        LedgerError: the ledger cannot be read or written. If the outcome of the write is unknown,
            the next change writes the file.
    """
    made = prepare_trust(path, ledger, change, by, reason=reason)
    if made.append is None:
        return made.policy, "", ""
    entry_id = ledger.transact(made.append)
    made.policy.save(path)
    return made.policy, entry_id, made.what


def prepare_trust(
    path: Path,
    ledger: LedgerClient,
    change: Callable[[TrustPolicy], TrustPolicy],
    by: str,
    *,
    reason: str = "",
) -> TrustChange:
    """Return a change of the trusted keys to record.

    Appends nothing. An unfinished earlier change is written to the file. The arguments are those of
    :func:`change_trust`.

    Raises:
        PackageError: as :func:`sync_trust`, or from ``change``.
        LedgerError: the ledger cannot be read.
    """
    old, newest, problem = _state(path, ledger)
    if problem:
        old.save(path)
    new = change(old)
    if new == old:
        return TrustChange(old, "", None)
    what = _describe(old, new) + (f": {reason}" if reason else "")
    data = new.encoded()
    metadata = {
        "file": TrustPolicy.FILE, "sha256": digest_of(data), "by": by, "policy": data.decode(),
    }  # fmt: skip
    entry = LedgerEntry(_EVENT, TrustPolicy.FILE, "CHANGED", what, metadata=metadata)

    def append(tx: Transaction) -> str:
        rows = tx.execute(_NEWEST, (_EVENT, TrustPolicy.FILE))
        if (rows[0][0] if rows else None) != (newest and parse_entry_id(newest.id)):
            raise PackageError(
                "trust_moved",
                "Another process changed the trusted keys at the same time.",
                next_step="Run `remit package trust show`, then try again.",
            )
        try:
            return tx.append(prepared)
        except RecordTooLargeError as error:
            raise PackageError(
                "too_many_keys",
                "The list of keys is too long for one entry (64 KiB).",
                next_step="Use fewer keys, or fewer packages for each.",
            ) from error

    prepared = ledger.prepare(entry)
    return TrustChange(new, what, append)


def restore_trust(path: Path, ledger: LedgerClient) -> TrustPolicy:
    """Replace ``trust.json`` by the recorded one, and return the recorded policy.

    No entry is appended. The present file is lost. The keys' threshold is restored too.

    Args:
        path: the root's ``trust.json``.
        ledger: the root's ledger.

    Raises:
        PackageError: ``nothing_recorded``: the ledger has no change of the keys;
            ``trust_unreadable``: the recorded policy does not have its hash; ``bad_trust``: it is
            not valid; ``trust_unwritable``: the file cannot be written.
        LedgerError: the ledger cannot be read.
    """
    entry = next(_history(ledger), None)
    if entry is None:
        raise PackageError(
            "nothing_recorded",
            "No change of the trusted keys is recorded, so there is nothing to restore.",
            next_step=f"Move {path} away, and add trusted keys with `remit package trust add`.",
        )
    policy = _recorded_policy(entry)
    policy.save(path)
    return policy


def _state(path: Path, ledger: LedgerClient) -> tuple[TrustPolicy, LedgerEntry | None, str]:
    """Return the recorded policy, its entry, and a sentence if the file is missing or older.

    Raises PackageError as :func:`read_trust`.
    """
    found = read_policy_file(path)
    history = _history(ledger)
    newest = next(history, None)
    digest = "" if found is None else digest_of(found)
    if newest is None:
        if found is None:
            return TrustPolicy(), None, ""
        raise PackageError(
            "trust_changed",
            f"Remit did not write {path}: no change of the trusted keys is recorded.",
            next_step="Move the file away, and add the keys that you trust: `remit package trust "
            "add`.",
        )
    current = newest.metadata.get("sha256") == digest
    earlier = (entry.metadata.get("sha256") for entry in history)
    if found is not None and not current and digest not in earlier:
        raise PackageError(
            "trust_changed",
            f"Another program changed {path}: the file differs from the keys that {newest.id} "
            "and earlier entries record.",
            next_step="Find out who made the change, and keep a copy: `remit package trust "
            "restore` replaces it with the recorded one.",
        )
    policy = _recorded_policy(newest)
    if current:
        return policy, newest, ""
    state = "is missing" if found is None else "is older than the recorded one"
    problem = f"the change of {newest.id} was not finished, or somebody replaced the file."
    return policy, newest, f"{path} {state}: {problem}"


def _history(ledger: LedgerClient) -> Iterator[LedgerEntry]:
    """Yield the recorded changes of the trusted keys, newest first."""
    found = ledger.query(event_type=_EVENT, submission_id=TrustPolicy.FILE, order="desc")
    return filter(is_authentic, found)


def _recorded_policy(entry: LedgerEntry) -> TrustPolicy:
    data = str(entry.metadata.get("policy", "")).encode()
    if not data or digest_of(data) != entry.metadata.get("sha256"):
        raise PackageError(
            "trust_unreadable",
            f"The hash of the policy in {entry.id}, which records the trusted keys, differs from "
            "the hash that the entry states.",
            next_step="`remit ledger verify` shows whether the ledger was altered.",
        )
    return TrustPolicy.parse(data, f"The list of keys in {entry.id}")


def _describe(old: TrustPolicy, new: TrustPolicy) -> str:
    changes = []
    for key in new.keys:
        before = old.get(key.key_id)
        if key == before:
            continue
        if key.status != "active":
            changes.append(f"key {key.label} is {key.status}")
            continue
        again = " again" if before is not None and before.status != "active" else ""
        more = len(key.packages) - _MAX_PATTERNS
        named = ", ".join(key.packages[:_MAX_PATTERNS]) + (f" and {more} more" if more > 0 else "")
        packages = "all packages" if key.packages == ("*",) else named
        changes.append(f"key {key.label} is trusted{again} for {packages}")
    if new.threshold != old.threshold:
        changes.append(f"{new.threshold} trusted keys have to sign, before {old.threshold}")
    return "; ".join(changes)
