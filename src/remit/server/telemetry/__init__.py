"""Metrics, traces and logs of the calls, for operators.

Each is an observer of the gateway, called when a call has ended. None changes a call, and none
replaces the record, which is the ledger.
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
