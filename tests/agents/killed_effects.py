"""A program whose agent refunds an order; it is killed at a chosen write after the refund.

A model that is asked again refunds again, unless the conversation shows that it was done or that
nobody knows: the hardest case that the record has to prevent.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from remit import Runtime, tool
from remit.runtime import Agent, OrderHandle, OrderWorker
from remit.testing import ScriptedModel, ToolUse
from tests.agents import killed

__all__ = ["main"]

ORDER = {"order": "12"}
TASK = {"task": "Refund order 12"}
DONE = "The refund is done."
ENDED = ("completed", "failed", "cancelled", "dead", "waiting")
UNKNOWN = "I cannot say whether the refund was made."


class Killer(killed.Killer):
    """Ends the process at the nth write to the ledger after the tool's effect; 0: in the tool."""

    counts = False

    def effect(self) -> None:
        """The tool has taken effect."""
        self.counts = True
        if self._at == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def step(self) -> Callable[[], None]:
        """Count a write if the tool has taken effect."""
        return super().step() if self.counts else lambda: None


async def _worked(runtime: Runtime, agent: Agent[Any], order: OrderHandle[Any]) -> dict[str, Any]:
    """Run a worker until the order has ended or waits for a person."""
    worker = OrderWorker(runtime, [agent])
    running = asyncio.create_task(worker.run())
    while (status := await asyncio.to_thread(order.status)).state not in ENDED:
        await asyncio.sleep(0.02)
    worker.drain()
    await running
    waiting = [one.request_id for one in runtime.approvals.pending()]
    response = ""
    if status.turn_entry_id:
        response = str(runtime.ledger.read(status.turn_entry_id).metadata["response"])
    return {
        "nothing": False, "waiting": waiting if status.state == "waiting" else [],
        "error_code": status.error_code, "output": response,
    }  # fmt: skip


def main(
    root: str, effects: str, at: int, when: str, how: str, policy: str, session_id: str,
    above: str = "",
) -> None:  # fmt: skip
    """Begin a turn or a worker's order, or continue it, and print what came of it.

    Args:
        root: the root.
        effects: where each effect is noted.
        at: at which write to kill itself; -1: at none.
        when: ``before`` or ``after`` the write.
        how: ``turn``, ``resume``, ``stream``, or ``order`` for a worker and its order.
        policy: the tool's ``on_unknown``.
        session_id: the session; a new one if empty.
        above: ``caller`` or ``sender``: whose session it is, if another agent calls this one or
            hands over to it.
    """
    killer = Killer(at, when)

    @tool(on_unknown=policy)  # type: ignore[arg-type]
    def refund(order: str) -> str:
        """Refund an order."""
        with Path(effects).open("a") as file:
            file.write(f"{order}\n")
            file.flush()
            os.fsync(file.fileno())
        killer.effect()
        return f"refunded {order}, receipt R-77"

    def careless(request: Any) -> Any:
        """Refund unless the tool has answered in this very turn."""
        contents = [message["content"] for message in request.messages]
        blocks = [block for content in contents if isinstance(content, list) for block in content]
        offered = [one["name"] for one in request.tools]
        results = [block for block in blocks if block.get("type") == "tool_result"]
        if not results:
            given = {"refund": ORDER, "clerk": TASK}.get(offered[0], {})
            return ToolUse(offered[0], given)
        return UNKNOWN if results[-1]["is_error"] else DONE

    model = ScriptedModel(*[careless] * 8)
    with Runtime.open(root, providers={"s": model}) as runtime:
        agent = runtime.agent("clerk", tools=[refund])
        if above:
            agent = runtime.agent("boss", tools=[agent.as_tool()])
        if how == "order":
            order = agent.submit("Refund order 12", key="one")
            print(order.status().session_id, flush=True)
            killed.patch(killer)
            killer.counts = bool(session_id)
            print(json.dumps(asyncio.run(_worked(runtime, agent, order))))
            return
        session = agent.session(session_id or None)
        print(session.session_id, flush=True)
        killed.patch(killer)
        killer.counts = bool(session_id)
        result: Any
        if how == "resume":
            result = session.resume()
        elif how == "stream":
            result = [*session.stream("Please try again")][-1].result  # type: ignore[union-attr]
        else:
            said = "Please try again" if session_id else "Refund order 12"
            result = session.turn(said)
        print(
            json.dumps(
                {
                    "nothing": result is None,
                    "waiting": [one.request_id for one in result.waiting_for] if result else [],
                    "error_code": result.error_code if result else "",
                    "output": result.response if result else "",
                }
            )
        )
