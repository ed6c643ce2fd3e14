"""The queue of calls that wait for money reserved by other calls."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from bisect import insort
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import count
from typing import Protocol, TypeVar

from remit.gateway.budget.account import BudgetRefusedError

_T = TypeVar("_T")
_FIRST_POLL_S = 0.05
_LONGEST_POLL_S = 0.5


class _Ticket:
    """A waiting call. Tickets are ordered by arrival."""

    __slots__ = ("_event", "_loop", "number", "scope")

    def __init__(self, number: int) -> None:
        self.number = number
        self.scope = ""
        self._event = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __lt__(self, other: _Ticket) -> bool:
        return self.number < other.number

    def wake(self) -> None:
        """Wake the call, from any thread. A wake-up before the wait ends the next wait."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, longest_s: float) -> None:
        try:
            async with asyncio.timeout(longest_s):
                await self._event.wait()
        except TimeoutError:
            pass

    def clear(self) -> None:
        self._event.clear()


class Waits(Protocol):
    """A call with the seconds that it waited for money, all attempts together."""

    waited_s: float


class WaitingRoom:
    """Admits calls to a reservation, in their order of arrival if money is short.

    A call that is refused only because of other calls' reservations waits in the queue of the scope
    that refused it. The first of a queue retries when a call on its scope is settled in this
    process, and from time to time because other processes settle too. A new call goes behind the
    calls that already wait on one of its scopes. Between processes there is no order. Nothing is
    recorded while a call waits. :meth:`freed` tells the room that a reservation was released.

    Args:
        wait_ms: longest wait in milliseconds; then the refusal is final.

    Attributes:
        queues: the waiting calls in their order, keyed by scope; empty if no call waits.
    """

    def __init__(self, wait_ms: int) -> None:
        self._longest_s = wait_ms / 1000
        self._lock = threading.Lock()
        self.queues: dict[str, list[_Ticket]] = {}
        self._numbers = count()

    async def admit(
        self, scopes: Sequence[str], reserve: Callable[[bool], Awaitable[_T]], call: Waits
    ) -> _T:
        """Return the result of ``reserve`` once it is not refused as busy.

        Errors of ``reserve`` other than a busy refusal are let through. A cancelled caller leaves
        the queue.

        Args:
            scopes: the accounts of the call.
            reserve: tries to reserve. Called with True it must reserve nothing and raise the
                refusal, or ``BUDGET_BUSY`` if there would be none, because other calls are first.
            call: the call, to which the wait is added. A call that has waited for the longest time
                is refused at once if money is short or other calls wait.

        Raises:
            BudgetRefusedError: the refusal is final, or still busy after the longest wait.
        """
        longest_s = self._longest_s - call.waited_s
        ahead = self._longest_s > 0 and self._is_waited_for(scopes)
        try:
            return await reserve(ahead)
        except BudgetRefusedError as refused:
            if not refused.busy or longest_s <= 0:
                raise
            scope, last = refused.scope, refused
        ticket = _Ticket(next(self._numbers))
        began, poll_s = time.monotonic(), _FIRST_POLL_S
        until = began + longest_s
        if ahead:
            scope = self._waited_for(scopes) or scope
        self._join(ticket, scope)
        try:
            while (left_s := until - time.monotonic()) > 0:
                if (before := self._ahead_of(ticket, scopes)) is not None:
                    self._move(ticket, before)
                    await ticket.wait(left_s)
                    ticket.clear()
                    continue
                ticket.clear()
                try:
                    return await reserve(False)
                except BudgetRefusedError as refused:
                    if not refused.busy:
                        raise
                    last = refused
                if self._move(ticket, last.scope):
                    continue
                await ticket.wait(min(left_s, random.uniform(0.5, 1.0) * poll_s))  # noqa: S311
                poll_s = min(poll_s * 2, _LONGEST_POLL_S)
            raise last
        finally:
            self._leave(ticket)
            call.waited_s += time.monotonic() - began
            del last  # The traceback would keep the call alive until a garbage collection.

    def freed(self, scopes: Iterable[str]) -> None:
        """Wake the first waiting call of each scope in ``scopes``.

        Thread-safe.

        Call this when a reservation on the scopes was released.

        Args:
            scopes: names of the scopes; those on which no call waits are ignored.
        """
        with self._lock:
            first = [queue[0] for scope in scopes if (queue := self.queues.get(scope))]
        for ticket in first:
            ticket.wake()

    @property
    def waiting(self) -> int:
        """Number of waiting calls."""
        with self._lock:
            return sum(map(len, self.queues.values()))

    def _is_waited_for(self, scopes: Sequence[str]) -> bool:
        return bool(self.queues) and self._waited_for(scopes) is not None

    def _waited_for(self, scopes: Sequence[str]) -> str | None:
        with self._lock:
            return next((scope for scope in scopes if scope in self.queues), None)

    def _ahead_of(self, ticket: _Ticket, scopes: Sequence[str]) -> str | None:
        """Return a scope on which an earlier call waits, the ticket's own scope first; else
        None.
        """
        with self._lock:
            for scope in (ticket.scope, *scopes):
                queue = self.queues.get(scope)
                if queue and queue[0] < ticket:
                    return scope
        return None

    def _move(self, ticket: _Ticket, scope: str) -> bool:
        if scope == ticket.scope:
            return False
        self._leave(ticket)
        self._join(ticket, scope)
        return True

    def _join(self, ticket: _Ticket, scope: str) -> None:
        ticket.scope = scope
        with self._lock:
            insort(self.queues.setdefault(scope, []), ticket)

    def _leave(self, ticket: _Ticket) -> None:
        """Remove a ticket from its queue and wake the next one."""
        with self._lock:
            queue = self.queues[ticket.scope]
            queue.remove(ticket)
            following = queue[0] if queue else None
            if following is None:
                del self.queues[ticket.scope]
        if following is not None:
            following.wake()
