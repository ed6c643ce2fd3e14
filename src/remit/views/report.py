"""An auditor's report as data: runs, callers, costs, refusals and changes."""

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

MAX_LINES = 200
"""The largest number of lines of a table."""


@dataclass(frozen=True, slots=True)
class Table:
    """The definition of a table of sums over entries.

    For the events of usage, which are the default, the sums are calls, tokens and costs; for
    others, the number and the cost of the entries.

    Attributes:
        name: the anchor in the page.
        part: the part of the page that holds the table.
        heads: the column heads of the values that name a line, one for each of ``by``.
        by: JSON pointers to the values that name a line, into ``event_type`` and ``metadata``.
        events: the event types that are added up.
    """

    name: str
    part: str
    heads: tuple[str, ...]
    by: tuple[str, ...]
    events: tuple[str, ...] = USAGE_EVENTS

    @property
    def is_usage(self) -> bool:
        """True if calls, tokens and costs are added up as the table ``usage`` does."""
        return self.events == USAGE_EVENTS


_OF_USAGE = (
    Table("total", "ran", (), ()),
    Table("agents", "ran", ("agent",), ("/metadata/agent_id",)),
    Table("contracts", "ran", ("contract",), ("/metadata/contract_id",)),
    Table("models", "ran", ("model",), ("/metadata/model_id",)),
    Table("callers", "asked", ("key", "user on the call"),
          ("/metadata/key_id", "/metadata/user_id")),
    Table("certainty", "cost", ("certainty of the cost",), ("/metadata/cost_certainty",)),
)  # fmt: skip
_OF_ENTRIES = (
    Table("outside", "cost", ("charged outside the gateway to",), ("/metadata/scope",),
          ("BUDGET_DEBIT",)),
    Table("refusals", "refused", ("event", "code"), ("/event_type", "/metadata/error_code"),
          ("PROMPT_REJECTED", "BUDGET_WARNING")),
)  # fmt: skip
TABLES = (*_OF_USAGE, *_OF_ENTRIES)


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
    """Return a report as data. Nothing is written.

    Each section has the sequence numbers of its entries (``seqs``) and an iterator that reads the
    entries in that order (``entries``).

    Args:
        ledger: the ledger.
        checkpoint: the checkpoint that all proofs lead to; later entries are left out.
        since: first instant, aware, rounded down to a quarter of an hour, as sums are stored per
            quarter; ``None`` for the beginning.
        until: the end, exclusive, rounded up to a quarter; ``None`` for the end of the ledger.
        most: the largest number of calls, refusals, debits and budgets to list, of each event type.
        at_most: the largest number of entries to read one by one; ``None`` for no limit.
        verification: the result of ``ledger.verify``; ``None`` states that nothing was verified.
        gates: the result of :meth:`~remit.packages.gates.GateReport.to_dict`; ``None`` if no gate
            ran.
        witnesses: names of the witnesses whose cosignatures were checked.

    Returns:
        ``made_at``, ``remit_version``, ``since`` and ``until`` (None for an open end), ``most``,
        ``range`` (its entries by event type, ids and sequence numbers), ``log`` (with its key),
        ``verification`` and ``gates`` (None if not given), ``tables`` of sums, each with its 200
        most expensive rows and the number of others (``left_out``), and ``sections``.

    Raises:
        InvalidInputError: ``until`` is not after ``since``, or the report would read more than
            ``at_most`` entries.
        NoSignerError: the ledger has no key.
        LedgerError: the ledger cannot be read; the iterators raise it too.
    """
    first, end = quarters_of(since, until)
    if first is not None and end is not None and end <= first:
        raise InvalidInputError(
            "The end of the range is not after its beginning.",
            next_step="Give a later end, or an earlier beginning.",
        )
    begins, ends = (None if one is None else instant(time_of(one)) for one in (first, end))
    head = checkpoint.checkpoint
    key = str(ledger.verifier_key or ledger.checkpoints.owner())
    if not key:
        raise NoSignerError(
            "The ledger has no key, so nobody could check a report of it.",
            next_step="Run `remit init`, which creates a key.",
        )
    entries = ReportEntries(ledger, head.size, begins, ends, most)
    extent = _extent(ledger, begins, ends, head.size)
    there = extent["by_event"]
    if at_most is not None and (number := _read(there, most)) > at_most:
        raise InvalidInputError(
            f"The report would read {number:,} entries one by one; the limit here is {at_most:,}.",
            next_step="Take a shorter time, list fewer entries, or run `remit report`, which has "
            "no such limit.",
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
            *(_section(one, there, entries) for one in SECTIONS),
        ],
    }


def _extent(
    ledger: LedgerClient, since: str | None, until: str | None, size: int
) -> dict[str, Any]:
    """Return the entries of the range by event type, and its first and last sequence number."""
    limits = [("seq < ?", size), ("timestamp >= ?", since), ("timestamp < ?", until)]
    given = [(clause, value) for clause, value in limits if value is not None]
    rows = ledger.select(
        "SELECT event_type, count(*), min(seq), max(seq) FROM entries WHERE "
        + " AND ".join(clause for clause, _ in given)
        + " GROUP BY event_type ORDER BY event_type",
        [value for _, value in given],
    )
    first, end = _span(ledger, since, until, size)
    [(stored,)] = ledger.select(
        "SELECT count(*) FROM entries WHERE seq >= ? AND seq < ?", (first, end)
    )
    return {
        "entries": sum(row[1] for row in rows),
        "first_id": entry_id(min(row[2] for row in rows)) if rows else None,
        "last_id": entry_id(max(row[3] for row in rows)) if rows else None,
        "by_event": {str(row[0]): int(row[1]) for row in rows},
        "first_seq": first,
        "end_seq": end,
        "archived": end - first - stored,
    }


def _span(ledger: LedgerClient, since: str | None, until: str | None, size: int) -> tuple[int, int]:
    """Return the first sequence number of a range of time, and its end, exclusive.

    The span begins after the last entry before ``since`` and ends before the first entry after
    ``until``. Both are still in the database, so archived entries next to them are in the span.
    """

    def seq(sql: str, *given: Any) -> int | None:
        [(found,)] = ledger.select(f"SELECT {sql} AND seq < ?", (*given, size))
        return None if found is None else int(found)

    first, end = 0, size
    if since is not None:
        inside = seq("min(seq) FROM entries WHERE timestamp >= ?", since)
        before = seq("max(seq) FROM entries WHERE seq < ?", size if inside is None else inside)
        first = 0 if before is None else before + 1
    if until is not None:
        last = seq("max(seq) FROM entries WHERE timestamp < ?", until)
        after = seq("min(seq) FROM entries WHERE seq > ?", -1 if last is None else last)
        end = size if after is None else after
    return first, max(first, end)


def _read(there: Mapping[str, int], most: int) -> int:
    """Return the least number of entries that a report reads individually."""
    counted = [event for table in _OF_ENTRIES for event in table.events]
    listed = {
        event: min(there.get(event, 0), most) if section.is_bounded else there.get(event, 0)
        for section in SECTIONS
        for event in section.events
    }
    return sum((listed | {event: there.get(event, 0) for event in counted}).values())


def _table(
    table: Table,
    groups: Mapping[tuple[str, ...], Spent] | Mapping[tuple[str, ...], Counted],
    there: Mapping[str, int],
    most: int,
) -> dict[str, Any]:
    """Return a table as data, the most expensive line first.

    ``is_whole`` is True if all entries that the table adds up are listed.
    """
    rows = [{"of": list(of), **asdict(one)} for of, one in groups.items()]
    if not table.by and not rows:
        rows = [{"of": [], **asdict(Spent())}]
    number = "calls" if table.is_usage else "entries"
    rows.sort(key=lambda row: (-row["nano"], -row[number], row["of"]))
    return {
        "name": table.name,
        "part": table.part,
        "heads": list(table.heads),
        "by": list(table.by),
        "events": list(table.events),
        "is_usage": table.is_usage,
        "is_whole": all(there.get(event, 0) <= most for event in table.events),
        "rows": rows[:MAX_LINES],
        "left_out": len(rows[MAX_LINES:]),
    }


def _section(section: Section, there: Mapping[str, int], entries: ReportEntries) -> dict[str, Any]:
    seqs = entries.seqs_of(section)
    return {
        "name": section.name,
        "title": section.title,
        "part": section.part,
        "about": section.about,
        "events": list(section.events),
        "is_of_range": True,
        "there": sum(there.get(event, 0) for event in section.events),
        "listed": len(seqs),
        "seqs": seqs,
        "entries": map(entries.row, seqs),
    }


def _named_sections(
    ledger: LedgerClient,
    entries: ReportEntries,
    used: set[str],
    gates: Mapping[str, Any] | None,
    since: str | None,
) -> Iterator[dict[str, Any]]:
    """Yield sections of entries outside the range: keys used in the range, and present gates."""
    keys: dict[str, str] = {}
    if used and since is not None:
        for entry in ledger.query(event_type="KEY_CREATED", until=since, with_content=False):
            if (name := entry.metadata.get("key_id")) in used and is_authentic(entry):
                keys[name] = entry.id
    checked = [str(one.get("entry_id") or "") for one in (gates or {}).get("gates", ())]
    for name, title, part, events, of in (
        ("used", "Keys used in this range and created before it", "asked", ("KEY_CREATED",),
         list(keys.values())),
        ("gates", "Gates checked for this report", "checks", ("GATE_PASSED", "GATE_FAILED"),
         checked),
    ):  # fmt: skip
        seqs = entries.covered(of)
        yield {
            "name": name, "title": title, "part": part, "about": "", "events": list(events),
            "is_of_range": False, "there": len(seqs), "listed": len(seqs), "seqs": seqs,
            "entries": map(entries.row, seqs),
        }  # fmt: skip


def _verification(found: VerificationReport) -> dict[str, Any]:
    names = (
        "verified", "entries", "contents", "erased", "problem_count", "checkpoint",
        "checkpoint_size", "unread", "last_full", "notes",
    )  # fmt: skip
    problems = [str(problem) for problem in found.problems[:20]]
    return {**{name: getattr(found, name) for name in names}, "problems": problems}
