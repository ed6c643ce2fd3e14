"""The forms of health, packages and gates."""

from __future__ import annotations

from typing import Literal

from remit.operations.results.page import Open, Paged, form

Breaker = form(
    "Breaker",
    "The circuit breaker of one provider and model, shared by all processes of the root.",
    provider_id=str, model_id=str,
    state=(Literal["closed", "open", "half_open"],
           "`open` if calls are refused; `half_open` if a trial call is allowed."),
)  # fmt: skip
Health = form(
    "Health", "The state of this process.",
    version=(str, "Version of Remit."),
    in_flight=(int, "Number of model calls in flight, of all processes."),
    refused=(int, "Number of requests without a valid key since this process started."),
    breakers=([Breaker],
              "Circuit breakers of the root; a breaker that is not listed is closed."),
)  # fmt: skip

PermissionsShape = form(
    "PermissionsShape",
    "Permissions of a package's agents; `*` in a name matches any text.",
    tools=[str], models=[str], paths=[str], budgets=(dict[str, int | str], "Limit by kind."),
)  # fmt: skip
PackageShape = form(
    "PackageShape", "An installed package, and how it was installed.",
    package_id=str, version=str, title=str, plane_id=str, spec_id=str, framework_id=str,
    permissions=PermissionsShape, files=(int, "Number of files."),
    operation=Literal["install", "upgrade", "rollback"], installed_at=str, entry_id=str,
    source=str, archive_sha256=str, signed=bool, approved_by=str,
)  # fmt: skip
PackagePage = form("PackagePage", "Packages, sorted by id.", base=Paged, packages=[PackageShape])

GateState = form(
    "GateState", "The latest result of a gate.",
    gate=str, passed=(bool | None, "Null if the gate was never checked."),
    message=(str, "Sentence that explains the result."),
    checked_at=str | None, entry_id=(str | None, "Entry that records the result."),
)  # fmt: skip
GateStates = form("GateStates", "The gates in their order.", gates=[GateState])
GateShape = form(
    "GateShape", "The result of a gate. A gate may add further members.", base=Open,
    gate=str, passed=bool, message=str, errors=([str], "Messages of the faults."),
)  # fmt: skip
GateReportShape = form(
    "GateReportShape", "The results of the checked gates.",
    passed=(bool, "True if all gates passed."), gates=[GateShape],
)  # fmt: skip
