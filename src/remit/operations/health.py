"""The operation that shows the state of a server."""

from __future__ import annotations

from typing import Any

from remit._version import __version__
from remit.operations.operation import verb
from remit.operations.ports import Caller, RootPort


@verb(
    route="GET /health", summary="Breakers, calls in flight, version", result="Health",
    endpoint="health",
)  # fmt: skip
def read_health(root: RootPort, caller: Caller) -> dict[str, Any]:
    """Return the state of this process, and the circuit breakers that it shares with others.

    Returns:
        ``version``, ``in_flight`` (the number of model calls in flight, of all processes of the
        root), ``refused`` (the number of requests without a valid key since this process started),
        and ``breakers``: ``provider_id``, ``model_id`` and ``state`` of each known one, sorted.

    Raises:
        LedgerError: the ledger's database cannot be read.
    """
    return {
        "version": __version__,
        "in_flight": root.gateway.in_flight.count(),
        "refused": root.keys.refused,
        "breakers": [
            {"provider_id": provider, "model_id": model, "state": breaker.state}
            for (provider, model), breaker in sorted(root.gateway.breakers.items())
        ],
    }
