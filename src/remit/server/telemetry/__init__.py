"""What an operator watches: metrics, traces and logs of the calls (SPEC 12).

Everything here is told of a call when it has ended, as an observer of the gateway. Nothing here
changes a call, and the record is the ledger, not these.
"""

from remit.server.telemetry.logs import CallLog, SecretFilter, set_up_logging
from remit.server.telemetry.metrics import CallMetrics
from remit.server.telemetry.tracing import (
    context_from_headers,
    set_up_tracing,
    tracing_observer,
    with_parent,
)

__all__ = [
    "CallLog",
    "CallMetrics",
    "SecretFilter",
    "context_from_headers",
    "set_up_logging",
    "set_up_tracing",
    "tracing_observer",
    "with_parent",
]
