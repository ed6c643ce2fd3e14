"""Each caller's share of calls at once and of thoughts a minute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from remit.kernel.errors import RemitError

_MINUTE_S = 60.0


class TooManyCallsError(RemitError):
    """A caller makes more calls at once, or records more in a minute, than its share."""


@dataclass(slots=True)
class _Share:
    slots: asyncio.Semaphore
    users: int = 0


class CallSlots:
    """Limits the calls that run at once, of all callers and of each.

    Args:
        at_once: most of all callers.
        per_caller: most of one caller.
        waiting: most of one caller that wait for a slot.
    """

    def __init__(self, at_once: int, per_caller: int, waiting: int) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._per_caller = per_caller
        self._most = per_caller + waiting
        self._shares: dict[str, _Share] = {}

    @asynccontextmanager
    async def of(self, owner: str) -> AsyncIterator[None]:
        """Run the block in a slot of ``owner``.

        Raises:
            TooManyCallsError: too many of its calls wait already.
        """
        share = self._shares.setdefault(owner, _Share(asyncio.Semaphore(self._per_caller)))
        if share.users >= self._most:
            raise TooManyCallsError(
                f"{share.users} calls of this caller are under way already. Nothing was done.",
                next_step="Wait for answers before you call again.",
            )
        share.users += 1
        try:
            # Its own slot first: a call that waits for that takes no slot from other callers.
            async with share.slots, self._slots:
                yield
        finally:
            share.users -= 1
            if not share.users:
                del self._shares[owner]


class RateLimit:
    """Limits each caller to a number a minute, spread evenly; as many at once after a rest.

    Args:
        per_minute: how many; 0 for any number.
    """

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._free_from: dict[str, float] = {}  # when the caller's full share is free again

    def take(self, owner: str) -> None:
        """Count one.

        Raises:
            TooManyCallsError: it is one too many just now; it was not counted.
        """
        if not self._per_minute:
            return
        now, each = time.monotonic(), _MINUTE_S / self._per_minute
        free_from = max(self._free_from.get(owner, now), now) + each
        if free_from - now > _MINUTE_S + each / 2:
            raise TooManyCallsError(
                f"This key records more than {self._per_minute} thoughts a minute. Nothing was "
                "recorded.",
                next_step="Wait a little, and record fewer.",
            )
        if len(self._free_from) > self._per_minute:  # callers at rest need not be known
            self._free_from = {
                name: until for name, until in self._free_from.items() if until > now
            }
        self._free_from[owner] = free_from
