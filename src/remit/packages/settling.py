"""Is what readers go by, ``ownership.json``, what the ledger says? Asked when a root is opened."""

from __future__ import annotations

from pathlib import Path

from remit.kernel.installed import OWNERSHIP_FILE
from remit.ledger import LedgerClient
from remit.packages.errors import PackageError
from remit.packages.lock import package_lock
from remit.packages.registry import Registry

__all__ = ["require_ownership"]

_NAME = OWNERSHIP_FILE.rpartition("/")[2]


def require_ownership(root: Path, ledger: LedgerClient, wait_s: float) -> None:
    """Make sure that nobody gave files to packages behind the ledger's back.

    Args:
        root: the root's directory.
        ledger: its record.
        wait_s: how long to wait for an operation that is about to write the registry, in seconds.

    Raises:
        PackageError: ``registry_differs``, or ``registry_damaged``.
    """
    if _is_equal(root, ledger):
        return
    with package_lock(root, wait_s):
        if _is_equal(root, ledger):
            return
    raise PackageError(
        "registry_differs",
        f"{root / OWNERSHIP_FILE}, which tells whose each file is, is not what the ledger says.",
        next_step="Run `remit gate check --all`; `remit package registry --rebuild` makes it anew.",
    )


def _is_equal(root: Path, ledger: LedgerClient) -> bool:
    registry = Registry.from_ledger(ledger)
    if not registry.packages:
        return True  # nothing is installed, and nothing will be read
    try:
        return (root / OWNERSHIP_FILE).read_bytes() == registry.documents()[_NAME]
    except OSError:
        return False
