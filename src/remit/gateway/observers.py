"""Reports of ended calls to the gateway's observers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from remit.gateway.values import Call, CallReport
from remit.kernel.exchange import PromptResponse

_log = logging.getLogger("remit.gateway")


def tell(
    observers: Sequence[Callable[[CallReport], None]],
    call: Call,
    response: PromptResponse,
    began_ns: int,
    attempts: int | None = None,
) -> None:
    """Call the observers with the report of an ended call. Their failures are logged.

    Args:
        observers: the observers, in order.
        call: the call.
        response: its response.
        began_ns: time of its begin by the monotonic clock.
        attempts: number of attempts to report; None for all of the call.
    """
    if not observers:
        return
    # Counted back from the end: a clock that was set meanwhile does not change the duration.
    started_ns = time.time_ns() - (time.monotonic_ns() - began_ns)
    report = CallReport(
        call.request, response, call.identity, started_ns, call.tap.first_after_ms,
        call.attempts if attempts is None else attempts,
    )  # fmt: skip
    for observer in observers:
        try:
            observer(report)
        except Exception:  # noqa: BLE001 - an observer must not change the result
            _log.exception("an observer of calls failed")
