"""Threads: the commitments and questions that a conversation leaves open.

Later turns and other sessions know them. A model opens and closes threads by tools that only return
their arguments; the supervisor writes the entries once the order has ended. At the end of a
session, another model call under PRC-CONSOLIDATE-001 finds what the session leaves open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from remit.agents.supervisor.attention import Candidate
from remit.agents.supervisor.plan import PlanStep
from remit.agents.tools import Tool, tool
from remit.agents.workorders import WorkOrder, WorkOrderState, recorded_order
from remit.ledger import Erased, LedgerEntry, LedgerPort

if TYPE_CHECKING:
    from remit.agents.supervisor.entries import SupervisorJournal
    from remit.agents.supervisor.services import Services
    from remit.agents.supervisor.standalone_orders import StandaloneOrders

COMMITMENTS: Mapping[str, float] = {"agent": 1.0, "user": 0.7, "none": 0.3}
"""How binding a thread is: the agent promised, the user promised, neither did."""

_MAX_LOOKED_AT = 200
_CONSOLIDATE = PlanStep("consolidate", "PRC-CONSOLIDATE-001")


@tool(on_unknown="retry")
def open_thread(
    title: Annotated[str, Field(min_length=1, max_length=300)],
    commitment: Literal["agent", "user", "none"] = "agent",
    due: str = "",
) -> dict[str, Any]:
    """Note something that stays open after this conversation: a promise, a question to come
    back to. Later conversations will know of it.

    Returns the title as ``opened``, ``commitment`` and ``due``, unchecked. Writes nothing: the
    supervisor records the thread once the order has ended.

    Args:
        commitment: who is bound by it
        due: ISO 8601 date, if there is one
    """
    return {"opened": title, "commitment": commitment, "due": due}


@tool(on_unknown="retry")
def close_thread(thread_id: str) -> dict[str, Any]:
    """Note that an open thread is closed."""
    return {"closed": thread_id}


def thread_tools() -> list[Tool]:
    """Return the tools ``open_thread`` and ``close_thread``, for models with native tools."""
    return [open_thread, close_thread]


def proposed_entries(services: Services, order: WorkOrder) -> list[LedgerEntry]:
    """Return the unwritten entries of the threads that an order's tools open and close.

    Each successful call of :func:`open_thread` gives a ``THREAD_OPENED``, and each of
    :func:`close_thread` a ``THREAD_CLOSED``, unless the session does not know the thread: such a
    call is skipped. A session knows its own open threads and those of the tier above. A ``due``
    that is not an ISO 8601 date is left out. An order cannot close threads that it opened itself.
    Nothing is written.

    Args:
        services: the collaborators of the session's supervisor.
        order: the ended order.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    journal, turn_number = services.journal, services.session.turn_count + 1
    entries: list[LedgerEntry] = []
    known: set[str] | None = None
    for number, result in enumerate(order.tool_results):
        output = result.get("output")
        if result.get("status") != "ok" or not isinstance(output, Mapping):
            continue
        if result["tool_id"] == open_thread.tool_id:
            thread_id = f"THR-{journal.session_id}-{turn_number:03d}-{number}"
            entries.append(_opened(journal, thread_id, output["opened"], output))
        elif result["tool_id"] == close_thread.tool_id:
            if known is None:
                known = {thread.ref for thread in known_threads(services, own=True)}
            if output["closed"] in known:
                entries.append(journal.entry("THREAD_CLOSED", thread_id=str(output["closed"])))
    return entries


def _opened(
    journal: SupervisorJournal, thread_id: str, title: Any, details: Mapping[str, Any]
) -> LedgerEntry:
    due = {"due": str(details["due"])} if _is_date(details.get("due")) else {}
    commitment = str(details["commitment"])
    return journal.entry(
        "THREAD_OPENED", thread_id=thread_id, title=str(title), commitment=commitment, **due
    )


def _is_date(text: Any) -> bool:
    """Return True if a text is an ISO 8601 date or time; other texts are not recorded as dates."""
    try:
        return bool(text) and datetime.fromisoformat(str(text)) is not None
    except ValueError:
        return False


def known_threads(services: Services, *, own: bool) -> list[Candidate]:
    """Return the open threads that a session knows, and may therefore close.

    Args:
        services: the collaborators of the session's supervisor.
        own: True to include threads of the session itself, before those from the tier above.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    session_id = services.session.session_id
    context = services.agent.context
    known = open_threads(services.journal.ledger, session_id=session_id) if own else []
    return [*known, *(context.threads(session_id) if context else ())]


def open_threads(
    ledger: LedgerPort,
    *,
    session_id: str | None = None,
    agent_id: str | None = None,
    most: int = _MAX_LOOKED_AT,
) -> list[Candidate]:
    """Return open threads, latest first. Read-only.

    Threads with an erased title are left out. A thread counts as closed whichever session or agent
    closed it, and whoever wrote the entry.

    Args:
        ledger: contains the threads.
        session_id: only threads of this session; None for all.
        agent_id: only threads of this agent; None for all.
        most: number of latest threads that are examined, open or closed (200 by default); older
            ones are not returned, even if they are open.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    opened = list(
        ledger.query(
            event_type="THREAD_OPENED",
            session_id=session_id,
            agent_id=agent_id,
            order="desc",
            limit=most,
        )
    )
    if not opened:
        return []
    # Any session may close a thread. Entries before the oldest thread close other threads.
    first = min(entry.seq for entry in opened)
    closed = {
        entry.metadata["thread_id"]
        for entry in ledger.query(event_type="THREAD_CLOSED", after=first)
    }
    return [
        Candidate(
            kind="thread",
            ref=data["thread_id"],
            text=data["title"],
            commitment=COMMITMENTS.get(data["commitment"], 0.0),
            at=entry.timestamp,
            due=str(data.get("due", "")),
        )
        for entry in opened
        if (data := entry.metadata)["thread_id"] not in closed
        and not isinstance(data["title"], Erased)
    ]


async def consolidate(services: Services, orders: StandaloneOrders) -> WorkOrder | None:
    """Have a model read the session's latest turns, and record open matters as threads.

    The model reads at most ``[supervisor] context_turns`` turns. Appends ``THREAD_OPENED`` and
    ``THREAD_CLOSED`` entries. A second call for the same number of turns returns the first order if
    it ended, and resumes it otherwise; threads that a killed process did not record are recorded.
    A thread with the title of an open one is not opened again; only open threads of the session,
    by id or title, are closed. A failed order, or an erased answer, leaves the threads unchanged.

    Args:
        services: the collaborators of the session's supervisor.
        orders: runs the model call as a standalone order.

    Returns:
        The ended order; None if the session has no turns.

    Raises:
        LeaseBusyError: another process works on the same order.
        OrderRecordError: the interrupted order's input was erased, or its entries form no order.
        LedgerError: the ledger cannot be read or written.
        LeaseLostError: another process took the order over.
    """
    session, journal = services.session, services.journal
    turns = session.recent_turns(services.config.context_turns)
    if not turns:
        return None
    key = f"consolidate-{session.turn_count}"
    known = open_threads(journal.ledger, session_id=session.session_id)
    order = recorded_order(journal.ledger, orders.order_id(key), allow_erased=True)
    if order is None or not order.ended:
        context = {
            "turns": [turn.said for turn in turns],
            "open_threads": [{"id": candidate.ref, "title": candidate.text} for candidate in known],
        }
        order = await orders.arun(_CONSOLIDATE, context, key=key, same_input=False, is_answer=False)
    elif _are_recorded(journal, order.wo_id):
        return order
    if order.state is WorkOrderState.COMPLETED and isinstance(order.output_result, Mapping):
        await _record(journal, order.output_result, session.turn_count, known)
    return order


def _are_recorded(journal: SupervisorJournal, wo_id: str) -> bool:
    """Return True if the session recorded threads after the order completed.

    The threads of an order are written in one transaction, so all or none are recorded.
    """
    ends = journal.ledger.query(work_order_id=wo_id, event_type="WO_COMPLETED", limit=1)
    return any(
        True
        for end in ends
        for event_type in ("THREAD_OPENED", "THREAD_CLOSED")
        for _ in journal.ledger.query(
            session_id=journal.session_id, event_type=event_type, after=end.id, limit=1
        )
    )


async def _record(
    journal: SupervisorJournal,
    found: Mapping[str, Any],
    turn_count: int,
    known: Sequence[Candidate],
) -> None:
    named = {candidate.text: candidate.ref for candidate in known} | {
        candidate.ref: candidate.ref for candidate in known
    }
    prefix = f"THR-{journal.session_id}-{turn_count:03d}-end"
    entries = [
        _opened(journal, f"{prefix}-{number}", thread["title"], thread)
        for number, thread in enumerate(found["open_threads"])
        if thread["title"] not in named  # The thread is not open yet.
    ]
    entries += [
        journal.entry("THREAD_CLOSED", thread_id=named[name])
        for name in found["closed_threads"]
        if name in named
    ]
    if entries:
        await journal.write_all(entries)
