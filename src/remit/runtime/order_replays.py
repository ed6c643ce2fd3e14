"""An attempt at an order of kind ``replay``, begun or continued from the record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from remit.agents.queue import Row
from remit.kernel.errors import ConflictError, InvalidInputError, RemitError
from remit.ledger import Erased
from remit.runtime.order_turns import Done
from remit.runtime.replays import Replays, ReplayWanted, replay_report

if TYPE_CHECKING:
    from remit.runtime.runtime import Runtime

_STATE = "SELECT worker, attempts, stop FROM orders WHERE order_id = ?"


def run_replay(runtime: Runtime, claim: Row) -> Done:
    """Execute an order until its replay is done or its budget is spent. Blocks.

    Models are called, and results are stored in the record. The order is checked before each
    exchange: if it must stop, or another worker has it, the result is ``cancelled``. A spent budget
    gives ``completed`` too, with ``ended`` ``budget`` in the figures. A task that is erased, an
    invalid request and a conflict with an earlier run give ``failed``, with the error in ``code``.

    Args:
        runtime: the open root.
        claim: the order, claimed by this worker.

    Returns:
        The result, with ``figures`` of :func:`~remit.runtime.replays.replay_report` if
        ``completed``.

    Raises:
        ContractError: the contract cannot be used.
        ProposalError: there is no such proposal.
        RemitError: the ledger or a provider cannot be used. After any of these errors the order is
            tried again or fails.
    """
    said = runtime.orders.submission(claim.order_id).metadata
    task = said["task"]
    if isinstance(task, Erased):
        return Done(outcome="failed", code="erased", message="The task was erased.")

    def check(done: int, total: int) -> None:
        found = runtime.ledger.select(_STATE, (claim.order_id,))
        if found != [(claim.worker, claim.attempts, 0)]:
            raise InterruptedError

    try:
        wanted = ReplayWanted.of_task(json.loads(task))
        check(0, 0)
        replays = Replays(runtime, wanted, str(said["by"]))
        sides, cause = replays.run(check, order_id=claim.order_id)
    except InterruptedError:
        return Done(outcome="cancelled")
    except (InvalidInputError, ConflictError, json.JSONDecodeError) as error:
        message = error.message if isinstance(error, RemitError) else "The task is not JSON."
        return Done(outcome="failed", code=type(error).__name__, message=message)
    return Done(outcome="completed", figures=replay_report(sides, cause))
