"""Sums of a report: calls and costs from the table ``usage``, others by reading each entry.

Money is in nano-dollars.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remit.kernel.canonical import MAX_SAFE_INTEGER
from remit.ledger import LedgerClient, LedgerEntry, parse_entry_id
from remit.ledger.usage import DIMENSIONS, SUMS, USAGE_EVENTS, quarter_of, usage_of
from remit.views.wording import shown_value

CALLS = ("EXCHANGE", "EXCHANGE_ORPHANED")
"""What is a call to a model: with an answer or an error, or of a process that died."""

_NANO = 1e9
_BY = ("agent_id", "contract_id", "model_id", "key_id", "user_id", "certainty")
_FIGURES = ("calls", "failed", "input_tokens", "output_tokens", "nano", "unpriced_calls")
_POINTERS = {f"/metadata/{'cost_certainty' if one == 'certainty' else one}": one for one in _BY}


@dataclass(slots=True)
class Spent:
    """Usage and cost of some calls and of charges outside the gateway.

    Attributes:
        calls: attempts sent to a model.
        failed: attempts without a usable answer.
        input_tokens: input tokens, cached ones included.
        output_tokens: output tokens, reasoning included.
        nano: cost in nano-dollars, whatever its certainty.
        unpriced_calls: calls whose tokens have no known price.
    """

    calls: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    nano: int = 0
    unpriced_calls: int = 0

    def add(self, figures: Sequence[int], times: int = 1) -> None:
        """Add figures to this object, in place.

        Args:
            figures: one number for each attribute, in the order of the attributes.
            times: factor of the figures; -1 subtracts them.

        Raises:
            ValueError: there are more or fewer figures than attributes.
        """
        for name, figure in zip(_FIGURES, figures, strict=True):
            setattr(self, name, getattr(self, name) + times * figure)


@dataclass(slots=True)
class Counted:
    """Number and cost of some entries; summed by :func:`counted`.

    Attributes:
        entries: number of entries.
        nano: cost in nano-dollars, from ``cost_usd`` of their metadata.
    """

    entries: int = 0
    nano: int = 0


def spent_in(
    ledger: LedgerClient, first: int | None, end: int | None, size: int
) -> dict[tuple[str, ...], Spent]:
    """Return the sums of ``usage`` over the first ``size`` entries of a range of time.

    Amounts of later entries are subtracted. Groups whose sums are all 0 are left out.

    Args:
        ledger: the record, which is only read.
        first: first quarter hour since 1970; ``None`` for the beginning.
        end: last quarter hour, exclusive; ``None`` for no end.
        size: number of entries that the report covers.

    Returns:
        The sums, keyed by agent, contract, model, key, user and certainty, in this order.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    limits = [("quarter >= ?", first), ("quarter < ?", end)]
    given = [(clause, value) for clause, value in limits if value is not None]
    by = ", ".join(_BY)
    # total() cannot overflow, whatever providers report; it is exact to nine million dollars.
    add = "sum" if "://" in ledger.location else "total"
    # One statement: the last entry is that of the same moment as the sums.
    rows = ledger.select(
        f"SELECT {by}, {', '.join(f'{add}({name})' for name in _FIGURES)}, "
        f"(SELECT max(seq) FROM entries) FROM usage WHERE "
        f"{' AND '.join(clause for clause, _ in given) or '1 = 1'} GROUP BY {by}",
        [value for _, value in given],
    )
    found: dict[tuple[str, ...], Spent] = {}
    for *row, _ in rows:
        found.setdefault(tuple(row[: len(_BY)]), Spent()).add([int(one) for one in row[len(_BY) :]])
    for entry in _later(ledger, size, rows[0][-1] if rows else -1):
        adds = usage_of(entry.event_type, entry.metadata, entry.metadata)
        quarter = quarter_of(entry.timestamp[:16])
        if adds is None or quarter < (first or quarter) or quarter >= (end or quarter + 1):
            continue
        values = dict(zip((*DIMENSIONS, *SUMS), adds, strict=True))
        place = tuple(values[name] for name in _BY)
        found.setdefault(place, Spent()).add([values[name] for name in _FIGURES], -1)
    return {place: one for place, one in found.items() if one != Spent()}


def _later(ledger: LedgerClient, size: int, last: int) -> Iterable[LedgerEntry]:
    """Yield usage entries from ``size`` to ``last``, appended while the report began."""
    if last < size:
        return
    for entry in ledger.query(after=size - 1, with_content=False):
        if (parse_entry_id(entry.id) or 0) > last:
            return
        if entry.event_type in USAGE_EVENTS:
            yield entry


def spent_by(
    spent: Mapping[tuple[str, ...], Spent], pointers: Sequence[str]
) -> dict[tuple[str, ...], Spent]:
    """Return the sums grouped by fewer names; the given sums are not changed.

    Args:
        spent: the result of :func:`spent_in`.
        pointers: JSON pointers of the names to group by, such as ``/metadata/agent_id``.

    Returns:
        The sums, keyed by the values at the pointers in the given order. Without pointers the key
        is ``()``.

    Raises:
        KeyError: no sums are grouped by a pointer.
    """
    places = [_BY.index(_POINTERS[pointer]) for pointer in pointers]
    found: dict[tuple[str, ...], Spent] = {}
    for names, one in spent.items():
        place = tuple(names[number] for number in places)
        found.setdefault(place, Spent()).add([getattr(one, name) for name in _FIGURES])
    return found


def counted(
    entries: Iterable[LedgerEntry], pointers: Sequence[str]
) -> dict[tuple[str, ...], Counted]:
    """Return number and cost of entries, grouped by values of their records.

    A cost above the exact range is capped; a missing one counts as 0.

    Args:
        entries: the entries, which need no content.
        pointers: JSON pointers into ``event_type`` and ``metadata`` of each entry.

    Returns:
        The sums, keyed by the values at the pointers as text; a missing value is empty.

    Raises:
        NotCanonicalError: a value that would be a key is not JSON.
    """
    found: dict[tuple[str, ...], Counted] = {}
    for entry in entries:
        record = {"event_type": entry.event_type, "metadata": entry.metadata}
        place = tuple(shown_value(at(record, pointer)) for pointer in pointers)
        one = found.setdefault(place, Counted())
        one.entries += 1
        cost = entry.metadata.get("cost_usd")
        if isinstance(cost, (int, float)) and not isinstance(cost, bool):
            one.nano += round(min(cost * _NANO, MAX_SAFE_INTEGER))
    return found


def at(record: Mapping[str, Any], pointer: str) -> Any:
    """Return the value at a JSON pointer (RFC 6901, no escapes); ``None`` if there is none.

    Lists are not entered.

    Args:
        record: the record; a pointer into a value that is no object gives ``None``.
        pointer: the pointer; an empty one gives the record.
    """
    value: Any = record
    for name in pointer.split("/")[1:]:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
