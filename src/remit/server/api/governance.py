"""Routes of packages and gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from remit.ledger import LedgerClient
from remit.packages import InstalledPackage, Registry
from remit.packages.gates import GATES, GateContext, check_gates
from remit.server.api.access import Caller, allow, failures, name_of
from remit.server.api.pages import answer, slice_of
from remit.server.api.requests import GateRequest, Page
from remit.server.api.responses import GateReportShape, GateStates, PackagePage, PackageShape
from remit.server.refusals import HttpError

__all__ = ["governance_routes"]


def governance_routes(ledger: LedgerClient, context: Callable[[], GateContext]) -> APIRouter:
    """Packages and gates of a root; ``context`` is what its gates check."""
    routes = APIRouter(prefix="/api", tags=["governance"])

    @routes.get(
        "/packages", response_model=PackagePage, responses=failures(),
        dependencies=[allow("read")], summary="List packages",
    )  # fmt: skip
    def packages(query: Annotated[Page, Query()]) -> Response:
        """The installed packages, by id."""
        installed = list(Registry.from_ledger(ledger).packages.values())
        names = (package.package_id for package in installed)
        part, more = slice_of(installed, names, query.cursor, query.limit)
        return answer({"packages": [_plain(package) for package in part], "next_cursor": more})

    @routes.get(
        "/packages/{package_id}", response_model=PackageShape, responses=failures(404),
        dependencies=[allow("read")], summary="One package",
    )  # fmt: skip
    def package(package_id: str) -> Response:
        """An installed package: what it is, where it came from, what it may do."""
        found = Registry.from_ledger(ledger).packages.get(package_id)
        if found is None:
            raise HttpError(404, "not_found", f"{package_id} is not installed.")
        return answer(_plain(found))

    @routes.get(
        "/gates", response_model=GateStates, responses=failures(), dependencies=[allow("read")],
        summary="What the gates said last",
    )  # fmt: skip
    def gates() -> Response:
        """Of every gate the newest result on record; looks at nothing anew."""
        return answer({"gates": [_newest(ledger, gate) for gate in GATES]})

    @routes.post(
        "/gates", response_model=GateReportShape, responses=failures(),
        dependencies=[allow("manage_keys")], summary="Check gates",
    )  # fmt: skip
    def check(wanted: GateRequest, caller: Caller) -> Response:
        """Look through gates now; the results go on record."""
        chosen = wanted.gates or None
        report = check_gates(context(), chosen, full=wanted.full, by=name_of(caller))
        return answer(report.to_dict())

    return routes


def _plain(one: InstalledPackage) -> dict[str, Any]:
    manifest = one.manifest
    granted = manifest.permissions
    return {
        "package_id": one.package_id,
        "version": one.version,
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
        "operation": one.operation,
        "installed_at": one.installed_at,
        "entry_id": one.entry_id,
        "source": one.source,
        "archive_sha256": one.archive_sha256,
        "signed": one.signature["waived"] is False,
        "approved_by": one.approved_by,
    }


def _newest(ledger: LedgerClient, gate: str) -> dict[str, Any]:
    found = [
        entry
        for event in ("GATE_PASSED", "GATE_FAILED")
        for entry in ledger.query(event_type=event, submission_id=gate, order="desc", limit=1)
    ]
    if not found:
        return {"gate": gate, "passed": None, "message": "", "checked_at": None, "entry_id": None}
    last = max(found, key=lambda entry: int(entry.id.removeprefix("LED-"), 16))
    return {
        "gate": gate,
        "passed": last.event_type == "GATE_PASSED",
        "message": last.reason,
        "checked_at": last.timestamp,
        "entry_id": last.id,
    }
