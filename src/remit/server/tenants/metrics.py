"""Metrics of a tenant where several processes count together, in files that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from typing_extensions import override

from remit.gateway import CallReport, CircuitBreaker
from remit.server.telemetry import CallMetrics

__all__ = ["TenantMetrics"]


class TenantMetrics(CallMetrics):
    """A view of the tenant's own series among those of all tenants; counts nothing itself.

    Args:
        host: the host's metrics.
        tenant: name of the tenant.
    """

    def __init__(self, host: CallMetrics, tenant: str) -> None:
        self._host = host
        self._tenant = tenant
        self.shared = False
        self.in_progress = 0
        self.refused_key = _nothing

    @override
    def __call__(self, report: CallReport) -> None:
        """Ignore the report: this view counts nothing."""

    @override
    def flush(self) -> None:
        """Do nothing: there is nothing to flush."""

    @override
    def watch(
        self,
        *,
        breakers: Callable[[], Mapping[tuple[str, str], CircuitBreaker]] | None = None,
        in_flight_calls: Callable[[], int] | None = None,
        ledger_entries: Callable[[], int] | None = None,
    ) -> None:
        """Do nothing: a tenant's numbers are not watched."""

    @override
    def refresh(self) -> None:
        """Do nothing: there are no gauges to set."""

    @override
    def render(self, tenant: str = "") -> tuple[bytes, str]:
        return self._host.render(self._tenant)


def _nothing(amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
    """In the place of a counter's ``inc``."""
