"""The spend of a learned route: real costs so far steer the price weight of the next call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from remit.ledger import KERNEL_ROWS, LedgerClient, parse_entry_id
from remit.routing.learned_head import next_balance
from remit.routing.trail import ThoughtNotFoundError, get_thought_record
from remit.routing.weights import LearnedRules

_CALLS = 1_000
"""Number of latest exchanges that a new process reads; older ones no longer steer."""

_NANO = 1_000_000_000
_WARM_S = 300  # The providers' shortest retention of a prompt cache.
_SESSIONS = 10_000  # Warm caches of so many sessions are in memory.
_ADOPTED = f"SELECT max(seq) FROM entries WHERE event_type = 'SIGNAL_ADOPTED' AND {KERNEL_ROWS}"


class Spend:
    """The balance of a learned route: the allowed cost of its calls minus their real cost.

    The balance is read from the ledger, so that all processes steer by the same calls: exchanges
    that a decision chose since the head was recorded and since the last adoption, at first among
    the latest 1,000. During a canary, calls of the proposed route count for that route alone. Calls
    in flight do not count yet.

    Args:
        ledger: the ledger.
        canary: the proposal whose route is tried; empty for the route in force.
    """

    def __init__(self, ledger: LedgerClient, canary: str = "") -> None:
        self._ledger = ledger
        self._canary = canary
        self._lock = threading.Lock()
        self._rules: LearnedRules | None = None
        self._seen = -1  # the last exchange that was counted
        self._balance = 0
        self._warm: dict[str, tuple[str, int, str]] = {}

    async def balance(self, rules: LearnedRules | None) -> int:
        """Return the balance in nano-dollars, for the next decision; 0 without a cap.

        Reads the ledger in a thread, as :meth:`read`.

        Args:
            rules: the use of the learned head in force, if any.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if rules is None or not rules.cap_nano:
            return 0
        return await asyncio.to_thread(self.read, rules)

    def read(self, rules: LearnedRules | None) -> int:
        """Return the balance in nano-dollars; 0 without a cap. Blocks.

        The exchanges since the last call are read from the ledger. Other rules begin anew.

        Args:
            rules: the use of the learned head in force, if any.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if rules is None or not rules.cap_nano:
            return 0
        with self._lock:
            if self._rules != rules:
                self._rules, self._balance, self._seen = rules, 0, self._start(rules)
            for seq, metadata, at in exchanges_after(self._ledger, self._seen):
                self._seen = seq
                self._note_cache(metadata, at)
                usd, canary = metadata.get("cost_usd"), metadata.get("canary") or {}
                tried = canary["proposal_id"] if canary.get("arm") == "new" else ""
                if metadata.get("decision_id") and usd is not None and tried == self._canary:
                    self._balance = next_balance(self._balance, round(usd * _NANO), rules.cap_nano)
            return self._balance

    def warm_cache(self, session_id: str) -> tuple[str, int]:
        """Return the model of a session's latest exchange, and the tokens in its prompt cache.

        Exchanges count as far as :meth:`read` has read them. The result is ``("", 0)`` five minutes
        after the exchange, after a failed exchange or one without cached or written tokens, and for
        an unknown session.
        """
        with self._lock:
            model, tokens, at = self._warm.get(session_id, ("", 0, ""))
        if not tokens:
            return "", 0
        age = datetime.now(UTC) - datetime.fromisoformat(at)
        return (model, tokens) if age.total_seconds() < _WARM_S else ("", 0)

    def _note_cache(self, metadata: Mapping[str, Any], at: str) -> None:
        names = ("cached_input_tokens", "cache_write_tokens")
        tokens = sum(int(metadata.get(name) or 0) for name in names)
        good, session = metadata.get("outcome") == "success", str(metadata.get("session_id") or "")
        self._warm.pop(session, None)
        if tokens and good and session:
            self._warm[session] = str(metadata["model_id"]), tokens, at
            if len(self._warm) > _SESSIONS:
                self._warm.pop(next(iter(self._warm)))

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
        ((adopted,),) = self._ledger.select(_ADOPTED)
        began = parse_entry_id(head) or -1 if head else -1
        return max(began, int(rows[0][0]) if rows else -1, -1 if adopted is None else int(adopted))


def exchanges_after(ledger: LedgerClient, seq: int) -> Iterator[tuple[int, dict[str, Any], str]]:
    """Yield number, metadata and time of exchanges after an entry, oldest first, no content.

    Args:
        ledger: the ledger.
        seq: number of the entry; -1 for all exchanges.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    rows = ledger.select(
        "SELECT seq, record FROM entries WHERE event_type = 'EXCHANGE' AND seq > ? ORDER BY seq",
        (seq,),
    )
    for number, record in rows:
        entry = orjson.loads(record)
        yield int(number), entry["metadata"], entry["timestamp"]
