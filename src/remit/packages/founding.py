"""What ``remit init`` does for packages: a key of the root's own, and all that ships (SPEC 10)."""

from __future__ import annotations

import os
from pathlib import Path

from remit.kernel.root import Root
from remit.ledger import LedgerClient
from remit.packages.distribution import Distribution
from remit.packages.errors import PackageError
from remit.packages.lock import package_lock
from remit.packages.manager import PackageManager
from remit.packages.offer import Offer
from remit.packages.package_key import PackageKey
from remit.packages.registry import InstalledPackage
from remit.packages.shipped import is_root_key, root_key_path, shipped_archives, shipped_ids
from remit.packages.trust import TrustPolicy, change_trust, read_trust, recorded_trust
from remit.packages.waivers import EDITABLE_INSTALL, record_waiver, waived

__all__ = ["found_packages", "install_shipped"]

_KEY_NAME = "root"


def found_packages(
    root: Root, ledger: LedgerClient, *, by: str, wait_s: float, new_ledger: bool = False
) -> bool:
    """Make the root's own package key, and trust it for what ships; note what cannot be checked.

    Args:
        root: the installation.
        ledger: its record.
        by: who acts.
        wait_s: how long to wait for another operation, in seconds.
        new_ledger: the ledger was lost and begins anew: trust the key that is there.

    Returns:
        Whether the running code is an editable install, which has no hashes to be held against.

    Raises:
        PackageError: ``foreign_key``: there is a key that the ledger does not know as trusted;
            or the key or ``trust.json`` cannot be written or read.
    """
    root_key_path(root).parent.mkdir(mode=0o700, exist_ok=True)
    file = root.path / TrustPolicy.FILE
    with package_lock(root.path, wait_s):
        first = new_ledger and not recorded_trust(ledger)
        key, made = _root_key(root, ledger, adopt=first)
        if first:
            _forget_unrecorded(file, key)
        change_trust(file, ledger, lambda policy: _with(policy, key), by)
        if made is not None:
            # Only a key on record gets the name: killed before, the next time makes another.
            made.replace(root_key_path(root))
    distribution = Distribution.current()
    if distribution.editable and not waived(ledger, EDITABLE_INSTALL):
        record_waiver(
            ledger,
            EDITABLE_INSTALL,
            "The running code is an editable install: it has no hashes to be held against.",
            by=by,
            distribution_version=distribution.version,
        )
    return distribution.editable


def _root_key(root: Root, ledger: LedgerClient, *, adopt: bool) -> tuple[PackageKey, Path | None]:
    """The root's own key; and where it lies when it has not got its name yet."""
    place = root_key_path(root)
    policy = read_trust(root.path / TrustPolicy.FILE, ledger) if not adopt else TrustPolicy()
    if os.path.lexists(place):
        key = PackageKey.load(place)
        if not adopt and not is_root_key(policy, key):
            raise PackageError(
                "foreign_key",
                f"{place} is not a key that the ledger knows: {key.key_id[:16]}… is "
                f"{_status(policy, key)}.",
                next_step="Move it away, and `remit init` makes a new one. If the ledger was "
                "lost: `remit init --new-ledger`.",
            )
        return key, None
    beside = place.with_name(f"{place.name}.new")
    if os.path.lexists(beside):
        if is_root_key(policy, key := PackageKey.load(beside)):
            return key, beside  # killed between the record and the name
        beside.unlink()
    return PackageKey.create(beside, _KEY_NAME), beside


def _status(policy: TrustPolicy, key: PackageKey) -> str:
    known = policy.get(key.key_id)
    return "not on record" if known is None else known.status


def _forget_unrecorded(file: Path, key: PackageKey) -> None:
    """Where the ledger is new, take away a list that says no more than this makes again."""
    if file.exists():
        policy = TrustPolicy.load(file)
        if policy.threshold == 1 and [one.key_id for one in policy.keys] == [key.key_id]:
            file.unlink()


def _with(policy: TrustPolicy, key: PackageKey) -> TrustPolicy:
    """The key trusted for what ships, and for what it was trusted for before."""
    known = policy.get(key.key_id)
    ships = [name for name in shipped_ids() if known is None or not known.may_sign(name)]
    if known is not None:
        if not ships:
            return policy
        return policy.with_key(key.public, known.name, packages=[*known.packages, *ships])
    # Another root's own key may be trusted here too: of a ledger that was imported.
    return policy.with_key(key.public, f"{_KEY_NAME} {key.key_id[:8]}", packages=ships)


def install_shipped(manager: PackageManager) -> list[InstalledPackage]:
    """Install all packages that come with the distribution, or put back what is missing."""
    return manager.install([Offer(data) for data in shipped_archives().values()])
