"""What the gates say (SPEC 10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from remit.kernel.errors import RemitError
from remit.packages.checks import Finding

__all__ = ["GateReport", "GateResult"]


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

    @property
    def errors(self) -> list[str]:
        """What is wrong, a sentence each."""
        return [one.message for one in self.findings]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it (SPEC 15), with what to do beside each error."""
        return {
            "gate": self.gate,
            "passed": self.passed,
            "message": self.message,
            "errors": self.errors,
            "error_count": self.error_count,
            "next_steps": [one.next_step for one in self.findings],
            "entry_id": self.entry_id,
        }


@dataclass(frozen=True, slots=True)
class GateReport:
    """All gates that were looked through.

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
        finding = Finding(
            f"The ledger cannot be opened: {error.message}",
            error.next_step or "Restore the ledger from a copy that verifies.",
        )
        return cls(
            tuple(GateResult(name, False, "1 thing is wrong", (finding,), 1) for name in gates),
            error.message,
        )

    @property
    def passed(self) -> bool:
        """Whether there were gates and all passed."""
        return bool(self.gates) and all(one.passed for one in self.gates)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it (SPEC 15)."""
        return {"passed": self.passed, "gates": [one.to_dict() for one in self.gates]}
