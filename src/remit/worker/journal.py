"""The worker's ledger entries, in one form (SPEC 8.3)."""

from __future__ import annotations

from typing import Any

from remit.exchange import PromptResponse
from remit.ledger import LedgerEntry, LedgerPort, ScopedLedger
from remit.workorders import WorkOrder

__all__ = ["Journal"]


class Journal:
    """Writes the entries of one order.

    Args:
        ledger: the worker's handle; narrowed here to the order's own entries.
        order: whose entries these are.
        agent_id: who works.
        agent_class: of what class.
    """

    def __init__(
        self, ledger: LedgerPort, order: WorkOrder, agent_id: str, agent_class: str
    ) -> None:
        self._ledger = ScopedLedger(ledger, tier="ho1", work_order_id=order.wo_id)
        self._order = order
        self._provenance = {
            "agent_id": agent_id,
            "agent_class": agent_class,
            "work_order_id": order.wo_id,
            "session_id": order.session_id,
        }
        self.prompts_used: list[str] = []

    async def write(self, event_type: str, **metadata: Any) -> str:
        """Append one entry of the order; returns its id."""
        return await self._ledger.awrite(
            LedgerEntry(
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
        )

    def tokens_used(self) -> tuple[int, int]:
        """Input and output tokens of all exchanges of the order, retries and failures included.

        Read from the record, so that the order's cost equals its exchanges always.
        """
        input_tokens = output_tokens = 0
        for entry in self._ledger.query(event_type="EXCHANGE", with_content=False):
            input_tokens += entry.metadata["input_tokens"]
            output_tokens += entry.metadata["output_tokens"]
        return input_tokens, output_tokens

    async def llm_call(self, response: PromptResponse) -> None:
        """Note one call to a model; the exchange holds its text."""
        await self.write(
            "LLM_CALL",
            exchange_entry_id=response.exchange_entry_id,
            dispatch_entry_id=response.dispatch_entry_id,
            outcome=str(response.outcome),
            model_id=response.model_id,
            input_tokens=response.input_tokens,
            output_tokens=response.output_tokens,
            latency_ms=response.latency_ms,
        )
