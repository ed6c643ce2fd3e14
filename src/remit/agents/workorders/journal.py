"""Writers of the entries of sessions and work orders, in order and in one form."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from remit.ledger import LedgerEntry, LedgerPort, Prepared, Write


class WriteBuffer:
    """The writes of one piece of work: those held back, and those in progress, in order.

    A held write joins the transaction of the next write that must happen anyway: the entry of a
    tool's intent, or the gateway's ``DISPATCH``. Consecutive journals share a buffer.

    Attributes:
        held: entries and functions of a transaction, lost unless a later transaction takes them.
    """

    def __init__(self) -> None:
        self.held: list[Write] = []
        self._under_way: list[asyncio.Future[Any]] = []

    async def take(self) -> list[Write]:
        """Wait until writes in progress are durable; return and clear the held writes.

        Implements :class:`~remit.kernel.exchange.WritesAhead`. Raises the error of a write that
        failed; the held writes stay then.
        """
        await self.settle()
        return self.take_held()

    def take_held(self) -> list[Write]:
        """Return and clear the held writes, for a transaction that is submitted at once."""
        held, self.held = self.held, []
        return held

    def follow(self, write: asyncio.Future[Any]) -> None:
        """Add a submitted transaction to the writes that :meth:`settle` waits for.

        Args:
            write: the future of the transaction.
        """
        write.add_done_callback(_retrieve)
        self._under_way.append(write)

    async def settle(self) -> None:
        """Wait until all writes in progress are durable; raise the error of the first one that
        failed.

        The other writes are waited for too. Writes that are held are not sent.
        """
        if not self._under_way:
            return
        under_way, self._under_way = self._under_way, []
        for outcome in await asyncio.gather(*under_way, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def check(self) -> None:
        """Raise the error of a write that has failed already; never wait.

        Writes still in progress are not examined.
        """
        for write in self._under_way:
            if write.done() and not write.cancelled() and (error := write.exception()):
                raise error

    def clear(self) -> None:
        """Drop all writes of an earlier piece of work, whose caller has seen their errors."""
        self.held, self._under_way = [], []


class Journal:
    """A writer of entries about one session or one work order.

    When :meth:`write` or :meth:`flush` returns, everything submitted or held before is durable. A
    crash removes entries from the end of the sequence only. Both methods raise LedgerWriteError.

    Args:
        ledger: receives the entries.
        tier: tier of the entries, ``ho1`` or ``ho2``.
        session_id: session of the entries.
        agent_id: agent of the entries.
        agent_class: class of that agent.
        work_order_id: default order of the entries; if empty, they are about the session.
        buffer: holds writes back; a new one by default.
        subject_id: person whom the entries are about, for erasure; empty for nobody.

    Attributes:
        buffer: the writes held back and in progress.
        prompts_used: ids of prompt packs for the entries made from now on.
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
        """Return a new entry without writing it.

        Args:
            event_type: type of the entry.
            work_order_id: order of the entry; by default the journal's.
            metadata: further metadata.
        """
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
        """Append an entry, wait until it and all earlier writes are durable, and return its id.

        Held writes go first, in the same transaction.

        Args:
            event_type: type of the entry.
            work_order_id: order of the entry; by default the journal's.
            metadata: further metadata.

        Raises:
            LedgerError: this or an earlier write failed.
        """
        return await self.write_all([self.entry(event_type, work_order_id, **metadata)])

    async def write_all(self, writes: Sequence[Write]) -> str:
        """Submit writes in one transaction, wait as :meth:`write` does, return the last result.

        Args:
            writes: entries, and functions of a transaction; at least one. The result is an entry's
                id, or a function's value as text.

        Raises:
            LedgerError: one of these or an earlier write failed.
        """
        write = self.submit(*writes)
        await self.buffer.settle()
        return str(write.result()[-1])

    def submit(self, *writes: Write) -> asyncio.Future[list[Any]]:
        """Submit the held writes and then ``writes`` in one transaction, without waiting.

        Returns:
            A future of the results in order: ids of entries, results of functions.

        Raises:
            LedgerError: an earlier write has failed, so that nothing may follow it.
        """
        self.buffer.check()
        return self._submit([*map(self._prepared, writes)] if self._subject_id else writes)

    def _submit(self, writes: Sequence[Write]) -> asyncio.Future[list[Any]]:
        write = self.ledger.submit([*self.buffer.take_held(), *writes])
        self.buffer.follow(write)
        return write

    def note(self, event_type: str, **metadata: Any) -> None:
        """Make an entry and hold it for the next transaction; nothing is durable yet.

        Args:
            event_type: kind of the entry.
            metadata: its metadata, in addition to the provenance.

        Raises:
            InvalidInputError: the entry cannot be recorded in this form.
        """
        self.buffer.held.append(self.prepared_entry(self.entry(event_type, **metadata)))

    def hold(self, *writes: Write, buffer: WriteBuffer | None = None) -> None:
        """Hold writes for the next transaction that must happen anyway.

        Args:
            writes: entries, and functions of a transaction.
            buffer: receives the writes; by default the journal's own.

        Raises:
            InvalidInputError: an entry cannot be recorded in this form.
        """
        (buffer or self.buffer).held.extend(map(self._prepared, writes))

    def _prepared(self, write: Write) -> Write:
        return self.prepared_entry(write) if isinstance(write, LedgerEntry) else write

    def prepared_entry(self, entry: LedgerEntry) -> Prepared:
        """Return an entry validated, encoded and linked to its subject, not yet written.

        Raises:
            InvalidInputError: the entry cannot be recorded in this form.
        """
        return self.ledger.prepare(entry, subject_id=self._subject_id)

    def flush(self) -> Awaitable[None]:
        """Submit everything held; return an awaitable that ends once all writes are durable.

        Nothing is submitted if nothing is held.

        Raises:
            LedgerError: on awaiting, if one of these or an earlier write failed.
        """
        if self.buffer.held:
            self._submit(())
        return self.buffer.settle()


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Keep asyncio from logging an error that was never awaited."""
    if not future.cancelled():
        future.exception()
