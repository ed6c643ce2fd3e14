"""Model calls: exchanges joined with the worker's notes and with failed attempts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from remit.ledger import LedgerEntry, LedgerPort, time_text
from remit.views.entries import between_ms, milliseconds, place_of

_FIELDS = (
    "contract_id", "contract_version", "model_id", "requested_model_id", "provider_id", "outcome",
    "finish_reason", "wire", "system", "prompt", "response", "content_blocks", "answer", "tools",
    "parameters", "changed",
    "input_tokens", "output_tokens", "cached_input_tokens", "cache_write_tokens",
    "reasoning_tokens", "time_to_first_token_ms", "cost_certainty", "price_version",
    "over_bound", "error_code", "error_message", "decision_id", "key_id", "framework_id",
    "context_hash",
)  # fmt: skip


class Calls:
    """The model calls of a turn, as steps of a journey.

    The ledger is read only for exchanges outside the turn; its errors are raised.

    Args:
        entries: entries of the turn.
        ledger: source of exchanges outside the turn, which were replayed from the record.
        with_content: True to read these exchanges with content.
    """

    def __init__(
        self, entries: Sequence[LedgerEntry], ledger: LedgerPort, with_content: bool
    ) -> None:
        self._ledger = ledger
        self._with_content = with_content
        self._sent = {e.id: e.timestamp for e in entries if e.event_type == "DISPATCH"}
        self._exchanges = {e.id: e for e in entries if e.event_type == "EXCHANGE"}

    def steps(self, entries: Iterable[LedgerEntry]) -> list[dict[str, Any]]:
        """Return the model calls among some entries as steps, in order of their start.

        ``EXCHANGE``, ``LLM_CALL`` and ``EXCHANGE_ORPHANED`` entries of one call are one step. A
        failed attempt is listed under the attempt that followed it. An ``LLM_CALL`` whose
        ``EXCHANGE`` is not among them is a step too: if the ledger has the exchange, a call that
        was answered from the record, which costs 0. Otherwise the cost is None, or 0 if nothing was
        sent.

        Args:
            entries: entries of one turn or order, in ledger order; other entries are ignored.

        Returns:
            Dicts with ``kind`` (``model_call`` or ``orphaned_call``), ``entry_id``,
            ``dispatch_entry_id``, ``timestamp``, ``started_at``, ``elapsed_ms``, ``cost_usd`` and
            recorded fields. A model call also has ``llm_call_entry_id`` (None if no worker made
            it), ``attempts`` (its failed attempts, oldest first) and ``replayed`` (True if it was
            answered from the record).

        Raises:
            LedgerError: an exchange outside the turn cannot be read.
        """
        found = list(entries)
        notes = {
            str(entry.metadata.get("exchange_entry_id") or entry.id): entry
            for entry in found
            if entry.event_type == "LLM_CALL"
        }
        retried = {
            str(entry.metadata["retry_of"])
            for entry in found
            if entry.event_type == "EXCHANGE" and entry.metadata.get("retry_of")
        }
        steps = []
        for entry in found:
            if entry.event_type == "EXCHANGE_ORPHANED":
                steps.append(self._orphan(entry))
            elif entry.event_type == "EXCHANGE" and entry.id not in retried:
                steps.append(self._call(entry, notes.pop(entry.id, None)))
        steps += [self._noted(note) for exchange, note in notes.items() if exchange not in retried]
        return sorted(steps, key=lambda step: str(step["started_at"]))

    def _call(
        self, exchange: LedgerEntry, note: LedgerEntry | None, *, replayed: bool = False
    ) -> dict[str, Any]:
        metadata = exchange.metadata
        attempts: list[dict[str, Any]] = []
        later, earlier = exchange, self._exchanges.get(str(metadata.get("retry_of", "")))
        # An attempt is older than the next one: a damaged record cannot name itself for ever.
        while earlier is not None and earlier.seq < later.seq:
            attempts.insert(0, self._attempt(earlier))
            later = earlier
            earlier = self._exchanges.get(str(earlier.metadata.get("retry_of", "")))
        return {
            "kind": "model_call",
            **self._attempt(exchange),
            "llm_call_entry_id": note.id if note else None,
            "attempts": attempts,
            "replayed": replayed,
        }

    def _attempt(self, exchange: LedgerEntry) -> dict[str, Any]:
        metadata = exchange.metadata
        sent = str(metadata.get("dispatch_entry_id") or "")
        started = self._sent.get(sent) or _before(exchange.timestamp, metadata.get("latency_ms"))
        return {
            "entry_id": exchange.id,
            "dispatch_entry_id": sent or None,
            "timestamp": exchange.timestamp,
            "started_at": started,
            "elapsed_ms": milliseconds(metadata.get("latency_ms"))
            or between_ms(started, exchange.timestamp),
            "cost_usd": metadata.get("cost_usd"),
            **{key: metadata[key] for key in _FIELDS if key in metadata},
        }

    def _noted(self, note: LedgerEntry) -> dict[str, Any]:
        """A call whose exchange is not of this turn: replayed from the record, or refused."""
        metadata = note.metadata
        elsewhere = self._elsewhere(str(metadata.get("exchange_entry_id") or ""))
        if elsewhere is not None:
            step = self._call(elsewhere, note, replayed=True)
            # It was paid for when it was made.
            step |= {"timestamp": note.timestamp, "started_at": note.timestamp, "elapsed_ms": 0.0}
            return {**step, "cost_usd": 0.0}
        return {
            "kind": "model_call",
            "entry_id": metadata.get("exchange_entry_id") or None,
            "llm_call_entry_id": note.id,
            "dispatch_entry_id": metadata.get("dispatch_entry_id") or None,
            "timestamp": note.timestamp,
            "started_at": _before(note.timestamp, metadata.get("latency_ms")),
            "elapsed_ms": milliseconds(metadata.get("latency_ms")),
            "cost_usd": None if metadata.get("dispatch_entry_id") else 0.0,
            **{key: metadata[key] for key in _FIELDS if key in metadata},
            "attempts": [],
            "replayed": False,
        }

    def _elsewhere(self, entry_id: str) -> LedgerEntry | None:
        if not entry_id:
            return None
        after = place_of(entry_id) - 1
        found = self._ledger.query(after=after, limit=1, with_content=self._with_content)
        entry = next(iter(found), None)
        if entry is None or entry.id != entry_id or entry.event_type != "EXCHANGE":
            return None
        return entry

    def _orphan(self, entry: LedgerEntry) -> dict[str, Any]:
        metadata = entry.metadata
        sent = str(metadata.get("dispatch_entry_id") or "")
        return {
            "kind": "orphaned_call",
            "outcome": "orphaned",
            "entry_id": entry.id,
            "dispatch_entry_id": sent or None,
            "timestamp": entry.timestamp,
            "started_at": self._sent.get(sent, entry.timestamp),
            "elapsed_ms": None,
            "contract_id": metadata.get("contract_id"),
            "settlement": metadata.get("settlement"),
            "settled_tokens": metadata.get("settled_tokens"),
            "cost_usd": metadata.get("cost_usd"),
            "cost_certainty": metadata.get("cost_certainty"),
        }


def _before(moment: str, by_ms: Any) -> str:
    """A timestamp so many milliseconds earlier."""
    if (lasted := milliseconds(by_ms)) is None:
        return moment
    try:
        return time_text(datetime.fromisoformat(moment) - timedelta(milliseconds=lasted))
    except OverflowError:
        return moment
