"""Metrics of a tenant where several processes count together, in files that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from typing_extensions import override

from remit.gateway import CallReport, CircuitBreaker
from remit.server.refusals import HttpError
from remit.server.telemetry import CallMetrics

__all__ = ["Uncounted"]


class Uncounted(CallMetrics):
    """Counts nothing: in the shared files nothing would tell tenants apart."""

    def __init__(self) -> None:
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
    def render(self) -> tuple[bytes, str]:
        said = "Tenants have metrics of their own only where the server is one process."
        raise HttpError(404, "not_found", said)


def _nothing(amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
    """In the place of a counter's ``inc``."""
