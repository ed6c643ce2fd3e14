"""The connections of one event loop to one server, and the one timer that ends their waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit.providers.http_connection import HttpConnection

_SWEEP_S = 0.1  # how late a wait may end: a timer for each would cost more than the wait


class HttpPool:
    """Connections that wait for their next request, and all that are open.

    Attributes:
        kept: those that wait, the latest last.
        open: all of them.
        timer: of the next look at their deadlines; ``None`` while nothing is waited for.
        with_loop: the generator that ends with the loop, and closes all.
    """

    __slots__ = ("kept", "open", "timer", "with_loop")

    def __init__(self) -> None:
        self.kept: list[HttpConnection] = []
        self.open: set[HttpConnection] = set()
        self.timer: asyncio.TimerHandle | None = None
        self.with_loop: AsyncGenerator[None, None] | None = None

    def take(self) -> HttpConnection | None:
        """The connection that waited least, where one can be used."""
        while self.kept:
            connection = self.kept.pop()
            if connection.is_open:
                return connection
            connection.close()
        return None

    def lost(self, connection: HttpConnection) -> None:
        """A connection has ended."""
        self.open.discard(connection)
        if connection in self.kept:
            self.kept.remove(connection)

    def close(self) -> None:
        """Close those by which no answer comes."""
        for connection in tuple(self.open):
            if connection.unused:
                connection.close()
        self.kept.clear()

    def abort(self) -> None:
        """Close all."""
        for connection in tuple(self.open):
            connection.close()
        self.kept.clear()

    def watch(self) -> None:
        """Look at the deadlines from now on, as long as there are any."""
        self.timer = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        self.timer = None
        for connection in tuple(self.open):
            if connection.deadline <= now:
                connection.overdue()
        if self.open:
            self.watch()
