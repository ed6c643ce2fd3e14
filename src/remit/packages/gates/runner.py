"""Checks gates, and puts the results on record."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from remit.kernel.errors import InvalidInputError, RemitError
from remit.ledger import LedgerEntry, content
from remit.packages.checks import Finding
from remit.packages.errors import PackageError
from remit.packages.gates.constraints import check_constraints
from remit.packages.gates.context import GateContext
from remit.packages.gates.integrity import check_integrity
from remit.packages.gates.orders import check_orders
from remit.packages.gates.packages import (
    check_cases,
    check_files,
    check_parts,
    check_references,
    check_signatures,
)
from remit.packages.gates.report import Checked, GateReport, GateResult
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
    """Check gates and write one ``GATE_PASSED`` or ``GATE_FAILED`` for each.

    A gate that cannot be checked has failed.

    Args:
        context: of the root.
        gates: which; all when left out.
        full: read the whole ledger, however great, and whatever was verified before.
        record: write the results.
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
            wait_s = context.settings.packages.lock_timeout_s
            with contextlib.suppress(PackageError):  # then they may not: a gate says so
                held.enter_context(package_lock(context.root, wait_s))
        for done, name in enumerate(wanted, 1):
            if all(later in _UNLOCKED for later in wanted[done - 1 :]):
                held.close()
            checked = _run_gate(context, name, full)
            results.append(GateResult.of(name, checked, context.most_errors))
            entries.append(_entry(context, results[-1], checked, by))
            if progress is not None:
                progress(done, len(wanted))
    if not record:
        return GateReport(tuple(results))
    try:
        ids = context.ledger.write_many(entries)
    except RemitError as error:
        return GateReport(tuple(results), error.message)
    recorded = zip(results, ids, strict=True)
    return GateReport(tuple(replace(result, entry_id=id_) for result, id_ in recorded))


def _run_gate(context: GateContext, name: str, full: bool) -> Checked:
    try:
        return _CHECKS[name](context, full=full)
    except RemitError as error:
        return Checked([Finding.of(error)])
    except Exception as error:  # noqa: BLE001 - whatever it looks at: the report is to be made
        _log.debug("gate %s could not be checked", name, exc_info=True)
        problem = f"The gate could not be checked: {type(error).__name__}: {error}."
        return Checked([Finding(problem, "Run it with --debug, and `remit ledger verify`.")])


def _entry(context: GateContext, result: GateResult, checked: Checked, by: str) -> LedgerEntry:
    try:
        digest = context.registry.digest
    except RemitError:
        digest = ""
    return LedgerEntry(
        event_type="GATE_PASSED" if result.passed else "GATE_FAILED",
        submission_id=result.gate,
        decision="PASSED" if result.passed else "FAILED",
        reason=result.message,
        metadata={
            "gate": result.gate,
            "errors": result.error_count,
            # They may quote settings, and what a model was asked: content, that can be erased.
            "problems": content(result.errors),
            "registry_sha256": digest,
            "by": by,
            **(checked.mark if result.passed else {}),
        },
    )
