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
from remit.packages.gates.context import GateContext, GateRun, Summary
from remit.packages.waivers import EDITABLE_INSTALL, waived
from remit.providers.prices import PriceTable

__all__ = ["check_cases", "check_files", "check_parts", "check_references", "check_signatures"]


def check_files(context: GateContext) -> GateRun:
    """Gate G0B."""
    registry, disk = context.registry, context.disk
    yield from check_installed(registry)
    yield from check_ownership(registry, disk)
    yield from check_registries(registry, disk)
    running = ""
    try:
        code = context.distribution()
        modules = code.modules()
        waiver = waived(context.ledger, EDITABLE_INSTALL) if code.editable else ""
        running = f"{len(modules)} modules governed; the code is that of remit {code.version}"
        if waiver:
            running = f"{len(modules)} modules governed; the code is an editable install, "
            running += f"waived by {waiver}"
        yield from check_modules(registry, modules)
        yield from check_running_code(code, waiver)
    except RemitError as error:
        problem = f"The running code cannot be looked at: {error.message}"
        yield Finding(problem, error.next_step)
    return Summary(
        f"{len(registry.owners)} files of {len(registry.packages)} packages, each owned once and "
        f"unchanged; {running}"
    )


def check_references(context: GateContext) -> GateRun:
    """Gate G1."""
    view = context.packages
    yield from check_installed(view.registry)
    yield from check_resolution(view)
    return Summary(
        f"{len(view.registry.packages)} packages, each with its specification "
        f"({len(view.documents.specs)}) and framework ({len(view.documents.frameworks)})"
    )


def check_parts(context: GateContext) -> GateRun:
    """Gate G1-COMPLETE."""
    found = context.packages.documents
    yield from check_installed(context.registry)
    yield from check_completeness(context.packages)
    return Summary(
        f"{len(found.frameworks)} frameworks have their specifications ({len(found.specs)}), and "
        f"these what they declare: {len(found.contracts)} contracts, {len(found.schemas)} "
        f"schemas, {len(found.agents)} agents usable"
    )


def check_cases(context: GateContext) -> GateRun:
    """Gate G4."""
    found = context.packages.documents
    tables = context.registry.by_classification("prices")
    if len(tables) != 1:
        raise PackageError(
            "no_prices",
            f"{len(tables)} tables of prices are installed, where one has to be.",
            next_step="Run `remit init`, or remove the package that brought another.",
        )
    path = tables[0][0]
    try:
        prices = PriceTable.from_bytes(context.disk.read(path), path)
    except FileNotFoundError as error:
        problem = f"{path} is missing."
        raise PackageError("no_prices", problem, next_step="Run `remit init`.") from error
    yield from check_acceptance(context.packages, prices)
    cases = sum(len(cases) for cases in found.acceptance.values())
    cases += sum(len(contract.examples) for contract, _ in found.every_contract())
    return Summary(f"{cases} acceptance cases pass, for {len(found.contracts)} contracts and more")


def check_signatures(context: GateContext) -> GateRun:
    """Gate G5."""
    registry, most = context.registry, context.settings.packages.envelope_bytes
    yield from check_installed(registry)
    yield from check_attestation(
        registry, context.disk, context.root, context.ledger, envelope_bytes=most
    )
    packages = registry.packages.values()
    waivers = sum(package.signature.get("waived") is True for package in packages)
    return Summary(
        f"{len(packages)} packages have their receipt and archive; {len(packages) - waivers} "
        f"signed, {waivers} waived on record"
    )
