"""Operations on packages and gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remit.kernel.errors import NotFoundError
from remit.operations.operation import Feed, feed_of, field, verb
from remit.operations.ports import Caller, RootPort

if TYPE_CHECKING:
    from remit.packages import InstalledPackage


@verb(
    route="GET /packages", summary="List packages", tag="governance", result="PackagePage",
    member="packages", endpoint="packages", tools=("list_packages",),
)  # fmt: skip
def list_packages(root: RootPort, caller: Caller) -> Feed:
    """Return the installed packages, sorted by id.

    Returns:
        ``packages``, page by page, each as by :func:`show_package`.

    Raises:
        PackageError: an entry of the ledger does not describe a package.
        InvalidInputError: the cursor is unknown; raised when the list is read.
        LedgerError: the ledger cannot be read.
    """
    from remit.packages import Registry

    installed = list(Registry.from_ledger(root.ledger).packages.values())
    return feed_of(installed, lambda one: one.package_id, lambda part: map(_plain, part))


@verb(
    route="GET /packages/{package_id}", summary="One package", tag="governance",
    result="PackageShape", endpoint="package",
)  # fmt: skip
def show_package(
    root: RootPort, caller: Caller, *, package_id: str = field("Id of the package.")
) -> dict[str, Any]:
    """Return an installed package: its facts, source and permissions.

    Returns:
        ``package_id``, ``version``, ``title``, ``plane_id``, ``spec_id``, ``framework_id``,
        ``operation``, ``installed_at``, ``entry_id``, ``source``, ``archive_sha256``,
        ``approved_by``, ``permissions`` (``tools``, ``models``, ``paths`` and ``budgets``),
        ``files`` (their number) and ``signed`` (False if the signature was waived).

    Raises:
        NotFoundError: the package is not installed.
        PackageError: an entry of the ledger does not describe a package.
        LedgerError: the ledger cannot be read.
    """
    from remit.packages import Registry

    found = Registry.from_ledger(root.ledger).packages.get(package_id)
    if found is None:
        raise NotFoundError(f"{package_id} is not installed.")
    return _plain(found)


@verb(
    route="GET /gates", summary="Latest results of the gates", tag="governance",
    result="GateStates", endpoint="gates",
)  # fmt: skip
def list_gates(root: RootPort, caller: Caller) -> dict[str, Any]:
    """Return the latest recorded result of every gate; nothing is checked again.

    Returns:
        ``gates``: each with ``gate``, ``passed`` (None if it was never checked), ``message``,
        ``checked_at`` and ``entry_id`` (both None without a result).

    Raises:
        LedgerError: the ledger cannot be read.
    """
    from remit.packages.gates import GATES, latest_result

    return {"gates": [latest_result(root.ledger, gate) for gate in GATES]}


def _plain(package: InstalledPackage) -> dict[str, Any]:
    manifest, granted = package.manifest, package.manifest.permissions
    return {
        **{name: getattr(manifest, name)
           for name in ("title", "plane_id", "spec_id", "framework_id")},
        **{name: getattr(package, name) for name in (
            "package_id", "version", "operation", "installed_at", "entry_id", "source",
            "archive_sha256", "approved_by",
        )},
        "permissions": {**{name: getattr(granted, name) for name in ("tools", "models", "paths")},
                        "budgets": dict(granted.budgets)},
        "files": len(manifest.assets),
        "signed": package.signature["waived"] is False,
    }  # fmt: skip
