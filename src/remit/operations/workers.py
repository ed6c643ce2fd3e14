"""Operations on workers, which run submitted orders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from remit.kernel.message_text import count
from remit.operations.operation import field, verb
from remit.operations.ports import Caller, RootPort
from remit.operations.text import Table, facts

if TYPE_CHECKING:
    from remit.agents.queue import Seats


def unattended(found: dict[str, Any]) -> str:
    """Return a sentence if no worker runs, with the number of ready orders; empty if one runs.

    Args:
        found: the result of :func:`list_workers`.
    """
    ready = sum(states.get("ready", 0) for states in found["queues"].values())
    waits = f" for {count(ready, 'ready order')}; `remit worker` starts one" if ready else ""
    return "" if found["workers"] else f"No worker is running{waits}."


def _lines(found: dict[str, Any]) -> Iterator[str | Table]:
    yield from facts(found)
    yield from filter(None, [unattended(found)])


@verb("worker list", lines=_lines)
def list_workers(root: RootPort, caller: Caller) -> dict[str, Any]:
    """List running workers and the number of waiting orders.

    Returns:
        ``workers``, the running ones, and ``queues``, the number of orders by queue and state.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    return {"workers": _seats(root).workers(), "queues": root.orders.stats()}


@verb("worker drain", changes=True)
def drain_workers(
    root: RootPort, caller: Caller, *,
    name: str = field("Name of the worker; all by default.", "", flag="", metavar="[NAME]"),
) -> dict[str, Any]:  # fmt: skip
    """Stop a worker, or all workers without NAME, after their running turns.

    Returns:
        ``asked``, the number of workers, found by the beginning of the name. The command does not
        wait for them.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    return {"asked": _seats(root).drain(name)}


def _seats(root: RootPort) -> Seats:
    from remit.agents.queue import Seats
    from remit.gateway.leases import LeaseManager

    return Seats(root.ledger, LeaseManager(root.ledger, root.settings.leases))
