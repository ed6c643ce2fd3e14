"""Operations on orders: work that is submitted for workers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from remit.operations.operation import Answer, Feed, field, limit, verb
from remit.operations.ports import Caller, ForbiddenError, RootPort
from remit.operations.text import Table, facts
from remit.operations.workers import list_workers, unattended

if TYPE_CHECKING:
    from remit.agents.queue import OrderStatus

_OPERATES = "manage_keys"
_OPERATORS_OWN = ("queue", "priority", "for_key", "tokens", "usd", "max_attempts")
_ID = 512


def by() -> Any:
    """Declare the option that names another person than the current user."""
    return field("Person who decides (default: the current user).", None, door="command")


def _text(text: str, most: int = _ID, **traits: Any) -> Any:
    return field(text, "", most=most, **traits)


def _moment(timestamp: str) -> str:
    from remit.views.wording import moment

    return moment(timestamp)


_ORDER_ID: Any = field("Id of the order.", flag="")


def _found(root: RootPort, caller: Caller, order_id: str, permission: str) -> OrderStatus:
    """Return an order if the caller has the permission, or if the caller's key submitted it.

    Raises:
        NotFoundError: the order does not exist, or belongs to another key.
    """
    from remit.agents.queue import no_such_order

    status, own = root.orders.get(order_id), caller.identity
    is_own = bool(own.key_id) and own.within is None and status.key_id == own.key_id
    if not is_own and not caller.may(permission):
        raise no_such_order(order_id)
    return status


@verb(
    "order list", "GET /orders", summary="List orders", form="OrderListed", result="OrderPage",
    member="orders", endpoint="listed",
    nothing="No orders to list. `remit order submit` submits one.",
    columns=(
        "order_id", "state", ("submitted", lambda one: _moment(one["submitted"])), "agent_id",
        "queue", ("attempts", lambda one: f"{one['attempts']}/{one['max_attempts']}"), "priority",
        ("held by", lambda one: one["error_code"] or one["held_by"] or one["waits_for"]
         or one["due"]),
    ),
)  # fmt: skip
def list_orders(
    root: RootPort, caller: Caller, *,
    queue: str = _text("Name of a queue; empty for all queues.", 100),
    state: Literal[
        "", "ready", "delayed", "held", "running", "waiting", "paused", "failed", "completed",
        "cancelled",
    ] = field(
        "State of the orders: ready, running, failed, completed, …; by default all that have not "
        "ended.", "", metavar="STATE",
    ),
    limit: int | None = limit(),
) -> Feed:  # fmt: skip
    """List open orders in the order in which they start. With a state, list others too.

    Returns:
        A list, page by page.

    Raises:
        InvalidInputError: the cursor is unknown; raised when the list is read.
        LedgerError: the ledger cannot be read; raised when the list is read.
    """

    def read(cursor: str | None, most: int | None) -> Iterator[tuple[str, Any]]:
        for one in root.orders.list(
            queue=queue, state=state, limit=most or 1_000_000, after=cursor or ""
        ):
            yield one.cursor, one.to_dict()

    workers = list_workers(root, caller) if caller.is_local else {}
    return Feed(read, note=unattended(workers) if workers.get("queues") else "")


def _lines(found: dict[str, Any]) -> Iterator[str | Table]:
    yield from facts(found, "response")
    if found["response"] is not None:
        yield from ("", *str(found["response"]).splitlines())


@verb(
    "order submit", "POST /orders", summary="Submit an order", needs="call", form="OrderGiven",
    result="OrderStatus", status=201, fails=(404, 409),
)  # fmt: skip
def submit_order(
    root: RootPort, caller: Caller, *,
    agent_id: str = field(
        "Agent that carries out the order.", is_name=True, flag="", metavar="AGENT"
    ),
    task: str = field(
        "Task for the agent; stored as content, which can be erased.", least=1, flag="",
        metavar="TASK", read=lambda text: sys.stdin.read() if text == "-" else text,
    ),
    queue: str = field("Queue of the order.", "default", most=100),
    priority: int = field(
        "Priority; orders with lower numbers start first.", 0, least=-1000, most=1000
    ),
    after: str = _text("Earliest start: a duration from now such as 2h, or a time.", 64),
    key: str = _text("Idempotency key: only one order is created per key."),
    for_key: str = _text(
        "Name or id of the virtual key whose limits apply; by default the caller's own key."
    ),
    user_id: str = _text("User whose budget is charged.", flag="--user"),
    subject_id: str = _text("Person whom the content is about, for erasure.", flag="--subject"),
    tokens: int | None = field("Token limit of the session.", None, least=0, most=10**12),
    usd: float | None = field("Limit of the session in US dollars.", None, least=0, most=10**9),
    max_attempts: int | None = field(
        "Number of attempts before the order is set aside.", None, least=1, most=1000,
        flag="--attempts",
    ),
    wait: bool = field("Wait until the order ends, and show the answer.", False, door="command"),
    by: str | None = by(),
    given: frozenset[str] = frozenset(),
) -> Answer:  # fmt: skip
    """Submit an order: a worker gives an agent one turn within the limits of a key.

    Over HTTP, the order has the limits of the caller's key; operators may name another key. Any
    other key must name the agent among its `agents`, and may not set `queue`, `priority`,
    `for_key`, `tokens`, `usd`, `max_attempts` or another `user_id`: its session has the agent's
    limits. At the command line, the task `-` is standard input.

    Returns:
        The order; with ``wait``, the ended order with its task and response, and the command fails
        unless it was completed. A repeated idempotency key gives the first order; callers who are
        no operators have keys of their own. Waiting has no time limit.

    Raises:
        ForbiddenError: the caller's key may not submit this order.
        InvalidInputError: a value cannot be used, the limiting key may not use the agent or belongs
            to another user, or the idempotency key was used for another task, user or person.
        NotFoundError: no such key exists.
        ConflictError: the key is revoked or expired.
        AuthUnavailableError: the row of the key is damaged.
        LedgerError: the ledger cannot be read or written.
    """
    from remit.agents.queue import Submission, bind_to_key
    from remit.gateway.auth import expiry_of
    from remit.kernel.loops import run_blocking

    submitted_as, own = key, caller.identity
    if not caller.may(_OPERATES):
        if why := _why_not(caller, agent_id, user_id, given):
            raise ForbiddenError(why)
        submitted_as = f"{own.key_id}/{key}" if key else ""
    wanted = Submission(
        agent_id=agent_id, task=task, queue=queue, priority=priority,
        due=expiry_of(after, root.ledger.wall_time) if after else None, user_id=user_id,
        subject_id=subject_id or caller.subject_id, tokens=tokens, usd=usd,
        max_attempts=max_attempts,
    )  # fmt: skip
    if limiting := for_key or ("" if own.key_id == "dev" else own.key_id):
        wanted = bind_to_key(root.ledger, wanted, limiting)
    order_id = root.orders.submit(wanted, by=caller.name, key=submitted_as)
    if caller.is_local and (hint := unattended(list_workers(root, caller))):
        root.note(hint)
    if wait:
        found = _detail(root, run_blocking(root.orders.ended(order_id)))
        return Answer(found, _lines(found), found["state"] != "completed")
    return Answer(root.orders.get(order_id).to_dict(), [order_id])


def _why_not(caller: Caller, agent_id: str, user_id: str, given: frozenset[str]) -> str:
    """Return why a caller who is no operator may not submit an order; empty if it may."""
    own = caller.identity
    if not own.key_id or own.within is not None:
        return "Orders are submitted with a virtual key."
    if agent_id not in own.agents:
        return f"This key does not name {agent_id!r} among its agents."
    if not given.isdisjoint(_OPERATORS_OWN):
        return f"The role {own.role} may not set {', '.join(_OPERATORS_OWN)} of an order."
    return "" if user_id in ("", own.user_id) else "This key may not name another user."


@verb(
    "order show", "GET /orders/{order_id}", summary="One order", needs="read or call",
    result="OrderDetail", endpoint="one", lines=_lines,
)  # fmt: skip
def show_order(root: RootPort, caller: Caller, *, order_id: str = _ORDER_ID) -> dict[str, Any]:
    """Show an order with its state, task and response.

    With the permission `call` alone, only orders of the caller's key are found.

    Returns:
        The order with its state, task and, once it ended, its response or notice.

    Raises:
        NotFoundError: the order does not exist, or belongs to another key.
        LedgerError: the ledger cannot be read.
    """
    return _detail(root, _found(root, caller, order_id, "read"))


def _change_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the new state."""
    stopping = ", stopping" if found["stopping"] and found["state"] in ("running", "ready") else ""
    yield f"{found['order_id']} is {found['state']}{stopping}"


@verb(
    route="POST /orders/{order_id}/{verb}", summary="Change an order",
    needs=f"{_OPERATES} or call", result="OrderStatus", fails=(409,), endpoint="change",
)  # fmt: skip
def change_order(
    root: RootPort, caller: Caller, *,
    verb: Literal["cancel", "pause", "resume", "retry"] = field("The change."),
    order_id: str = _ORDER_ID,
) -> dict[str, Any]:  # fmt: skip
    """Cancel, pause, resume or retry an order.

    With the permission `call` alone, only cancelling an order of the caller's key is allowed.

    Returns:
        The order in its new state. A running order is stopped by its worker.

    Raises:
        ForbiddenError: the caller may only cancel.
        NotFoundError: the order does not exist, or belongs to another key.
        ConflictError: the state of the order does not permit the change.
        LedgerError: the ledger cannot be read or written.
    """
    _found(root, caller, order_id, _OPERATES)
    if verb != "cancel" and not caller.may(_OPERATES):
        raise ForbiddenError(f"The role {caller.identity.role} may only cancel its orders.")
    changed: OrderStatus = getattr(root.orders, verb)(order_id, by=caller.name)
    return changed.to_dict()


def _declare_change(name: Literal["cancel", "pause", "resume", "retry"], doc: str) -> None:
    @verb(f"order {name}", changes=True, doc=doc, lines=_change_lines)
    def change(
        root: RootPort, caller: Caller, *, by: str | None = by(), order_id: str = _ORDER_ID
    ) -> dict[str, Any]:
        """Change the order, as :func:`change_order` does."""
        return change_order(root, caller, verb=name, order_id=order_id)


_declare_change("cancel", "Cancel an order; a running order stops shortly.")
_declare_change("retry", "Retry a failed order.")
_declare_change("pause", "Pause an order that has not started.")
_declare_change("resume", "Release a paused order.")


@verb("order fork", changes=True, prints="{order_id}")
def fork_order(
    root: RootPort, caller: Caller, *, by: str | None = by(), order_id: str = _ORDER_ID
) -> dict[str, Any]:
    """Submit the content of an earlier order as a new order.

    Returns:
        ``order_id`` of the new order, which has the same limits, and no earliest start. The earlier
        order, in any state, stays as it is.

    Raises:
        NotFoundError: the order does not exist.
        ConflictError: the task of the order was erased.
        LedgerError: the ledger cannot be read or written.
    """
    return {"order_id": root.orders.fork(order_id, by=caller.name)}


def _detail(root: RootPort, status: OrderStatus) -> dict[str, Any]:
    from remit.agents.sessions import response_of

    task = root.orders.submission(status.order_id).metadata["task"]
    return {**status.to_dict(), "task": task, **response_of(root.ledger, status.turn_entry_id)}
