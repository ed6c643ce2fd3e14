"""The gates and packages of a root for ADMIN's tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remit.packages.gates.context import GateContext
from remit.packages.gates.runner import GATES, check_gates


class GateView:
    """Runs gates and lists packages, as plain data.

    Args:
        context: returns the root in its present state.
        by: the program that runs the gates, for the ledger.
    """

    def __init__(self, context: Callable[[], GateContext], *, by: str) -> None:
        self._context = context
        self._by = by

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the gates."""
        return tuple(GATES)

    def check(self, gate: str | None) -> dict[str, Any]:
        """Check one gate, or all if ``gate`` is ``None``; return the report as JSON.

        The results are recorded. Raises InvalidInputError if the gate does not exist.
        """
        gates = None if gate is None else [gate]
        return check_gates(self._context(), gates, by=self._by).to_dict()

    def packages(self) -> list[dict[str, Any]]:
        """Return one row for each installed package, sorted by id."""
        return [
            {
                "package_id": package_id,
                "version": one.version,
                "title": one.manifest.title,
                "plane_id": one.manifest.plane_id,
                "spec_id": one.manifest.spec_id,
                "framework_id": one.manifest.framework_id,
                "signed": one.signature.get("waived") is False,
            }
            for package_id, one in self._context().registry.packages.items()
        ]
