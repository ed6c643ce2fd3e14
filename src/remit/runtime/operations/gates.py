"""The operation that checks the gates of an installation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from remit.kernel.errors import InvalidInputError
from remit.operations import AgentTool, Answer, Caller, RootPort, ToolCall, argument, field, verb

if TYPE_CHECKING:
    from remit.packages.gates import GateReport


def _check_gates_lines(report: GateReport) -> Iterator[str]:
    """Yield the result and the findings of each gate, by their next steps, and the number of passed
    gates.
    """
    gates = report.gates
    for gate in gates:
        yield f"{'ok  ' if gate.passed else 'FAIL'} {gate.gate}: {gate.message}"
        for step in dict.fromkeys(finding.next_step for finding in gate.findings):
            yield from (f"       {one.message}" for one in gate.findings if one.next_step == step)
            if step:
                yield f"         next: {step}"
        if (more := gate.error_count - len(gate.findings)) > 0:
            yield f"       … and {more} more"
    yield f"{sum(gate.passed for gate in gates)} of {len(gates)} gates passed"


_Gate = Literal["G0B", "G1", "G1-COMPLETE", "G2", "G3", "G4", "G5", "G6"]


def _requested(call: ToolCall) -> dict[str, Any]:
    return {"gates": [gate] if (gate := call.given["gate"]) else []}


def _shape(call: ToolCall, found: dict[str, Any]) -> dict[str, Any]:
    """Return the report with the number of gates, and the names of those that fail."""
    failed = [row["gate"] for row in found["gates"] if not row["passed"]]
    return {**found, "count": len(found["gates"]), "failed": failed}


def _say(output: dict[str, Any]) -> str:
    """Return one sentence, with an error of the first two gates that fail."""
    number, failed = output["count"], output["failed"]
    if output["passed"]:
        return f"All {number} gates pass." if number > 1 else "The gate passes."
    errors = {row["gate"]: next(iter(row["errors"]), "") for row in output["gates"]}
    reasons = "; ".join(f"{name}: {errors.get(name, 'not shown')}" for name in failed[:2])
    return f"{len(failed)} of {number} gates fail: {reasons}"


_TOOL = AgentTool(
    name="gate_check", label="gates", has_status=False, request=_requested, shape=_shape,
    about="Check the gates: whether packages, files, work orders, constraints, signatures and the "
    "record are as they have to be. All of them, or one.",
    arguments={"gate": argument("only this gate", type=_Gate)},
    examples=(
        "check the gates", "run all gates", "do all gates pass?",
        "are the gates green, or why do they fail?", "status of the governance gates",
        ("check gate G1", {"gate": "G1"}), "is the installation healthy?",
    ),
    describe=_say,
    note="Cut to fit. `remit gate check` prints all of it.",
)  # fmt: skip


@verb(
    "gate check", "POST /gates", summary="Check gates", tag="governance", needs="manage_keys",
    form="GateRequest", result="GateReportShape", agent_tools=(_TOOL,),
)  # fmt: skip
def check_installation(
    root: RootPort, caller: Caller, *,
    every: bool = field("Run all gates.", False, flag="--all", door="command"),
    gates: list[_Gate] = field(
        "Gates to check; by default all.", [], flag="--gate", metavar="GATE",
        flag_help="Run this gate. Repeat for several gates.",
    ),
    enforce: bool = field("Exit 1 if a gate fails.", False, door="command"),
    full: bool = field("Verify the whole ledger, including entries verified earlier.", False),
) -> dict[str, Any] | Answer:  # fmt: skip
    """Run gates, and record the results.

    The command exits with 0 even if a gate fails, unless --enforce is given. The command first
    finishes or undoes an interrupted change of packages or prices, and records changed settings.

    Returns:
        An Answer for a command, else a dict: ``passed``, True if every gate passed, and ``gates``,
        the result of each in the order of the checks: ``gate``, ``passed``, ``message``,
        ``errors``, ``error_count``, ``next_steps`` and ``entry_id``, empty if the results could not
        be recorded.

    Raises:
        InvalidInputError: a command gives both --all and --gate, or neither.
        RemitError: there is no root. A ledger that cannot be read is no error: every gate fails.
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
