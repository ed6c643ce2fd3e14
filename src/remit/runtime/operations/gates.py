"""The operation that checks the gates of an installation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from remit.kernel.errors import InvalidInputError
from remit.operations import Answer, Caller, RootPort, field, verb

if TYPE_CHECKING:
    from remit.packages.gates import GateReport


def _check_gates_lines(report: GateReport) -> Iterator[str]:
    """Yield the result and the findings of each gate, and the number of passed gates."""
    gates = report.gates
    for gate in gates:
        yield f"{'ok  ' if gate.passed else 'FAIL'} {gate.gate}: {gate.message}"
        for finding in gate.findings:
            yield f"       {finding.message}"
            if finding.next_step:
                yield f"         next: {finding.next_step}"
        if (more := gate.error_count - len(gate.findings)) > 0:
            yield f"       … and {more} more"
    yield f"{sum(gate.passed for gate in gates)} of {len(gates)} gates passed"


@verb(
    "gate check", "POST /gates", summary="Check gates", tag="governance", needs="manage_keys",
    form="GateRequest", result="GateReportShape", tools=("gate_check",),
)  # fmt: skip
def check_installation(
    root: RootPort, caller: Caller, *,
    every: bool = field("Run all gates.", False, flag="--all", door="command"),
    gates: list[Literal["G0B", "G1", "G1-COMPLETE", "G2", "G3", "G4", "G5", "G6"]] = field(
        "Gates to check; by default all.", [], flag="--gate", metavar="GATE",
        flag_help="Run this gate. Repeat for several gates.",
    ),
    enforce: bool = field("Exit 1 if a gate fails.", False, door="command"),
    full: bool = field("Verify the whole ledger, including entries verified earlier.", False),
) -> dict[str, Any] | Answer:  # fmt: skip
    """Run gates, and record the results.

    The command exits with 0 even if a gate fails, unless --enforce is given.

    Raises:
        InvalidInputError: a command names neither all gates nor some.
    """
    from remit.packages.gates import GATES, check_gates
    from remit.runtime.installation import run_gates

    chosen = gates or None
    if not caller.is_local:
        context = root.gate_context()
        return check_gates(context, chosen, full=full, by=caller.name).to_dict()
    if every == bool(chosen):
        raise InvalidInputError(f"Give --all, or --gate with one of {', '.join(GATES)}.")
    report = run_gates(root.path, chosen, full=full, by=caller.name, progress=root.progress)
    if report.unrecorded:
        root.note(f"The results could not be recorded: {report.unrecorded}")
    found = report.to_dict()
    return Answer(found, _check_gates_lines(report), enforce and not found["passed"])
