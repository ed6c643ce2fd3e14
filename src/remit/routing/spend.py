"""The spend of a learned route: real costs so far steer the price weight of the next call."""

from __future__ import annotations

import asyncio
import threading

import orjson

from remit.ledger import LedgerClient, parse_entry_id
from remit.routing.learned_head import next_balance
from remit.routing.trail import ThoughtNotFoundError, get_thought_record
from remit.routing.weights import LearnedRules

_CALLS = 1_000
"""Number of latest exchanges that a new process reads; older ones no longer steer."""

_NANO = 1_000_000_000


class Spend:
    """The balance of a learned route: the allowed cost of its calls minus their real cost.

    The balance is read from the ledger, so that all processes steer by the same calls: exchanges
    that a decision chose since the head was recorded. Calls in flight do not count yet.

    Args:
        ledger: the ledger.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._rules: LearnedRules | None = None
        self._seen = -1  # the last exchange that was counted
        self._balance = 0

    async def balance(self, rules: LearnedRules | None) -> int:
        """Return the balance in nano-dollars, for the next decision; 0 without a cap.

        Args:
            rules: the use of the learned head in force, if any.
        """
        if rules is None or not rules.cap_nano:
            return 0
        return await asyncio.to_thread(self._read, rules)

    def _read(self, rules: LearnedRules) -> int:
        with self._lock:
            if self._rules != rules:
                self._rules, self._balance, self._seen = rules, 0, self._start(rules)
            rows = self._ledger.select(
                "SELECT seq, record FROM entries WHERE event_type = 'EXCHANGE' AND seq > ? "
                "ORDER BY seq",
                (self._seen,),
            )
            for seq, record in rows:
                self._seen = int(seq)
                metadata = orjson.loads(record)["metadata"]
                usd = metadata.get("cost_usd")
                if metadata.get("decision_id") and usd is not None:
                    self._balance = next_balance(self._balance, round(usd * _NANO), rules.cap_nano)
            return self._balance

    def _start(self, rules: LearnedRules) -> int:
        """Return the sequence number after which exchanges count."""
        try:
            head = get_thought_record(self._ledger, f"HEAD-{rules.head}").entry_id
        except ThoughtNotFoundError:
            head = ""
        rows = self._ledger.select(
            "SELECT seq FROM entries WHERE event_type = 'EXCHANGE' ORDER BY seq DESC LIMIT 1 "
            "OFFSET ?",
            (_CALLS,),
        )
        return max(parse_entry_id(head) or -1 if head else -1, int(rows[0][0]) if rows else -1)
