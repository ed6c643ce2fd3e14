"""Agents as tools of other agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from remit.agents.supervisor import Responder, session_effects
from remit.agents.tools import Tool, ToolError, current_call, tool_id_of
from remit.agents.workorders import Caller, Effect, sub_session_id
from remit.kernel.errors import NotFoundError

if TYPE_CHECKING:
    from remit.runtime.agent import Agent

_MAX_CALLERS = 5
"""Longest chain of calling agents; each holds an order open while it waits."""

_TASK = {
    "type": "object",
    "properties": {
        "task": {
            "type": "string",
            "description": "Task, with all information needed to do it.",
        }
    },
    "required": ["task"],
    "additionalProperties": False,
}


class AgentTool:
    """The sub-agent behind a tool of :meth:`remit.runtime.Agent.as_tool`.

    :meth:`tool` makes the tool; the other members tell the caller's loop what an interrupted call
    has done, and end it.

    Args:
        agent: the agent that answers.
        tools: tools of the agent.
    """

    def __init__(self, agent: Agent, tools: Sequence[Tool]) -> None:
        self._agent = agent
        self._tools = tools

    def tool(self, name: str, about: str, timeout_s: float, behind: tuple[Tool, ...]) -> Tool:
        """Return a tool with the argument ``task``, whose result is the agent's answer.

        A repeated call continues the same session. Called by a program, outside of a turn, the tool
        runs a session of its own.

        Args:
            name: the tool's name; in its id, other characters than ``A-Za-z0-9_-`` become ``_``,
                and 64 characters remain.
            about: description for the calling model; a general one if empty.
            timeout_s: longest wait for an answer, in seconds.
            behind: the agent's tools that receive the turn's ``deps``.

        Raises:
            ToolError: the name is empty, or the description or the time is invalid.
        """
        return Tool(
            tool_id_of(name),
            about or f"Let the agent {self._agent.agent_id} do a task, and return its answer.",
            _TASK,
            self._answer,
            on_unknown="retry",  # A repeated call continues the same session.
            timeout_s=timeout_s,
            sub_agent=self,
            behind=behind,
        )

    async def _answer(self, task: str) -> str:
        call = current_call()
        if call is None:  # The program calls the tool directly.
            return (await self._agent.arun(task)).response
        return await self._agent.sub_session(call).aanswer(task, deps=call.deps)

    @property
    def is_repeatable(self) -> bool:
        """True if all tools of the agent may run twice without harm."""
        return all(tool.is_repeatable for tool in self._tools)

    def effects(self, idempotency_key: str) -> Sequence[Effect]:
        """Return the recorded effects of tools in the session that answers a call.

        Effects of the agent's own sub-agents are included. Empty if the session has not begun.

        Args:
            idempotency_key: key of the tool call.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        ledger = self._agent.runtime.ledger.scoped(tier="ho2")
        return session_effects(ledger, sub_session_id(idempotency_key))

    async def cancel(self, idempotency_key: str) -> None:
        """Cancel the turn that answers a call; do nothing if there is none.

        Nothing is done either if the session was archived or is another agent's. The cancellation
        is recorded.

        Args:
            idempotency_key: key of the tool call.

        Raises:
            LedgerError: the ledger cannot be read or written.
            LeaseBusyError: another process has begun to work on the session.
            LeaseLostError: another process took the session over in the meantime.
            OrderRecordError: the entries of the waiting turn do not form orders.
            TurnCancelledError: somebody else cancelled the waiting turn at the same time.
        """
        try:
            session = self._agent.session(sub_session_id(idempotency_key))
        except NotFoundError:
            return
        await session.acancel()


_REASON = {
    "type": "object",
    "properties": {"reason": {"type": "string", "description": "Reason, in one sentence."}},
    "additionalProperties": False,
}


def handoff_tool(to: Responder, about: str, behind: tuple[Tool, ...]) -> Tool:
    """Return the tool that :meth:`remit.runtime.Agent.as_handoff` describes.

    Calling it only returns a text; the loop hands over afterwards.

    Args:
        to: the agent that takes over.
        about: tells the model when to hand over.
        behind: the agent's tools that receive the turn's ``deps``.

    Raises:
        ToolError: the agent's id cannot be a tool id.
    """
    agent_id = to.agent_id
    return Tool(
        to.tool_id,
        f"Hand the conversation over to {agent_id}, which answers from now on. {about}".strip(),
        _REASON,
        lambda reason="": f"{agent_id} goes on.",
        on_unknown="retry",
        handoff=to,
        behind=behind,
    )


def check_callers(agent_id: str, callers: Sequence[Caller]) -> None:
    """Raise ToolError if a call between agents would form a circle or too long a chain.

    Nothing is read.

    Args:
        agent_id: the called agent.
        callers: the agents that wait for it, nearest first.

    Raises:
        ToolError: the agent is among its callers, or more than five agents wait.
    """
    above = " -> ".join(caller.agent_id for caller in reversed(callers))
    if any(caller.agent_id == agent_id for caller in callers):
        raise ToolError(
            f"{agent_id} is at work on this already: {above} -> {agent_id}.",
            next_step="Answer with the information at hand; a sub-agent cannot call its caller.",
        )
    if len(callers) > _MAX_CALLERS:
        raise ToolError(
            f"{_MAX_CALLERS} agents are at work above each other already: {above}.",
            next_step="Answer with the information at hand, without another agent.",
        )
