"""Operations on workers, which run submitted orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from remit.operations.operation import field, verb
from remit.operations.ports import Caller, RootPort

if TYPE_CHECKING:
    from remit.agents.queue import Seats


@verb("worker list", nothing="No worker is running.")
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
