"""Number and cost of each tenant's calls, as metrics for the operators of the host."""

from __future__ import annotations

import threading
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter

from remit.gateway import CallReport
from remit.kernel.exchange import RouteOutcome

__all__ = ["CountsByTenant"]

_LABEL = "tenant"
_OTHER = "_other"  # No tenant can have this name.


class CountsByTenant:
    """Counters with the label ``tenant``.

    Args:
        registry: the registry that shows them.
        most: number of tenants with a label of their own; all further ones share ``_other``.
    """

    def __init__(self, registry: CollectorRegistry, most: int) -> None:
        self._most = most
        self._names: set[str] = set()
        self._lock = threading.Lock()

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(name, meaning, (_LABEL, *labels), registry=registry)

        self._calls = counter(
            "remit_tenant_calls_total", "Calls of a tenant that ended.", "outcome"
        )
        self._tokens = counter(
            "remit_tenant_tokens_total", "Tokens of the last attempts of a tenant's calls.", "type"
        )  # fmt: skip
        self._cost = counter(
            "remit_tenant_cost_usd_total",
            "Cost of the last attempts of a tenant's calls in US dollars.",
        )  # fmt: skip

    def of(self, name: str) -> Callable[[CallReport], None]:
        """Return an observer for a tenant's gateway that counts the tenant's calls."""
        with self._lock:
            if name not in self._names and len(self._names) >= self._most:
                name = _OTHER
            self._names.add(name)
        tokens = {kind: self._tokens.labels(name, kind) for kind in ("input", "output")}
        cost = self._cost.labels(name)

        def count(report: CallReport) -> None:
            response = report.response
            outcome = "replayed" if response.replayed else response.outcome.value
            self._calls.labels(name, outcome.lower()).inc()
            if response.replayed or response.outcome is RouteOutcome.REJECTED:
                return  # Nothing was sent to a provider.
            tokens["input"].inc(response.input_tokens)
            tokens["output"].inc(response.output_tokens)
            cost.inc(response.cost_incurred)

        return count
