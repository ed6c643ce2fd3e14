"""Operations on packages and gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remit.kernel.errors import NotFoundError
from remit.operations.operation import Caller, Feed, Operation, RootPort, feed_of, field

if TYPE_CHECKING:
    from remit.packages import InstalledPackage


class ListPackages(Operation):
    """Return the installed packages, sorted by id."""

    route, summary, tag, result = "GET /packages", "List packages", "governance", "PackagePage"
    member, endpoint, tools = "packages", "packages", ("list_packages",)

    def run(self, root: RootPort, caller: Caller) -> Feed:
        """Return the packages."""
        from remit.packages import Registry

        installed = list(Registry.from_ledger(root.ledger).packages.values())
        return feed_of(installed, lambda one: one.package_id, lambda part: map(_plain, part))


class ShowPackage(Operation):
    """Return an installed package: contents, source and permissions."""

    route, summary, tag = "GET /packages/{package_id}", "One package", "governance"
    result, endpoint = "PackageShape", "package"

    package_id: str = field("Id of the package.")

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Return the package.

        Raises:
            NotFoundError: the package is not installed.
        """
        from remit.packages import Registry

        found = Registry.from_ledger(root.ledger).packages.get(self.package_id)
        if found is None:
            raise NotFoundError(f"{self.package_id} is not installed.")
        return _plain(found)


class ListGates(Operation):
    """Return the latest recorded result of every gate; nothing is checked again."""

    route, summary, tag = "GET /gates", "Latest results of the gates", "governance"
    result, endpoint = "GateStates", "gates"

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Return the results."""
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
