"""Looks through gates, and puts on record what they said."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from remit.kernel.errors import InvalidInputError, RemitError
from remit.ledger import LedgerEntry, content
from remit.packages.checks import Checked, Finding
from remit.packages.errors import PackageError
from remit.packages.gates.constraints import check_constraints
from remit.packages.gates.context import GateContext
from remit.packages.gates.governed import (
    check_cases,
    check_files,
    check_parts,
    check_references,
    check_signatures,
)
from remit.packages.gates.integrity import check_integrity
from remit.packages.gates.orders import check_orders
from remit.packages.gates.report import GateReport, GateResult
from remit.packages.lock import package_lock

__all__ = ["GATES", "check_gates"]

_log = logging.getLogger("remit.gates")

_CHECKS: Mapping[str, Callable[..., Checked]] = {
    "G0B": check_files,
    "G1": check_references,
    "G1-COMPLETE": check_parts,
    "G2": check_orders,
    "G3": check_constraints,
    "G4": check_cases,
    "G5": check_signatures,
    "G6": check_integrity,
}

_UNLOCKED = ("G2", "G6")  # gates that look at the ledger alone

GATES: tuple[str, ...] = tuple(_CHECKS)
"""The names of the gates, in their order (SPEC 10)."""


def check_gates(
    context: GateContext,
    gates: Sequence[str] | None = None,
    *,
    full: bool = False,
    record: bool = True,
    by: str,
    progress: Callable[[int, int], None] | None = None,
) -> GateReport:
    """Look through gates and write one ``GATE_PASSED`` or ``GATE_FAILED`` for each.

    A gate that cannot be looked through has failed.

    Args:
        context: of the root.
        gates: which; all when left out.
        full: read the whole ledger, however great, and whatever was verified before.
        record: write what they said.
        by: who asked, for the record.
        progress: called after each gate with ``(done, in all)``.

    Raises:
        InvalidInputError: there is no such gate.
    """
    wanted = GATES if gates is None else tuple(dict.fromkeys(gates))
    if unknown := [name for name in wanted if name not in _CHECKS]:
        raise InvalidInputError(
            f"There is no gate {unknown[0]!r}.", next_step=f"The gates are {', '.join(GATES)}."
        )
    results: list[GateResult] = []
    entries: list[LedgerEntry] = []
    with contextlib.ExitStack() as held:
        # While another process changes packages, files and record do not agree.
        if any(name not in _UNLOCKED for name in wanted):
            with contextlib.suppress(PackageError):  # then they may not: a gate says so
                held.enter_context(
                    package_lock(context.root, context.settings.packages.lock_timeout_s)
                )
        for done, name in enumerate(wanted, 1):
            if all(later in _UNLOCKED for later in wanted[done - 1 :]):
                held.close()
            checked = _run_gate(context, name, full)
            results.append(_result(name, checked, context.most_errors))
            entries.append(_entry(context, results[-1], checked, by))
            if progress is not None:
                progress(done, len(wanted))
    if not record:
        return GateReport(tuple(results))
    try:
        ids = context.ledger.write_many(entries)
    except RemitError as error:
        return GateReport(tuple(results), error.message)
    return GateReport(
        tuple(replace(one, entry_id=id_) for one, id_ in zip(results, ids, strict=True))
    )


def _run_gate(context: GateContext, name: str, full: bool) -> Checked:
    try:
        return _CHECKS[name](context, full=full)
    except RemitError as error:
        finding = Finding(error.message, error.next_step)
    except Exception as error:  # noqa: BLE001 - whatever it looks at: the report is to be made
        _log.debug("gate %s could not be looked through", name, exc_info=True)
        finding = Finding(
            f"The gate could not be looked through: {type(error).__name__}: {error}.",
            "Run it with --debug, and `remit ledger verify`.",
        )
    return Checked([finding])


def _result(name: str, checked: Checked, most: int) -> GateResult:
    count = len(checked.findings)
    if not count:
        return GateResult(name, True, checked.message)
    problem = "1 thing is wrong" if count == 1 else f"{count} things are wrong"
    again = f"Fix what it names, then run `remit gate check --gate {name}` again."
    findings = tuple(
        replace(one, next_step=one.next_step or again) for one in checked.findings[:most]
    )
    return GateResult(name, False, problem, findings, count)


def _entry(context: GateContext, result: GateResult, checked: Checked, by: str) -> LedgerEntry:
    metadata: dict[str, Any] = {
        "gate": result.gate,
        "errors": result.error_count,
        # They may quote settings, and what a model was asked: content, that can be erased.
        "problems": content(result.errors),
        "registry_sha256": _registry_digest(context),
        "by": by,
    }
    if result.passed:
        metadata |= checked.mark
    return LedgerEntry(
        event_type="GATE_PASSED" if result.passed else "GATE_FAILED",
        submission_id=result.gate,
        decision="PASSED" if result.passed else "FAILED",
        reason=result.message,
        metadata=metadata,
    )


def _registry_digest(context: GateContext) -> str:
    try:
        return context.registry.digest
    except RemitError:
        return ""
