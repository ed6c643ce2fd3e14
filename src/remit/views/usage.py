"""Usage and cost of calls by time, owner, model and certainty, read from the table ``usage``.

Queries sum rows of the table; they read no ledger entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from remit.kernel.budget_values import usd_of
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient
from remit.ledger.usage import QUARTER_S
from remit.views.periods import PERIODS, Period, periods_of, quarters_of, time_of

_OF_KEY = "CASE WHEN u.{0} <> '' THEN u.{0} ELSE coalesce(k.{0}, '') END"

SELECT_NAMES = {
    "key": "u.key_id",
    "user": _OF_KEY.format("user_id"),
    "team": _OF_KEY.format("team_id"),
    "organisation": _OF_KEY.format("organisation_id"),
    "agent": "u.agent_id",
    "session": "u.session_id",
    "contract": "u.contract_id",
    "provider": "u.provider_id",
    "model": "u.model_id",
    "certainty": "u.certainty",
}
"""By name, its SQL, of ``usage AS u LEFT JOIN usage_keys AS k``: a key's owners never change."""

BY = (*PERIODS, *SELECT_NAMES)
"""The names by which usage can be grouped."""

_COUNTS = (
    "calls", "failed", "fallbacks", "input_tokens", "output_tokens", "cached_input_tokens",
    "reasoning_tokens", "unpriced_calls",
)  # fmt: skip
_CERTAINTIES = ("measured", "estimated", "upper_bound")
_SUMS = [f"{{0}}(u.{name})" for name in _COUNTS] + [
    f"{{0}}(CASE WHEN u.certainty = '{name}' THEN u.nano END)" for name in _CERTAINTIES
]
_DEAREST = ("{0}(u.nano) DESC", "{0}(u.input_tokens) DESC")
_PERIODS_PER_QUERY = 400


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Usage and cost of a group of calls. Costs are in nano-dollars, separated by certainty.

    Attributes:
        names: the group's values of the requested names; a value is empty if the record has none. A
            period is given by its start: a month, a day (the Monday of a week), or an hour with its
            offset.
        key_name: name of the key, if rows are grouped by key; else empty.
        calls: attempts sent to a model, and answers from the cache.
        failed: attempts whose outcome is not ``success``.
        fallbacks: calls answered by another model than the first choice.
        input_tokens: input tokens, cached ones included.
        output_tokens: output tokens, reasoning included.
        cached_input_tokens: the cached part of ``input_tokens``.
        reasoning_tokens: the reasoning part of ``output_tokens``.
        unpriced_calls: calls whose tokens have no known price; no cost includes them.
        measured_nano: cost of usage that providers reported.
        estimated_nano: cost of usage counted from received content.
        upper_bound_nano: the highest possible cost of calls with unknown usage.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    key_name: str = ""
    calls: int = 0
    failed: int = 0
    fallbacks: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0
    unpriced_calls: int = 0
    measured_nano: int = 0
    estimated_nano: int = 0
    upper_bound_nano: int = 0

    @property
    def nano(self) -> int:
        """Sum of all costs in nano-dollars, whatever their certainty."""
        return self.measured_nano + self.estimated_nano + self.upper_bound_nano

    @property
    def exact(self) -> bool:
        """True if all cost was measured and every call has a price."""
        return not (self.estimated_nano or self.upper_bound_nano or self.unpriced_calls)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a flat dictionary of JSON data.

        The keys are the names of the group, as in ``names``; ``key_name`` if rows are grouped by
        key; the counts, called as the attributes (``calls``, ``input_tokens``, …); and the costs
        ``measured_usd``, ``estimated_usd`` and ``upper_bound_usd``, floats in US dollars.
        """
        money = {f"{name}_usd": usd_of(getattr(self, f"{name}_nano")) for name in _CERTAINTIES}
        named = {"key_name": self.key_name} if "key" in self.names else {}
        return {**self.names, **named, **{one: getattr(self, one) for one in _COUNTS}, **money}


@dataclass(frozen=True, slots=True)
class Usage:
    """The result of a usage query.

    Attributes:
        since: start of the range, at a quarter hour.
        until: end of the range, exclusive, at a quarter hour.
        rows: rows in the requested order.
        more: cursor of the next page; ``None`` on the last page, or if the order has no cursor.
    """

    since: datetime
    until: datetime
    rows: list[UsageRow]
    more: tuple[str, ...] | None


def read_usage(
    ledger: LedgerClient,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    by: Sequence[str] = (),
    where: Mapping[str, str | Sequence[str]] | None = None,
    time_zone: str = "UTC",
    order: Literal["cost", "name"] = "cost",
    after: Sequence[str] | None = None,
    limit: int | None = None,
) -> Usage:
    """Return usage and cost of calls, grouped by names; a single row if ``by`` is empty.

    Groups without usage have no row. Periods come first in the order, oldest first. Entries are not
    read.

    Args:
        ledger: the ledger of the calls.
        since: aware start time, rounded down to a quarter hour; ``None`` for the beginning.
        until: aware end time, exclusive, rounded up to a quarter hour; ``None`` for no end.
        by: names of :data:`BY`; at most one of hour, day, week and month.
        where: by name, the required value, or values of which a call has one (none match no call);
            periods are not allowed.
        time_zone: zone whose midnight starts days, weeks (on Monday) and months.
        order: order within a period: ``cost``, highest first, or ``name``.
        after: with order ``name``, the cursor ``more`` of the page before; refused with another
            order, and without ``by``.
        limit: maximum number of rows, at least 1; ``None`` for all. With order ``cost``, rows of
            the latest periods are kept.

    Raises:
        InvalidInputError: a name, the zone or the cursor is unknown, a name is repeated, two kinds
            of periods are requested, or there are more than 20,000 periods.
        LedgerError: the ledger cannot be read.
    """
    query = _Query(tuple(by), dict(where or {}), order, None if limit is None else limit + 1)
    first, end = quarters_between(ledger, since, until)
    periods = [Period(first, end, "")]
    if query.period:
        periods = list(periods_of(query.period, time_zone, first, end))
    if after is not None:
        query.go_on(after)
    starts = range(0, len(periods), _PERIODS_PER_QUERY)
    for start in reversed(starts) if query.is_latest_first else starts:
        query.read(ledger, periods[start : start + _PERIODS_PER_QUERY])
    rows, more = query.rows, None
    if limit is not None and len(rows) > limit:
        rows, more = rows[:limit], query.places[limit - 1] if order == "name" else None
    if query.is_latest_first:
        placed = sorted(zip(query.places, rows, strict=False), key=lambda one: int(one[0][0]))
        rows = [row for _, row in placed]
    return Usage(time_of(first), time_of(end), rows, more)


class _Query:
    """A usage query, run over some periods at a time.

    Attributes:
        period: the kind of period to group by; empty without one.
        is_latest_first: True if the latest periods are read first, since a limit keeps these.
        rows: rows read so far.
        places: the cursor of each row.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        where: dict[str, str | Sequence[str]],
        order: str,
        most: int | None,
    ) -> None:
        for name in (*names, *where):
            if name not in BY or (name in where and name in PERIODS):
                raise InvalidInputError(
                    f"Cannot group by {name!r}.", next_step=f"Choose from {', '.join(BY)}."
                )
        kinds = [name for name in names if name in PERIODS]
        if len(kinds) > 1 or len({*names}) < len(names):
            raise InvalidInputError("Cannot group by two periods, or by one name twice.")
        self.period = kinds[0] if kinds else ""
        self.rows: list[UsageRow] = []
        self.places: list[tuple[str, ...]] = []
        self._names = names
        self._most = most
        self._columns = [name for name in names if name not in PERIODS]
        self._group = ["w.column1"] * len(kinds) + [SELECT_NAMES[name] for name in self._columns]
        dearest = _DEAREST if order == "cost" else ()
        self.is_latest_first = bool(kinds and dearest) and most is not None
        self._order = [*self._group[: len(kinds)], *dearest, *self._group[len(kinds) :]]
        if self.is_latest_first:
            self._order[0] += " DESC"
        self._by_name = order == "name"
        wanted = {name: [one] if isinstance(one, str) else one for name, one in where.items()}
        self._filter = "".join(
            f" AND {SELECT_NAMES[name]} IN ({', '.join('?' * len(values)) or 'NULL'})"
            for name, values in wanted.items()
        )
        self._values = [value for values in wanted.values() for value in values]

    def go_on(self, after: Sequence[str]) -> None:
        """Skip the rows of earlier pages.

        Raises:
            InvalidInputError: ``after`` is not a cursor of this query.
        """
        marks = ", ".join("?" * len(self._columns))
        rest = f"({', '.join(self._group[bool(self.period) :])}) > ({marks})"
        known = self._by_name and len(after) == len(self._group) > 0
        if self.period and known:
            try:
                first = int(after[0])
            except ValueError:
                known = False
            else:
                same = f" OR (w.column1 = {first} AND {rest})" if self._columns else ""
                rest = f"w.column1 > {first}{same}"
        if not known:
            raise InvalidInputError(
                "The cursor is unknown.", next_step="Start again without a cursor."
            )
        self._filter += f" AND ({rest})"
        self._values += after[bool(self.period) :]

    def read(self, ledger: LedgerClient, periods: Sequence[Period]) -> None:
        """Add the rows of some periods, up to the most that are wanted."""
        if self._most is not None and len(self.rows) >= self._most:
            return
        # What does not overflow, whatever providers reported; exact to nine million dollars.
        add = "sum" if "://" in ledger.location else "total"
        source = "usage AS u"
        within = f"u.quarter >= {periods[0].first} AND u.quarter < {periods[-1].end}"
        if self.period:
            windows = ", ".join(f"({one.first}, {one.end})" for one in periods)
            source = f"(VALUES {windows}) AS w JOIN {source}"
            source += " ON u.quarter >= w.column1 AND u.quarter < w.column2"
        name = "max(coalesce(k.name, ''))" if "key" in self._columns else "''"
        group = ", ".join(self._group)
        sql = (
            f"SELECT {', '.join([*self._group, name, *_SUMS]).format(add)} "
            f"FROM {source} LEFT JOIN usage_keys AS k ON k.key_id = u.key_id "
            f"WHERE {within}{self._filter}"
        )
        if group:
            sql += f" GROUP BY {group} ORDER BY {', '.join(self._order).format(add)}"
        if self._most is not None:
            sql += f" LIMIT {self._most - len(self.rows)}"
        named = {one.first: one.name for one in periods}
        for row in ledger.select(sql, self._values):
            place, (key_name, *sums) = row[: len(self._group)], row[len(self._group) :]
            values = dict(zip(self._columns, place[bool(self.period) :], strict=True))
            if self.period:
                values[self.period] = named[place[0]]
            counts = [int(one or 0) for one in sums]
            names = {one: values[one] for one in self._names}
            self.rows.append(UsageRow(names, key_name or "", *counts))
            self.places.append(tuple(map(str, place)))


def latest_quarters(ledger: LedgerClient, first: int, end: int, most: int) -> int:
    """Return the start of the latest quarter hours that together hold ``most`` rows of usage.

    That quarter hour holds the ``most``-th latest row, so there may be more rows from it on.

    Args:
        ledger: the ledger, whose table ``usage`` is read.
        first: first quarter hour since 1970.
        end: last quarter hour, exclusive.
        most: number of rows, at least 1.

    Returns:
        A quarter hour since 1970; ``first`` if the range holds fewer rows.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    rows = ledger.select(
        "SELECT quarter FROM usage WHERE quarter >= ? AND quarter < ? "
        "ORDER BY quarter DESC LIMIT 1 OFFSET ?",
        (first, end, most - 1),
    )
    return int(rows[0][0]) if rows else first


def quarters_between(
    ledger: LedgerClient, since: datetime | None, until: datetime | None
) -> tuple[int, int]:
    """Return the first quarter hour of a query since 1970, and the end, exclusive.

    The range may be empty; its end is never before its start.

    Args:
        ledger: the ledger, whose table ``usage`` bounds an open range.
        since: aware start time, rounded down; ``None`` for the first quarter hour with usage, or
            the present one without usage.
        until: aware end time, rounded up; ``None`` for the end of the present quarter hour, or of
            the last with usage if that is later.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    # Each by itself: of both at once SQLite reads all rows.
    [(least, greatest)] = ledger.select(
        "SELECT (SELECT min(quarter) FROM usage), (SELECT max(quarter) FROM usage)"
    )
    now = int(datetime.now(UTC).timestamp()) // QUARTER_S
    wanted, before = quarters_of(since, until)
    first = next((one for one in (wanted, least) if one is not None), now)
    end = max(now, now if greatest is None else greatest) + 1 if before is None else before
    return first, max(first, end)
