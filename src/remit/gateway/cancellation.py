"""Ends of calls from outside: the reasons, which the records of the calls state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

STOPPED_READING = "the caller stopped reading the answer"
SHUTTING_DOWN = "the server shut down before the answer ended"
STOPPED_BY_OWNER = "the owner cancelled the response"
KEY_ENDED = "the caller's key was revoked or has expired"
TOO_LATE = "the time limit of the route's calls has passed"
ENDED_BY = (STOPPED_READING, SHUTTING_DOWN, STOPPED_BY_OWNER, KEY_ENDED, TOO_LATE)
"""Reasons with which a call's task is cancelled; the record of the call states them."""


async def cancel_calls(tasks: Iterable[asyncio.Future[Any]], *reason: Any) -> None:
    """Cancel calls, and wait until their ends are recorded.

    Args:
        tasks: the tasks of the calls; errors with which they end are not raised.
        reason: a reason of ``ENDED_BY``, or nothing if the client has gone.

    Raises:
        CancelledError: the caller was cancelled; the calls end by themselves.
    """
    for task in tasks:
        task.cancel(*reason)
    await asyncio.gather(*tasks, return_exceptions=True)
