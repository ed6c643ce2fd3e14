"""What the ledger says an order did before: a worker that goes on reads, it does not remember."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remit.agents.worker.errors import WorkFailedError
from remit.kernel.exchange import Message
from remit.ledger import Erased, LedgerEntry, LedgerPort

__all__ = ["Answer", "RecordedRun"]


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer, from the wire or from the record.

    Attributes:
        exchange_entry_id: the ``EXCHANGE`` that holds it.
        messages: what was sent; only of an answer from the record.
    """

    text: str
    blocks: Sequence[Mapping[str, Any]]
    finish_reason: str
    exchange_entry_id: str
    messages: Sequence[Message] = ()


class RecordedRun:
    """The steps of an order that are on record.

    Completed calls of models and tools are read back from here instead of being made again.

    Only exchanges that a worker made in the order's own session count: a client of the gateway
    can name any order, and must not become its memory.

    Args:
        ledger: a handle that sees the order's own entries.
        session_id: of the order.
        fresh: nothing is on record; the caller has looked.
    """

    def __init__(self, ledger: LedgerPort, session_id: str, *, fresh: bool = False) -> None:
        self._ledger = ledger
        self._session_id = session_id
        began: list[LedgerEntry] = []
        if not fresh:
            began = list(ledger.query(event_type="WO_EXECUTING", limit=1, with_content=False))
        self.began: LedgerEntry | None = began[0] if began else None
        self.intents: Counter[str] = Counter()
        self.tool_calls: dict[str, LedgerEntry] = {}
        self.requests: dict[tuple[str, str, int], list[LedgerEntry]] = {}
        self.decisions: dict[str, LedgerEntry] = {}
        self.llm_calls = 0
        self.unnoted: list[LedgerEntry] = []
        self._last: dict[str, str] = {}
        if self.began is not None:
            self._read()

    def _read(self) -> None:
        told: set[str] = set()
        for entry in self._ledger.query(event_type="LLM_CALL", with_content=False):
            told.add(entry.metadata["exchange_entry_id"])
            self.llm_calls += 1
        for entry in self._ledger.query(
            event_type="EXCHANGE", session_id=self._session_id, with_content=False
        ):
            if entry.metadata["outcome"] == "success" and "key_id" not in entry.metadata:
                self._last[entry.metadata["contract_id"]] = entry.id
                if entry.id not in told:
                    self.unnoted.append(entry)
        self.llm_calls += len(self.unnoted)
        for entry in self._ledger.query(event_type="TOOL_INTENT", with_content=False):
            self.intents[entry.metadata["idempotency_key"]] += 1
        if self.intents or self.llm_calls:
            for entry in self._ledger.query(event_type="TOOL_CALL"):
                self.tool_calls[entry.metadata["idempotency_key"]] = entry
        for entry in self._ledger.query(event_type="APPROVAL_REQUESTED"):
            asked = entry.metadata
            key = (asked["idempotency_key"], asked["kind"], asked.get("attempt", 0))
            self.requests.setdefault(key, []).append(entry)
        if self.requests:
            for event_type in ("APPROVAL_GRANTED", "APPROVAL_DENIED"):
                for entry in self._ledger.query(event_type=event_type):
                    self.decisions.setdefault(entry.metadata["request_id"], entry)

    def ended(self) -> LedgerEntry | None:
        """The entry with which the order ended, if it did."""
        if self.began is None:
            return None
        for event_type in ("WO_COMPLETED", "WO_FAILED"):
            for entry in self._ledger.query(event_type=event_type, limit=1):
                return entry
        return None

    def last_use(self) -> LedgerEntry | None:
        """The latest tool call that began or waits: its tool and arguments, as they were asked."""
        found = [
            entry
            for event_type in ("TOOL_INTENT", "APPROVAL_REQUESTED")
            for entry in self._ledger.query(event_type=event_type, order="desc", limit=1)
        ]
        return max(found, key=lambda entry: int(entry.id[4:], 16), default=None)

    def last_answer(self, contract_id: str) -> Answer | None:
        """The latest answer of a model under a contract; ``None`` where there is none.

        Raises:
            WorkFailedError: it was erased.
        """
        entry_id = self._last.get(contract_id)
        if entry_id is None:
            return None
        told = self._ledger.read(entry_id).metadata
        blocks = told.get("content_blocks") or ()
        sent = told["prompt"]
        if any(isinstance(value, Erased) for value in _values(sent, told["response"], blocks)):
            raise WorkFailedError(
                "record_erased", f"the order cannot go on: the content of {entry_id} was erased"
            )
        messages = sent if isinstance(sent, list) else [{"role": "user", "content": sent}]
        return Answer(told["response"], blocks, told["finish_reason"], entry_id, messages)


def _values(sent: Any, response: Any, blocks: Any) -> list[Any]:
    listed = sent if isinstance(sent, list) else [sent]
    return [*listed, response, *(blocks if isinstance(blocks, (list, tuple)) else [blocks])]
