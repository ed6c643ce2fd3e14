"""Pydantic AI (extra ``pydantic-ai``): its model, tools and deferred calls in a run.

.. code-block:: python

    with door.attach(session, task, key="order-7") as run:
        agent = Agent(model(run, "gpt-4o-mini"), tools=tools(run),
                      output_type=[str, DeferredToolRequests])
        result = await agent.run(task)
"""

from __future__ import annotations

from typing import Any

from pydantic_ai import (
    ApprovalRequired,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    Tool,
    ToolDenied,
)
from pydantic_ai.models import Model

from remit.agents import WorkParkedError, result_text, tools as own
from remit_interop.run import Run


def model(run: Run, name: str) -> Model:
    """A model whose calls are the run's: of Anthropic's API for ``claude-…``, else of OpenAI's."""
    if name.startswith("claude-"):
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(name, provider=AnthropicProvider(**run.anthropic))
    from pydantic_ai.models.openai import OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIResponsesModel(name, provider=OpenAIProvider(**run.openai))


def tools(run: Run) -> list[Tool[Any]]:
    """The run's tools; a call that a person must release first is deferred."""
    return [_tool(run, each) for each in run.tools]


async def settle(run: Run, requests: DeferredToolRequests) -> DeferredToolResults:
    """What people decided on record of deferred calls, for ``deferred_tool_results``.

    Raises:
        WorkParkedError: one of them is not decided yet.
    """
    results = DeferredToolResults()
    for call in requests.approvals:
        result = await run.acall(call.tool_name, call.args or {}, call.tool_call_id)
        refused = result.status == "refused"
        # What was granted has run: the agent is given the result from the record.
        results.approvals[call.tool_call_id] = ToolDenied(result_text(result)) if refused else True
    return results


def _tool(run: Run, tool: own.Tool) -> Tool[Any]:
    async def use(context: RunContext[Any], /, **arguments: Any) -> str:
        assert context.tool_call_id is not None
        try:
            return result_text(await run.acall(tool.tool_id, arguments, context.tool_call_id))
        except WorkParkedError as parked:
            raise ApprovalRequired({"request_ids": [*parked.request_ids]}) from parked

    return Tool.from_schema(
        use, tool.tool_id, tool.description, dict(tool.input_schema), takes_ctx=True
    )
