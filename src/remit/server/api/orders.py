"""Routes of orders: work that is submitted for workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from fastapi import Query

from remit.agents.queue import OrderQueue, Submission
from remit.gateway.auth import expiry_of
from remit.ledger import LedgerClient
from remit.server.api.requests import OrderGiven, OrderListed
from remit.server.api.responses import OrderDetail, OrderPage, OrderShape
from remit.server.api.routes import Caller, Listed, Routes, name_of, page_of

_MOST_PASSED = 100_000  # orders before a cursor


def order_routes(ledger: LedgerClient, orders: OrderQueue) -> Routes:
    """Orders of ``ledger``, submitted and changed through ``orders``."""
    routes = Routes("orders")

    @routes.add("GET", "/orders", "List orders", needs="read", shape=OrderPage)
    def listed(query: Annotated[OrderListed, Query()]) -> dict[str, Any]:
        """Orders that are not done, in the order in which they begin; of a `state`, also others."""
        return page_of(_listed(orders, query), query.limit, "orders")

    @routes.add(
        "POST", "/orders", "Submit an order", needs="manage_keys", shape=OrderShape, status=201
    )
    def submit(order: OrderGiven, caller: Caller) -> dict[str, Any]:
        """Have a worker give an agent one turn.

        Operators only: its calls are the root's own, held to the budgets of agent, session and
        user.
        """
        wanted = Submission(
            agent_id=order.agent_id, task=order.task, queue=order.queue, priority=order.priority,
            due=expiry_of(order.after) if order.after else None, key_id=caller.key_id or "",
            user_id=order.user_id, subject_id=order.subject_id, tokens=order.tokens,
            usd=order.usd, max_attempts=order.max_attempts,
        )  # fmt: skip
        order_id = orders.submit(wanted, by=name_of(caller), key=order.key)
        return orders.get(order_id).to_dict()

    @routes.add("GET", "/orders/{order_id}", "One order", needs="read", shape=OrderDetail)
    def one(order_id: str) -> dict[str, Any]:
        """How an order stands, what it is, and what it came to."""
        status = orders.get(order_id)
        answer = None
        if status.turn_entry_id:
            answer = ledger.read(status.turn_entry_id).metadata["response"]
        task = orders.submission(order_id).metadata["task"]
        return {**status.to_dict(), "task": task, "response": answer}

    @routes.add(
        "POST", "/orders/{order_id}/{verb}", "Change an order",
        needs="manage_keys", shape=OrderShape, fails=[409],
    )  # fmt: skip
    def change(
        order_id: str, verb: Literal["cancel", "pause", "resume", "retry"], caller: Caller
    ) -> dict[str, Any]:
        """Give an order up, keep it from beginning, let it begin, or have it tried again."""
        by = name_of(caller)
        act = {"cancel": orders.cancel, "pause": orders.pause, "resume": orders.resume}
        return act.get(verb, orders.retry)(order_id, by=by).to_dict()

    return routes


def _listed(orders: OrderQueue, query: OrderListed) -> Iterator[Listed]:
    passed = query.cursor is None
    for status in orders.list(queue=query.queue, state=query.state, limit=_MOST_PASSED):
        if passed:
            yield status.order_id, "orders", status.to_dict()
        passed = passed or status.order_id == query.cursor
