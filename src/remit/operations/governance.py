"""Operations on packages and gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from remit.kernel.errors import NotFoundError
from remit.operations.operation import Caller, Listing, Operation, RootPort, field

if TYPE_CHECKING:
    from remit.packages import InstalledPackage


class ListPackages(Operation):
    """Return the installed packages, sorted by id."""

    route, summary, tag, result = "GET /packages", "List packages", "governance", "PackagePage"
    member, endpoint = "packages", "packages"

    def run(self, root: RootPort, caller: Caller) -> Listing[InstalledPackage]:
        """Return the packages."""
        from remit.packages import Registry

        installed = list(Registry.from_ledger(root.ledger).packages.values())
        return Listing(installed, lambda one: one.package_id, lambda part: map(_plain, part))


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


class CheckGates(Operation):
    """Check gates now and record the results."""

    route, summary, tag, needs = "POST /gates", "Check gates", "governance", "manage_keys"
    form, result, endpoint = "GateRequest", "GateReportShape", "check"

    gates: list[Literal["G0B", "G1", "G1-COMPLETE", "G2", "G3", "G4", "G5", "G6"]] = field(
        "Gates to check; by default all.", []
    )
    full: bool = field("Verify the whole ledger, including entries verified earlier.", False)

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Return the results."""
        from remit.packages.gates import check_gates

        chosen = self.gates or None
        return check_gates(root.gate_context(), chosen, full=self.full, by=caller.name).to_dict()


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
