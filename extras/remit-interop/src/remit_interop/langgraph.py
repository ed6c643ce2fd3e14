"""LangGraph (extra ``langgraph``): its chat model, tools and interrupts in a run.

.. code-block:: python

    with door.attach(session, task, key="order-7") as run:
        graph = create_react_agent(model(run, "gpt-4o-mini"), tools(run), checkpointer=saver)
        state = graph.invoke({"messages": [("user", task)]}, config)
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.types import interrupt
from typing_extensions import override

from remit.agents import WorkParkedError, result_text
from remit.agents.tools import ToolResult
from remit.kernel.errors import InvalidInputError
from remit_interop.run import Run


def model(run: Run, name: str) -> BaseChatModel:
    """A chat model whose calls are the run's: ``ChatAnthropic`` for ``claude-…``, else OpenAI's."""
    if name.startswith("claude-"):
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(model=name, **run.anthropic)
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=name, **run.openai)


def tools(run: Run) -> list[BaseTool]:
    """The run's tools; one that a person must release first interrupts the graph.

    Resume it (``Command(resume=…)``) once the person has decided: what counts is on record, not
    the value that it is resumed with.
    """
    return [
        RunTool(
            name=each.tool_id,
            description=each.description,
            args_schema=dict(each.input_schema),
            use=run.call,
            ause=run.acall,
        )
        for each in run.tools
    ]


class RunTool(BaseTool):
    """A tool of a run, called by its node with the model's own id of the call."""

    use: Callable[[str, Any, str], ToolResult]
    ause: Callable[[str, Any, str], Coroutine[Any, Any, ToolResult]]

    @override
    def invoke(self, input: Any, config: RunnableConfig | None = None, **_: Any) -> ToolMessage:
        """Use the tool."""
        arguments, call_id = _call(input)
        while True:
            try:
                return self._message(self.use(self.name, arguments, call_id), call_id)
            except WorkParkedError as parked:
                self._wait(arguments, parked)

    @override
    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **_: Any
    ) -> ToolMessage:
        """Use the tool."""
        arguments, call_id = _call(input)
        while True:
            try:
                return self._message(await self.ause(self.name, arguments, call_id), call_id)
            except WorkParkedError as parked:
                self._wait(arguments, parked)

    @override
    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise InvalidInputError(  # only ``invoke`` knows the call's id
            f"The tool {self.name} cannot be run directly.", next_step="Call invoke or ainvoke."
        )

    def _wait(self, arguments: Any, parked: WorkParkedError) -> None:
        interrupt({"tool": self.name, "arguments": arguments, "request_ids": [*parked.request_ids]})

    def _message(self, result: ToolResult, call_id: str) -> ToolMessage:
        status = "success" if result.status == "ok" else "error"
        text = result_text(result)
        return ToolMessage(text, tool_call_id=call_id, name=self.name, status=status)


def _call(given: Any) -> tuple[Any, str]:
    """Arguments and id of a call; one outside a graph has an id of its own."""
    if isinstance(given, dict) and given.get("type") == "tool_call":
        return given["args"], given["id"]
    return given, f"call_{uuid.uuid4().hex}"
