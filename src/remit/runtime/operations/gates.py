"""The operation that checks the gates of an installation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from remit.kernel.errors import InvalidInputError
from remit.operations import Caller, Operation, RootPort, field


class CheckGates(Operation):
    """Run gates, and record the results. A command exits with 0 unless --enforce is given."""

    command, route, summary, tag = "gate check", "POST /gates", "Check gates", "governance"
    needs, form, result = "manage_keys", "GateRequest", "GateReportShape"
    tools = ("gate_check",)

    every: bool = field("Run all gates.", False, flag="--all", door="command")
    gates: list[Literal["G0B", "G1", "G1-COMPLETE", "G2", "G3", "G4", "G5", "G6"]] = field(
        "Gates to check; by default all.", [], flag="--gate", metavar="GATE",
        flag_help="Run this gate. Repeat for several gates.",
    )  # fmt: skip
    enforce: bool = field("Exit 1 if a gate fails.", False, door="command")
    full: bool = field("Verify the whole ledger, including entries verified earlier.", False)

    def run(self, root: RootPort, caller: Caller) -> dict[str, Any]:
        """Return the results. If a local ledger cannot be read, the results say so.

        Raises:
            InvalidInputError: a command names neither all gates nor some.
        """
        from remit.packages.gates import GATES, check_gates
        from remit.runtime.installation import run_gates

        chosen = self.gates or None
        if not caller.is_local:
            context = root.gate_context()
            return check_gates(context, chosen, full=self.full, by=caller.name).to_dict()
        if self.every == bool(chosen):
            raise InvalidInputError(f"Give --all, or --gate with one of {', '.join(GATES)}.")
        self.report = run_gates(
            root.path, chosen, full=self.full, by=caller.name, progress=root.progress
        )
        if self.report.unrecorded:
            root.note(f"The results could not be recorded: {self.report.unrecorded}")
        return self.report.to_dict()

    def has_failed(self, found: dict[str, Any]) -> bool:
        """Return True if a gate failed, and ``enforce`` is given."""
        return self.enforce and not found["passed"]

    def lines(self, found: dict[str, Any]) -> Iterator[str]:
        """Yield the result and the findings of each gate, and the number of passed gates."""
        gates = self.report.gates
        for gate in gates:
            yield f"{'ok  ' if gate.passed else 'FAIL'} {gate.gate}: {gate.message}"
            for finding in gate.findings:
                yield f"       {finding.message}"
                if finding.next_step:
                    yield f"         next: {finding.next_step}"
            if (more := gate.error_count - len(gate.findings)) > 0:
                yield f"       … and {more} more"
        yield f"{sum(gate.passed for gate in gates)} of {len(gates)} gates passed"
