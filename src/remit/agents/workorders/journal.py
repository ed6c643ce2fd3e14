"""Entries of one tier about work orders, in one form (SPEC 8.3), written in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from remit.ledger import LedgerEntry, LedgerPort


class Journal:
    """Writes entries of one session or one work order, waiting only where the caller does.

    When :meth:`write` or :meth:`flush` returns, everything submitted before is durable. A crash
    cuts the sequence off at its end, never in its middle. Both raise ``LedgerWriteError``.

    Args:
        tier: ``ho1`` or ``ho2``.
        work_order_id: what entries are about that name nothing else; the session when empty.

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
    ) -> None:
        self.ledger = ledger
        self.session_id = session_id
        self.agent_id = agent_id
        self.prompts_used: list[str] = []
        self._tier = tier
        self._agent_class = agent_class
        self._work_order_id = work_order_id
        self._pending: list[asyncio.Future[Any]] = []
        self._noted: list[LedgerEntry] = []

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
                    "agent_class": self._agent_class,
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

    async def write_all(self, entries: Sequence[LedgerEntry]) -> str:
        """Append entries, all or none, wait as :meth:`write` does; returns the last one's id."""
        ids = await self.ledger.submit([*self._take_noted(), *entries])
        await self.flush()
        return ids[-1]

    def submit(self, *entries: LedgerEntry) -> None:
        """Append entries, all or none, before any that are written later, without waiting."""
        self.add(self.ledger.submit([*self._take_noted(), *entries]))

    def note(self, event_type: str, **metadata: Any) -> None:
        """Have an entry written with the next one: what matters only then, or is said already."""
        self._noted.append(self.entry(event_type, **metadata))

    def add(self, future: asyncio.Future[Any]) -> None:
        """Wait for another write that is under way together with the journal's own."""
        future.add_done_callback(_retrieve)
        self._pending.append(future)

    async def flush(self) -> None:
        """Write what was noted, and wait until everything is durable."""
        if self._noted:
            self.submit()
        pending, self._pending = self._pending, []
        for outcome in await asyncio.gather(*pending, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def check(self) -> None:
        """Raise the error of a write that is known to have failed."""
        for future in self._pending:
            if future.done() and not future.cancelled() and (error := future.exception()):
                raise error

    def reset(self) -> None:
        """Drop errors of earlier writes: those who waited for them have seen them."""
        self._pending = []

    def _take_noted(self) -> list[LedgerEntry]:
        noted, self._noted = self._noted, []
        return noted


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Keep asyncio from logging an error that was never awaited."""
    if not future.cancelled():
        future.exception()
