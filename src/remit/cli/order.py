"""``remit order``: submits work for workers, and shows and changes submitted orders."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.shared import (
    NumberRange,
    cut,
    emit,
    limited,
    open_ledger,
    open_settings,
    reads,
    say_list,
    say_text,
    table,
    whoami,
)

if TYPE_CHECKING:
    from remit.agents.queue import OrderQueue, OrderStatus
    from remit.ledger import LedgerClient

_TASK_CHARS = 60
_by = click.option("--by", help="Person who decides (default: the current user).")


@click.group()
def order() -> None:
    """Submit and manage orders for workers (`remit worker`)."""


@order.command()
@click.argument("agent")
@click.argument("task")
@click.option("--queue", default="default", show_default=True, help="Queue of the order.")
@click.option(
    "--priority",
    type=click.IntRange(-1000, 1000),
    default=0,
    help="Priority; lower numbers run first.",
)
@click.option("--after", help="Earliest start: a delay such as 2h, or a time.")
@click.option(
    "--key",
    default="",
    help="Idempotency key: repeated submissions with the same key create one order.",
)
@click.option(
    "--for-key", default="", help="Virtual key (name or id) whose limits apply to the order."
)
@click.option("--user", default="", help="User whose budget is charged.")
@click.option("--subject", default="", help="Person that the task is about, for erasure.")
@click.option("--tokens", type=click.IntRange(0), help="Token limit of the session.")
@click.option("--usd", type=NumberRange(min=0), help="Limit of the session in US dollars.")
@click.option(
    "--attempts", type=click.IntRange(1, 1000), help="Number of attempts before the order fails."
)
@click.option("--wait", is_flag=True, help="Wait until the order ends, and show the answer.")
@_by
@reads
def submit(
    root: Path | None, as_json: bool, agent: str, task: str, queue: str, priority: int,
    after: str | None, key: str, for_key: str, user: str, subject: str, tokens: int | None,
    usd: float | None, attempts: int | None, wait: bool, by: str | None,
) -> None:  # fmt: skip
    """Submit TASK (`-`: standard input) for one turn of AGENT by a worker."""
    from remit.agents.queue import Submission, bind_to_key
    from remit.gateway.auth import expiry_of
    from remit.kernel.loops import run_blocking

    said = sys.stdin.read() if task == "-" else task
    wanted = Submission(
        agent_id=agent, task=said, queue=queue, priority=priority,
        due=expiry_of(after) if after else None, user_id=user, subject_id=subject, tokens=tokens,
        usd=usd, max_attempts=attempts,
    )  # fmt: skip
    with _orders(root, signing=True) as (orders, client):
        if for_key:
            wanted = bind_to_key(client, wanted, for_key)
        order_id = orders.submit(wanted, by=by or whoami(), key=key)
        if not wait:
            emit(as_json, {"order_id": order_id}, [order_id])
            return
        status = run_blocking(orders.ended(order_id))
        _show(client, orders, status, as_json)
    if status.state != "completed":
        sys.exit(1)


@order.command("list")
@click.option("--queue", default="", help="Only orders of this queue.")
@click.option(
    "--state", default="", help="Only orders in this state: ready, running, failed, completed, …."
)
@limited
@reads
def list_orders(
    root: Path | None, as_json: bool, queue: str, state: str, limit: int | None
) -> None:
    """List unfinished orders in the order of their start; --state also lists finished ones."""
    with _orders(root) as (orders, _):
        most = limit if limit is not None else 1_000_000 if as_json else 51
        found = list(orders.list(queue=queue, state=state, limit=most))
    if as_json:
        emit(True, {"orders": [one.to_dict() for one in found]}, [])
        return
    heads = ("ORDER", "STATE", "QUEUE", "AGENT", "PRIORITY", "ATTEMPTS", "SUBMITTED", "")
    lines = table(
        heads,
        [
            (one.order_id, one.state, one.queue, one.agent_id, str(one.priority),
             f"{one.attempts}/{one.max_attempts}", one.submitted[:19],
             one.error_code or one.held_by or " ".join(one.waits_for) or one.due)
            for one in found
        ],
    )  # fmt: skip
    say_list(lines if found else ["No orders match."], limit)


@order.command()
@click.argument("order_id")
@reads
def show(root: Path | None, as_json: bool, order_id: str) -> None:
    """Show the state and the result of an order."""
    with _orders(root) as (orders, client):
        _show(client, orders, orders.get(order_id), as_json)


def _changing(name: str, about: str) -> None:
    """Add a command that calls the method ``name`` on one order and prints the new state.

    Args:
        name: the name of the command and of the method.
        about: the help text.
    """

    @order.command(name, help=about)
    @click.argument("order_id")
    @_by
    @reads
    def change(root: Path | None, as_json: bool, order_id: str, by: str | None) -> None:
        with _orders(root, signing=True) as (orders, _):
            act: Callable[..., OrderStatus] = getattr(orders, name)
            status = act(order_id, by=by or whoami())
        emit(as_json, status.to_dict(), [f"{order_id} is {_state(status)}"])


_changing("cancel", "Cancel an order; a running order stops shortly.")
_changing("retry", "Retry a failed order.")
_changing("pause", "Pause an order that has not started.")
_changing("resume", "Release a paused order.")


@order.command()
@click.argument("order_id")
@_by
@reads
def fork(root: Path | None, as_json: bool, order_id: str, by: str | None) -> None:
    """Submit the content of an earlier order as a new order."""
    with _orders(root, signing=True) as (orders, _):
        forked = orders.fork(order_id, by=by or whoami())
    emit(as_json, {"order_id": forked}, [forked])


@contextmanager
def _orders(
    root: Path | None, *, signing: bool = False
) -> Iterator[tuple[OrderQueue, LedgerClient]]:
    from remit.agents.queue import OrderQueue

    settings = open_settings(root)[1].settings
    with open_ledger(root, signing=signing) as client:
        yield OrderQueue.of_root(client, settings), client


def _state(status: OrderStatus) -> str:
    stopping = status.state in ("running", "ready") and status.stopping
    return f"{status.state}, stopping" if stopping else status.state


def _show(client: LedgerClient, orders: OrderQueue, status: OrderStatus, as_json: bool) -> None:
    from remit.agents.sessions import response_of

    said = orders.submission(status.order_id)
    came = response_of(client, status.turn_entry_id)
    shown = {**status.to_dict(), "task": said.metadata["task"], **came}
    answer = came["response"]
    lines = [f"{name}  {value}" for name, value in shown.items()
             if name not in ("task", "response") and value not in ("", (), None)]  # fmt: skip
    task = cut(str(said.metadata["task"]), _TASK_CHARS)
    emit(as_json, shown, [*lines, f"task  {task}"])
    if answer is not None and not as_json:
        say_text(f"\n{answer}")
