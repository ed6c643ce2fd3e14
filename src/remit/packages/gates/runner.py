"""Runs gates, and reports and records the results."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import attrgetter
from typing import Any, Self

from remit.kernel.errors import InvalidInputError, RemitError
from remit.ledger import (
    AFTER_DAMAGE,
    LedgerEntry,
    LedgerReader,
    content,
    is_authentic,
    reason_of,
)
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
from remit.packages.config_changes import EDITABLE_INSTALL, waived
from remit.packages.errors import PackageError
from remit.packages.gates.context import GateContext, GateRun
from remit.packages.gates.g2_work_orders import check_orders
from remit.packages.gates.g3_constraints import check_constraints
from remit.packages.gates.g6_integrity import check_integrity
from remit.packages.journal import package_lock
from remit.providers.prices import PriceTable

_log = logging.getLogger("remit.gates")


def _check_files(context: GateContext) -> GateRun:
    registry = context.registry
    yield from check_ownership(registry, context.disk)
    yield from check_registries(registry, context.disk)
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
        problem = f"The running code cannot be read: {error.message}"
        yield Finding(problem, error.next_step)
    return (
        f"{len(registry.owners)} files of {len(registry.packages)} packages, each with one owner "
        f"and unchanged; {running}"
    )


def _check_cases(context: GateContext) -> GateRun:
    tables = context.registry.by_classification("prices")
    if len(tables) != 1:
        raise PackageError(
            "no_prices",
            f"{len(tables)} price tables are installed; exactly one is needed.",
            next_step="Run `remit init`, or `remit package remove` for the other packages.",
        )
    path = tables[0][0]
    try:
        prices = PriceTable.from_bytes(context.disk.read(path), path)
    except FileNotFoundError as error:
        problem = f"{path} is missing."
        raise PackageError("no_prices", problem, next_step="Run `remit init`.") from error
    return (yield from check_acceptance(context.packages, prices))


def _check_signatures(context: GateContext) -> GateRun:
    most = context.settings.packages.envelope_bytes
    place = context.registry, context.disk, context.root, context.ledger
    return (yield from check_attestation(*place, envelope_bytes=most))


_CHECKS: Mapping[str, tuple[str, Callable[[GateContext], GateRun]]] = {
    "G0B": ("Files have one owner and are unchanged", _check_files),
    "G1": (
        "Packages agree with their specifications and frameworks",
        lambda context: check_resolution(context.packages),
    ),
    "G1-COMPLETE": (
        "Everything declared is installed and usable",
        lambda context: check_completeness(context.packages),
    ),
    "G2": ("Work orders follow their states and costs", check_orders),
    "G3": ("Settings, tools and models are permitted", check_constraints),
    "G4": ("Acceptance cases pass", _check_cases),
    "G5": ("Packages are signed, or waived", _check_signatures),
    "G6": ("The ledger, its checkpoints and budgets verify", check_integrity),
}

_LEDGER_GATES = ("G2", "G6")  # These gates read only the ledger and need no lock.

GATES: tuple[str, ...] = tuple(_CHECKS)
"""The names of the gates, in their order."""

TITLES: Mapping[str, str] = {name: title for name, (title, _) in _CHECKS.items()}
"""The title of each gate: its claim about the installation."""


@dataclass(frozen=True, slots=True)
class GateResult:
    """The result of one gate; immutable.

    Attributes:
        gate: the gate's name.
        passed: True if there is no finding.
        message: one line with the checked things, or with the number of findings.
        findings: at most as many findings as the context allows.
        error_count: the number of all findings.
        entry_id: the ``GATE_PASSED`` or ``GATE_FAILED`` entry; empty if none was written.
    """

    gate: str
    passed: bool
    message: str
    findings: tuple[Finding, ...] = ()
    error_count: int = 0
    entry_id: str = ""

    @classmethod
    def failed(cls, gate: str, findings: Sequence[Finding], most: int) -> Self:
        """Return the result of a failed gate with at most ``most`` of its findings.

        A finding without a next step gets one that repeats the gate. ``message`` says how many
        findings there are, ``error_count`` counts all.

        Args:
            gate: the name of the gate.
            findings: all findings.
            most: largest number of findings to keep.
        """
        count = len(findings)
        problem = "1 problem" if count == 1 else f"{count} problems"
        again = f"Fix the fault, then run `remit gate check --gate {gate}` again."
        shown = tuple(Finding(message, fix or again) for message, fix in findings[:most])
        return cls(gate, False, problem, shown, count)

    @property
    def errors(self) -> list[str]:
        """The messages of the listed findings; ``error_count`` may be higher."""
        return [finding.message for finding in self.findings]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON.

        The keys are ``gate``, ``passed``, ``message``, ``errors`` (the listed messages),
        ``error_count``, ``next_steps`` (one for each listed error) and ``entry_id``.
        """
        return {
            "gate": self.gate,
            "passed": self.passed,
            "message": self.message,
            "errors": self.errors,
            "error_count": self.error_count,
            "next_steps": [finding.next_step for finding in self.findings],
            "entry_id": self.entry_id,
        }


@dataclass(frozen=True, slots=True)
class GateReport:
    """The results of several gates, as :func:`check_gates` returns them; immutable.

    Attributes:
        gates: the results, in the order of the checks.
        unrecorded: the reason why the results are not in the ledger; empty if they are, or if
            recording was not requested.
    """

    gates: tuple[GateResult, ...]
    unrecorded: str = ""

    @classmethod
    def without_ledger(cls, gates: Sequence[str], error: RemitError) -> Self:
        """Return a report in which each gate fails with one finding, because the ledger cannot be
        opened.

        ``unrecorded`` is the error's message.

        Args:
            gates: the names of the gates.
            error: the error of the ledger.
        """
        fix = error.next_step or AFTER_DAMAGE
        finding = Finding(f"The ledger cannot be opened: {error.message}", fix)
        return cls(tuple(GateResult.failed(gate, [finding], 1) for gate in gates), error.message)

    @property
    def passed(self) -> bool:
        """True if at least one gate was checked and all passed."""
        return bool(self.gates) and all(gate.passed for gate in self.gates)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON: ``passed``, and ``gates`` in the order of their checks.

        ``unrecorded`` is left out.
        """
        return {"passed": self.passed, "gates": [gate.to_dict() for gate in self.gates]}


def check_gates(
    context: GateContext,
    gates: Sequence[str] | None = None,
    *,
    full: bool = False,
    record: bool = True,
    by: str,
    jobs: int = 1,
    progress: Callable[[str, int, int], None] | None = None,
) -> GateReport:
    """Check gates, and write one ``GATE_PASSED`` or ``GATE_FAILED`` entry for each, in one
    transaction.

    A gate that raises an error fails, and so does each but G2 and G6 if no package is installed.
    These others run under the packages' lock. A lock that another process holds is not awaited
    beyond ``packages.lock_timeout_s``; the gates then run without it. The mark of each passed gate
    is stored, with or without ``record``.

    Args:
        context: the open root.
        gates: the names of the gates, each checked once in the given order; ``None`` for all. An
            empty sequence checks none, and the report has not passed.
        full: True to read the whole ledger, and ignore earlier verifications.
        record: True to write the entries.
        by: the acting person or program.
        jobs: the number of processes that verify a large ledger.
        progress: called with a part's name, its checked items and all its items; ``None`` for the
            context's.

    Returns:
        The results. If the entries cannot be written, ``unrecorded`` gives the reason.

    Raises:
        InvalidInputError: a gate does not exist.
        LedgerError: the mark of a passed gate cannot be made, because its entry cannot be read.
    """
    wanted = GATES if gates is None else tuple(dict.fromkeys(gates))
    if unknown := [name for name in wanted if name not in _CHECKS]:
        raise InvalidInputError(
            f"There is no gate {unknown[0]!r}.", next_step=f"The gates are {', '.join(GATES)}."
        )
    context = replace(context, full=full, jobs=jobs, progress=progress or context.progress)
    results: list[GateResult] = []
    entries: list[LedgerEntry] = []
    with contextlib.ExitStack() as held:
        # Files and ledger do not agree while another process changes packages.
        if any(name not in _LEDGER_GATES for name in wanted):
            wait_s = context.settings.packages.lock_timeout_s
            with contextlib.suppress(PackageError):  # Without the lock, a gate reports differences.
                held.enter_context(package_lock(context.root, wait_s))
        for done, name in enumerate(wanted, 1):
            if all(later in _LEDGER_GATES for later in wanted[done - 1 :]):
                held.close()
            context.progress(name, 0, 1)
            result, mark = _run_gate(context, name)
            if result.passed:
                context.keep(name, mark)
            results.append(result)
            entries.append(_entry(context, result, mark, by))
            context.progress(name, 1, 1)
    return _recorded(context, results, entries) if record else GateReport(tuple(results))


def _recorded(
    context: GateContext, results: Sequence[GateResult], entries: Sequence[LedgerEntry]
) -> GateReport:
    try:
        ids = context.ledger.write_many(entries)
    except Exception as error:  # noqa: BLE001 - a damaged ledger takes no entry; the report is made
        return GateReport(tuple(results), reason_of(error))
    recorded = zip(results, ids, strict=True)
    return GateReport(tuple(replace(result, entry_id=id_) for result, id_ in recorded))


def _run_gate(context: GateContext, name: str) -> tuple[GateResult, Mapping[str, int]]:
    """Run one gate and return its result and its mark, which is empty unless the gate passed."""
    findings: list[Finding] = []
    summary: str | tuple[str, Mapping[str, int]] = ""
    try:
        if name not in _LEDGER_GATES:
            findings += check_installed(context.registry)
        _, check = _CHECKS[name]
        running = check(context)
        while True:
            findings.append(next(running))
    except StopIteration as stop:
        summary = stop.value
    except RemitError as error:
        findings.append(Finding.of(error))
    except Exception as error:  # noqa: BLE001 - whatever it looks at: the report is to be made
        _log.debug("gate %s could not be checked", name, exc_info=True)
        problem = f"The gate could not be checked: {type(error).__name__}: {error}."
        findings.append(
            Finding(problem, "Run the gate with --debug, and run `remit ledger verify`.")
        )
    if findings:
        return GateResult.failed(name, findings, context.most_errors), {}
    message, mark = (summary, {}) if isinstance(summary, str) else summary
    return GateResult(name, True, message), mark


def _entry(
    context: GateContext, result: GateResult, mark: Mapping[str, int], by: str
) -> LedgerEntry:
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
            # Messages may quote settings and prompts, so they are content, which can be erased.
            "problems": content(result.errors),
            "registry_sha256": digest,
            "by": by,
            **mark,
        },
    )


def latest_result(ledger: LedgerReader, gate: str) -> dict[str, Any]:
    """Return the latest recorded result of a gate.

    Entries of writers without permission are ignored.

    Args:
        ledger: the ledger.
        gate: the name of the gate.

    Returns:
        ``gate``, ``passed`` (``None`` if the gate was never checked), ``message``, ``checked_at``
        and ``entry_id`` (both ``None`` without a result).

    Raises:
        LedgerError: the ledger cannot be read.
    """
    found = [
        entry
        for event in ("GATE_PASSED", "GATE_FAILED")
        for entry in islice(
            filter(is_authentic, ledger.query(event_type=event, submission_id=gate, order="desc")),
            1,
        )
    ]
    if not found:
        return {"gate": gate, "passed": None, "message": "", "checked_at": None, "entry_id": None}
    last = max(found, key=attrgetter("seq"))
    return {
        "gate": gate,
        "passed": last.event_type == "GATE_PASSED",
        "message": last.reason,
        "checked_at": last.timestamp,
        "entry_id": last.id,
    }
