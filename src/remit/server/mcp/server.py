"""The server itself: lists tools and runs them, whatever it is reached over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson
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
from remit.agents.admin import Redactor
from remit.agents.tools import ToolDispatcher
from remit.kernel.schemas import first_problem
from remit.kernel.secrets import redact_secrets
from remit.kernel.settings import Settings
from remit.runtime import Runtime
from remit.server.mcp.caller import Caller, calling
from remit.server.mcp.offer import Offer
from remit.server.mcp.owners import TaskOwners
from remit.server.mcp.records import record_offers
from remit.server.mcp.routing import router_offers
from remit.server.mcp.shares import Shares, TooManyCallsError
from remit.server.mcp.thoughts import thought_offers

__all__ = ["Offers", "all_offers", "mcp_server"]

_INSTRUCTIONS = (
    "Remit is an accountable runtime for LLM agents. Record what you plan, find, decide and learn "
    "with thought_record, under one task_id for each task; read it back with thought_record_list. "
    "router_route has a prompt answered by the model that fits it best. query_ledger, "
    "list_sessions and trace_prompt_journey show what happened. You see the tools that your key "
    "may use."
)
_LONGEST_SHOWN = 64

Context = ServerRequestContext[Any, Any]


def all_offers(runtime: Runtime) -> list[Offer]:
    """Every tool of a root.

    Args:
        runtime: the open root.
    """
    settings = runtime.loaded.settings
    redactor = Redactor.of(runtime.loaded)
    return [
        *thought_offers(runtime.ledger, TaskOwners(runtime.ledger), settings, redactor),
        *router_offers(runtime.router, settings, redactor),
        *record_offers(runtime),
    ]


def mcp_server(
    offers: Iterable[Offer],
    settings: Settings,
    who: Callable[[Context], Caller],
    *,
    alone: bool = False,
) -> Server[Any]:
    """The SDK's server with these tools.

    Args:
        offers: the tools.
        settings: limits.
        who: tells who asks, for each request anew; raises where nobody known does.
        alone: see :class:`Offers`.
    """
    tools = Offers(offers, settings, alone=alone)

    async def listed(context: Context, _: PaginatedRequestParams | None) -> ListToolsResult:
        caller = who(context)
        return ListToolsResult(tools=[one.definition() for one in tools.of(caller)])

    async def called(context: Context, asked: CallToolRequestParams) -> CallToolResult:
        return await tools.call(who(context), asked.name, asked.arguments or {})

    return Server(
        "remit",
        version=__version__,
        title="Remit",
        instructions=_INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=called,
    )


class Offers:
    """Runs the tools: who may, with arguments that fit, in bounded time, to a bounded result.

    Args:
        offers: the tools.
        settings: limits.
        alone: whether there is one caller only, who needs to leave nothing to others.
    """

    def __init__(self, offers: Iterable[Offer], settings: Settings, *, alone: bool = False) -> None:
        self._offers = {one.tool.tool_id: one.contained() for one in offers}
        tools = [one.tool for one in self._offers.values()]
        self._dispatcher = ToolDispatcher(tools, settings.tools)
        own = settings.mcp_server
        at_once = own.calls_at_once
        each = at_once if alone else min(at_once, own.calls_per_caller)
        # Calls that ask a model take long: what is quick does not wait for them.
        self._shares = {
            outside: Shares(at_once, each, own.calls_waiting) for outside in (False, True)
        }

    def of(self, caller: Caller) -> list[Offer]:
        """The tools that ``caller`` may use."""
        return [one for one in self._offers.values() if one.allows(caller)]

    async def call(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Run one tool. What goes wrong with it is in the result, for a model to read.

        Raises:
            MCPError: there is no such tool.
        """
        offer = self._offers.get(name)
        if offer is None:
            raise MCPError(
                INVALID_PARAMS,
                f"Unknown tool: {name[:_LONGEST_SHOWN]!r}. tools/list names those there are.",
            )
        if not offer.allows(caller):
            return _failed(
                f"A key of the role {caller.role} may not use {name}. Ask the operator for a key "
                f"that may {' or '.join(offer.needs)}; the tools that are listed can be used."
            )
        arguments = _whole(offer.tool.input_schema, arguments)
        try:
            problem = first_problem(offer.tool.input_schema, arguments)
        except (RecursionError, ValueError, OverflowError):
            problem = "they cannot be checked"
        problem = problem or _line_end(offer.tool.input_schema, arguments)
        if problem:
            return _failed(
                f"Wrong arguments for {name}: {problem[:1000]}. Nothing was done. Mend them after "
                "the tool's input schema, and call it again."
            )
        try:
            async with self._shares[offer.outside].of(caller.owner):
                token = calling.set(caller)
                try:
                    result = await self._dispatcher.aexecute(name, arguments)
                finally:
                    calling.reset(token)
        except TooManyCallsError as error:
            return _failed(str(error))
        if result.status == "timeout" and not offer.writes:
            return _failed(
                f"{name} did not end within {offer.tool.timeout_s:g} s. Nothing was changed. Ask "
                "for less, or try again later."
            )
        if result.status != "ok":
            return _failed(result.error)
        return CallToolResult(
            content=[TextContent(text=orjson.dumps(result.output).decode())],
            structured_content=result.output,
        )


def _failed(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=redact_secrets(text))], is_error=True)


def _line_end(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Python's ``$`` lets a line break pass at the end; that of JSON Schema (ECMA-262) does not."""
    properties = schema["properties"]
    for name, value in arguments.items():
        if isinstance(value, str) and value.endswith("\n") and "pattern" in properties[name]:
            return f"{name}: ends with a line break"
    return ""


def _whole(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Whole numbers as such: to a JSON Schema ``5.0`` is an integer, to Python it is not."""
    properties = schema["properties"]
    return {
        name: int(value)
        if isinstance(value, float)
        and value.is_integer()
        and properties.get(name, {}).get("type") == "integer"
        else value
        for name, value in arguments.items()
    }
