"""Limits on the requests in flight and the body bytes of a key, and of a tenant.

:data:`remit.gateway.memory.memory` counts all bytes of the process.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from remit.gateway.memory import Holding, memory
from remit.server.refusals import HttpError

SHARE = "remit.share"
"""Key of a request's scope: its :class:`Share`."""

_OF_ONE_KEY = 0.75
COPIES = 2
"""A body is in memory as bytes and as parsed values."""
_BODIES = 6  # The memory limit has room for this number of the longest body.
SMALL_BYTES = 65_536
"""Shorter bodies are not counted, because connections are limited."""


class Shares:
    """Counts of the requests in flight and of their bytes, by key or by tenant.

    One key may have three quarters of all calls and of the memory for bodies. :class:`Share`
    counts; this object holds the counts. Making it raises the memory limit of the process to six of
    the longest bodies, if it is lower. For one event loop.

    Args:
        most_calls: largest number of calls in flight in this process.
        most_body_bytes: longest body, in bytes.
        within: the shares of all tenants of the process, and the name of the tenant under which
            these requests are counted there too.
        of: ``key`` or ``tenant``, for messages.

    Attributes:
        calls_of: requests in flight, keyed by key or tenant.
        bytes_of: counted bytes of bodies, keyed by key or tenant.
        calls_of_one: largest number of requests of one key or tenant.
        bytes_of_one: largest number of bytes of one key or tenant.
    """

    def __init__(
        self,
        most_calls: int,
        most_body_bytes: int,
        within: tuple[Shares, str] | None = None,
        *,
        of: str = "key",
    ) -> None:
        self.within = within
        self.of = of
        memory.limit = max(memory.limit, _BODIES * most_body_bytes)
        self.calls_of: Counter[str] = Counter()
        self.bytes_of: Counter[str] = Counter()
        self.calls_of_one = max(1, int(most_calls * _OF_ONE_KEY))
        self.bytes_of_one = int(memory.limit_of_bodies * _OF_ONE_KEY) // COPIES


class Share(Struct, eq=False):
    """The place and the body bytes of a request, until :meth:`end`.

    No place and no body bytes are counted before :meth:`begin`. For one event loop.

    Attributes:
        shares: the counts of the application that answers.
        size: number of body bytes that are counted.
    """

    shares: Shares
    size: int = 0
    _key: str | None = None
    _above: Share | None = None  # the share in those of all tenants
    _holding: Holding | None = None

    def begin(self, key_id: str) -> None:
        """Count the request under a key, and under its tenant; a repeated call has no effect.

        A refusal counts nothing for the key; a place under the tenant stays until :meth:`end`.

        Args:
            key_id: id of the caller's key.

        Raises:
            HttpError: 429, the key or its tenant has too many requests in flight.
        """
        shares = self.shares
        if shares.within is not None:
            self._above = self._above or Share(shares.within[0])
            self._above.begin(shares.within[1])
        if self._key is None:
            running = shares.calls_of.get(key_id, 0)
            if running >= shares.calls_of_one:
                said = (
                    f"This {shares.of} has {running} requests in flight, the most allowed; "
                    "wait for one to end."
                )
                raise HttpError(429, "rate_limited", said, retry_after_s=1, close=True)
            shares.calls_of[key_id] = running + 1
            self._key = key_id

    def take(self, size: int, *, small: int = SMALL_BYTES) -> None:
        """Count more bytes of the body.

        A refused call counts nothing, nor does any call before :meth:`begin` or after :meth:`end`.

        Args:
            size: number of bytes of this call.
            small: a call with at most so many bytes (64 KiB by default) counts nothing, whatever
                came before; 0 for the pieces of a body.

        Raises:
            HttpError: 429, the key or tenant holds too many bytes; 503, the process does.
        """
        key, shares = self._key, self.shares
        if key is None or size <= small:
            return
        if shares.bytes_of[key] + size > shares.bytes_of_one:
            said = (
                f"The requests of this {shares.of} hold {shares.bytes_of[key]:,} bytes of at most "
                f"{shares.bytes_of_one:,}, and this body has {size:,}; wait for one to end."
            )
            raise HttpError(429, "rate_limited", said, retry_after_s=1, close=True)
        if self._above is not None:
            self._above.take(size, small=0)
        else:
            if not memory.has_room_for_body(COPIES * size):
                said = (
                    f"The requests in flight leave no memory for a body of {size:,} bytes; try "
                    "again later, or raise server.memory_bytes."
                )
                raise HttpError(503, "overloaded", said, retry_after_s=1, close=True)
            if self._holding is None:
                self._holding = Holding(memory)
            self._holding.resize(COPIES * (self.size + size))
        self.size += size
        shares.bytes_of[key] += size

    def resize(self, size: int) -> None:
        """Count the body's bytes in place of those counted before.

        A refused call changes nothing. Do not call :meth:`hold` on the same share.

        Args:
            size: number of bytes.

        Raises:
            HttpError: 429 or 503 for more bytes, as :meth:`take` raises it.
        """
        less = self.size - size
        if less <= 0:
            self.take(-less, small=0)
        elif self._key is not None:
            if self._above is not None:
                self._above.resize(size)
            if self._holding is not None:
                self._holding.resize(COPIES * size)
            self.size = size
            self.shares.bytes_of[self._key] -= less
            if not self.shares.bytes_of[self._key]:
                del self.shares.bytes_of[self._key]

    def hold(self, size: int) -> None:
        """Count the bytes of an answer against the process's memory, in place of the body's.

        No limit of the key is checked.

        Args:
            size: number of bytes; replaces the size counted before.
        """
        if self._above is not None:
            self._above.hold(size)
            return
        if self._holding is None:
            self._holding = Holding(memory)
        self._holding.resize(size)

    def end(self) -> None:
        """Release the place and all bytes of the request, also in the shares of all tenants.

        The bytes that :meth:`hold` counted are released too. Nothing is raised, and a repeated call
        has no effect.
        """
        if self.size:
            self.resize(0)
        if self._above is not None:
            self._above.end()
        if self._holding is not None:
            self._holding.resize(0)
        key, self._key, calls_of = self._key, None, self.shares.calls_of
        if key is None:
            return
        if calls_of[key] > 1:
            calls_of[key] -= 1
        else:
            del calls_of[key]
