"""What ``remit init`` does for packages: a key of the root's own, and all that ships (SPEC 10)."""

from __future__ import annotations

from pathlib import Path

from remit.distribution import Distribution
from remit.ledger import LedgerClient
from remit.packages.lock import package_lock
from remit.packages.manager import PackageManager
from remit.packages.offer import Offer
from remit.packages.package_key import PackageKey
from remit.packages.registry import InstalledPackage
from remit.packages.shipped import root_key_path, shipped_archives
from remit.packages.trust import TrustPolicy, change_trust, recorded_trust
from remit.packages.waivers import EDITABLE_INSTALL, record_waiver, waived
from remit.root import Root

__all__ = ["found_packages", "install_shipped"]

_KEY_NAME = "root"


def found_packages(root: Root, ledger: LedgerClient, *, by: str, wait_s: float) -> bool:
    """Make the root's own package key, and trust it; note on record what cannot be checked.

    Args:
        root: the installation.
        ledger: its record.
        by: who acts.
        wait_s: how long to wait for another operation, in seconds.

    Returns:
        Whether the running code is an editable install, which has no hashes to be held against.

    Raises:
        PackageError: the key or ``trust.json`` cannot be written or read.
    """
    key_path = root_key_path(root)
    key_path.parent.mkdir(mode=0o700, exist_ok=True)
    with package_lock(root.path, wait_s):
        if key_path.exists():
            key = PackageKey.load(key_path)
        else:
            key = PackageKey.create(key_path, _KEY_NAME)
        _forget_unrecorded(root.path / TrustPolicy.FILE, ledger, key)
        change_trust(
            root.path / TrustPolicy.FILE,
            ledger,
            lambda policy: policy if policy.get(key.key_id) else _with(policy, key),
            by,
        )
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


def _forget_unrecorded(file: Path, ledger: LedgerClient, key: PackageKey) -> None:
    """Where the ledger is new, take away a list that says no more than this makes again."""
    if file.exists() and not recorded_trust(ledger):
        policy = TrustPolicy.load(file)
        if policy.threshold == 1 and [one.key_id for one in policy.keys] == [key.key_id]:
            file.unlink()


def _with(policy: TrustPolicy, key: PackageKey) -> TrustPolicy:
    # Another root's own key may be trusted here too: of a ledger that was imported.
    return policy.with_key(key.public, f"{_KEY_NAME} {key.key_id[:8]}")


def install_shipped(manager: PackageManager) -> list[InstalledPackage]:
    """Install all packages that come with the distribution, or put back what is missing."""
    return manager.install([Offer(data) for data in shipped_archives().values()])
