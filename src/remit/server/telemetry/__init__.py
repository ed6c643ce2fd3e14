"""Metrics, traces and logs of calls, for operators.

Each is an observer of the gateway, called after a call has ended. None of them changes a call, and
none replaces the ledger.
"""

from remit.server.telemetry.exports import log_sender
from remit.server.telemetry.logs import CallLog, set_up_logging
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
    "context_from_headers",
    "log_sender",
    "set_up_logging",
    "set_up_tracing",
    "tracing_observer",
    "with_parent",
]
