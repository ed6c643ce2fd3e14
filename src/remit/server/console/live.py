"""Entries as they come, for pages that are open: one reader for all (server-sent events)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from remit.kernel.json_text import dump
from remit.ledger import LedgerClient
from remit.server.console.rows import SHOWN_LIVE, live_row
from remit.server.refusals import HttpError
from remit.server.replies import Headers, Receive, Send
from remit.views.entries import place_of

_log = logging.getLogger("remit.server.console")

_EVERY_S = 0.1
_AGAIN_S = 1.0  # after the ledger could not be read
_BEAT_S = 15.0  # without an event
_MOST_ENTRIES = 400  # of one look; what is more is counted
_MOST_QUEUED = 50  # events that a slow reader may be behind
_WATCH_S = 1.0  # a login that ended is seen within

_T = TypeVar("_T")
_Run = Callable[[Callable[[], _T]], Awaitable[_T]]


class Live:
    """What is new in the ledger, read once for all that watch.

    Nothing is read while no page watches. A reader that falls behind gets a ``gap`` instead of
    what it missed, so that no queue grows.

    Args:
        ledger: where entries are read.
        run: runs a function outside the event loop.
    """

    def __init__(self, ledger: LedgerClient, run: _Run[Any]) -> None:
        self._ledger = ledger
        self._run = run
        self._watching: set[asyncio.Queue[bytes]] = set()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()

    async def serve(
        self, send: Send, receive: Receive, signed_in: Callable[[], bool], headers: Headers
    ) -> None:
        """Answer one request with events, until the client goes, or its login ends."""
        queue: asyncio.Queue[bytes] = asyncio.Queue(_MOST_QUEUED)
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
            beat = loop.time() + _BEAT_S
            while not gone.done() and not self._closed and signed_in():
                try:
                    event = await asyncio.wait_for(queue.get(), _WATCH_S)
                except TimeoutError:
                    if loop.time() < beat:
                        continue
                    event = b": still here\n\n"
                beat = loop.time() + _BEAT_S
                await send(_part(event))
            if not gone.done():
                await send({"type": "http.response.body", "body": b""})
        finally:
            self._watching.discard(queue)
            gone.cancel()

    async def _look(self) -> None:
        seen: int | None = None
        problem = ""
        while self._watching and not self._closed:
            event, before = b"", problem
            try:
                seen, event = await self._run(functools.partial(self._since, seen))
                problem = ""
            except HttpError:  # too many pages wait
                pass
            except Exception as error:  # noqa: BLE001 - looked again soon
                problem = str(error) or type(error).__name__
            if problem and not before:
                _log.warning("new entries cannot be read: %s", problem)
            if event:
                for queue in self._watching:
                    _offer(queue, event)
            await asyncio.sleep(_AGAIN_S if problem else _EVERY_S)

    def _since(self, seen: int | None) -> tuple[int | None, bytes]:
        """The head now, and an event that holds what is new since ``seen``."""
        head = self._ledger.head()
        if head is None or seen is None or head[0] <= seen:
            return (-1 if head is None else head[0]), b""
        first = max(seen, head[0] - _MOST_ENTRIES)
        found = list(self._ledger.query(after=first, limit=_MOST_ENTRIES, with_content=False))
        last = place_of(found[-1].id)
        rows = [live_row(entry) for entry in found if entry.event_type in SHOWN_LIVE]
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
