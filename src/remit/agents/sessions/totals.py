"""What the calls of a session add up to."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from remit.ledger import LedgerPort

__all__ = ["SessionTotals"]


class SessionTotals:
    """Sums of a session's exchanges. Each read goes on where the last one stopped.

    Args:
        ledger: where they are.
        session_id: whose.
    """

    def __init__(self, ledger: LedgerPort, session_id: str) -> None:
        self._ledger = ledger
        self._session_id = session_id
        self._after: str | None = None
        self._calls = self._input = self._output = 0
        self._usd, self._unpriced = Decimal(0), 0

    def read(self) -> dict[str, Any]:
        """``llm_calls``, ``input_tokens``, ``output_tokens``, ``total_tokens``, ``cost_usd``.

        ``cost_usd`` is ``None`` as soon as the price of one exchange that used tokens is not
        known.
        """
        for entry in self._ledger.query(
            session_id=self._session_id,
            event_type="EXCHANGE",
            after=self._after,
            with_content=False,
        ):
            told = entry.metadata
            self._after = entry.id
            self._calls += 1
            self._input += told["input_tokens"]
            self._output += told["output_tokens"]
            if (usd := told.get("cost_usd")) is not None:
                self._usd += Decimal(str(usd))
            elif told["input_tokens"] or told["output_tokens"]:
                self._unpriced += 1
        return {
            "llm_calls": self._calls,
            "input_tokens": self._input,
            "output_tokens": self._output,
            "total_tokens": self._input + self._output,
            "cost_usd": None if self._unpriced else float(self._usd),
        }
