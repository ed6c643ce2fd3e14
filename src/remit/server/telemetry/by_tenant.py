"""Number and cost of each tenant's calls, as metrics for the operators of the host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from remit.gateway import CallReport
from remit.kernel.exchange import RouteOutcome

__all__ = ["CountsByTenant", "OfTenant"]

_LABEL = "tenant"
_PREFIX = "remit_tenant_"
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


class OfTenant(Collector):
    """A collector of one tenant's series among those of another collector.

    Args:
        source: collector of all series.
        tenant: name of the tenant.
    """

    def __init__(self, source: Collector, tenant: str) -> None:
        self._source = source
        self._tenant = tenant

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that have series of the tenant, with only these series."""
        for metric in self._source.collect():
            own = [one for one in metric.samples if one.labels.get(_LABEL) == self._tenant]
            if own and metric.name.startswith(_PREFIX):
                metric.samples = own
                yield metric

    def describe(self) -> Iterator[Metric]:
        """Return nothing: registering must not read metrics."""
        return iter(())
