"""Routes of packages and gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Query

from remit.ledger import LedgerClient
from remit.operations.results import Page
from remit.packages import InstalledPackage, Registry
from remit.packages.gates import GATES, GateContext, check_gates, latest_result
from remit.server.api.requests import GateRequest
from remit.server.api.routes import Caller, Routes, name_of, slice_of
from remit.server.refusals import HttpError


def governance_routes(ledger: LedgerClient, context: Callable[[], GateContext]) -> Routes:
    """Return the routes that list packages, and show and check gates.

    Args:
        ledger: ledger of the root.
        context: returns the gates' inputs; called for each check.
    """
    routes = Routes("governance")

    @routes.add("GET", "/packages", "List packages", needs="read", shape="PackagePage")
    def packages(query: Annotated[Page, Query()]) -> dict[str, Any]:
        """Return the installed packages, sorted by id."""
        installed = list(Registry.from_ledger(ledger).packages.values())
        names = (package.package_id for package in installed)
        part, more = slice_of(installed, names, query.cursor, query.limit)
        return {"packages": [_plain(package) for package in part], "next_cursor": more}

    @routes.add(
        "GET",
        "/packages/{package_id}",
        "One package",
        needs="read",
        shape="PackageShape",
    )
    def package(package_id: str) -> dict[str, Any]:
        """Return an installed package: contents, source and permissions."""
        found = Registry.from_ledger(ledger).packages.get(package_id)
        if found is None:
            raise HttpError(404, "not_found", f"{package_id} is not installed.")
        return _plain(found)

    @routes.add(
        "GET",
        "/gates",
        "Latest results of the gates",
        needs="read",
        shape="GateStates",
    )
    def gates() -> dict[str, Any]:
        """Return the latest recorded result of every gate; nothing is checked again."""
        return {"gates": [latest_result(ledger, gate) for gate in GATES]}

    @routes.add("POST", "/gates", "Check gates", needs="manage_keys", shape="GateReportShape")
    def check(wanted: GateRequest, caller: Caller) -> dict[str, Any]:
        """Check gates now and record the results."""
        chosen = wanted.gates or None
        report = check_gates(context(), chosen, full=wanted.full, by=name_of(caller))
        return report.to_dict()

    return routes


def _plain(package: InstalledPackage) -> dict[str, Any]:
    manifest = package.manifest
    granted = manifest.permissions
    return {
        "package_id": package.package_id,
        "version": package.version,
        "title": manifest.title,
        "plane_id": manifest.plane_id,
        "spec_id": manifest.spec_id,
        "framework_id": manifest.framework_id,
        "permissions": {
            "tools": granted.tools,
            "models": granted.models,
            "paths": granted.paths,
            "budgets": dict(granted.budgets),
        },
        "files": len(manifest.assets),
        "operation": package.operation,
        "installed_at": package.installed_at,
        "entry_id": package.entry_id,
        "source": package.source,
        "archive_sha256": package.archive_sha256,
        "signed": package.signature["waived"] is False,
        "approved_by": package.approved_by,
    }
