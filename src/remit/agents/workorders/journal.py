"""Entries of one tier about work orders, in one form, written in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from remit.ledger import LedgerEntry, LedgerPort, Prepared, Write


class WriteBuffer:
    """The writes of one piece of work, in order: those that are held, and those under way.

    A held write goes with the next one that must be made anyway, in its transaction: the entry of
    a tool's intent, the gateway's ``DISPATCH``. Journals that follow each other share a buffer.
    """

    def __init__(self) -> None:
        self._held: list[Write] = []
        self._under_way: list[asyncio.Future[Any]] = []

    def hold(self, write: Write) -> None:
        """Add a write that is not waited for."""
        self._held.append(write)

    async def take(self) -> list[Write]:
        """See :class:`~remit.kernel.exchange.WritesAhead`."""
        await self.settle()
        return self.take_held()

    def take_held(self) -> list[Write]:
        """What is held, for a transaction that is submitted at once."""
        held, self._held = self._held, []
        return held

    def follow(self, write: asyncio.Future[Any]) -> None:
        """Wait for a transaction that is under way together with the buffer's own."""
        write.add_done_callback(_retrieve)
        self._under_way.append(write)

    async def settle(self) -> None:
        """Wait until what is under way is durable; raises where it failed."""
        under_way, self._under_way = self._under_way, []
        for outcome in await asyncio.gather(*under_way, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def check(self) -> None:
        """Raise the error of a write that is known to have failed."""
        for write in self._under_way:
            if write.done() and not write.cancelled() and (error := write.exception()):
                raise error

    def clear(self) -> None:
        """Drop what an earlier piece of work left: those who waited for it have seen why."""
        self._held, self._under_way = [], []


class Journal:
    """Writes entries of one session or one work order, waiting only where the caller does.

    When :meth:`write` or :meth:`flush` returns, everything submitted or noted before is durable.
    A crash cuts the sequence off at its end, never in its middle. Both raise ``LedgerWriteError``.

    Args:
        tier: ``ho1`` or ``ho2``.
        work_order_id: what entries are about that name nothing else; the session when empty.
        buffer: where its writes are held; its own when left out.
        subject_id: the person of whom its entries speak; empty: nobody.

    Attributes:
        prompts_used: ids of prompt packs, for the entries made from now on.
    """

    def __init__(
        self,
        ledger: LedgerPort,
        tier: str,
        session_id: str,
        agent_id: str,
        agent_class: str,
        *,
        work_order_id: str = "",
        buffer: WriteBuffer | None = None,
        subject_id: str = "",
    ) -> None:
        self.ledger = ledger
        self._subject_id = subject_id or None
        self.session_id = session_id
        self.agent_id = agent_id
        self.prompts_used: list[str] = []
        self.buffer = WriteBuffer() if buffer is None else buffer
        self._tier = tier
        self.agent_class = agent_class
        self._work_order_id = work_order_id

    def entry(self, event_type: str, work_order_id: str = "", /, **metadata: Any) -> LedgerEntry:
        """An entry, not yet written."""
        work_order_id = work_order_id or self._work_order_id
        subject = work_order_id or self.session_id
        return LedgerEntry(
            event_type=event_type,
            submission_id=subject,
            decision=event_type,
            reason=f"{event_type} for {subject}",
            prompts_used=list(self.prompts_used),
            metadata={
                "provenance": {
                    "agent_id": self.agent_id,
                    "agent_class": self.agent_class,
                    "session_id": self.session_id,
                    **({"work_order_id": work_order_id} if work_order_id else {}),
                },
                "scope": {"tier": self._tier},
                **metadata,
            },
        )

    async def write(self, event_type: str, work_order_id: str = "", /, **metadata: Any) -> str:
        """Append one entry and wait until it, and all before it, is durable; returns its id."""
        return await self.write_all([self.entry(event_type, work_order_id, **metadata)])

    async def write_all(self, writes: Sequence[Write]) -> str:
        """Do all of this, wait as :meth:`write` does; returns the last one's id."""
        write = self.submit(*writes)
        await self.flush()
        return str(write.result()[-1])

    def submit(self, *writes: Write) -> asyncio.Future[list[Any]]:
        """Do what is held and then all of this, all or none, without waiting.

        Raises:
            LedgerError: an earlier write has failed: nothing may follow it.
        """
        self.buffer.check()
        prepared = [*map(self.prepared, writes)] if self._subject_id else writes
        write = self.ledger.submit([*self.buffer.take_held(), *prepared])
        self.buffer.follow(write)
        return write

    def note(self, event_type: str, **metadata: Any) -> None:
        """Hold an entry: what matters only with the next one, or is said already."""
        self.hold(self.entry(event_type, **metadata))

    def hold(self, *writes: Write) -> None:
        """Have these written with the next write that must be made anyway.

        Raises:
            InvalidInputError: an entry cannot be recorded as it is.
        """
        for write in writes:
            self.buffer.hold(self.prepared(write))

    def prepared(self, write: Write) -> Write:
        """An entry checked and encoded, with the person of whom it speaks; others as they are."""
        return self.prepared_entry(write) if isinstance(write, LedgerEntry) else write

    def prepared_entry(self, entry: LedgerEntry) -> Prepared:
        """An entry checked and encoded, with the person of whom it speaks."""
        return self.ledger.prepare(entry, subject_id=self._subject_id)

    async def flush(self) -> None:
        """Write what is held, and wait until everything is durable."""
        if held := self.buffer.take_held():
            self.buffer.follow(self.ledger.submit(held))
        await self.buffer.settle()

    def check(self) -> None:
        """Raise the error of a write that is known to have failed."""
        self.buffer.check()


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Keep asyncio from logging an error that was never awaited."""
    if not future.cancelled():
        future.exception()
