"""Writes that nobody waits for one by one, because a later one is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from remit.ledger.entry import LedgerEntry
from remit.ledger.scoped import LedgerPort

__all__ = ["OrderedWriter"]


class OrderedWriter:
    """Writes entries in the order in which they come.

    :meth:`soon` hands entries over and goes on; the next :meth:`write`, and every other write that
    is waited for afterwards, is durable only when they are. A crash cuts the record off at some
    place, never out of its middle.

    Args:
        ledger: the handle to write through.
    """

    def __init__(self, ledger: LedgerPort) -> None:
        self._ledger = ledger
        self._under_way: list[asyncio.Future[Any]] = []

    def soon(self, entries: Iterable[LedgerEntry]) -> None:
        """Have entries written, all or none, before whatever is written later.

        Raises:
            InvalidInputError: one cannot be recorded as it is; nothing is written.
        """
        future = self._ledger.enqueue(entries)
        future.add_done_callback(_heard)
        self._under_way.append(future)

    def joined(self, future: asyncio.Future[Any]) -> None:
        """Have another write that is under way waited for together with these."""
        future.add_done_callback(_heard)
        self._under_way.append(future)

    async def write(self, entries: Iterable[LedgerEntry]) -> list[str]:
        """Write entries, all or none, and wait until they and all before them are durable.

        Raises:
            LedgerWriteError: some of them could not be written.
        """
        ids = await self._ledger.awrite_many(entries)
        await self.settle()
        return ids

    def check(self) -> None:
        """Make sure that nothing has failed, as far as is known by now.

        Raises:
            LedgerWriteError: something has.
        """
        for future in self._under_way:
            if future.done() and not future.cancelled() and (error := future.exception()):
                raise error

    async def settle(self) -> None:
        """Wait for what was handed over.

        Raises:
            LedgerWriteError: some of it could not be written.
        """
        under_way, self._under_way = self._under_way, []
        if under_way:
            outcomes = await asyncio.gather(*under_way, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome


def _heard(future: asyncio.Future[Any]) -> None:
    """A failure counts as heard of, also where the work ends before it is waited for."""
    if not future.cancelled():
        future.exception()
