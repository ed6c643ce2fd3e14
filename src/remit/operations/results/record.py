"""The forms of entries, sessions, traces and usage."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from remit.agents.sessions import SessionOverview
from remit.ledger import LedgerEntry
from remit.operations.results.page import Open, Paged, form
from remit.views import UsageRow

EntryShape = form(
    "EntryShape", 'A ledger entry. Erased content is `{"$erased": ID of the ERASURE entry}`.',
    of=LedgerEntry,
)  # fmt: skip
EntryPage = form("EntryPage", "Entries; large ones end a page.", base=Paged, entries=[EntryShape])
Head = form(
    "Head", "The last entry.", seq=(int, "Its number, from 0."),
    entry_hash=(str, "SHA-256 of its canonical record, in hex."),
)  # fmt: skip
Stats = form(
    "Stats", "Number of entries of each event type.", entries=(int, "Number of all entries."),
    events=(dict[str, int], "Number of entries by event type."),
    archived=(int, "Number of archived entries, of which no event type is counted."),
    head=(Head | None, "The last entry; null in an empty ledger."),
    location=(str, "File or URL of the ledger."),
)  # fmt: skip

SessionShape = form("SessionShape", "A summary of a session.", of=SessionOverview)
SessionPage = form("SessionPage", "Sessions, latest first.", base=Paged, sessions=[SessionShape])
TurnShape = form(
    "TurnShape", "Both sides of one turn: texts, or markers of erased content.",
    turn_number=(Any, "Number of the turn in its session, from 1."),
    timestamp=(str, "Time of the record, in UTC."),
    entry_id=(str, "Entry that records the turn."),
    user_message=Any,
    response=(Any, "The answer, or the notice in its place."),
    outcome=(str, "Empty if the response is the agent's answer and the quality gate accepted it; "
             "else `notice`, `degraded`, `cancelled` or `abandoned`."),
)  # fmt: skip
ExchangeShape = form(
    "ExchangeShape",
    "A summary of a model call; its entry contains prompt and response. Further members come from "
    "the metadata of the entry.",
    base=Open, entry_id=str, timestamp=(str, "Time of the entry, in UTC."),
)  # fmt: skip
SessionDetail = form(
    "SessionDetail",
    "A session with the turns and model calls of this page, each in ledger order.",
    of=SessionOverview, base=Paged, turn_list=[TurnShape], exchanges=[ExchangeShape],
)  # fmt: skip
Step = form(
    "Step", "A summary of one entry of a work order. Further members depend on the event type.",
    base=Open, entry_id=str, event_type=str, timestamp=(str, "Time of the entry, in UTC."),
)  # fmt: skip
Trace = form(
    "Trace", "The steps of a work order, in ledger order.", base=Paged,
    work_order_id=str, session_id=str, steps=[Step],
    state=(Literal["planned", "dispatched", "executing", "completed", "failed"] | None,
           "State of the order; null if Remit did not plan it."),
)  # fmt: skip

UsageShape = form(
    "UsageShape", "Usage and cost of some calls, with the values of the names in `by`.",
    of=UsageRow, base=Open, names=None, key_name=None,
    measured_nano=None, estimated_nano=None, upper_bound_nano=None,
    measured_usd=(float, "Cost of usage that providers reported, in US dollars."),
    estimated_usd=(float, "Cost of usage counted from received content, in US dollars."),
    upper_bound_usd=(float, "Upper bound of the cost of calls with unknown usage."),
)  # fmt: skip
UsagePage = form(
    "UsagePage", "Usage by group: periods in order, names within them.", base=Paged,
    since=datetime, until=datetime, time_zone=str, by=[str], rows=[UsageShape],
    total=(UsageShape | None, "Sum over all pages; null on further pages."),
)  # fmt: skip
