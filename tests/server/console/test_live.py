"""Live pages end at once, also while the ledger is being read."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from remit.ledger import LedgerClient
from remit.server.console.live import Live


class _Slow:
    """A ledger whose head is read until the test lets it go."""

    def __init__(self) -> None:
        self.reading = threading.Event()
        self.go = threading.Event()

    def head(self) -> None:
        self.reading.set()
        assert self.go.wait(60)


@pytest.mark.timeout(30)
async def test_the_end_of_live_pages_waits_for_no_read() -> None:
    slow = _Slow()
    live = Live(cast(LedgerClient, slow))
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def receive() -> dict[str, Any]:
        return await asyncio.get_running_loop().create_future()

    page = asyncio.create_task(live.serve(send, receive, lambda: True, ()))
    await asyncio.to_thread(slow.reading.wait)
    live.end()
    await page
    assert not sent[-1].get("more_body", False)
    assert not slow.go.is_set()
    slow.go.set()
    live.close()
