"""The gates and packages of a root as ADMIN's tools see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remit.packages.gates.context import GateContext
from remit.packages.gates.runner import GATES, check_gates

__all__ = ["GateView"]


class GateView:
    """Runs gates and lists packages; gives plain data.

    Args:
        context: gives the root as it is when it is called.
        by: who runs the gates, for the record.
    """

    def __init__(self, context: Callable[[], GateContext], *, by: str) -> None:
        self._context = context
        self._by = by

    @property
    def names(self) -> tuple[str, ...]:
        """The gates there are."""
        return tuple(GATES)

    def check(self, gate: str | None) -> dict[str, Any]:
        """Run one gate, or all, and give the report as data."""
        gates = None if gate is None else [gate]
        return check_gates(self._context(), gates, by=self._by).to_dict()

    def packages(self) -> list[dict[str, Any]]:
        """One row for each installed package."""
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
