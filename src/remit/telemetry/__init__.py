"""What an operator watches: metrics, traces and logs of the calls (SPEC 12).

Everything here is told of a call when it has ended, as an observer of the gateway. Nothing here
changes a call, and the record is the ledger, not these.
"""

from remit.telemetry.logs import CallLog, SecretFilter, blot_secrets, set_up_logging
from remit.telemetry.metrics import CallMetrics
from remit.telemetry.tracing import (
    context_from_headers,
    set_up_tracing,
    tracing_observer,
    with_parent,
)

__all__ = [
    "CallLog",
    "CallMetrics",
    "SecretFilter",
    "blot_secrets",
    "context_from_headers",
    "set_up_logging",
    "set_up_tracing",
    "tracing_observer",
    "with_parent",
]
