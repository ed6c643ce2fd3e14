"""Routes of orders: work that is submitted for workers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query

from remit.agents.queue import OrderQueue, OrderStatus, Submission, bind_to_key, no_such_order
from remit.agents.sessions import response_of
from remit.gateway.auth import Identity, expiry_of
from remit.ledger import LedgerClient
from remit.server.api.requests import OrderGiven, OrderListed
from remit.server.api.routes import Caller, Context, Routes, name_of, page_of
from remit.server.authentication import DEVELOPER
from remit.server.refusals import HttpError

_OPERATES = "manage_keys"
_OPERATORS_OWN = ("queue", "priority", "for_key", "tokens", "usd", "max_attempts")


def order_routes(ledger: LedgerClient, orders: OrderQueue) -> Routes:
    """Return the routes of orders of ``ledger``, submitted and changed through ``orders``.

    The routes list, submit, show, cancel, pause, resume and retry orders. Callers without the
    operator's permission only see and cancel orders of their own key.

    Args:
        ledger: ledger of the root.
        orders: its queues.
    """
    routes = Routes("orders")

    @routes.add("GET", "/orders", "List orders", needs="read", shape="OrderPage")
    def listed(query: Annotated[OrderListed, Query()]) -> dict[str, Any]:
        """Return open orders in the order in which they begin; with `state`, others too."""
        found = orders.list(
            queue=query.queue, state=query.state, limit=query.limit + 1, after=query.cursor or ""
        )
        rows = ((one.cursor, "orders", one.to_dict()) for one in found)
        return page_of(rows, query.limit, "orders")

    @routes.add(
        "POST", "/orders", "Submit an order", needs="call", shape="OrderShape", status=201,
        fails=[404, 409],
    )  # fmt: skip
    def submit(order: OrderGiven, caller: Caller, context: Context) -> dict[str, Any]:
        """Submit an order: a worker gives an agent one turn within the limits of the caller's key.

        Operators may name another key. Any other key must name the agent among its `agents`, and
        may not set `queue`, `priority`, `for_key`, `tokens`, `usd`, `max_attempts` or another
        `user_id`: its session has the agent's limits.
        """
        key, submitted_as = order.for_key, order.key
        if not caller.may(_OPERATES):
            _check_own(caller, order)
            submitted_as = f"{caller.key_id}/{order.key}" if order.key else ""
        if not key and caller.key_id != DEVELOPER.key_id:
            key = caller.key_id
        wanted = Submission(
            agent_id=order.agent_id, task=order.task, queue=order.queue, priority=order.priority,
            due=expiry_of(order.after) if order.after else None, user_id=order.user_id,
            subject_id=order.subject_id or context.subject_id, tokens=order.tokens, usd=order.usd,
            max_attempts=order.max_attempts,
        )  # fmt: skip
        if key:
            wanted = bind_to_key(ledger, wanted, key)
        order_id = orders.submit(wanted, by=name_of(caller), key=submitted_as)
        return orders.get(order_id).to_dict()

    @routes.add(
        "GET",
        "/orders/{order_id}",
        "One order",
        needs="read or call",
        shape="OrderDetail",
    )
    def one(order_id: str, caller: Caller) -> dict[str, Any]:
        """Return an order with its state, task and response.

        With the permission `call` alone, only orders of the caller's key are found.
        """
        status = _found(orders, order_id, caller, "read")
        task = orders.submission(order_id).metadata["task"]
        return {**status.to_dict(), "task": task, **response_of(ledger, status.turn_entry_id)}

    @routes.add(
        "POST", "/orders/{order_id}/{verb}", "Change an order",
        needs=f"{_OPERATES} or call", shape="OrderShape", fails=[409],
    )  # fmt: skip
    def change(
        order_id: str, verb: Literal["cancel", "pause", "resume", "retry"], caller: Caller
    ) -> dict[str, Any]:
        """Cancel, pause, resume or retry an order.

        With the permission `call` alone, only cancelling an order of the caller's key is allowed.
        """
        _found(orders, order_id, caller, _OPERATES)
        if verb != "cancel" and not caller.may(_OPERATES):
            raise HttpError(403, "forbidden", f"The role {caller.role} may only cancel its orders.")
        by = name_of(caller)
        act = {"cancel": orders.cancel, "pause": orders.pause, "resume": orders.resume}
        return act.get(verb, orders.retry)(order_id, by=by).to_dict()

    return routes


def _check_own(caller: Identity, order: OrderGiven) -> None:
    """Raise HttpError 403 if a caller who is no operator may not submit this order."""
    why = ""
    if not caller.key_id or caller.within is not None:
        why = "Orders are submitted with a virtual key."
    elif order.agent_id not in caller.agents:
        why = f"This key does not name {order.agent_id!r} among its agents."
    elif not order.model_fields_set.isdisjoint(_OPERATORS_OWN):
        why = f"The role {caller.role} may not say {', '.join(_OPERATORS_OWN)} of an order."
    elif order.user_id not in ("", caller.user_id):
        why = "This key may not name another user."
    if why:
        raise HttpError(403, "forbidden", why)


def _found(orders: OrderQueue, order_id: str, caller: Identity, permission: str) -> OrderStatus:
    """Return an order that the caller may know of.

    Raises:
        NotFoundError: the order does not exist, or belongs to another key.
    """
    status = orders.get(order_id)
    is_own = bool(caller.key_id) and caller.within is None and status.key_id == caller.key_id
    if not is_own and not caller.may(permission):
        raise no_such_order(order_id)
    return status
