"""What the gates say (SPEC 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from remit.kernel.errors import RemitError
from remit.packages.checks import Finding

__all__ = ["Checked", "GateReport", "GateResult"]


class Checked(NamedTuple):
    """What one gate found.

    Attributes:
        findings: empty when it passes.
        message: one line that says what was looked at.
        mark: goes on record when it passes, so that the next run can go on from there.
    """

    findings: Sequence[Finding]
    message: str = ""
    mark: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate.

    Attributes:
        gate: its name.
        passed: whether nothing is wrong.
        message: one line: what was looked at, or how much is wrong.
        findings: what is wrong, at most as many as the context lets through.
        error_count: how many things are wrong.
        entry_id: of the ``GATE_PASSED`` or ``GATE_FAILED``; empty where none was written.
    """

    gate: str
    passed: bool
    message: str
    findings: tuple[Finding, ...] = ()
    error_count: int = 0
    entry_id: str = ""

    @classmethod
    def of(cls, gate: str, checked: Checked, most: int) -> Self:
        """The result of a gate, with at most ``most`` findings."""
        count = len(checked.findings)
        if not count:
            return cls(gate, True, checked.message)
        problem = "1 thing is wrong" if count == 1 else f"{count} things are wrong"
        again = f"Fix what it names, then run `remit gate check --gate {gate}` again."
        findings = (Finding(text, fix or again) for text, fix in checked.findings[:most])
        return cls(gate, False, problem, tuple(findings), count)

    @property
    def errors(self) -> list[str]:
        """What is wrong, a sentence each."""
        return [finding.message for finding in self.findings]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it (SPEC 15), with what to do beside each error."""
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
    """All gates that were checked.

    Attributes:
        gates: in their order.
        unrecorded: why the results are not in the ledger; empty when they are, or need not be.
    """

    gates: tuple[GateResult, ...]
    unrecorded: str = ""

    @classmethod
    def without_ledger(cls, gates: Sequence[str], error: RemitError) -> Self:
        """The report on a root whose ledger cannot be opened: no gate passes.

        Args:
            gates: which were asked for.
            error: why it cannot.
        """
        fix = error.next_step or "Restore the ledger from a copy that verifies."
        checked = Checked([Finding(f"The ledger cannot be opened: {error.message}", fix)])
        return cls(tuple(GateResult.of(gate, checked, 1) for gate in gates), error.message)

    @property
    def passed(self) -> bool:
        """Whether there were gates and all passed."""
        return bool(self.gates) and all(gate.passed for gate in self.gates)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it (SPEC 15)."""
        return {"passed": self.passed, "gates": [gate.to_dict() for gate in self.gates]}
