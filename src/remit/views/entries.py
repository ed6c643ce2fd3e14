"""Readers of entries for journeys: place, work order, values as plain data, and sums."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from remit.ledger import Erased, LedgerEntry, LedgerPort
from remit.views.wording import is_number

_NANO = 1_000_000_000


def place_of(entry_id: str) -> int:
    """Return the sequence number in an entry id; -1 if ``entry_id`` is not one.

    The form is not checked strictly: any hexadecimal text gives a number.

    Args:
        entry_id: ``LED-`` and hex digits; other text, and an empty one, give -1.
    """
    try:
        return int(entry_id.removeprefix("LED-"), 16) if entry_id else -1
    except ValueError:
        return -1


def named(metadata: Mapping[str, Any], name: str) -> str:
    """Return a name from the metadata, else from its provenance; empty if missing.

    A value that is no text, such as an erased one, gives an empty text.

    Args:
        metadata: metadata of an entry.
        name: name of the field.
    """
    provenance = metadata.get("provenance")
    value = metadata.get(name)
    if not value and isinstance(provenance, dict):
        value = provenance.get(name)
    return value if isinstance(value, str) else ""


def order_of(entry: LedgerEntry) -> str:
    """Return the id of the work order that an entry belongs to; empty without an order.

    The metadata is read first, then its provenance. A value that is no text counts as none.

    Args:
        entry: the entry.
    """
    return named(entry.metadata, "work_order_id")


def session_of(entry: LedgerEntry) -> str:
    """Return the id of the session that an entry belongs to; empty without a session.

    The metadata is read first, then its provenance. A value that is no text counts as none.

    Args:
        entry: the entry.
    """
    return named(entry.metadata, "session_id")


def begin_of(ledger: LedgerPort, session_id: str) -> tuple[str, str] | None:
    """Return the agent and the time of a session's first entry that is no ``PROMPT_REJECTED``.

    A refused call may be another caller's, so it begins no session. Content is not read.

    Args:
        ledger: contains the session.
        session_id: the session.

    Returns:
        The agent's id and the time, both empty if all entries are refusals; None if the ledger has
        no entry of the session.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    entry: LedgerEntry | None = None
    for entry in ledger.query(session_id=session_id, with_content=False):
        if entry.event_type != "PROMPT_REJECTED":
            return named(entry.metadata, "agent_id"), entry.timestamp
    return None if entry is None else ("", "")


def is_foreign(event_type: str, metadata: Mapping[str, Any]) -> bool:
    """Return True for the refusal of a call because its session or order is another caller's.

    Such an entry names the session, but is no part of it.

    Args:
        event_type: type of the entry.
        metadata: metadata of the entry, with or without content.
    """
    return event_type == "PROMPT_REJECTED" and metadata.get("error_code") == "SESSION_NOT_YOURS"


def plain(value: Any, *, commitments: bool = False, depth: int = 0) -> Any:
    """Return ``value`` as JSON data, with erased content as ``{"$erased": entry id or None}``.

    Tuples become lists; values of other types than these are returned unchanged.

    A recorded key that looks like a marker gets one more ``$`` in front, so that text written by
    a model is never read as erased content.

    Args:
        value: a value of an entry's metadata.
        commitments: True if the entry was read without content and holds commitments instead, which
            are then returned unchanged.
        depth: depth of ``value`` in the metadata; a value more than 200 deep becomes a notice.
    """
    if depth > _DEEPEST:
        return _TOO_DEEP
    depth += 1
    if isinstance(value, Erased):
        return {"$erased": value.erasure_id}
    if isinstance(value, dict):
        if commitments and value.keys() - {"form"} in _COMMITMENTS:
            return dict(value)
        return {
            f"${key}" if isinstance(key, str) and _LIKE_A_MARKER.fullmatch(key) else key: plain(
                item, commitments=commitments, depth=depth
            )
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [plain(item, commitments=commitments, depth=depth) for item in value]
    return value


_LIKE_A_MARKER = re.compile(r"\$+(?:erased|content|messages)")
_DEEPEST = 200
_TOO_DEEP = "(nested too deep to be shown)"
_COMMITMENTS = ({"$content", "bytes"}, {"$messages", "count"})


def between_ms(start: str | None, end: str | None) -> float | None:
    """Return the milliseconds between two timestamps, at least 0; ``None`` if one is missing.

    Args:
        start: ISO 8601.
        end: ISO 8601; an earlier time than ``start`` gives 0.

    Raises:
        ValueError: a text is not ISO 8601.
        TypeError: only one of the texts has an offset.
    """
    if not start or not end:
        return None
    passed = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    return max(0.0, round(passed.total_seconds() * 1000, 3))


def milliseconds(value: Any) -> float | None:
    """Return a recorded duration in milliseconds unchanged; ``None`` if ``value`` is no duration.

    Args:
        value: any value of a record; a number from 0 to 2**53 is a duration.
    """
    return value if is_number(value) and value >= 0 else None


def _count(value: Any) -> int:
    """Return a number of tokens; 0 if an entry not written by a gateway holds anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


class Tally:
    """The sums of calls, tokens and costs of the entries that were added.

    A call without a price makes the cost unknown, never 0. Retries and failed calls count too.
    """

    def __init__(self) -> None:
        self._sums = dict.fromkeys(
            ("llm_calls", "failed_calls", "tool_calls", "input_tokens", "output_tokens",
             "unpriced_calls", "orphaned_calls", "settled_tokens"), 0
        )  # fmt: skip
        self._nano = 0

    def add(self, entry: LedgerEntry) -> None:
        """Count an entry: model calls with tokens and costs, lost calls, charges and tool calls.

        The types are ``EXCHANGE``, ``EXCHANGE_ORPHANED``, ``BUDGET_DEBIT`` (cost only) and
        ``TOOL_CALL``; any other changes nothing. A call without a price counts as unpriced; a lost
        call that was settled at no tokens, and a debit without a cost, cost 0.

        Args:
            entry: the entry; its content is not needed.
        """
        metadata, sums = entry.metadata, self._sums
        if entry.event_type == "EXCHANGE":
            sums["llm_calls"] += 1
            sums["failed_calls"] += metadata.get("outcome") != "success"
            sums["input_tokens"] += _count(metadata.get("input_tokens"))
            sums["output_tokens"] += _count(metadata.get("output_tokens"))
            self._charge(metadata.get("cost_usd"))
        elif entry.event_type == "EXCHANGE_ORPHANED":
            sums["orphaned_calls"] += 1
            settled = _count(metadata.get("settled_tokens"))
            sums["settled_tokens"] += settled
            cost = metadata.get("cost_usd")
            self._charge(0.0 if cost is None and not settled else cost)
        elif entry.event_type == "BUDGET_DEBIT":  # the price of a tool
            self._charge(metadata.get("cost_usd") or 0.0)
        elif entry.event_type == "TOOL_CALL":
            sums["tool_calls"] += 1

    def to_dict(self) -> dict[str, Any]:
        """Return the sums by name.

        ``llm_calls`` counts ``EXCHANGE`` entries, answers from the cache included, ``failed_calls``
        the ones with another outcome than ``success``. ``orphaned_calls``, sent by a process that
        died, are not among them; ``settled_tokens`` are the tokens charged for these.
        ``known_cost_usd`` sums the known costs, prices of tools and orphaned calls included;
        ``cost_usd`` is the same, or ``None`` if a price is unknown. ``unpriced_calls`` counts the
        calls without one. The other keys are ``input_tokens``, ``output_tokens`` and
        ``tool_calls``.
        """
        known = self._nano / _NANO
        cost = None if self._sums["unpriced_calls"] else known
        return {**self._sums, "cost_usd": cost, "known_cost_usd": known}

    def _charge(self, cost_usd: Any) -> None:
        if is_number(cost_usd):
            self._nano += round(cost_usd * _NANO)
        else:
            self._sums["unpriced_calls"] += 1
