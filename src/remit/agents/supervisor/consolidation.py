"""What a session leaves open, found by a model under PRC-CONSOLIDATE-001 when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.agents.sessions import SessionManager
from remit.agents.supervisor.journal import SupervisorJournal
from remit.agents.supervisor.plan import PlanStep
from remit.agents.supervisor.single import SingleOrders
from remit.agents.supervisor.threads import is_date, open_threads
from remit.agents.workorders import WorkOrder, WorkOrderState, recorded_order

__all__ = ["consolidate"]

_STEP = PlanStep("consolidate", "PRC-CONSOLIDATE-001")


async def consolidate(
    orders: SingleOrders, journal: SupervisorJournal, session: SessionManager, most_turns: int
) -> WorkOrder | None:
    """Have the session's turns read, and what they leave open put on record as threads.

    Done once for a state of the session; a failure leaves the threads as they are.

    Args:
        orders: has the work done.
        journal: of the session.
        session: whose turns are read.
        most_turns: how many of the latest.

    Returns:
        The order; ``None`` when there is nothing to read.
    """
    turns = session.recent_turns(most_turns)
    if not turns:
        return None
    key = f"consolidate-{session.turn_count}"
    before = recorded_order(journal.ledger, orders.order_id(key), allow_erased=True)
    if before is not None and before.ended:
        return before
    known = open_threads(journal.ledger, session_id=journal.session_id)
    order = await orders.arun(
        _STEP,
        {
            "turns": [
                {"user_message": turn.user_message, "response": turn.response} for turn in turns
            ],
            "open_threads": [{"id": one.ref, "title": one.text} for one in known],
        },
        key=key,
        same_input=False,
    )
    if order.state is WorkOrderState.COMPLETED:
        named = {one.text: one.ref for one in known} | {one.ref: one.ref for one in known}
        await _record(journal, order.output_result, session.turn_count, named)
    return order


async def _record(
    journal: SupervisorJournal,
    found: Mapping[str, Any],
    turn_count: int,
    named: Mapping[str, str],
) -> None:
    entries = []
    for number, thread in enumerate(found["open_threads"]):
        if thread["title"] in named:
            continue  # it is open already
        opened: dict[str, Any] = {
            "thread_id": f"THR-{journal.session_id}-{turn_count:03d}-end-{number}",
            "title": thread["title"],
            "commitment": thread["commitment"],
        }
        if is_date(thread.get("due")):
            opened["due"] = thread["due"]
        entries.append(journal.entry("THREAD_OPENED", **opened))
    entries += [
        journal.entry("THREAD_CLOSED", thread_id=named[name])
        for name in found["closed_threads"]
        if name in named
    ]
    if entries:
        await journal.write_all(entries)
