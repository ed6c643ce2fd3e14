"""Successes and failures of models, tools and contract versions in a session's turns."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from remit.ledger import LedgerEntry, LedgerPort, is_authentic

_OF_MODEL = frozenset({"TIMEOUT", "RATE_LIMITED", "SERVER_ERROR", "PROVIDER_ERROR", "AUTH_ERROR"})
"""Failures of a model. What a request is refused for, its length or budget, says nothing of it."""

_CUT = frozenset({"length", "content_filter"})
"""How an answer ends that what was asked for made too long, or that a provider withheld."""

_LATEST = 50  # exchanges or tool calls
_ORDERS = 100  # entries of each kind of the orders to which they belong


class Tried(NamedTuple):
    """A use of a model, tool or contract version.

    Attributes:
        entry_id: the entry that records it.
        name: the model, tool or contract version.
        asked_in: the turn; outside of turns, the order.
        failed: True if it failed by its own fault; False if it succeeded; None if the entry does
            not tell, for example after a cancellation.
    """

    entry_id: str
    name: str
    asked_in: str
    failed: bool | None


def failing(
    newest_first: Iterable[Tried],
    after: int,
    same: Callable[[str, str], bool] = operator.eq,
) -> dict[str, list[str]]:
    """Return the entries of consecutive latest failures, keyed by name.

    Failures in the same turn count as one, so that a single message excludes nothing.

    Args:
        newest_first: uses, latest first.
        after: number of turns with a failure, and no success, that is needed.
        same: returns True if a success of the second name is one of the first.
    """
    runs: dict[str, list[Tried]] = {}
    well: set[str] = set()
    for tried in newest_first:
        if tried.failed is False:
            well.add(tried.name)
        elif tried.failed and not any(same(tried.name, one) for one in well):
            runs.setdefault(tried.name, []).append(tried)
    return {
        name: [tried.entry_id for tried in reversed(run)]
        for name, run in runs.items()
        if len({tried.asked_in for tried in run}) >= after
    }


def is_version_of(asked: str, answered: str) -> bool:
    """Return True if ``answered`` is the model ``asked``, or a dated version of it."""
    return answered == asked or re.fullmatch(re.escape(asked) + r"-\d[\d-]*", answered) is not None


class Tries:
    """Uses in a session since its last end, latest first; each kind is read on request.

    Args:
        ledger: a handle that may read entries of supervisor and worker.
        session_id: the session.
        ended: sequence number of its latest ``SESSION_END``; -1 without one.
        own: provider and model of the agent, because an exchange omits a provider that its request
            named.
    """

    def __init__(
        self, ledger: LedgerPort, session_id: str, ended: int, own: tuple[str, str] | None
    ) -> None:
        self._ledger = ledger
        self._session_id = session_id
        self._ended = ended
        self._own = own

    def models(self) -> Iterator[Tried]:
        """Yield exchanges of the session's orders; those of the gateway's clients are excluded."""
        for exchange in self._entries("EXCHANGE", _LATEST):
            data = exchange.metadata
            if data.keys() & {"key_id", "wire"}:
                continue
            model, code = str(data.get("model_id", "")), str(data.get("error_code", ""))
            if code == "TIMEOUT" and "time_to_first_token_ms" in data:
                code = ""  # it was answering: a long answer is the request's doing
            answered = data.get("outcome") == "success"
            if answered and not (data.get("fallback_from") or data.get("decision_id")):
                model = str(data.get("requested_model_id") or model)  # answered by a version's name
            own = self._own[0] if self._own is not None and self._own[1] == model else ""
            provider = data.get("provider_id") or own
            if provider:  # else one that is not
                failed = False if answered else True if code in _OF_MODEL else None
                yield self._tried(exchange, f"{provider}/{model}", failed)

    def tools(self) -> Iterator[Tried]:
        """Yield tool calls that ran; refused calls are excluded."""
        for call in self._entries("TOOL_CALL", _LATEST):
            data = call.metadata
            failed = False if data["status"] == "ok" else True if data.get("fault") else None
            yield self._tried(call, str(data["tool_id"]), failed)

    def contracts(self) -> Iterator[Tried]:
        """Yield orders that completed, by the gate's verdict, or broke their contract's schema.

        Other failures are excluded, and so are answers that were cut or filtered, or that a
        caller's own schema refused.
        """
        verdicts = {gate.submission_id: gate for gate in self._entries("WO_QUALITY_GATE", _ORDERS)}
        ends = self._entries("WO_COMPLETED", _ORDERS)
        ends += [
            entry
            for entry in self._entries("WO_FAILED", _ORDERS)
            if entry.metadata.get("error_code") == "output_schema_invalid"
        ]
        versions = {
            entry.submission_id: str(entry.metadata["contract_version"])
            for entry in self._entries("WO_EXECUTING", _ORDERS)
            if "contract_version" in entry.metadata
        }
        cut = {
            _order_of(exchange)
            for exchange in self._entries("EXCHANGE", _ORDERS)
            if exchange.metadata.get("finish_reason") in _CUT
        }
        for end in sorted(ends, key=_seq, reverse=True):
            order = end.submission_id
            limits = self._limits.get(order)
            if limits is None or order not in versions or "output_schema" in limits:
                continue
            name = f"{limits['prompt_contract_id']}@{versions[order]}"
            if end.event_type == "WO_FAILED":
                yield self._tried(end, name, None if order in cut else True)
            else:
                gate = verdicts.get(order, end)
                rejected = gate.metadata.get("verdict") == "reject"
                yield self._tried(gate, name, rejected and (None if order in cut else True))

    def _tried(self, entry: LedgerEntry, name: str, failed: bool | None) -> Tried:
        return Tried(entry.id, name, self._turns.get(_order_of(entry), entry.id), failed)

    @cached_property
    def _plans(self) -> list[LedgerEntry]:
        return self._entries("WO_PLANNED", _ORDERS)

    @cached_property
    def _turns(self) -> Mapping[str, str]:
        """The turn of each order, keyed by order id."""
        numbers = {plan.submission_id: plan.metadata.get("turn_number") for plan in self._plans}
        return {order: f"turn {number}" for order, number in numbers.items() if number is not None}

    @cached_property
    def _limits(self) -> Mapping[str, Mapping[str, Any]]:
        """The constraints of each order of a turn, keyed by order id."""
        return {
            plan.submission_id: plan.metadata["constraints"]
            for plan in self._plans
            if plan.submission_id in self._turns
        }

    def _entries(self, event_type: str, limit: int) -> list[LedgerEntry]:
        found = self._ledger.query(
            session_id=self._session_id, event_type=event_type, order="desc", limit=limit,
            with_content=False,
        )  # fmt: skip
        return [entry for entry in found if _seq(entry) > self._ended and is_authentic(entry)]


def _order_of(entry: LedgerEntry) -> str:
    """Return the work order of an entry."""
    provenance = entry.metadata.get("provenance") or {}
    return str(entry.metadata.get("work_order_id") or provenance.get("work_order_id") or "")


def _seq(entry: LedgerEntry) -> int:
    return int(entry.id[4:], 16)
