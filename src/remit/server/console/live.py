"""New entries for open pages, as server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from remit.kernel.json_text import dump
from remit.ledger import LedgerClient
from remit.server.asgi import Headers, Receive, Send
from remit.server.console.rows import SHOWN_LIVE, live_row, with_problems
from remit.views.entries import place_of

_log = logging.getLogger("remit.server.console")

_EVERY_S = 0.1
_RETRY_S = 1.0
_BEAT_S = 15.0
_MAX_ENTRIES = 400
_MAX_QUEUED = 50  # A viewer further behind gets a gap event.
_WATCH_S = 1.0  # An expired login ends its stream within this time.


class Live:
    """Server-sent events of new ledger entries, from a single reader for all viewers.

    The ledger is read only while a page is open, in a thread of its own. All methods run in the
    event loop of the streams. A viewer that falls 50 events behind gets a ``gap`` event instead of
    the missed entries, so that no queue grows.

    Args:
        ledger: the ledger to read.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger
        self._thread = ThreadPoolExecutor(1, "remit-live")  # waits for no page
        self._watching: set[asyncio.Queue[bytes]] = set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def end(self) -> None:
        """End all streams and refuse new ones. A later stream ends after its first bytes.

        The method does not wait for a read of the ledger that is running. Call it in the event loop
        of the streams while any is open. A second call is harmless.
        """
        self._closed = True
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """End all streams as :meth:`end` does, and wait for a read that is running. Blocks."""
        self.end()
        self._thread.shutdown(cancel_futures=True)

    async def serve(
        self, send: Send, receive: Receive, signed_in: Callable[[], bool], headers: Headers
    ) -> None:
        """Stream events to a client until the client disconnects, the login ends, or :meth:`end`.

        Only entries that are appended later are sent, as rows of :func:`live_row` for the event
        types of ``SHOWN_LIVE``. A slow client gets an event ``gap`` in place of the events that it
        missed. A comment is sent after 15 seconds without an event. If the ledger cannot be read,
        the reason is logged, and the ledger read again every second.

        Args:
            send: takes the answer.
            receive: ASGI's function, which reports the disconnect.
            signed_in: returns True while the login is valid; called every second.
            headers: further headers of the answer.
        """
        queue: asyncio.Queue[bytes] = asyncio.Queue(_MAX_QUEUED)
        self._watching.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        gone = asyncio.create_task(_left(receive))
        loop = asyncio.get_running_loop()
        try:
            kind = (b"content-type", b"text/event-stream")
            unbuffered = (b"x-accel-buffering", b"no")
            await send({"type": "http.response.start", "status": 200,
                        "headers": [kind, unbuffered, *headers]})  # fmt: skip
            await send(_part(b"retry: 2000\n\n"))
            now = loop.time()
            beat, check = now + _BEAT_S, now + _WATCH_S
            while True:
                event = await queue.get()
                now = loop.time()
                if gone.done() or self._closed:
                    break
                if now >= check:
                    if not signed_in():
                        break
                    check = now + _WATCH_S
                if event or now >= beat:
                    beat = now + _BEAT_S
                    await send(_part(event or b": still here\n\n"))
            if not gone.done():
                await send({"type": "http.response.body", "body": b""})
        finally:
            self._watching.discard(queue)
            gone.cancel()

    async def _look(self) -> None:
        """Read new entries for all viewers; wake each viewer every second to check its login."""
        seen: int | None = None
        problem = ""
        loop = asyncio.get_running_loop()
        wake = loop.time() + _WATCH_S
        try:
            while self._watching and not self._closed:
                event, before = b"", problem
                try:
                    seen, event = await loop.run_in_executor(self._thread, self._since, seen)
                    problem = ""
                except Exception as error:  # noqa: BLE001 - looked again soon
                    problem = str(error) or type(error).__name__
                if problem and not before:
                    _log.warning("new entries cannot be read: %s", problem)
                if event or loop.time() >= wake:
                    wake = loop.time() + _WATCH_S
                    for queue in [*self._watching]:
                        _offer(queue, event)
                        await asyncio.sleep(0)  # calls go on between one page and the next
                await asyncio.sleep(_RETRY_S if problem else _EVERY_S)
        finally:
            for queue in self._watching:
                _offer(queue, b"")

    def _since(self, seen: int | None) -> tuple[int | None, bytes]:
        """Return the head and an event with the entries after ``seen``; empty if there are none."""
        head = self._ledger.head()
        if head is None or seen is None or head[0] <= seen:
            return (-1 if head is None else head[0]), b""
        first = max(seen, head[0] - _MAX_ENTRIES)
        found = list(self._ledger.query(after=first, limit=_MAX_ENTRIES, with_content=False))
        last = place_of(found[-1].id)
        shown = (entry for entry in found if entry.event_type in SHOWN_LIVE)
        rows = [live_row(with_problems(self._ledger, entry)) for entry in shown]
        data = {"entries": last + 1, "missed": first - seen, "rows": rows}
        return last, b"event: entries\ndata: " + dump(data) + b"\n\n"


def _offer(queue: asyncio.Queue[bytes], event: bytes) -> None:
    if queue.full():
        while not queue.empty():
            queue.get_nowait()
        event = b"event: gap\ndata: {}\n\n"
    queue.put_nowait(event)


async def _left(receive: Receive) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        while (await receive())["type"] != "http.disconnect":
            pass


def _part(body: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": True}
