"""Reasons of fallbacks, in which another model answered than the model requested first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from remit.ledger import LedgerClient
from remit.ledger.usage import DIMENSIONS, QUARTER_S, usage_of
from remit.views.usage import SELECT_NAMES, quarters_between

_MAX_ROWS = 500
_MAX_EXCHANGES = 5_000
_MAX_EXCHANGES_OF_SESSION = 1_000
_EXAMPLES = 3
_FIRST_SEQ = "SELECT seq FROM entries WHERE timestamp >= ? ORDER BY timestamp, seq LIMIT 1"
_EXCHANGES = (
    "SELECT id, record FROM entries WHERE session_id = ? AND event_type = 'EXCHANGE' "
    "AND seq >= ? AND seq < ? ORDER BY seq DESC LIMIT ?"
)

_Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FallbackReason:
    """A reason for fallbacks of a group of calls.

    Attributes:
        names: the group's values of the requested names, as in a usage row.
        instead_of: the model that was skipped.
        code: the error code, for example ``CIRCUIT_OPEN`` or ``TIMEOUT``.
        calls: number of calls.
        examples: ids of the latest exchanges, at most three.
    """

    names: Mapping[str, str]
    instead_of: str
    code: str
    calls: int
    examples: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return ``instead_of``, ``code``, ``calls``, ``examples`` and the group's names as JSON.

        All are keys of one dict.
        """
        found = asdict(self)
        return {**found.pop("names"), **found}


@dataclass(frozen=True, slots=True)
class Fallbacks:
    """Reasons of fallbacks, the most frequent first.

    Attributes:
        reasons: one for each group, skipped model and error code.
        read: number of fallbacks that the reasons cover, the latest ones.
        calls: number of all fallbacks in the range.
    """

    reasons: list[FallbackReason]
    read: int
    calls: int


def read_fallbacks(
    ledger: LedgerClient,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    by: Sequence[str] = (),
    where: Mapping[str, str] | None = None,
) -> Fallbacks:
    """Return the reasons for which calls fell back to another model, the most frequent first.

    A call that skipped several models counts for each of them. Only the latest fallbacks are read:
    at most 500 rows of usage, 5,000 exchanges in all, and 1,000 of one session in a quarter hour.
    ``read`` and ``calls`` of the result tell whether the reasons cover all fallbacks.

    Args:
        ledger: the ledger of the calls.
        since: aware start time, rounded down to a quarter hour; ``None`` for the beginning.
        until: aware end time, exclusive, rounded up to a quarter hour; ``None`` for no end.
        by: names of :data:`~remit.views.usage.SELECT_NAMES` to group by; periods and unknown names
            are ignored.
        where: required values by name, of the same names.

    Raises:
        KeyError: ``where`` contains a period or an unknown name.
        LedgerError: the ledger cannot be read.
    """
    first, end = quarters_between(ledger, since, until)
    columns = [name for name in by if name in SELECT_NAMES]
    filters = "".join(f" AND {SELECT_NAMES[name]} = ?" for name in where or {})
    source = (
        "FROM usage AS u LEFT JOIN usage_keys AS k ON k.key_id = u.key_id "
        f"WHERE u.quarter >= ? AND u.quarter < ? AND u.fallbacks > 0{filters}"
    )
    values = [first, end, *(where or {}).values()]
    [(calls,)] = ledger.select(f"SELECT coalesce(sum(u.fallbacks), 0) {source}", values)
    own = ", ".join([f"u.{name}" for name in DIMENSIONS])
    names = "".join([f", {SELECT_NAMES[name]}" for name in columns])
    rows = ledger.select(
        f"SELECT u.quarter, {own}{names} {source} ORDER BY u.quarter DESC LIMIT {_MAX_ROWS}",
        values,
    )
    places: defaultdict[tuple[int, str], dict[_Names, _Names]] = defaultdict(dict)
    of_session = DIMENSIONS.index("session_id")
    for quarter, *found in rows:
        dimensions = tuple(found[: len(DIMENSIONS)])
        places[quarter, dimensions[of_session]][dimensions] = tuple(found[len(DIMENSIONS) :])
    counts: Counter[tuple[_Names, str, str]] = Counter()
    examples: defaultdict[tuple[_Names, str, str], list[str]] = defaultdict(list)
    left, read = _MAX_EXCHANGES, 0
    for (quarter, session), kinds in places.items():
        for entry_id, metadata in _exchanges(
            ledger, quarter, session, min(left, _MAX_EXCHANGES_OF_SESSION)
        ):
            left -= 1
            row = usage_of("EXCHANGE", metadata, metadata)
            named = kinds.get(row[: len(DIMENSIONS)]) if row is not None else None
            if named is None or not metadata.get("fallback_from"):
                continue
            read += 1
            for one in metadata["fallback_from"]:
                reason = (named, str(one.get("model_id")), str(one.get("error_code")))
                counts[reason] += 1
                if len(examples[reason]) < _EXAMPLES:
                    examples[reason].append(entry_id)
        if left <= 0:
            break
    reasons = [
        FallbackReason(
            dict(zip(columns, reason[0], strict=True)), *reason[1:], count, examples[reason]
        )
        for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    return Fallbacks(reasons, read, int(calls))


def _exchanges(
    ledger: LedgerClient, quarter: int, session_id: str, most: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield id and metadata of a session's exchanges in a quarter hour, the latest first."""
    ends = []
    for place in (quarter, quarter + 1):
        text = datetime.fromtimestamp(place * QUARTER_S, UTC).isoformat()[:16]
        found = ledger.select(_FIRST_SEQ, (text,))
        ends.append(found[0][0] if found else ledger.count())
    for entry_id, record in ledger.select(_EXCHANGES, (session_id, *ends, most)):
        stored = record if isinstance(record, (str, bytes)) else bytes(record)
        yield entry_id, orjson.loads(stored)["metadata"]
