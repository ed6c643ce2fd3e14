"""The gates that look at packages and their files: G0B, G1, G1-COMPLETE, G4, G5."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from remit.kernel.errors import RemitError
from remit.packages.checks import (
    Checked,
    Finding,
    check_acceptance,
    check_attestation,
    check_completeness,
    check_modules,
    check_ownership,
    check_registries,
    check_resolution,
    check_running_code,
)
from remit.packages.gates.context import GateContext
from remit.packages.registry import REGISTRY_FOLDER
from remit.packages.waivers import EDITABLE_INSTALL, waived

__all__ = ["check_cases", "check_files", "check_parts", "check_references", "check_signatures"]


def check_files(context: GateContext, *, full: bool) -> Checked:
    """Gate G0B."""
    registry, disk = context.registry, context.disk
    checked = check_ownership(registry, disk).joined(
        check_registries(registry, disk.read, disk.names(REGISTRY_FOLDER))
    )
    how = ""
    try:
        code = context.distribution()
        waiver = waived(context.ledger, EDITABLE_INSTALL) if code.editable else ""
        how = f"the code is that of remit {code.version}"
        if waiver:
            how = f"the code is an editable install, waived by {waiver}"
        checked = checked.joined(
            check_modules(registry, code.modules()), check_running_code(code, waiver)
        )
    except RemitError as error:
        finding = Finding(f"The running code cannot be looked at: {error.message}", error.next_step)
        checked = checked.joined(Checked([finding], {"modules": 0}))
    return _summarize(
        checked,
        "{files} files of {packages} packages, each owned once and unchanged; {modules} modules "
        f"governed; {how}",
    )


def check_references(context: GateContext, *, full: bool) -> Checked:
    """Gate G1."""
    checked = check_resolution(context.registry, context.disk, context.resolved)
    return _summarize(
        checked,
        "{packages} packages, each with its specification ({specifications}) and framework "
        "({frameworks})",
    )


def check_parts(context: GateContext, *, full: bool) -> Checked:
    """Gate G1-COMPLETE."""
    checked = check_completeness(
        context.registry,
        context.disk,
        tool_ids=context.tool_ids,
        routes=context.settings.routing.routes,
    )
    return _summarize(
        checked,
        "{frameworks} frameworks have their specifications ({specifications}), and these what "
        "they declare: {contracts} contracts, {schemas} schemas, {agents} agents usable",
    )


def check_cases(context: GateContext, *, full: bool) -> Checked:
    """Gate G4."""
    checked = check_acceptance(context.registry, context.disk, context.price_table())
    return _summarize(checked, "{cases} acceptance cases pass, for {contracts} contracts and more")


def check_signatures(context: GateContext, *, full: bool) -> Checked:
    """Gate G5."""
    checked = check_attestation(
        context.registry,
        context.disk,
        context.root,
        context.ledger,
        now=datetime.now(UTC),
        envelope_bytes=context.settings.packages.envelope_bytes,
    )
    return _summarize(
        checked,
        "{packages} packages have their receipt and archive; {signed} signed, {waived} waived on "
        "record",
    )


def _summarize(checked: Checked, message: str) -> Checked:
    return replace(checked, message=message.format(**checked.counts))
