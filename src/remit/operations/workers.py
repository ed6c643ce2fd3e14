"""Operations on workers, which run submitted orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from remit.kernel.message_text import count
from remit.operations.operation import Table, field, verb
from remit.operations.ports import Caller, RootPort

if TYPE_CHECKING:
    from remit.agents.queue import Seats


def _list_workers_lines(found: dict[str, Any]) -> Iterator[str | Table]:
    """Yield the table of the workers, then a line for each queue."""
    heads = ("WORKER", "QUEUES", "HOST", "PID", "RUNS", "")
    rows = [(one["worker"], ", ".join(one["queues"]), one["host"], str(one["pid"]),
             str(one["running"]), "draining" if one["draining"] else "")
            for one in found["workers"]]  # fmt: skip
    yield Table(heads, rows) if rows else "No worker is running."
    for queue, states in found["queues"].items():
        yield f"{queue}: {', '.join(f'{number} {state}' for state, number in states.items())}"


@verb("worker list", lines=_list_workers_lines)
def list_workers(root: RootPort, caller: Caller) -> dict[str, Any]:
    """List running workers and the number of waiting orders.

    Returns:
        ``workers``, the running ones, and ``queues``, the number of orders by queue and state.
    """
    return {"workers": _seats(root).workers(), "queues": root.orders.stats()}


@verb(
    "worker drain", changes=True,
    lines=lambda found: [f"Asked to stop: {count(found['asked'], 'worker')}."],
)  # fmt: skip
def drain_workers(
    root: RootPort, caller: Caller, *,
    name: str = field("Name of the worker; all by default.", "", flag="", metavar="[NAME]"),
) -> dict[str, Any]:  # fmt: skip
    """Stop a worker, or all workers without NAME, after their running turns.

    Returns:
        ``asked``, the number of workers, found by the beginning of the name. The command does not
        wait for them.
    """
    return {"asked": _seats(root).drain(name)}


def _seats(root: RootPort) -> Seats:
    from remit.agents.queue import Seats
    from remit.gateway.leases import LeaseManager

    return Seats(root.ledger, LeaseManager(root.ledger, root.settings.leases))
