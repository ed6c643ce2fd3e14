"""A report for an auditor: what ran, who asked, what it cost, what was refused, what changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from remit._version import __version__
from remit.kernel.errors import InvalidInputError
from remit.ledger import (
    LedgerClient,
    NoSignerError,
    VerificationReport,
    entry_id,
    instant,
    is_authentic,
    utc_now,
)
from remit.ledger.tlog import SignedCheckpoint
from remit.ledger.usage import USAGE_EVENTS
from remit.views.periods import quarters_of, time_of
from remit.views.report_entries import SECTIONS, ReportEntries, Section
from remit.views.report_sums import Counted, Spent, counted, spent_by, spent_in

__all__ = ["audit_report"]

_MOST_GROUPS = 200  # lines of a table; the rest is one line


@dataclass(frozen=True, slots=True)
class _Table:
    """Sums of entries.

    Attributes:
        name: its anchor.
        part: the heading that it stands under.
        heads: of the columns that name a line.
        by: JSON pointers to what names a line.
        events: what it adds up.
    """

    name: str
    part: str
    heads: tuple[str, ...]
    by: tuple[str, ...]
    events: tuple[str, ...] = USAGE_EVENTS


_OF_USAGE = (
    _Table("total", "ran", (), ()),
    _Table("agents", "ran", ("agent",), ("/metadata/agent_id",)),
    _Table("contracts", "ran", ("contract",), ("/metadata/contract_id",)),
    _Table("models", "ran", ("model",), ("/metadata/model_id",)),
    _Table("callers", "asked", ("key", "user on the call"),
           ("/metadata/key_id", "/metadata/user_id")),
    _Table("certainty", "cost", ("how sure the cost is",), ("/metadata/cost_certainty",)),
)  # fmt: skip
_OF_ENTRIES = (
    _Table("outside", "cost", ("charged outside the gateway to",), ("/metadata/scope",),
           ("BUDGET_DEBIT",)),
    _Table("refusals", "refused", ("event", "code"), ("/event_type", "/metadata/error_code"),
           ("PROMPT_REJECTED", "BUDGET_WARNING")),
)  # fmt: skip


def audit_report(
    ledger: LedgerClient,
    *,
    checkpoint: SignedCheckpoint,
    since: datetime | None = None,
    until: datetime | None = None,
    most: int = 2_000,
    at_most: int | None = None,
    verification: VerificationReport | None = None,
    gates: Mapping[str, Any] | None = None,
    witnesses: Sequence[str] = (),
) -> dict[str, Any]:
    """A report as data. Its lists of entries are iterators, to be gone through once, in order.

    Args:
        ledger: the record.
        checkpoint: all proofs lead to it; what came after it is left out.
        since: first instant, aware, taken down to a quarter of an hour, which is what sums are
            kept by; ``None``: from the beginning.
        until: the end, exclusive, taken up to a quarter; ``None``: to the end.
        most: how many calls, refusals, debits and budgets it lists at most, of each event type.
        at_most: how many entries it may read, of those that it lists or counts one by one.
        verification: what ``ledger.verify`` found.
        gates: as :meth:`~remit.packages.gates.GateReport.to_dict` has them.
        witnesses: whose cosignatures on the checkpoint were checked.

    Raises:
        InvalidInputError: it would read more than ``at_most``, or what was archived.
        NoSignerError: the ledger has no key.
    """
    first, end = quarters_of(since, until)
    begins, ends = (None if one is None else instant(time_of(one)) for one in (first, end))
    _require_here(ledger, begins)
    head = checkpoint.checkpoint
    key = str(ledger.verifier_key or ledger.checkpoints.owner())
    if not key:
        raise NoSignerError(
            "The ledger has no key, so nothing in a report could be checked.",
            next_step="`remit init` makes one.",
        )
    entries = ReportEntries(ledger, head.size, begins, ends, most)
    extent = _extent(ledger, begins, ends, head.size)
    there = extent["by_event"]
    if at_most is not None and (number := _read(there, most)) > at_most:
        raise InvalidInputError(
            f"That report is of {number:,} entries that are read one by one; {at_most:,} are the "
            "most here.",
            next_step="Take a shorter time or list fewer, or run `remit report`, which has no such "
            "limit.",
        )
    spent = spent_in(ledger, first, end, head.size)
    tables = [_table(one, spent_by(spent, one.by), there, most) for one in _OF_USAGE]
    for one in _OF_ENTRIES:
        found = (entry for event in one.events for entry in entries.between(event))
        tables.append(_table(one, counted(found, one.by), there, most))
    used = {of[0] for of in spent_by(spent, ("/metadata/key_id",)) if of[0]}
    return {
        "made_at": utc_now(),
        "remit_version": __version__,
        "since": begins,
        "until": ends,
        "most": most,
        "range": extent,
        "log": {
            "origin": head.origin,
            "size": head.size,
            "checkpoint": str(checkpoint),
            "verifier_key": key,
            "fingerprint": hashlib.sha256(key.encode()).hexdigest(),
            "witnesses": list(witnesses),
        },
        "verification": None if verification is None else _verification(verification),
        "gates": None if gates is None else dict(gates),
        "tables": tables,
        "sections": [
            *_named_sections(ledger, entries, used, gates, begins),
            *(_section(one, there, most, entries.of(one)) for one in SECTIONS),
        ],
    }


def _require_here(ledger: LedgerClient, since: str | None) -> None:
    """Refuse a report of a time of which entries have left for an archive: it would lack them."""
    end = ledger.archived_to
    rows = ledger.select("SELECT min(seq) FROM entries WHERE timestamp >= ?", (since or "",))
    if end and rows[0][0] is not None and rows[0][0] < end:
        began = ledger.select("SELECT min(timestamp) FROM entries WHERE seq >= ?", (end,))[0][0]
        raise InvalidInputError(
            "Entries of that time were archived, and a report of it would lack them.",
            next_step=f"Take a time after {began}. Make the report of a time before that is "
            "archived; `remit usage` has its sums still.",
        )


def _extent(
    ledger: LedgerClient, since: str | None, until: str | None, size: int
) -> dict[str, Any]:
    """What there is in the range, by event type; counted by the database."""
    limits = [("seq < ?", size), ("timestamp >= ?", since), ("timestamp < ?", until)]
    given = [(clause, value) for clause, value in limits if value is not None]
    rows = ledger.select(
        "SELECT event_type, count(*), min(seq), max(seq) FROM entries WHERE "
        + " AND ".join(clause for clause, _ in given)
        + " GROUP BY event_type ORDER BY event_type",
        [value for _, value in given],
    )
    return {
        "entries": sum(row[1] for row in rows),
        "first_id": entry_id(min(row[2] for row in rows)) if rows else None,
        "last_id": entry_id(max(row[3] for row in rows)) if rows else None,
        "by_event": {str(row[0]): int(row[1]) for row in rows},
    }


def _read(there: Mapping[str, int], most: int) -> int:
    """How many entries a report reads one by one, at least."""
    counted = [event for table in _OF_ENTRIES for event in table.events]
    listed = {
        event: min(there.get(event, 0), most) if section.is_bounded else there.get(event, 0)
        for section in SECTIONS
        for event in section.events
    }
    return sum((listed | {event: there.get(event, 0) for event in counted}).values())


def _table(
    table: _Table,
    groups: Mapping[tuple[str, ...], Spent] | Mapping[tuple[str, ...], Counted],
    there: Mapping[str, int],
    most: int,
) -> dict[str, Any]:
    """Its lines, the dearest first; ``is_whole``: all entries that they add up are listed."""
    rows = [{"of": list(of), **asdict(one)} for of, one in groups.items()]
    if not table.by and not rows:
        rows = [{"of": [], **asdict(Spent())}]
    is_usage = table in _OF_USAGE
    number = "calls" if is_usage else "entries"
    rows.sort(key=lambda row: (-row["nano"], -row[number], row["of"]))
    return {
        "name": table.name,
        "part": table.part,
        "heads": list(table.heads),
        "by": list(table.by),
        "events": list(table.events),
        "is_usage": is_usage,
        "is_whole": all(there.get(event, 0) <= most for event in table.events),
        "rows": rows[:_MOST_GROUPS],
        "left_out": len(rows[_MOST_GROUPS:]),
    }


def _section(
    section: Section, there: Mapping[str, int], most: int, rows: Iterator[dict[str, Any]]
) -> dict[str, Any]:
    counts = [there.get(event, 0) for event in section.events]
    listed = [min(count, most) if section.is_bounded else count for count in counts]
    return {
        "name": section.name,
        "title": section.title,
        "part": section.part,
        "about": section.about,
        "events": list(section.events),
        "is_of_range": True,
        "there": sum(counts),
        "listed": sum(listed),
        "entries": rows,
    }


def _named_sections(
    ledger: LedgerClient,
    entries: ReportEntries,
    used: set[str],
    gates: Mapping[str, Any] | None,
    since: str | None,
) -> Iterator[dict[str, Any]]:
    """Entries that are not of the range and say something of it: keys used in it, gates now."""
    keys: dict[str, str] = {}
    if used and since is not None:
        for entry in ledger.query(event_type="KEY_CREATED", until=since, with_content=False):
            if (name := entry.metadata.get("key_id")) in used and is_authentic(entry):
                keys[name] = entry.id
    ids = [str(one.get("entry_id") or "") for one in (gates or {}).get("gates", ())]
    for name, title, part, events, of in (
        ("used", "Keys that were used, made before this range", "asked", ("KEY_CREATED",),
         list(keys.values())),
        ("gates", "Gates, checked for this report", "checks", ("GATE_PASSED", "GATE_FAILED"),
         [one for one in ids if one]),
    ):  # fmt: skip
        yield {
            "name": name, "title": title, "part": part, "about": "", "events": list(events),
            "is_of_range": False, "there": len(of), "listed": len(of),
            "entries": entries.named(of),
        }  # fmt: skip


def _verification(found: VerificationReport) -> dict[str, Any]:
    names = (
        "verified", "entries", "contents", "erased", "problem_count", "checkpoint",
        "checkpoint_size", "unread", "last_full", "notes",
    )  # fmt: skip
    problems = [str(problem) for problem in found.problems[:20]]
    return {**{name: getattr(found, name) for name in names}, "problems": problems}
