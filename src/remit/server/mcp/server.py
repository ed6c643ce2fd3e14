"""The MCP server: it lists and runs the tools over any transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
)

from remit import __version__
from remit.agents import Redactor
from remit.agents.tools import ToolDispatcher
from remit.kernel.json_text import dump
from remit.kernel.schemas import first_problem
from remit.kernel.secrets import redact_secrets
from remit.kernel.settings import Settings
from remit.runtime import Runtime
from remit.server.mcp.callers import Caller, CallerError, CallSlots, current_caller
from remit.server.mcp.operation_tools import record_tools
from remit.server.mcp.router import router_tool
from remit.server.mcp.thoughts import ThoughtTools
from remit.server.mcp.tools import McpTool

_INSTRUCTIONS = (
    "Remit is an accountable runtime for LLM agents. Record what you plan, find, decide and learn "
    "with thought_record, under one task_id for each task; read it back with thought_record_list. "
    "router_route has a prompt answered by the model that fits it best. query_ledger, "
    "list_sessions and trace_prompt_journey show what happened. You see the tools that your key "
    "may use."
)
_ORDER = (
    "thought_record", "thought_record_list", "thought_verify", "router_route", "router_score",
    "router_status", "router_explain", "query_ledger", "list_sessions", "trace_prompt_journey",
)  # fmt: skip
_LONGEST_PROBLEM = 1_000
_LONGEST_SHOWN = 64

Context = ServerRequestContext[Any, Any]


def all_tools(runtime: Runtime) -> list[McpTool]:
    """Return every tool of a root: of thoughts, of the router, and of the record, in this order.

    Args:
        runtime: the open root.
    """
    settings = runtime.loaded.settings
    thoughts = ThoughtTools(runtime.ledger, settings, Redactor.of(runtime.loaded))
    found = [*thoughts.tools(), router_tool(runtime.router, settings), *record_tools(runtime)]
    return sorted(found, key=lambda one: _ORDER.index(one.tool.tool_id))


def mcp_server(
    tools: Iterable[McpTool],
    settings: Settings,
    caller_of: Callable[[Context], Caller],
    *,
    single_caller: bool = False,
) -> Server[Any]:
    """Return the SDK's server with these tools. A client sees only the tools that it may use.

    Args:
        tools: the tools.
        settings: the settings of the root.
        caller_of: returns the sender of a message.
        single_caller: True if one caller may use every slot.
    """
    runner = ToolRunner(tools, settings, single_caller=single_caller)

    async def list_tools(context: Context, _: PaginatedRequestParams | None) -> ListToolsResult:
        allowed = runner.allowed(caller_of(context))
        return ListToolsResult(tools=[tool.definition() for tool in allowed])

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        return await runner.call(caller_of(context), params.name, params.arguments or {})

    return Server(
        "remit",
        version=__version__,
        title="Remit",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


class ToolRunner:
    """A runner of tools: checks permission and arguments; limits time, concurrency and output.

    Args:
        tools: the tools.
        settings: the settings of the root.
        single_caller: True if one caller may use every slot.
    """

    def __init__(
        self, tools: Iterable[McpTool], settings: Settings, *, single_caller: bool = False
    ) -> None:
        self._tools = {tool.tool.tool_id: tool.contained() for tool in tools}
        self._dispatcher = ToolDispatcher(
            [tool.tool for tool in self._tools.values()], settings.tools
        )
        own = settings.mcp_server
        at_once = own.calls_at_once
        per_caller = at_once if single_caller else min(at_once, own.calls_per_caller)
        # Model calls take long: the quick tools have slots of their own.
        self._slots = {
            calls_model: CallSlots(at_once, per_caller, own.calls_waiting)
            for calls_model in (False, True)
        }

    def allowed(self, caller: Caller) -> list[McpTool]:
        """Return the tools that ``caller`` may use, by its role, in the order of the tools.

        Args:
            caller: the caller.
        """
        return [tool for tool in self._tools.values() if tool.allows(caller)]

    async def call(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Run one tool and return its result; a failure is a result that a model can read.

        Results with ``is_error`` are: a role that may not use the tool, wrong arguments, no free
        slot, a time limit, and the tool's own error. The call waits for a slot of its caller.

        Args:
            caller: the sender.
            name: id of the tool.
            arguments: the arguments; whole floats become integers if the schema wants these.

        Raises:
            MCPError: the tool does not exist.
        """
        tool = self._tools.get(name)
        if tool is None:
            raise MCPError(
                INVALID_PARAMS,
                f"Unknown tool: {name[:_LONGEST_SHOWN]!r}. tools/list returns the available tools.",
            )
        if not tool.allows(caller):
            return _failed(
                f"A key of the role {caller.identity.role} may not use {name}. Ask the operator "
                f"for a key that may {tool.needs}, or use a listed tool."
            )
        arguments = _with_integers(tool.tool.input_schema, arguments)
        try:
            # Arguments may be large: other clients are served while they are checked.
            problem = await asyncio.to_thread(first_problem, tool.tool.input_schema, arguments)
        except (RecursionError, ValueError, OverflowError):
            problem = "they cannot be checked"
        if len(problem) > _LONGEST_PROBLEM:  # The reason follows the value, which may be long.
            problem = f"{problem[: _LONGEST_PROBLEM // 2]} … {problem[-_LONGEST_PROBLEM // 2 :]}"
        if problem:
            return _failed(
                f"Wrong arguments for {name}: {problem}. Nothing was done. Correct the "
                "arguments as the tool's input schema says, and call the tool again."
            )
        try:
            async with self._slots[tool.calls_model].of(caller.owner):
                token = current_caller.set(caller)
                try:
                    result = await self._dispatcher.aexecute(name, arguments)
                finally:
                    current_caller.reset(token)
        except CallerError as error:
            return _failed(str(error))
        if result.status == "timeout" and not tool.writes:
            return _failed(
                f"{name} did not end within {tool.tool.timeout_s:g} s. Nothing was changed. Ask "
                "for less, or try again later."
            )
        if result.status != "ok":
            return _failed(result.error)
        return CallToolResult(
            content=[TextContent(text=dump(result.output).decode())],
            structured_content=result.output,
        )


def _failed(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=redact_secrets(text))], is_error=True)


def _with_integers(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with ``5.0`` as ``5`` for integer parameters, as JSON Schema accepts
    both.
    """
    properties = schema["properties"]
    return {
        name: int(value)
        if isinstance(value, float)
        and value.is_integer()
        and properties.get(name, {}).get("type") == "integer"
        else value
        for name, value in arguments.items()
    }
