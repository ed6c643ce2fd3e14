"""The list of model calls, with filters, sorting and a CSV file."""

from __future__ import annotations

import csv
import heapq
import io
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient, LedgerEntry
from remit.server.asgi import Answer
from remit.server.console.pages import Asked, Page, Sources, View
from remit.server.console.rows import call_row, key_names
from remit.views import wording
from remit.views.entries import place_of
from remit.views.periods import instant_of

PATH = "/console/calls"

_LISTED = 50
_SEARCHED = 2_000  # Entries that one request reads, so that no filter reads the whole ledger.
_SEARCHED_TEXTS = 2_000  # latest contents with the words, so that a common word is bounded
_MAX_UNINDEXED = 5_000  # values that a page may index
_OUTCOMES = ("", "success", "failed", "fallback", "refused")
_OWNERS = ("user", "team", "organisation")
_FIELDS = {"agent": "agent_id", "contract": "contract_id", "model": "model_id",
           "provider": "provider_id", "error": "error_code"}  # fmt: skip
_SORTS: Mapping[str, Callable[[Mapping[str, Any]], float]] = {
    "cost": lambda data: _number(data.get("cost_usd")),
    "tokens": lambda data: _number(data.get("input_tokens")) + _number(data.get("output_tokens")),
    "duration": lambda data: _number(data.get("latency_ms")),
}
_CSV = (
    "id", "time", "key_id", "user_id", "team_id", "agent_id", "session_id", "contract_id",
    "provider_id", "model_id", "outcome", "error_code", "input_tokens", "output_tokens",
    "cost_usd", "cost_certainty", "latency_ms",
)  # fmt: skip
_FORMULA = tuple(
    "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
)  # Spreadsheets run a text that begins with these.


@dataclass(slots=True)
class _Found:
    """Entries that a request found.

    Attributes:
        entries: the matching entries, newest first.
        last: the id of the last entry read; empty if there are no older ones.
        read: number of entries read.
    """

    entries: list[LedgerEntry]
    last: str
    read: int


def show(sources: Sources, asked: Asked) -> Page | Answer:
    """Return the calls and refused requests that match the filters, newest first, or as CSV.

    A page lists 50 calls, a CSV file all that were found. A request reads at most the latest 2,000
    entries that the indexed filters match (time, session and word), and a word is searched in the
    latest 2,000 texts that contain it. All other filters, and sorting by cost, tokens or duration
    (largest first), apply to these entries only.

    Args:
        sources: the data sources.
        asked: the request. Its query may have ``since``, ``until``, ``zone`` (the default is UTC),
            ``outcome``, ``word``, ``min_usd``, ``sort``, ``before`` (an entry id), ``format=csv``,
            and values for ``session``, ``key`` (an id or name), ``user``, ``team``,
            ``organisation``, ``agent``, ``contract``, ``model``, ``provider`` and ``error``.

    Raises:
        InvalidInputError: a time, a cost, a word or an id before which calls are listed is invalid;
            or more than 5,000 texts are not indexed yet for a word.
        LedgerError: the ledger cannot be read.
    """
    query = {name: text.strip() for name, text in asked.query.items() if text.strip()}
    before, sort = query.pop("before", ""), query.get("sort", "")
    is_csv = query.pop("format", "") == "csv"
    if "word" in query:
        _require_index(sources.ledger)
    everything = is_csv or sort in _SORTS
    found = _find(sources, query, before, _SEARCHED if everything else _LISTED)
    entries = found.entries
    if sort in _SORTS:
        entries = sorted(entries, key=lambda entry: -_SORTS[sort](entry.metadata))
    if is_csv:
        return _file(entries)
    listed = entries[:_LISTED]
    names = key_names(sources.ledger, {_key_id(entry) for entry in listed})
    address = f"{PATH}?{urlencode(query)}"
    last = found.last if sort not in _SORTS else ""
    return Page(
        "calls.html.j2",
        {
            "calls": [_row(entry, names) for entry in listed],
            "asked": query,
            "outcomes": _OUTCOMES,
            "sorts": ("", *_SORTS),
            "address": address,
            "older": f"{address}{'&' if query else ''}{urlencode({'before': last})}"
            if last
            else "",
            "oldest": entries[-1].timestamp if entries else "",
            "read": found.read,
            "searched_texts": _SEARCHED_TEXTS,
            "is_bounded": bool(found.last) and found.read >= _SEARCHED,
        },
    )


def _find(sources: Sources, query: Mapping[str, str], before: str, most: int) -> _Found:
    ledger = sources.ledger
    zone = query.get("zone", "UTC")
    since, until = query.get("since", ""), query.get("until", "")
    outcome = query.get("outcome", "")
    where: dict[str, Any] = {
        "since": instant_of(since, zone) if since else None,
        "until": instant_of(until, zone) if until else None,
        "text": query.get("word"),
        "text_limit": _SEARCHED_TEXTS,
        "after": before or None,
        "session_id": query.get("session"),
    }
    events = ["EXCHANGE", "PROMPT_REJECTED"]
    if outcome in ("success", "failed", "fallback"):
        events.remove("PROMPT_REJECTED")
    elif outcome == "refused":
        events.remove("EXCHANGE")
    matches = _condition(ledger, query)
    read = (
        ledger.query(
            event_type=event, order="desc", with_content=False, known=sources.known, **where
        )
        for event in events
    )
    found: list[LedgerEntry] = []
    last, count = "", 0
    for entry in islice(_newest_first(read), _SEARCHED):
        count, last = count + 1, entry.id
        if matches(entry):
            found.append(entry)
            if len(found) >= most:
                break
    else:
        last = last if count >= _SEARCHED else ""
    return _Found(found, last, count)


def _require_index(ledger: LedgerClient) -> None:
    """Raise InvalidInputError if indexing the new content would take longer than a page may."""
    ((newest,),) = ledger.select("SELECT max(content_id) FROM contents")
    rows = ledger.select("SELECT value FROM ledger_info WHERE name = 'text_indexed_to'")
    behind = (newest or 0) - (int(rows[0][0]) if rows else 0)
    if behind > _MAX_UNINDEXED:
        raise InvalidInputError(
            f"{behind:,} texts are not indexed for the search yet.",
            next_step="Run `remit ledger query --text WORD --limit 1` once; it indexes them.",
        )


def _newest_first(read: Iterator[Iterator[LedgerEntry]]) -> Iterator[LedgerEntry]:
    return heapq.merge(*read, key=lambda entry: -place_of(entry.id))


def _condition(ledger: LedgerClient, query: Mapping[str, str]) -> Callable[[LedgerEntry], bool]:
    """Return the test of the filters that no index covers.

    Raises:
        InvalidInputError: ``min_usd`` is not a number.
    """
    wanted = {field: query[name] for name, field in _FIELDS.items() if name in query}
    # A call states its key; the owners of a key are in a table of their own.
    owners = [
        (f"{name}_id", query[name], _keys_with(ledger, f"{name}_id", query[name]))
        for name in _OWNERS
        if name in query
    ]
    if "key" in query:  # A key is given by id or name; several keys may have had the name.
        owners.append(("key_id", query["key"], _keys_with(ledger, "name", query["key"])))
    least = query.get("min_usd", "")
    try:
        least_usd = float(least or 0)
        if math.isnan(least_usd):
            raise ValueError
    except ValueError as error:
        raise InvalidInputError(
            f"{least!r} is not a cost in US dollars.", next_step="Write a number such as 0.05."
        ) from error
    outcome = query.get("outcome")

    def matches(entry: LedgerEntry) -> bool:
        data = _fields(entry)
        return (
            all(data.get(field) == value for field, value in wanted.items())
            and all(
                data.get(field) == value or _key_id(entry) in keys for field, value, keys in owners
            )
            and (not least or _number(data.get("cost_usd")) >= least_usd)
            and (outcome != "fallback" or bool(data.get("fallback_from")))
            and (
                outcome not in ("success", "failed")
                or (data.get("outcome") == "success") == (outcome == "success")
            )
        )

    return matches


def _row(entry: LedgerEntry, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the row of a call or of a refused request, with its key and the link's target."""
    data = _fields(entry)
    row = call_row(entry)
    if entry.event_type == "PROMPT_REJECTED":
        cells = list(row["cells"])
        cells[2] = wording.text_of(data["model_id"] or "")
        cells[3] = f"refused: {wording.words_of(data.get('error_code') or '')}"
        cells[4:] = ["", "", ""]
        row = {**row, "cells": cells, "tone": "bad"}
    key_id = _key_id(entry)
    return {
        **row,
        "key": names.get(key_id, key_id),
        "session": data.get("session_id") or "",
    }


def _file(entries: list[LedgerEntry]) -> Answer:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(_CSV)
    for entry in entries:
        known = {**_fields(entry), "id": entry.id, "time": entry.timestamp}
        writer.writerow([_cell(known.get(name, "")) for name in _CSV])
    named = (b"content-disposition", b'attachment; filename="calls.csv"')
    return Answer(200, text.getvalue().encode(), b"text/csv; charset=utf-8", [named])


def _cell(value: Any) -> Any:
    """Return a value for a CSV file; a text that a spreadsheet would run begins with ``'``."""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return value if isinstance(value, (int, float)) else ""


def _keys_with(ledger: LedgerClient, column: str, value: str) -> frozenset[str]:
    """Return the ids of the keys that have a value in a column of ``usage_keys``."""
    if not value.isprintable():  # No key has such a value, and PostgreSQL refuses a NUL.
        return frozenset()
    rows = ledger.select(f"SELECT key_id FROM usage_keys WHERE {column} = ?", (value,))
    return frozenset(str(row[0]) for row in rows)


def _fields(entry: LedgerEntry) -> Mapping[str, Any]:
    """Return the metadata of a call; of a refused request with the model that was asked for."""
    data = entry.metadata
    if entry.event_type != "PROMPT_REJECTED":
        return data
    return {**data, "outcome": "refused", "model_id": data.get("requested_model_id", "")}


def _key_id(entry: LedgerEntry) -> str:
    """Return the key of a call; empty if the entry has none."""
    key_id = entry.metadata.get("key_id")
    return key_id if isinstance(key_id, str) else ""


def _number(value: Any) -> float:
    return float(value) if wording.is_number(value) else 0.0


VIEWS = (View(PATH, show),)
