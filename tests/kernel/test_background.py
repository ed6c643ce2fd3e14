"""Tasks of the background loop whose caller has gone away."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading

import pytest

from remit.kernel.loops import cancel_background, run_blocking, start_background


def test_an_error_after_a_cancellation_is_not_printed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "asyncio")
    started = threading.Event()

    async def fails_when_cancelled() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError("the end could not be recorded") from None

    future = start_background(fails_when_cancelled())
    assert started.wait(30)
    cancel_background(future)
    run_blocking(asyncio.sleep(0))  # The loop has run the callbacks of the task.
    del future
    gc.collect()
    assert caplog.text == ""
