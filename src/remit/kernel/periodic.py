"""Work that a task repeats as long as its process runs."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable

from remit.kernel.errors import RemitError

_log = logging.getLogger("remit.kernel")


async def repeat(work: Callable[[], Awaitable[object]], pause_s: float, failed: str) -> None:
    """Run ``work`` until the task is cancelled; an error is logged, and does not end the task.

    A RemitError is a warning with its message. Of any other Exception an error with its class, file
    and line is logged, without the text, which may quote secrets.

    Args:
        work: called without arguments.
        pause_s: seconds between the end of a run and the next; the first run is at once.
        failed: begins the line in the log, such as ``batches cannot be settled``.
    """
    while True:
        try:
            await work()
        except RemitError as error:
            _log.warning("%s: %s", failed, error.message)
        except Exception as error:  # noqa: BLE001 - the machine may lack threads or files for a moment
            # The error's own text may quote a token or a person.
            place = traceback.extract_tb(error.__traceback__)[-1]
            _log.error(
                "%s: %s in %s:%s", failed, type(error).__name__, place.filename, place.lineno
            )
        await asyncio.sleep(pause_s)
