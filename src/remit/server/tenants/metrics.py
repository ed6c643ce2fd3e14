"""Metrics of one tenant if several processes count together."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from typing_extensions import override

from remit.gateway import CallReport, CircuitBreaker
from remit.server.telemetry import CallMetrics


class TenantMetrics(CallMetrics):
    """A view of a tenant's series in the host's metrics, which counts nothing itself.

    The view takes the place of :class:`CallMetrics` in the tenant's application if several
    processes count together: then only the host's object can read the shared files.

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
        """Do nothing: the host's metrics count the call."""

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
        """Do nothing, and ignore the functions: no numbers of a tenant are watched.

        Args:
            breakers: ignored.
            in_flight_calls: ignored.
            ledger_entries: ignored.
        """

    @override
    def refresh(self) -> None:
        """Do nothing: there are no gauges to set."""

    @override
    def render(self, tenant: str = "") -> tuple[bytes, str]:
        """Return the host's metrics of this tenant only, and their content type.

        Blocks as the host's method does.

        Args:
            tenant: ignored.
        """
        return self._host.render(self._tenant)


def _nothing(amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
    """Do nothing; replaces the ``inc`` of a counter."""
