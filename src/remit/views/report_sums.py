"""What calls used and cost, added up from entries: money in nano-dollars, exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remit.ledger import LedgerClient, LedgerEntry
from remit.views.wording import shown_value

__all__ = ["CALLS", "Sum", "at", "calls_between", "sums_of"]

CALLS = ("EXCHANGE", "EXCHANGE_ORPHANED")
"""What is a call to a model: with an answer or an error, or of a process that died."""

_NANO = 1_000_000_000

Groups = dict[tuple[str, ...], "Sum"]
"""Sums by the values of the pointers that were grouped by."""


@dataclass(slots=True)
class Sum:
    """Entries added up.

    Attributes:
        entries: how many.
        failed: those of them that are calls without a good answer.
        input_tokens: of calls.
        output_tokens: of calls.
        nano: their cost, nano-dollars.
        uncosted: those of them that have no cost on record.
    """

    entries: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    nano: int = 0
    uncosted: int = 0

    def add(self, entry: LedgerEntry) -> None:
        """Count one entry. ``report.js`` counts in the same way."""
        meta = entry.metadata
        cost = meta.get("cost_usd")
        self.entries += 1
        if entry.event_type == "EXCHANGE":
            self.failed += meta.get("outcome") != "success"
        else:
            self.failed += entry.event_type == "EXCHANGE_ORPHANED"
        self.input_tokens += _count(meta.get("input_tokens"))
        self.output_tokens += _count(meta.get("output_tokens"))
        if isinstance(cost, (int, float)) and not isinstance(cost, bool):
            self.nano += round(cost * _NANO)
        elif entry.event_type == "EXCHANGE" or _count(meta.get("settled_tokens")):
            self.uncosted += 1


def calls_between(
    ledger: LedgerClient,
    since: str | None,
    until: str | None,
    size: int,
    groupings: Mapping[str, Sequence[str]],
) -> dict[str, Groups]:
    """The calls of a time among the first ``size`` entries, by several groupings, in one pass.

    Args:
        ledger: the record.
        since: first instant, inclusive; ``None``: from the beginning.
        until: last instant, exclusive; ``None``: to the end.
        size: later entries are left out.
        groupings: by name, JSON pointers into the record.
    """
    return sums_of(
        (
            entry
            for event in CALLS
            for entry in ledger.query(
                event_type=event, since=since, until=until, after=size, order="desc",
                with_content=False,
            )
        ),
        groupings,
    )  # fmt: skip


def sums_of(
    entries: Iterable[LedgerEntry], groupings: Mapping[str, Sequence[str]]
) -> dict[str, Groups]:
    """Entries by several groupings, in one pass."""
    found: dict[str, Groups] = {name: {} for name in groupings}
    for entry in entries:
        record = {"event_type": entry.event_type, "metadata": entry.metadata}
        for name, pointers in groupings.items():
            key = tuple(shown_value(at(record, pointer)) for pointer in pointers)
            found[name].setdefault(key, Sum()).add(entry)
    return found


def at(record: Mapping[str, Any], pointer: str) -> Any:
    """What a JSON pointer (RFC 6901; no escapes) leads to; ``None`` where there is nothing."""
    value: Any = record
    for name in pointer.split("/")[1:]:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0
