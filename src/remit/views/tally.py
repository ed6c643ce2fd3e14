"""Sums over entries: calls, tokens, cost."""

from __future__ import annotations

from typing import Any

from remit.ledger import LedgerEntry

__all__ = ["Tally"]

_NANO = 1_000_000_000


class Tally:
    """Adds up what entries used. A call without a price makes the cost unknown, never 0."""

    def __init__(self) -> None:
        self._calls = self._failed = self._tools = self._orphaned = 0
        self._input = self._output = self._settled = 0
        self._nano = self._unpriced = 0

    def add(self, entry: LedgerEntry) -> None:
        """Count one entry; what is neither a call nor a tool changes nothing."""
        metadata = entry.metadata
        if entry.event_type == "EXCHANGE":
            self._calls += 1
            self._failed += metadata.get("outcome") != "success"
            self._input += metadata.get("input_tokens") or 0
            self._output += metadata.get("output_tokens") or 0
            self._charge(metadata.get("cost_usd"))
        elif entry.event_type == "EXCHANGE_ORPHANED":
            self._orphaned += 1
            settled = metadata.get("settled_tokens") or 0
            self._settled += settled
            cost = metadata.get("cost_usd")
            self._charge(0.0 if cost is None and not settled else cost)
        elif entry.event_type == "TOOL_CALL":
            self._tools += 1

    def to_dict(self) -> dict[str, Any]:
        """The sums.

        ``llm_calls`` counts every attempt that was sent, ``failed_calls`` those without an
        answer; ``orphaned_calls`` were sent by a process that died, and ``settled_tokens`` is
        what they were charged. ``cost_usd`` is ``None`` when a price is unknown;
        ``known_cost_usd`` is the sum of the known ones, ``unpriced_calls`` how many are not.
        """
        known = self._nano / _NANO
        return {
            "llm_calls": self._calls,
            "failed_calls": self._failed,
            "tool_calls": self._tools,
            "input_tokens": self._input,
            "output_tokens": self._output,
            "cost_usd": None if self._unpriced else known,
            "known_cost_usd": known,
            "unpriced_calls": self._unpriced,
            "orphaned_calls": self._orphaned,
            "settled_tokens": self._settled,
        }

    def _charge(self, cost_usd: Any) -> None:
        if isinstance(cost_usd, (int, float)) and not isinstance(cost_usd, bool):
            self._nano += round(cost_usd * _NANO)
        else:
            self._unpriced += 1
