"""Usage and cost of calls by quarter hour: the table ``usage``.

Every row follows from the entries alone. :func:`usage_of` states the amounts that an entry adds; it
is used in the transaction that writes the entry, in a migration, and when the table is checked. The
rows of ``usage_keys`` follow likewise: the owner of a key never changes.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from remit.kernel.canonical import MAX_SAFE_INTEGER
from remit.ledger.record import columns_of

DIMENSIONS = (
    "key_id", "user_id", "team_id", "organisation_id", "agent_id", "session_id", "contract_id",
    "provider_id", "model_id", "certainty",
)  # fmt: skip
"""The key of a row besides its quarter; a value is empty if the entry has none."""

SUMS = (
    "calls", "failed", "fallbacks", "input_tokens", "output_tokens", "cached_input_tokens",
    "reasoning_tokens", "nano", "unpriced_calls",
)  # fmt: skip
"""The summed columns."""

USAGE_EVENTS = ("EXCHANGE", "EXCHANGE_ORPHANED", "BUDGET_DEBIT")
"""The event types that add to the table."""

CERTAINTIES = ("measured", "estimated", "upper_bound", "unpriced")
"""The certainty of tokens and cost."""

QUARTER_S = 900
"""Seconds in a quarter of an hour: midnight of every time zone is the beginning of one."""

_TEXTS = DIMENSIONS[:-1]
_CACHED, _THOUGHT = "cached_input_tokens", "reasoning_tokens"
KEY_COLUMNS = ("key_id", "name", "user_id", "team_id", "organisation_id")
MAX_SUM = 1 << 62  # sums stop here: it fits the columns
_MAX_NAME_BYTES = 200  # All names together fit an index row of PostgreSQL.
_NAME_BYTES = 160
_KEY = len(DIMENSIONS) + 1

Row = tuple[Any, ...]
"""Quarter, dimensions and sums."""

ON_CONFLICT = f" ON CONFLICT (quarter, {', '.join(DIMENSIONS)}) DO UPDATE SET " + ", ".join(
    f"{name} = CASE WHEN usage.{name} > {MAX_SUM} - excluded.{name} THEN {MAX_SUM} "
    f"ELSE usage.{name} + excluded.{name} END"
    for name in SUMS
)
"""Ends an ``INSERT INTO usage`` that adds to rows that are there."""

INSERT = (
    f"INSERT INTO usage (quarter, {', '.join((*DIMENSIONS, *SUMS))}) "
    f"VALUES ({', '.join('?' * (_KEY + len(SUMS)))})"
)


@functools.lru_cache(maxsize=1024)
def quarter_of(minute: str) -> int:
    """Return the number of the quarter hour of a time, counted from 1970 UTC.

    Results are cached.

    Args:
        minute: the time to the minute, ISO 8601 in UTC: the first 16 characters of a timestamp.

    Raises:
        ValueError: the text is not a time.
    """
    return int(datetime.fromisoformat(minute[:16]).replace(tzinfo=UTC).timestamp()) // QUARTER_S


def usage_of(event_type: str, metadata: Mapping[str, Any], given: Mapping[str, Any]) -> Row | None:
    """Return the dimensions and amounts that an entry adds; ``None`` if it adds nothing.

    Calls, orphaned calls and debits add; a debit only if no worker wrote it, and as no call.
    Amounts that are no exact numbers or negative count as 0. An entry with tokens and without a
    cost counts as unpriced. A call without the outcome ``success`` counts as failed. An orphaned
    call has its settled tokens as input. Without a ``key_id``, the first key among the accounts in
    ``charged_to`` counts. An unknown ``cost_certainty`` becomes ``unpriced`` or ``measured``.

    Args:
        event_type: event type of the entry.
        metadata: the recorded metadata, with commitments in place of content.
        given: the metadata before encoding; some numbers are text in ``metadata``.

    Returns:
        Names, certainty, and counts, as the columns of ``usage`` without the quarter; costs are in
        nano-dollars, never negative and capped at 2⁵³ - 1. A name of over 200 bytes is cut and gets
        a hash; a NUL becomes U+FFFD.
    """
    if event_type not in USAGE_EVENTS or (event_type == "BUDGET_DEBIT" and not _is_own(metadata)):
        return None
    get = metadata.get
    tokens_in: Any
    tokens_out: Any
    if event_type == "EXCHANGE_ORPHANED":
        tokens_in, tokens_out = _count("settled_tokens", metadata, given), 0
    else:
        tokens_in, tokens_out = get("input_tokens"), get("output_tokens")
        if type(tokens_in) is not int or not 0 <= tokens_in <= MAX_SAFE_INTEGER:
            tokens_in = _count("input_tokens", metadata, given)
        if type(tokens_out) is not int or not 0 <= tokens_out <= MAX_SAFE_INTEGER:
            tokens_out = _count("output_tokens", metadata, given)
    usd = given.get("cost_usd")
    if type(usd) is not float:
        usd = _number(get("cost_usd"), "cost_usd", given)
    unpriced = usd is None and tokens_in + tokens_out > 0
    certainty = get("cost_certainty")
    if certainty not in CERTAINTIES:
        certainty = "unpriced" if unpriced else "measured"
    key_id = get("key_id")
    if not key_id and (beside := get("charged_to")):
        key_id = _key_among(beside)
    try:
        names = _names(key_id, *map(get, _TEXTS[1:]))
    except TypeError:  # The cache cannot hash an object.
        names = _names(*map(_text, (key_id, *map(get, _TEXTS[1:]))))
    called = event_type != "BUDGET_DEBIT"
    return (
        *names,
        certainty,
        1 if called else 0,
        1 if called and get("outcome") != "success" else 0,
        1 if get("fallback_from") else 0,
        tokens_in,
        tokens_out,
        0 if get(_CACHED) is None else _count(_CACHED, metadata, given),
        0 if get(_THOUGHT) is None else _count(_THOUGHT, metadata, given),
        0 if usd is None else min(round(max(0.0, min(usd, 1e9)) * 1e9), MAX_SAFE_INTEGER),
        1 if unpriced else 0,
    )


def _key_among(accounts: Any) -> str:
    """Return the virtual key among the paying accounts of an agent's session; empty if none."""
    names = accounts if isinstance(accounts, (list, tuple)) else ()
    own = (name for name in names if isinstance(name, str) and name.startswith("key:"))
    return next(own, "").removeprefix("key:")


def _count(name: str, metadata: Mapping[str, Any], given: Mapping[str, Any]) -> int:
    """Return a recorded whole number that is exact; 0 for anything else."""
    number = _number(metadata.get(name), name, given)
    if number is None or number != int(number):
        return 0
    return max(0, min(int(number), MAX_SAFE_INTEGER))


def key_of(event_type: str, metadata: Mapping[str, Any]) -> Row | None:
    """Return the row of ``usage_keys`` that an entry adds; ``None`` if it adds none.

    Only a ``KEY_CREATED`` that no worker wrote adds a row. A name that is missing or no text
    becomes empty. As in :func:`usage_of`, a name of over 200 bytes is cut and gets a hash, and a
    NUL becomes U+FFFD.

    Args:
        event_type: event type of the entry.
        metadata: metadata of the entry.
    """
    if event_type != "KEY_CREATED" or not _is_own(metadata):
        return None
    return _names(*(_text(metadata.get(name)) for name in KEY_COLUMNS))


def _is_own(metadata: Mapping[str, Any]) -> bool:
    """Return True if no worker wrote the entry; amounts stated by a worker do not count."""
    return columns_of(metadata).tier in (None, "hot")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any, name: str, given: Mapping[str, Any]) -> float | None:
    if type(value) is orjson.Fragment:
        value = given[name]
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


@functools.lru_cache(maxsize=1024)
def _names(*found: Any) -> tuple[str, ...]:
    """Return names in a form that every database stores and indexes.

    A name of over 200 bytes becomes its beginning and a hash, and a NUL becomes U+FFFD.
    """
    names = []
    for name in found:
        text = _text(name).replace("\x00", "\ufffd")
        encoded = text.encode()
        if len(encoded) > _MAX_NAME_BYTES:
            text = encoded[:_NAME_BYTES].decode(errors="ignore")
            text += f"…{hashlib.sha256(encoded).hexdigest()[:16]}"
        names.append(text)
    return tuple(names)


def added(rows: Iterable[Row]) -> list[Row]:
    """Return ``rows`` with equal quarters and dimensions summed, each once.

    Sums are capped at 2⁶². The order is that of first occurrence.

    Args:
        rows: rows of the table ``usage``, which are not changed.
    """
    sums: dict[Row, list[int]] = {}
    for row in rows:
        known = sums.get(key := row[:_KEY])
        if known is None:
            sums[key] = list(row[_KEY:])
        else:
            for place, value in enumerate(row[_KEY:]):
                known[place] += value
    return [(*key, *(min(value, MAX_SUM) for value in values)) for key, values in sums.items()]


def rows_of(entries: Iterable[tuple[str, str, bytes | str]]) -> Iterator[tuple[str, Row]]:
    """Yield the table and row that each entry adds; most entries add none.

    Unreadable entries add nothing; verification reports them.

    Args:
        entries: time, event type and record of each entry, in any order.

    Yields:
        ``usage`` or ``usage_keys``, and a row with all columns of that table.
    """
    for timestamp, event_type, record in entries:
        try:
            metadata = orjson.loads(record)["metadata"]
            if (row := usage_of(event_type, metadata, metadata)) is not None:
                yield "usage", (quarter_of(timestamp[:16]), *row)
            elif (row := key_of(event_type, metadata)) is not None:
                yield "usage_keys", row
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
