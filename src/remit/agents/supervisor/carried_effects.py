"""Effects of tools that a turn takes over from earlier turns and leaves for later ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from remit.agents.sessions import SessionManager
from remit.agents.supervisor.services import Responder, Services
from remit.agents.workorders import (
    Effect,
    OrderHistory,
    WorkOrder,
    latest,
    sub_session_id,
    with_decision,
)
from remit.ledger import Erased, LedgerEntry, LedgerPort


def carried_effects(services: Services) -> tuple[Effect, ...]:
    """Return the effects that the session's next prompt must report, with people's decisions.

    These are the effects that the latest turn left. Before the first turn of a sub-agent's session,
    they are the effects given to the calling order, and its ended calls with an unknown outcome or
    of a failed sub-agent. Read-only. Effects of erased turns are missing.

    Args:
        services: the parts with which the session runs.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    session, ledger = services.session, services.ledger
    if session.turn_count or not session.principal.callers:
        found: Sequence[Effect] = session.effects
    else:
        caller = session.principal.callers[0]
        found = _of_caller(ledger, caller.work_order_id, caller.session_id)
    return tuple(with_decision(effect, ledger) for effect in found)


def remaining_effects(
    ledger: LedgerPort,
    carried: Sequence[Effect],
    orders: Iterable[WorkOrder],
    agents: Mapping[str, Responder],
    *,
    answered: bool,
) -> list[Effect]:
    """Return the effects that a turn leaves for the next prompt: carried ones first, then its own.

    A person's decisions are read from the ledger. A call that a person allowed to run again is left
    out if it began again, or if it is a carried one and the turn used its tool. Effects of
    sub-agents are included. Only the last 50 effects are returned, and all earlier ones with an
    open outcome. Read-only.

    Args:
        ledger: a handle that may read the orders' entries and the decisions.
        carried: effects that the turn took over. The turn's own record of the same call replaces
            one.
        orders: ended orders of the turn.
        agents: the agent of each order, keyed by order id. Its worker says which tools may be
            repeated.
        answered: True if the answer was delivered; then only open outcomes remain: unknown, not
            repeatable, and not decided by a person.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    own: list[Effect] = []
    asked_again: dict[str, str] = {}
    run_again: set[str] = set()
    for order in orders:
        history = OrderHistory(ledger, order.wo_id, order.session_id)
        own += _of_order(ledger, history, agents[order.wo_id].worker.is_repeatable)
        for request in history.requests:
            if earlier := request.metadata.get("instead_of"):
                asked_again[earlier] = request.id
                if history.intents[request.metadata["idempotency_key"]]:
                    run_again.add(earlier)
    known = {effect.key for effect in own}
    begun = {effect.tool_id for effect in own}
    found = []
    for one in [*(one for one in carried if not one.key or one.key not in known), *own]:
        if one.request_id in run_again:
            continue  # A person allowed the call to run again, and it ran.
        request_id = asked_again.get(one.request_id, one.request_id)
        effect = with_decision(replace(one, request_id=request_id), ledger)
        if one.key not in known and effect.decision == "granted" and effect.tool_id in begun:
            continue
        if effect.is_open or not answered:
            found.append(effect)
    return latest(found)


def unknown_effects(ledger: LedgerPort, order: WorkOrder, agent: Responder) -> list[Effect]:
    """Return the calls of an order with an unknown outcome that must not be repeated.

    Calls of its sub-agents are included. Read-only.

    Args:
        ledger: a handle that may read the order's entries.
        order: the order.
        agent: the agent whose worker ran it.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    history = OrderHistory(ledger, order.wo_id, order.session_id)
    found = _of_order(ledger, history, agent.worker.is_repeatable)
    return [one for one in found if one.is_unknown and not one.repeatable]


def session_effects(ledger: LedgerPort, session_id: str) -> list[Effect]:
    """Return the effects of tools in a sub-agent's session, its own sub-agents included.

    If the latest turn ended without an answer, these are the effects that it recorded. If it ended
    with one, they are the calls with a known outcome in all orders of the session, and then the
    open outcomes that the turn recorded. Without a recorded turn, they are all calls of the orders.
    A session without entries has none. Read-only.

    Args:
        ledger: a handle that may read the session.
        session_id: the sub-agent's session.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    turns = ledger.query(session_id=session_id, event_type="TURN_RECORDED", order="desc", limit=1)
    turn = next(iter(turns), None)
    recorded = list(SessionManager(ledger, session_id).effects)
    if turn is not None and turn.metadata.get("outcome"):
        return recorded
    plans = ledger.query(session_id=session_id, event_type="WO_PLANNED", with_content=False)
    found: list[Effect] = []
    for wo_id in [plan.submission_id for plan in plans]:
        found += _of_order(ledger, OrderHistory(ledger, wo_id, session_id), lambda _: False)
    if turn is None:
        return found
    return [*(effect for effect in found if not effect.is_unknown), *recorded]


def unused_grants(ledger: LedgerPort, wo_id: str, session_id: str) -> list[LedgerEntry]:
    """Return the grants whose calls did not run, of an order and its unfinished sub-agents.

    Read-only.

    Args:
        ledger: a handle that may read the entries of the order and of its sub-agents.
        wo_id: the order.
        session_id: its session.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    history = OrderHistory(ledger, wo_id, session_id)
    found = history.unused_grants
    for inner in map(sub_session_id, history.open_sub_agents):
        for plan in ledger.query(session_id=inner, event_type="WO_PLANNED", with_content=False):
            found += unused_grants(ledger, plan.submission_id, inner)
    return found


def _of_caller(ledger: LedgerPort, wo_id: str, session_id: str) -> list[Effect]:
    """Return the effects given to the calling order, and the effects of its unanswered calls."""
    found: list[Effect] = []
    for plan in ledger.query(work_order_id=wo_id, event_type="WO_PLANNED", limit=1):
        context = plan.metadata["input_context"]
        if not isinstance(context, Erased):
            assembled = context.get("assembled_context") or {}
            found = [Effect.of_dict(one) for one in assembled.get("effects") or ()]
    history = OrderHistory(ledger, wo_id, session_id)
    for key, effect in history.effects().items():
        if key not in history.tool_calls:
            continue  # The call is in progress.
        inner = [effect]
        if sub_session_id(key) in history.sub_sessions:
            inner = session_effects(ledger, sub_session_id(key))
            if effect.status != "ok":
                found += inner
                continue
        found += [one for one in inner if one.is_unknown]
    return found


def _of_order(
    ledger: LedgerPort, history: OrderHistory, is_repeatable: Callable[[str], bool]
) -> list[Effect]:
    """Return the effects of an order's calls, and of its sub-agents' calls."""
    found: list[Effect] = []
    for key, effect in history.effects().items():
        if sub_session_id(key) in history.sub_sessions:
            found += session_effects(ledger, sub_session_id(key))
            if effect.status != "ok":
                continue
        found.append(replace(effect, repeatable=is_repeatable(effect.tool_id)))
    return found
