"""Metrics of a tenant where several processes count together, in files that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from typing_extensions import override

from remit.gateway import CallReport, CircuitBreaker
from remit.server.telemetry import CallMetrics

__all__ = ["TenantMetrics"]


class TenantMetrics(CallMetrics):
    """Shows the tenant its own among the series of all tenants, and counts nothing beside them.

    Args:
        host: the host's metrics.
        tenant: its name.
    """

    def __init__(self, host: CallMetrics, tenant: str) -> None:
        self._host = host
        self._tenant = tenant
        self.shared = False
        self.in_progress = 0
        self.refused_key = _nothing

    @override
    def __call__(self, report: CallReport) -> None:
        """Nothing."""

    @override
    def flush(self) -> None:
        """Nothing."""

    @override
    def watch(
        self,
        *,
        breakers: Callable[[], Mapping[tuple[str, str], CircuitBreaker]] | None = None,
        in_flight_calls: Callable[[], int] | None = None,
        ledger_entries: Callable[[], int] | None = None,
    ) -> None:
        """Nothing."""

    @override
    def refresh(self) -> None:
        """Nothing."""

    @override
    def render(self, tenant: str = "") -> tuple[bytes, str]:
        return self._host.render(self._tenant)


def _nothing(amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
    """In the place of a counter's ``inc``."""
