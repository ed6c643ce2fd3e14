"""How models, tools and contract versions did in a session's turns, by its record."""

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
    """One use of a thing, and whether it failed by its own doing.

    Attributes:
        entry_id: the entry that says so.
        name: of the thing.
        asked_in: the turn; what stands in its place outside of turns.
        failed: ``None`` where it says nothing of the thing, as a cancellation does.
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
    """By name the entries of the latest failures, in at least ``after`` turns without a success.

    Failures of one turn count once: one message, however bad, sets nothing aside.

    Args:
        newest_first: what was tried.
        after: in how many turns.
        same: whether what is called the first name succeeded as the second.
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
    """Whether a model answers by its own name or, as a route's may, by a dated version's."""
    return answered == asked or re.fullmatch(re.escape(asked) + r"-\d[\d-]*", answered) is not None


class Tries:
    """What a session tried since it last ended, the latest first. Each kind is read when asked for.

    Args:
        ledger: a handle that sees the entries of supervisor and worker.
        session_id: of the session.
        ended: sequence number of its latest ``SESSION_END``; -1 without one.
        own: provider and model of the agent; an exchange does not name a provider that its request
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
        """Exchanges of the session's orders; those of a gateway's client are not its own."""
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
        """Calls of tools that ran; a refusal says nothing of the tool."""
        for call in self._entries("TOOL_CALL", _LATEST):
            data = call.metadata
            failed = False if data["status"] == "ok" else True if data.get("fault") else None
            yield self._tried(call, str(data["tool_id"]), failed)

    def contracts(self) -> Iterator[Tried]:
        """Orders that were completed, as the quality gate saw them, or failed a contract's schema.

        Other failures say nothing of the contract, nor do answers that were cut or filtered, or
        that a caller's own schema refused.
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
        """The turn of each order."""
        numbers = {plan.submission_id: plan.metadata.get("turn_number") for plan in self._plans}
        return {order: f"turn {number}" for order, number in numbers.items() if number is not None}

    @cached_property
    def _limits(self) -> Mapping[str, Mapping[str, Any]]:
        """The constraints of each order of a turn."""
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
    """The work order that an entry names, as exchanges or as others do."""
    provenance = entry.metadata.get("provenance") or {}
    return str(entry.metadata.get("work_order_id") or provenance.get("work_order_id") or "")


def _seq(entry: LedgerEntry) -> int:
    return int(entry.id[4:], 16)
