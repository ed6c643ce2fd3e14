"""An attempt at an order of kind ``replay``, begun or continued from the record."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from remit.agents.queue import Row
from remit.kernel.errors import ConflictError, InvalidInputError, RemitError
from remit.ledger import Erased
from remit.runtime.order_turns import Done
from remit.runtime.replays import Replays, ReplayWanted

if TYPE_CHECKING:
    from remit.runtime.runtime import Runtime

__all__ = ["OrderReplays"]

_STATE = "SELECT worker, attempts, stop FROM orders WHERE order_id = ?"


class _StoppedError(RemitError):
    """The attempt must stop, or another worker has taken the order."""


class OrderReplays:
    """Executes orders of kind ``replay``.

    Args:
        runtime: the root.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def run(self, claim: Row) -> Done:
        """Execute an order until it is done or its budget is spent.

        Runs in a thread, because a replay makes its calls one after another.
        """
        return await asyncio.to_thread(self._run, claim)

    def _run(self, claim: Row) -> Done:
        said = self._runtime.orders.submission(claim.order_id).metadata
        task = said["task"]
        if isinstance(task, Erased):
            return Done(outcome="failed", code="erased", message="What it is about was erased.")

        def check(done: int, total: int) -> None:
            found = self._runtime.ledger.select(_STATE, (claim.order_id,))
            if found != [(claim.worker, claim.attempts, 0)]:
                raise _StoppedError("The replay is to stop.")

        try:
            wanted = ReplayWanted.of_task(json.loads(task))
            check(0, 0)
            replays = Replays(self._runtime, wanted, str(said["by"]))
            done = replays.run(check, order_id=claim.order_id)
        except _StoppedError:  # Another worker has the order: this result is void.
            return Done(outcome="cancelled")
        except (InvalidInputError, ConflictError, json.JSONDecodeError) as error:
            message = error.message if isinstance(error, RemitError) else "The task is no JSON."
            return Done(outcome="failed", code=type(error).__name__, message=message)
        return Done(outcome="completed", figures=done.to_dict())
