"""The filter of a query of entries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypedDict

from remit.kernel.errors import InvalidInputError
from remit.ledger.clock import time_text
from remit.ledger.entry import parse_entry_id
from remit.ledger.record import require_plain_text

_GREATEST = (1 << 63) - 1  # a 64-bit integer column


@dataclass(frozen=True, slots=True)
class Filter:
    """A query that is not checked: equalities by column, bounds in time, and a cursor.

    Attributes:
        equals: the value of each compared column.
        since: first instant, inclusive, as text in the form of timestamps; ``None`` for no bound.
        until: last instant, exclusive, in the same form.
        first: a number below which no entry is at or after ``since``. See :meth:`Store.bounded`.
        last: a number above which no entry is before ``until``.
        after: sequence number to continue after; ``None`` for the beginning.
        descending: True for the newest first.
        text: the store's ``search_expression`` of the requested words.
        text_limit: number of the latest contents with the words to search, and of their entries;
            ``None`` for all.
    """

    equals: Mapping[str, str] = field(default_factory=dict)
    since: str | None = None
    until: str | None = None
    first: int | None = None
    last: int | None = None
    after: int | None = None
    descending: bool = False
    text: str | None = None
    text_limit: int | None = None


class Equalities(TypedDict, total=False):
    """The columns that a query can compare; ``None`` compares nothing.

    Attributes:
        event_type: kind of the entries.
        submission_id: contract, session or work order that the entries belong to.
        session_id: the session.
        work_order_id: the work order.
        agent_id: the agent.
        tier: ``hot``, ``ho2`` or ``ho1``.
        framework_id: the framework.
        contract_id: the contract.
        model_id: the model.
        outcome: outcome of the exchange: ``success``, ``error`` or ``timeout``.
    """

    event_type: str | None
    submission_id: str | None
    session_id: str | None
    work_order_id: str | None
    agent_id: str | None
    tier: str | None
    framework_id: str | None
    contract_id: str | None
    model_id: str | None
    outcome: str | None


def build_filter(
    equals: Equalities,
    since: str | datetime | None,
    until: str | datetime | None,
    after: str | int | None,
    limit: int | None,
    order: str,
) -> Filter:
    """Return the filter of a caller's arguments, which are checked.

    Values and cursor need not occur in the ledger. A number below -1 or above 64 bits is cut.

    Args:
        equals: the value of each compared column; ``None`` compares nothing.
        since: first instant, inclusive, as for :func:`instant`; ``None`` for no bound.
        until: last instant, exclusive.
        after: entry id or sequence number to continue after, as for :func:`to_seq`.
        limit: only checked; ``None`` for no limit.
        order: ``asc``, or ``desc`` for the newest first.

    Raises:
        TypeError: there is no such column.
        InvalidInputError: ``order`` is another text, ``limit`` is no count, a value is not a text
            that can be stored, or a time or the cursor cannot be understood.
    """
    if unknown := equals.keys() - Equalities.__annotations__.keys():
        raise TypeError(f"query() got an unexpected keyword argument {min(unknown)!r}")
    if order not in ("asc", "desc"):
        raise InvalidInputError(f"order is {order!r}; use 'asc' or 'desc'.")
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidInputError("limit is negative or no integer.")
    for name, value in equals.items():
        if value is not None:
            require_plain_text(name, value)
    return Filter(
        equals={name: str(value) for name, value in equals.items() if value is not None},
        since=instant(since),
        until=instant(until),
        after=to_seq(after),
        descending=order == "desc",
    )


def to_seq(value: str | int | None) -> int | None:
    """Return the sequence number of a cursor; ``None`` for ``None``.

    A number outside the range of the column becomes its nearest bound: -1, or the greatest.

    Args:
        value: an entry id (``LED-…``), a sequence number, or ``None``.

    Raises:
        InvalidInputError: a text is not an entry id.
    """
    if type(value) is int:
        return max(-1, min(value, _GREATEST))
    if value is None:
        return None
    seq = parse_entry_id(value)
    if seq is None:
        raise InvalidInputError(
            f"The cursor {value!r} is not an entry id.", next_step="Ids look like LED-0000002a."
        )
    return min(seq, _GREATEST)


def instant(value: str | datetime | None) -> str | None:
    """Return a time in the form of entries (UTC, microseconds, ``Z``); ``None`` for ``None``.

    Digits beyond microseconds are dropped.

    Args:
        value: ISO 8601 or a ``datetime``; without a zone, UTC.

    Raises:
        InvalidInputError: the value is not a time, or is out of range.
    """
    if value is None:
        return None
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{value!r} is not a time.", next_step="Use ISO 8601: 2026-01-31T12:00:00Z."
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return time_text(moment)
    except OverflowError as error:
        raise InvalidInputError(f"{value!r} is out of range.") from error
