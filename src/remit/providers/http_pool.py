"""The connections of one event loop to one server, with one timer for all their deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit.providers.http_connection import HttpConnection

_SWEEP_S = 0.1
"""The longest delay of a deadline; a timer for each wait would cost more than the wait."""


class HttpPool:
    """Idle connections and all open ones.

    Attributes:
        kept: idle connections, the latest last.
        open: all open connections.
        timer: the timer of the next check of deadlines; ``None`` if no connection is open.
        with_loop: the generator that ends with the loop and closes all connections.
    """

    __slots__ = ("kept", "open", "timer", "with_loop")

    def __init__(self) -> None:
        self.kept: list[HttpConnection] = []
        self.open: set[HttpConnection] = set()
        self.timer: asyncio.TimerHandle | None = None
        self.with_loop: AsyncGenerator[None, None] | None = None

    def take(self) -> HttpConnection | None:
        """Remove and return the most recent usable idle connection; ``None`` if there is none."""
        while self.kept:
            connection = self.kept.pop()
            if connection.is_open:
                return connection
            connection.close()
        return None

    def lost(self, connection: HttpConnection) -> None:
        """Forget a connection that has ended."""
        self.open.discard(connection)
        if connection in self.kept:
            self.kept.remove(connection)

    def close(self) -> None:
        """Close all connections without a pending answer."""
        for connection in tuple(self.open):
            if connection.unused:
                connection.close()
        self.kept.clear()

    def abort(self) -> None:
        """Close all connections."""
        for connection in tuple(self.open):
            connection.close()
        self.kept.clear()

    def watch(self) -> None:
        """Start the timer, which checks deadlines while any connection is open."""
        self.timer = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        self.timer = None
        for connection in tuple(self.open):
            if connection.deadline <= now:
                connection.overdue()
        if self.open:
            self.watch()
