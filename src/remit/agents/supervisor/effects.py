"""The effects of tools that a turn takes over from those before it, and leaves for those after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from remit.agents.sessions import SessionManager
from remit.agents.supervisor.services import Responder, Services
from remit.agents.tools import UnknownToolError
from remit.agents.workorders import (
    Effect,
    OrderHistory,
    WorkOrder,
    WorkOrderState,
    latest,
    sub_session_id,
    with_decision,
)
from remit.ledger import Erased, LedgerPort


def carried_effects(services: Services) -> tuple[Effect, ...]:
    """Return the effects that the session's next prompt must report, with what people decided.

    They are those that the latest turn left; before the first turn of a sub-agent's session,
    those that its caller was given.
    """
    session, ledger = services.session, services.ledger
    if session.turn_count or not session.principal.callers:
        found: Sequence[Effect] = session.effects
    else:
        found = _of_caller(ledger, session.principal.callers[0].work_order_id)
    return tuple(with_decision(effect, ledger) for effect in found)


def remaining_effects(
    ledger: LedgerPort,
    carried: Sequence[Effect],
    orders: Sequence[WorkOrder],
    agents: Mapping[str, Responder],
    *,
    answered: bool,
) -> list[Effect]:
    """Return the effects that a turn leaves for the next prompt to report.

    Args:
        ledger: a handle that sees the orders' entries.
        carried: those that it was given itself.
        orders: its orders, ended.
        agents: who worked on each order, by the order's id.
        answered: whether its answer was delivered: then only open outcomes remain.
    """
    if answered and not carried and all(map(_is_completed, orders)):
        return []  # nearly always
    own: list[Effect] = []
    for order in orders:
        history = OrderHistory(ledger, order.wo_id, order.session_id)
        own += _of_order(ledger, history, agents[order.wo_id])
        replaced = {
            str(request.metadata["instead_of"]): request.id
            for request in history.requests
            if "instead_of" in request.metadata
        }
        carried = [
            replace(one, request_id=replaced.get(one.request_id, one.request_id)) for one in carried
        ]
    begun = {effect.action for effect in own}
    every = [*(one for one in carried if one.action not in begun), *own]
    every = [with_decision(effect, ledger) for effect in every]
    return latest(one for one in every if one.is_open or not answered)


def _is_completed(order: WorkOrder) -> bool:
    return order.state is WorkOrderState.COMPLETED


def _of_caller(ledger: LedgerPort, wo_id: str) -> list[Effect]:
    for plan in ledger.query(work_order_id=wo_id, event_type="WO_PLANNED", limit=1):
        context = plan.metadata["input_context"]
        if not isinstance(context, Erased):
            assembled = context.get("assembled_context") or {}
            return [Effect.of_dict(one) for one in assembled.get("effects") or ()]
    return []


def _of_order(ledger: LedgerPort, history: OrderHistory, agent: Responder) -> list[Effect]:
    """Return the effects of an order's calls; of a sub-agent without an answer, its own ones."""
    found: list[Effect] = []
    for key, effect in history.effects().items():
        if effect.status != "ok" and sub_session_id(key) in history.sub_sessions:
            found += SessionManager(ledger, sub_session_id(key)).effects
            continue
        try:
            repeatable = agent.worker.is_repeatable(effect.tool_id)
        except UnknownToolError:  # the program has it no more
            repeatable = False
        found.append(replace(effect, repeatable=repeatable))
    return found
