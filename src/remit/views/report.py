"""A report for an auditor: what ran, who asked, what it cost, what was refused, what changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remit._version import __version__
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
from remit.views.report_entries import SECTIONS, ReportEntries, Section
from remit.views.report_sums import CALLS, Groups, Sum, calls_between, sums_of

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
    events: tuple[str, ...] = CALLS


_OF_CALLS = (
    _Table("total", "ran", (), ()),
    _Table("agents", "ran", ("agent",), ("/metadata/agent_id",)),
    _Table("contracts", "ran", ("contract", "version"),
           ("/metadata/contract_id", "/metadata/contract_version")),
    _Table("models", "ran", ("model",), ("/metadata/model_id",)),
    _Table("callers", "asked", ("key", "user on the call"),
           ("/metadata/key_id", "/metadata/user_id")),
    _Table("certainty", "cost", ("how sure the cost is",), ("/metadata/cost_certainty",)),
)  # fmt: skip
_OF_OTHERS = (
    _Table("outside", "cost", ("charged outside the gateway to",), ("/metadata/scope",),
           ("BUDGET_DEBIT",)),
    _Table("refusals", "refused", ("event", "code"), ("/event_type", "/metadata/error_code"),
           ("PROMPT_REJECTED", "BUDGET_WARNING")),
)  # fmt: skip


def audit_report(
    ledger: LedgerClient,
    *,
    checkpoint: SignedCheckpoint,
    since: str | None = None,
    until: str | None = None,
    most: int = 2_000,
    verification: VerificationReport | None = None,
    gates: Mapping[str, Any] | None = None,
    witnesses: Sequence[str] = (),
) -> dict[str, Any]:
    """A report as data. Its lists of entries are iterators, to be gone through once, in order.

    Args:
        ledger: the record.
        checkpoint: all proofs lead to it; what came after it is left out.
        since: first instant, inclusive, ISO 8601; ``None``: from the beginning.
        until: last instant, exclusive; ``None``: to the end.
        most: how many calls, refusals, debits and budgets it lists at most, of each event type.
        verification: what ``ledger.verify`` found.
        gates: as :meth:`~remit.packages.gates.GateReport.to_dict` has them.
        witnesses: whose cosignatures on the checkpoint were checked.

    Raises:
        InvalidInputError: a time cannot be understood.
        NoSignerError: the ledger has no key.
    """
    since, until = instant(since), instant(until)
    head = checkpoint.checkpoint
    key = str(ledger.verifier_key or ledger.checkpoints.owner())
    if not key:
        raise NoSignerError(
            "The ledger has no key, so nothing in a report could be checked.",
            next_step="`remit init` makes one.",
        )
    entries = ReportEntries(ledger, head.size, since, until, most)
    extent = _extent(ledger, since, until, head.size)
    there = extent["by_event"]
    of_calls = {table.name: table.by for table in _OF_CALLS}
    sums = calls_between(ledger, since, until, head.size, of_calls)
    for table in _OF_OTHERS:
        found = (entry for event in table.events for entry in entries.between(event))
        sums |= sums_of(found, {table.name: table.by})
    return {
        "made_at": utc_now(),
        "remit_version": __version__,
        "since": since,
        "until": until,
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
        "tables": [_table(one, sums[one.name], there, most) for one in (*_OF_CALLS, *_OF_OTHERS)],
        "sections": [
            *_named_sections(ledger, entries, sums["callers"], gates, since),
            *(_section(one, there, most, entries.of(one)) for one in SECTIONS),
        ],
    }


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


def _table(table: _Table, groups: Groups, there: Mapping[str, int], most: int) -> dict[str, Any]:
    """Its lines, the dearest first; ``is_whole``: all entries that they add up are listed."""
    ranked = sorted(groups.items(), key=lambda one: (-one[1].nano, -one[1].entries, one[0]))
    if not table.by and not ranked:
        ranked = [((), Sum())]
    rest = ranked[_MOST_GROUPS:]
    return {
        "name": table.name,
        "part": table.part,
        "heads": list(table.heads),
        "by": list(table.by),
        "events": list(table.events),
        "is_whole": all(there.get(event, 0) <= most for event in table.events),
        "rows": [{"of": list(of), **_plain(one)} for of, one in ranked[:_MOST_GROUPS]],
        "left_out": len(rest),
        "rest": sum(one.entries for _, one in rest),
    }


def _plain(one: Sum) -> dict[str, int]:
    return {name: getattr(one, name) for name in Sum.__slots__}


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
    callers: Groups,
    gates: Mapping[str, Any] | None,
    since: str | None,
) -> Iterator[dict[str, Any]]:
    """Entries that are not of the range and say something of it: keys used in it, gates now."""
    used = {of[0] for of in callers if of[0]}
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
