"""The eight gates: what has to hold of an installation, and whether it does (SPEC 10)."""

from remit.gates.context import GateContext
from remit.gates.report import GateReport, GateResult
from remit.gates.runner import GATES, check_gates

__all__ = ["GATES", "GateContext", "GateReport", "GateResult", "check_gates"]
