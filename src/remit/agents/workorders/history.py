"""The recorded steps of one work order: calls of models and tools, approvals, usage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

from remit.agents.workorders.order import OrderRecordError
from remit.agents.workorders.tool_effects import Effect, effect_of
from remit.agents.workorders.usage import Usage
from remit.kernel.exchange import Message
from remit.ledger import Erased, LedgerEntry, LedgerPort, is_authentic


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer, from a provider or from the ledger.

    Immutable.

    Attributes:
        text: the text of the answer.
        blocks: content blocks, tool calls included.
        finish_reason: the provider's reason to stop.
        exchange_entry_id: id of the ``EXCHANGE`` that contains the answer.
        messages: the messages that were sent; empty unless the answer comes from the ledger.
    """

    text: str
    blocks: Sequence[Mapping[str, Any]]
    finish_reason: str
    exchange_entry_id: str
    messages: Sequence[Message] = ()


class OrderHistory:
    """The recorded steps of an order; most are read from the ledger once, on first use.

    The worker reads completed calls of models and tools from here instead of repeating them. As
    answers, only exchanges of a worker in the order's own session count, because a client of the
    gateway can name any order and must not become its memory; exchanges made over HTTP are ignored.
    Every property and method raises LedgerError if the ledger cannot be read. ``untouched``,
    :meth:`last_tool_use`, :meth:`last_intents`, :meth:`effects` and :meth:`usage` read at each use;
    of all else, later entries are not seen.

    Args:
        ledger: a handle that may read the order's ``ho1`` entries.
        wo_id: the order.
        session_id: the session of the order.
        fresh: True if the caller knows that the order has no entries; then nothing is read.

    Attributes:
        began: the first ``WO_EXECUTING``; None if the order has not begun, and then everything but
            :meth:`usage` is empty.

    Raises:
        LedgerError: the ledger cannot be read.
    """

    def __init__(
        self, ledger: LedgerPort, wo_id: str, session_id: str, *, fresh: bool = False
    ) -> None:
        self._ledger = ledger
        self.wo_id = wo_id
        self._session_id = session_id
        self.began: LedgerEntry | None = None
        if not fresh:
            self.began = next(self._entries("WO_EXECUTING", limit=1, with_content=False), None)
        if self.began is None:  # Every property of an order without a step is empty.
            vars(self).update(
                ended=None, intents=Counter(), _begun=[], begun_tools=Counter(), sub_sessions=set(),
                paid=[], tool_calls={}, requests=[], decisions={}, llm_calls=0, unnoted=[],
                _noted_exchanges=[], _exchanges=[], asked_about={},
            )  # fmt: skip

    def load(self) -> OrderHistory:
        """Read intents, calls, requests, decisions and exchanges now; return the history itself.

        Afterwards these properties cost no query and show no later entry. Nothing is read for an
        order that has not begun.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if self.began is not None:
            _ = self.intents, self.tool_calls, self.requests, self.decisions, self.llm_calls
        return self

    @cached_property
    def ended(self) -> LedgerEntry | None:
        """The ``WO_COMPLETED`` or ``WO_FAILED`` entry; None if the order has not ended.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        for event_type in ("WO_COMPLETED", "WO_FAILED"):
            for entry in self._query(event_type, limit=1):
                return entry
        return None

    @cached_property
    def intents(self) -> Counter[str]:
        """Number of times each tool call began, keyed by idempotency key. Read once.

        A call that ran again after a crash counts each time.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return Counter(entry.metadata["idempotency_key"] for entry in self._begun)

    @cached_property
    def _begun(self) -> list[LedgerEntry]:
        return list(self._query("TOOL_INTENT", with_content=False))

    @cached_property
    def begun_tools(self) -> Counter[str]:
        """Number of distinct calls that began, keyed by tool id. Read once.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        known = {entry.metadata["idempotency_key"]: entry for entry in self._begun}
        return Counter(entry.metadata["tool_id"] for entry in known.values())

    @cached_property
    def paid(self) -> list[float]:
        """Prices of the tool calls that began, in US dollars; free calls are left out."""
        return [price for e in self._begun if (price := e.metadata.get("price_usd"))]

    @cached_property
    def sub_sessions(self) -> set[str]:
        """The sessions of sub-agents that the order started."""
        names = (entry.metadata.get("sub_session_id") for entry in self._begun)
        return {str(name) for name in names if name}

    @property
    def open_sub_agents(self) -> dict[str, str]:
        """Tool ids of calls of sub-agents that began and have no ``TOOL_CALL``, keyed by
        idempotency key.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return {
            entry.metadata["idempotency_key"]: entry.metadata["tool_id"]
            for entry in self._begun
            if entry.metadata.get("sub_session_id")
            and entry.metadata["idempotency_key"] not in self.tool_calls
        }

    @cached_property
    def tool_calls(self) -> dict[str, LedgerEntry]:
        """``TOOL_CALL`` entries with content, keyed by idempotency key; refused calls included.

        Read once. Of several entries with one key, the last counts.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        found = self._query("TOOL_CALL")
        return {entry.metadata["idempotency_key"]: entry for entry in found}

    @cached_property
    def requests(self) -> list[LedgerEntry]:
        """The ``APPROVAL_REQUESTED`` entries of the order, in ledger order."""
        return list(self._query("APPROVAL_REQUESTED"))

    @cached_property
    def decisions(self) -> dict[str, LedgerEntry]:
        """The first authentic decision about each request of the order, keyed by the request's id.

        A grant counts before a denial. Requests without a decision are absent; decisions of writers
        without permission are ignored.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        found: dict[str, LedgerEntry] = {}
        if self.requests:
            for event_type in ("APPROVAL_GRANTED", "APPROVAL_DENIED"):
                for entry in filter(is_authentic, self._query(event_type)):
                    found.setdefault(entry.submission_id, entry)
        return found

    def is_granted(self, request_id: str) -> bool:
        """Return True if a request was granted; False if it is denied or undecided."""
        decision = self.decisions.get(request_id)
        return decision is not None and decision.event_type == "APPROVAL_GRANTED"

    def edit(self, key: str) -> LedgerEntry | None:
        """Return the grant with changed arguments for a call; None if there is none.

        The first such grant counts. Erased arguments count as unchanged.

        Args:
            key: idempotency key of the call.

        Raises:
            LedgerError: the decisions cannot be read.
        """
        if not self.decisions:
            return None
        grants = (
            self.decisions[request.id]
            for request in self.requests
            if request.metadata["idempotency_key"] == key and request.id in self.decisions
        )
        edits = (one for one in grants if isinstance(one.metadata.get("arguments"), dict))
        return next(edits, None)

    @property
    def undecided(self) -> list[LedgerEntry]:
        """Requests without a decision, of calls without a ``TOOL_CALL``. Oldest first.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return [
            entry
            for entry in self.requests
            if entry.id not in self.decisions
            and entry.metadata["idempotency_key"] not in self.tool_calls
        ]

    @property
    def unused_grants(self) -> list[LedgerEntry]:
        """The ``APPROVAL_GRANTED`` entries of calls that neither began nor were refused, in the
        order of their requests.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return [
            self.decisions[entry.id]
            for entry in self.requests
            if self.is_granted(entry.id)
            and entry.metadata["idempotency_key"] not in {*self.intents, *self.tool_calls}
        ]

    @property
    def untouched(self) -> bool:
        """True if nobody has decided a request since a worker last took up the order.

        False if the order has not begun.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        taken_up = max(
            (entry.seq for entry in
             self._query("WO_EXECUTING", order="desc", limit=1, with_content=False)),
            default=-1,
        )  # fmt: skip
        decided = max((entry.seq for entry in self.decisions.values()), default=-1)
        return decided < taken_up

    @cached_property
    def llm_calls(self) -> int:
        """Number of completed calls of models."""
        return len(self._noted_exchanges) + len(self.unnoted)

    @cached_property
    def unnoted(self) -> list[LedgerEntry]:
        """Successful exchanges without an ``LLM_CALL`` entry, because the worker died before.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return [entry for entry in self._exchanges if entry.id not in self._noted_exchanges]

    @cached_property
    def _noted_exchanges(self) -> list[str]:
        found = self._query("LLM_CALL", with_content=False)
        return [entry.metadata["exchange_entry_id"] for entry in found]

    @cached_property
    def _exchanges(self) -> list[LedgerEntry]:
        return [
            entry
            for entry in self._query("EXCHANGE", session_id=self._session_id, with_content=False)
            if entry.metadata["outcome"] == "success"
            and not entry.metadata.keys() & {"key_id", "wire"}
        ]

    def last_answer(self, contract_id: str) -> Answer | None:
        """Return the latest answer under a contract, with its messages; None if there is none.

        Failed exchanges and calls of gateway clients do not count. Exchanges are read once.

        Args:
            contract_id: the contract, in any version.

        Raises:
            OrderRecordError: the content of that answer, or of its messages, was erased.
            LedgerError: the ledger cannot be read.
        """
        if not self._exchanges:
            return None
        under = [e.id for e in self._exchanges if e.metadata["contract_id"] == contract_id]
        if not under:
            return None
        entry_id = under[-1]
        data = self._ledger.read(entry_id).metadata
        blocks = data.get("content_blocks") or ()
        sent = data["prompt"]
        contents = [*_listed(sent), data["response"], *_listed(blocks)]
        if any(isinstance(value, Erased) for value in contents):
            raise OrderRecordError(
                f"The order cannot continue: the content of {entry_id} was erased."
            )
        messages = sent if isinstance(sent, list) else [{"role": "user", "content": sent}]
        return Answer(data["response"], blocks, data["finish_reason"], entry_id, messages)

    def last_tool_use(self) -> LedgerEntry | None:
        """Return the latest ``TOOL_INTENT`` or ``APPROVAL_REQUESTED``; None if there is none.

        The entry has its content.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        found = [
            entry
            for event_type in ("TOOL_INTENT", "APPROVAL_REQUESTED")
            for entry in self._query(event_type, order="desc", limit=1)
        ]
        return max(found, key=attrgetter("seq"), default=None)

    def last_intents(self) -> dict[str, LedgerEntry]:
        """Return the latest ``TOOL_INTENT`` of each call, keyed by idempotency key."""
        return {entry.metadata["idempotency_key"]: entry for entry in self._query("TOOL_INTENT")}

    def is_unknown(self, key: str) -> bool:
        """Return True if a call has no end, or ended with ``unknown`` or ``timeout``.

        Args:
            key: idempotency key of a call that began.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        end = self.tool_calls.get(key)
        return end is None or end.metadata["status"] in ("unknown", "timeout")

    @cached_property
    def asked_about(self) -> dict[str, LedgerEntry]:
        """Requests about unknown outcomes, decided or not, keyed by idempotency key.

        Of several requests about one call, the last counts. Read once.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return {
            request.metadata["idempotency_key"]: request
            for request in self.requests
            if request.metadata["kind"] == "unknown_outcome"
        }

    def effects(self) -> dict[str, Effect]:
        """Return the effect of each call that began, keyed by idempotency key, oldest first.

        The effects contain no decision, and ``repeatable`` is False. Calls that sub-agents made in
        their own sessions are not included.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return {
            key: effect_of(
                start, self.intents[key], self.tool_calls.get(key), self.asked_about.get(key)
            )
            for key, start in self.last_intents().items()
        }

    def tool_results(self) -> list[dict[str, Any]]:
        """Return the result of each call that began, failures included, refused calls left out.

        Returns:
            Objects with ``tool_id``, ``status``, ``arguments``, ``output`` and ``error``, oldest
            first. The status of a call without an end is ``unknown``. Erased values are None, or
            empty for ``error``.

        Raises:
            LedgerError: the calls cannot be read.
        """
        found = []
        for start in {entry.metadata["idempotency_key"]: entry for entry in self._begun}.values():
            end = self.tool_calls.get(start.metadata["idempotency_key"])
            data = end.metadata if end is not None else {
                **start.metadata, "status": "unknown", "result": None,
                "tool_error": "it began, and it is unknown whether it took effect",
            }  # fmt: skip
            error = data["tool_error"]
            arguments = data["arguments"]
            found.append(
                {
                    "tool_id": data["tool_id"],
                    "status": data["status"],
                    "arguments": None if isinstance(arguments, Erased) else arguments,
                    "output": None if isinstance(data["result"], Erased) else data["result"],
                    "error": "" if isinstance(error, Erased) else error,
                }
            )
        return found

    def usage(self) -> Usage:
        """Return the sum of all exchanges of the order so far, retries and failures included."""
        return Usage(self._entries("EXCHANGE", with_content=False))

    def _query(self, event_type: str, **which: Any) -> Iterable[LedgerEntry]:
        return () if self.began is None else self._entries(event_type, **which)

    def _entries(self, event_type: str, **which: Any) -> Any:
        return self._ledger.query(work_order_id=self.wo_id, event_type=event_type, **which)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]
