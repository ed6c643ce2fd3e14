"""OpenAI's Agents SDK (extra ``openai-agents``): its model, tools and interruptions in a run.

.. code-block:: python

    with door.attach(session, task, key="order-7") as run:
        agent = agents.Agent("buyer", model=model(run, "gpt-4o-mini"), tools=tools(run))
        result = await agents.Runner.run(agent, task)
"""

from __future__ import annotations

from typing import Any

from agents.tool_context import ToolContext
from openai import AsyncOpenAI

from agents import FunctionTool, Model, OpenAIResponsesModel, RunState
from remit.agents import WorkParkedError, result_text
from remit.agents.tools import Tool
from remit_interop.run import Run


def model(run: Run, name: str) -> Model:
    """A model whose calls are the run's."""
    return OpenAIResponsesModel(name, AsyncOpenAI(**run.openai))


def tools(run: Run) -> list[FunctionTool]:
    """The run's tools; what a person must release interrupts the SDK's run first."""
    return [_tool(run, each) for each in run.tools]


async def settle(run: Run, state: RunState[Any, Any]) -> RunState[Any, Any]:
    """Answer the interruptions of a state (``result.to_state()``) as people decided on record.

    Raises:
        WorkParkedError: one of them is not decided yet.
    """
    for item in state.get_interruptions():
        raw: Any = item.raw_item
        result = await run.acall(item.tool_name or "", raw.arguments, raw.call_id)
        if result.status == "refused":
            state.reject(item, rejection_message=result_text(result))
        else:
            state.approve(item)  # it has run: the SDK is given the result from the record
    return state


def _tool(run: Run, tool: Tool) -> FunctionTool:
    async def invoke(context: ToolContext[Any], arguments: str) -> str:
        return result_text(await run.acall(tool.tool_id, arguments, context.tool_call_id))

    async def waits(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        try:
            await run.acall(tool.tool_id, arguments, call_id)
        except WorkParkedError:
            return True
        return False

    return FunctionTool(
        name=tool.tool_id,
        description=tool.description,
        params_json_schema=dict(tool.input_schema),
        on_invoke_tool=invoke,
        strict_json_schema=False,
        needs_approval=waits if run.needs_approval(tool.tool_id) else False,
    )
