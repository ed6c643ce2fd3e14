"""The events of a turn as an iterator."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any

from remit.agents.supervisor import TurnEnded, TurnResult
from remit.agents.workorders import EventSink, TurnEvent
from remit.kernel.loops import abandon, cancel_background, start_background
from remit.ledger import LedgerClosedError


async def turn_events(
    turn: Callable[[EventSink], Awaitable[TurnResult[Any]]],
) -> AsyncIterator[TurnEvent | TurnEnded]:
    """Yield the events of a turn, which begins with the first; the last is :class:`TurnEnded`.

    Closing the iterator before the end cancels the turn, and waits until its end is recorded.

    Args:
        turn: runs the turn, and passes each event to its argument.

    Raises:
        RemitError: an error of the turn.
        CancelledError: the turn was cancelled while the runtime was closed.
    """
    events: asyncio.Queue[TurnEvent | None] = asyncio.Queue()

    async def work() -> TurnResult[Any]:
        try:
            return await turn(events.put_nowait)
        except LedgerClosedError:
            # The turn was cancelled with its loop, and cannot be recorded any more.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from None
            raise

    task = asyncio.create_task(work())
    task.add_done_callback(lambda _: events.put_nowait(None))
    # A turn whose iterator nobody reads to its end has nobody to raise its error to.
    abandon(task)
    try:
        while (event := await events.get()) is not None:
            yield event
        yield TurnEnded(await task)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])


def blocking_turn_events(
    turn: Callable[[EventSink], Coroutine[Any, Any, TurnResult[Any]]],
) -> Iterator[TurnEvent | TurnEnded]:
    """Yield the events as :func:`turn_events` does, from a background thread's event loop.

    If the iterator is closed early, the turn is cancelled; its record is waited for at most ten
    seconds.

    Args:
        turn: runs the turn, and passes each event to its argument.

    Raises:
        RemitError: an error of the turn.
    """
    events: queue.SimpleQueue[TurnEvent | None] = queue.SimpleQueue()
    future = start_background(turn(events.put))
    future.add_done_callback(lambda _: events.put(None))
    try:
        while (event := events.get()) is not None:
            yield event
        yield TurnEnded(future.result())
    finally:
        cancel_background(future)
