"""Metrics, traces and logs of calls, for operators.

Each is an observer of the gateway, called after a call has ended. None of them changes a call, and
none replaces the ledger.
"""

from remit.server.telemetry.exports import log_sender as log_sender
from remit.server.telemetry.logs import (
    CallLog as CallLog,
    SecretFilter as SecretFilter,
    set_up_logging as set_up_logging,
)
from remit.server.telemetry.metrics import CallMetrics as CallMetrics
from remit.server.telemetry.tracing import (
    context_from_headers as context_from_headers,
    set_up_tracing as set_up_tracing,
    tracing_observer as tracing_observer,
    with_parent as with_parent,
)
