"""Audit of open batches against the entries of the calls that created them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import orjson

from remit.gateway.auth.projection import recorded_keys
from remit.gateway.batches.rows import BOUNDS, NO_PRICE, LineRow, Row, hold_name, line_name
from remit.gateway.budget import Hold
from remit.kernel.budget_values import path_of
from remit.ledger import Finding, LedgerClient, Select, entries_of, parse_entry_id, readable

_STATED = ("contract_id", "agent_id", "framework_id", "work_order_id", "session_id", "tier")
_OF_KEY = ("name", "role", "user_id", "team_id", "organisation_id")


def check_batches(ledger: LedgerClient, select: Select) -> Iterator[Finding]:
    """Yield each difference of ``batches``, ``batch_lines`` and their holds from the ledger.

    A finding is the sequence number of the entry, or None, and a sentence. Nothing is repaired.

    Args:
        ledger: the ledger.
        select: runs a query.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    rows = [Row(*row) for row in select(f"SELECT {', '.join(Row._fields)} FROM batches", ())]
    entries = entries_of(select, (row.entry_id for row in rows))
    kept = "SELECT object_id, entry_id, provider_id FROM provider_objects WHERE kind = 'batch'"
    made = {name: of for name, *of in select(kept, ())}
    keys = recorded_keys(select)
    lines: defaultdict[str, dict[str, LineRow]] = defaultdict(dict)
    named = f"SELECT batch_id, custom_id, {', '.join(LineRow._fields)} FROM batch_lines"
    for batch_id, custom_id, *line in select(named, ()):
        lines[batch_id][custom_id] = LineRow(*line)
    holds: dict[Any, Any] = dict(
        select("SELECT reservation_id, hold FROM holds WHERE reservation_id LIKE 'batch:%'", ())
    )
    for row in rows:
        entry, of_batch = entries.get(row.entry_id), lines.pop(row.batch_id, {})
        if entry is None or made.get(row.batch_id) != [row.entry_id, row.provider_id]:
            yield None, f"batches: provider_objects has no call that made {readable(row.batch_id)}"
            continue
        meta, seq = entry.metadata, parse_entry_id(entry.id)
        key = keys.get(meta.get("key_id", ""))
        expected: dict[str, Any] = {name: meta.get(name) or "" for name in _STATED}
        if key is not None:
            identity = {name: key.get(name) or "" for name in _OF_KEY}
            expected["identity"] = {**identity, "key_id": key["key_id"]}
        if not _is_like(row.caller, expected):
            yield seq, f"batches: the caller of {row.batch_id} is not who made it"
        if row.dispatch_entry_id != meta.get("dispatch_entry_id"):
            yield seq, f"batches: the dispatch of {row.batch_id} is not on record so"
        bounds = ledger.read(row.entry_id).metadata.get(BOUNDS)
        if isinstance(bounds, list):  # Erased batches and those of older versions have none.
            recorded = {line_name(row.batch_id, line[0]): LineRow(*line[1:]) for line in bounds}
            # An earlier version wrote the custom id itself.
            recorded |= {line[0]: LineRow(*line[1:]) for line in bounds}
            for name in sorted(of_batch.keys()):
                if recorded.get(name) != of_batch[name]:
                    yield seq, f"batch_lines: {name!r} of {row.batch_id} is not on record so"
        text = holds.pop(hold_name(row.batch_id), None)
        path = _path(meta, key) if key is not None else set()
        if text is not None and not _holds(Hold.read(text), of_batch, path):
            said = f"holds: the hold of {row.batch_id} is not that of its rows in batch_lines"
            yield seq, said
    for batch_id, of_batch in lines.items():
        named_lines = ", ".join(map(readable, of_batch))
        said = f"batch_lines: batches has no row {readable(batch_id)}, of which are {named_lines}"
        yield None, said
    for name in holds:
        yield None, f"holds: batches has no row for {readable(name)}"


def _path(meta: dict[str, Any], key: dict[str, Any]) -> set[str]:
    """Return every account that can pay for a batch."""
    owners = [key.get(name) for name in ("user_id", "team_id", "organisation_id")]
    return set(
        path_of(
            meta.get("session_id", ""), meta.get("work_order_id"), meta.get("agent_id"),
            key["key_id"], *owners,
        )
    )  # fmt: skip


def _is_like(text: str, expected: dict[str, Any]) -> bool:
    """Return True if a row's ``caller`` has the form that Remit writes and the expected values."""
    try:
        caller = orjson.loads(text)
        if orjson.dumps(caller).decode() != text:
            return False
        if caller.keys() != {*_STATED, "subject_id", "identity"}:
            return False
        return all(caller[name] == value for name, value in expected.items())
    except (ValueError, TypeError, KeyError, AttributeError):
        return False


def _holds(hold: Hold | None, lines: dict[str, LineRow], path: set[str]) -> bool:
    if hold is None or hold.tokens != sum(line.tokens for line in lines.values()):
        return False
    if path and not path.issuperset(hold.scopes):
        return False
    prices = [line.nano for line in lines.values()]
    return hold.nano is None or NO_PRICE in prices or hold.nano == sum(prices)
