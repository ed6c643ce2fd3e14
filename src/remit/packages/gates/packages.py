"""The gates over packages and their files: G0B, G1, G1-COMPLETE, G4, G5."""

from __future__ import annotations

from remit.kernel.errors import RemitError
from remit.packages.checks import (
    Finding,
    check_acceptance,
    check_attestation,
    check_completeness,
    check_installed,
    check_modules,
    check_ownership,
    check_registries,
    check_resolution,
    check_running_code,
)
from remit.packages.errors import PackageError
from remit.packages.gates.context import GateContext
from remit.packages.gates.report import Checked
from remit.packages.waivers import EDITABLE_INSTALL, waived
from remit.providers.prices import PriceTable

__all__ = ["check_cases", "check_files", "check_parts", "check_references", "check_signatures"]


def check_files(context: GateContext, *, full: bool) -> Checked:
    """Gate G0B."""
    registry, disk = context.registry, context.disk
    findings = [
        *check_installed(registry),
        *check_ownership(registry, disk),
        *check_registries(registry, disk),
    ]
    message = (
        f"{len(registry.owners)} files of {len(registry.packages)} packages, each owned once and "
        "unchanged"
    )
    try:
        code = context.distribution()
        modules = code.modules()
        waiver = waived(context.ledger, EDITABLE_INSTALL) if code.editable else ""
        kind = f"an editable install, waived by {waiver}" if waiver else f"remit {code.version}"
        message += f"; {len(modules)} modules governed; the code is {kind}"
        findings += [*check_modules(registry, modules), *check_running_code(code, waiver)]
    except RemitError as error:
        problem = f"The running code cannot be looked at: {error.message}"
        findings.append(Finding(problem, error.next_step))
    return Checked(findings, message)


def check_references(context: GateContext, *, full: bool) -> Checked:
    """Gate G1."""
    view = context.packages
    return Checked(
        [*check_installed(view.registry), *check_resolution(view)],
        f"{len(view.registry.packages)} packages, each with its specification "
        f"({len(view.documents.specs)}) and framework ({len(view.documents.frameworks)})",
    )


def check_parts(context: GateContext, *, full: bool) -> Checked:
    """Gate G1-COMPLETE."""
    view = context.packages
    found = view.documents
    return Checked(
        [*check_installed(view.registry), *check_completeness(view)],
        f"{len(found.frameworks)} frameworks have their specifications ({len(found.specs)}), and "
        f"these what they declare: {len(found.contracts)} contracts, {len(found.schemas)} "
        f"schemas, {len(found.agents)} agents usable",
    )


def check_cases(context: GateContext, *, full: bool) -> Checked:
    """Gate G4."""
    view = context.packages
    found = view.documents
    cases = sum(len(cases) for cases in found.acceptance.values())
    cases += sum(len(contract.examples) for contract, _ in found.every_contract())
    return Checked(
        list(check_acceptance(view, _prices(context))),
        f"{cases} acceptance cases pass, for {len(found.contracts)} contracts and more",
    )


def check_signatures(context: GateContext, *, full: bool) -> Checked:
    """Gate G5."""
    packages = context.registry.packages
    waivers = sum(package.signature.get("waived") is True for package in packages.values())
    most = context.settings.packages.envelope_bytes
    return Checked(
        [
            *check_installed(context.registry),
            *check_attestation(
                context.registry, context.disk, context.root, context.ledger, envelope_bytes=most
            ),
        ],
        f"{len(packages)} packages have their receipt and archive; {len(packages) - waivers} "
        f"signed, {waivers} waived on record",
    )


def _prices(context: GateContext) -> PriceTable:
    found = context.registry.by_classification("prices")
    if len(found) != 1:
        raise PackageError(
            "no_prices",
            f"{len(found)} tables of prices are installed, where one has to be.",
            next_step="Run `remit init`, or remove the package that brought another.",
        )
    path = found[0][0]
    try:
        return PriceTable.from_bytes(context.disk.read(path), path)
    except FileNotFoundError as error:
        problem = f"{path} is missing."
        raise PackageError("no_prices", problem, next_step="Run `remit init`.") from error
