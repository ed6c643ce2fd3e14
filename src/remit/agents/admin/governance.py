"""What is installed, and whether what has to hold of it does."""

from __future__ import annotations

from typing import Any, Protocol

from remit.agents.admin.fitting import fit
from remit.agents.admin.hiding import Hiding
from remit.agents.tools import Tool
from remit.kernel.settings import ToolSettings

__all__ = ["GatePort", "governance_tools"]

_MAX_NAMED = 3


class GatePort(Protocol):
    """The gates and packages of a root, as ADMIN needs them."""

    @property
    def names(self) -> tuple[str, ...]:
        """The gates there are."""
        ...

    def check(self, gate: str | None) -> dict[str, Any]:
        """Run one gate, or all: ``{"passed", "gates": [{"gate", "passed", …}]}``."""
        ...

    def packages(self) -> list[dict[str, Any]]:
        """One row for each installed package."""
        ...


def governance_tools(gates: GatePort, settings: ToolSettings, hiding: Hiding) -> list[Tool]:
    """``gate_check`` and ``list_packages``.

    Args:
        gates: the root as it stands when a tool is called.
        settings: where outputs are cut.
        hiding: takes keys out of what gates quote.
    """

    def gate_check(gate: str | None = None) -> dict[str, Any]:
        report = gates.check(gate)
        failed = [one["gate"] for one in report["gates"] if not one["passed"]]
        summary = {"count": len(report["gates"]), "failed": failed}
        fitted = fit(hiding.value({**report, **summary}), settings.max_output_bytes // 2)
        output: dict[str, Any] = fitted.value
        if fitted.cut:
            output["note"] = "Cut to fit. `remit gate check` prints it whole."
        return output

    def list_packages() -> dict[str, Any]:
        rows = gates.packages()
        fitted = fit(rows, settings.max_output_bytes // 2)
        return {"count": len(rows), "packages": fitted.value}

    return [
        Tool(
            "gate_check",
            "Check the gates: whether packages, files, work orders, constraints, signatures and "
            "the record are as they have to be. All of them, or one.",
            {
                "type": "object",
                "properties": {
                    "gate": {"enum": list(gates.names), "description": "only this gate"}
                },
                "additionalProperties": False,
            },
            gate_check,
            (
                ("check the gates", {}),
                ("run all gates", {}),
                ("do all gates pass?", {}),
                ("check gate G1", {"gate": "G1"}),
            ),
            _describe_gates,
            "gates",
            on_unknown="retry",
        ),
        Tool(
            "list_packages",
            "List all installed packages: their ids, versions, titles and what they belong to.",
            {"type": "object", "properties": {}, "additionalProperties": False},
            list_packages,
            (
                ("list all installed packages", {}),
                ("which packages are installed?", {}),
                ("show the packages", {}),
                ("what is installed here?", {}),
            ),
            _describe_packages,
            "packages",
            on_unknown="retry",
        ),
    ]


def _describe_gates(output: dict[str, Any]) -> str:
    count, failed = output["count"], output["failed"]
    if output["passed"]:
        return f"All {count} gates pass." if count > 1 else "The gate passes."
    said = {one["gate"]: next(iter(one["errors"]), "") for one in _rows(output["gates"])}
    told = "; ".join(f"{name}: {said.get(name, 'not told')}" for name in failed[:2])
    return f"{len(failed)} of {count} gates fail: {told}"


def _describe_packages(output: dict[str, Any]) -> str:
    # A small model loops over a long list; what the tool gave is shown beside the answer, whole.
    names = ", ".join(row["package_id"] for row in _rows(output["packages"])[:_MAX_NAMED])
    return f"There are {output['count']} packages installed, among them: {names}."


def _rows(rows: list[Any]) -> list[dict[str, Any]]:
    """Those that were not cut away to make the whole fit."""
    return [row for row in rows if isinstance(row, dict)]
