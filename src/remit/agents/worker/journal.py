"""The worker's ledger entries, in one form (SPEC 8.3)."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

from remit.agents.workorders import WorkOrder
from remit.kernel.exchange import PromptResponse
from remit.ledger import LedgerEntry, LedgerPort, OrderedWriter, ScopedLedger

__all__ = ["Journal", "Usage"]


class Usage:
    """What the exchanges of an order add up to."""

    def __init__(self) -> None:
        self.input_tokens = 0
        self.output_tokens = 0
        self.cost_usd: float | None = None


class Journal:
    """Writes the entries of one order, and reads them.

    Args:
        ledger: the worker's handle; narrowed here to the order's own entries.
        order: whose entries these are.
        agent_id: who works.
        agent_class: of what class.

    Attributes:
        ledger: the narrowed handle.
        prompts_used: what the next entries say was used.
    """

    def __init__(
        self, ledger: LedgerPort, order: WorkOrder, agent_id: str, agent_class: str
    ) -> None:
        self.ledger = ScopedLedger(ledger, tier="ho1", work_order_id=order.wo_id)
        self._order = order
        self._provenance = {
            "agent_id": agent_id,
            "agent_class": agent_class,
            "work_order_id": order.wo_id,
            "session_id": order.session_id,
        }
        self._writer = OrderedWriter(self.ledger)
        self._noted: list[LedgerEntry] = []
        self.prompts_used: list[str] = []

    async def write(self, event_type: str, **metadata: Any) -> str:
        """Append one entry and wait until it, and all before it, is durable; returns its id."""
        noted, self._noted = self._noted, []
        return (await self._writer.write([*noted, self._entry(event_type, metadata)]))[-1]

    def soon(self, event_type: str, **metadata: Any) -> None:
        """Append one entry, before whatever is written later, without waiting for it."""
        noted, self._noted = self._noted, []
        self._writer.submit([*noted, self._entry(event_type, metadata)])

    def joined(self, future: asyncio.Future[Any]) -> None:
        """Have another write that is under way waited for together with the journal's."""
        self._writer.add(future)

    def note(self, event_type: str, **metadata: Any) -> None:
        """Have an entry written together with the next one.

        For what another durable entry says already, or what matters only with the next one.
        """
        self._noted.append(self._entry(event_type, metadata))

    def flush(self) -> None:
        """Hand over what was noted, before whatever is written later."""
        if self._noted:
            noted, self._noted = self._noted, []
            self._writer.submit(noted)

    async def settle(self) -> None:
        """Wait until all is durable."""
        self.flush()
        await self._writer.flush()

    def _entry(self, event_type: str, metadata: dict[str, Any]) -> LedgerEntry:
        return LedgerEntry(
            event_type=event_type,
            submission_id=self._order.wo_id,
            decision=event_type,
            reason=f"{event_type} for {self._order.wo_id}",
            prompts_used=list(self.prompts_used),
            metadata={
                "provenance": dict(self._provenance),
                "scope": {"tier": "ho1"},
                **metadata,
            },
        )

    def usage(self) -> Usage:
        """Sum of all exchanges of the order, retries and failures included.

        Read from the record, so that the order's cost equals its exchanges always. The price
        is unknown as soon as one exchange's is.
        """
        total = Usage()
        cost, known, any_priced = Decimal(0), True, False
        for entry in self.ledger.query(event_type="EXCHANGE", with_content=False):
            told = entry.metadata
            total.input_tokens += told["input_tokens"]
            total.output_tokens += told["output_tokens"]
            if (usd := told.get("cost_usd")) is not None:
                cost += Decimal(str(usd))
                any_priced = True
            elif told["input_tokens"] or told["output_tokens"]:
                known = False
        total.cost_usd = float(cost) if known and any_priced else None
        return total

    def note_llm_call(self, response: PromptResponse) -> None:
        """Note one call to a model; the exchange holds its text, and is durable."""
        self.note(
            "LLM_CALL",
            exchange_entry_id=response.exchange_entry_id,
            dispatch_entry_id=response.dispatch_entry_id,
            outcome=str(response.outcome),
            model_id=response.model_id,
            input_tokens=response.input_tokens,
            output_tokens=response.output_tokens,
            latency_ms=response.latency_ms,
        )
