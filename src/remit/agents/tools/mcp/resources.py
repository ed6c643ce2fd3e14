"""A server's resources and prompts, as tools: a model looks at what there is, and reads it.

They have the names that other frameworks give them: ``list_resources``, ``read_resource``,
``list_prompts`` and ``get_prompt``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp import Client, MCPError
from mcp.types import Tool as Offered

from remit.agents.tools.mcp.results import said, said_resource

_MOST = 1000  # resources or prompts of one list
_NOTHING: dict[str, Any] = {"type": "object", "properties": {}}
_URI = {
    "type": "object",
    "properties": {"uri": {"type": "string", "description": "as list_resources gives it"}},
    "required": ["uri"],
}
_PROMPT = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "as list_prompts gives it"},
        "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["name"],
}


class ContextTool(Offered):
    """A tool that Remit makes of what a server offers beside its tools."""


async def context_tools(client: Client, taken: set[str]) -> list[Offered]:
    """The tools for what the server has; names of its own tools are left alone."""
    offers = client.server_capabilities
    found: list[Offered] = []
    # Many say that they have them, and have none.
    if offers.resources is not None and (
        await _has(client.list_resources, "resources")
        or await _has(client.list_resource_templates, "resource_templates")
    ):
        found += [
            _tool(
                "list_resources", _NOTHING, "List the resources that the server has for reading."
            ),
            _tool("read_resource", _URI, "Read one of the server's resources."),
        ]
    if offers.prompts is not None and await _has(client.list_prompts, "prompts"):
        found += [
            _tool("list_prompts", _NOTHING, "List the server's prompts, with their arguments."),
            _tool("get_prompt", _PROMPT, "Get one of the server's prompts, filled in."),
        ]
    return [tool for tool in found if tool.name not in taken]


async def _has(first_page: Callable[[], Awaitable[Any]], name: str) -> bool:
    try:
        return bool(getattr(await first_page(), name))
    except MCPError:  # it does not know the request after all
        return False


def _tool(name: str, schema: dict[str, Any], description: str) -> ContextTool:
    return ContextTool(name=name, input_schema=schema, description=description)


async def call_context_tool(client: Client, name: str, arguments: Mapping[str, Any]) -> Any:
    """What one of these tools gives, as JSON."""
    if name == "list_resources":
        resources = await _all(lambda at: client.list_resources(cursor=at), "resources")
        templates = await _all(
            lambda at: client.list_resource_templates(cursor=at), "resource_templates"
        )
        return {"resources": _plain(resources), "templates": _plain(templates)}
    if name == "read_resource":
        read = await client.read_resource(str(arguments["uri"]))
        return "\n".join(said_resource(content) for content in read.contents)
    if name == "list_prompts":
        return {"prompts": _plain(await _all(lambda at: client.list_prompts(cursor=at), "prompts"))}
    given = {str(key): str(value) for key, value in (arguments.get("arguments") or {}).items()}
    prompt = await client.get_prompt(str(arguments["name"]), given)
    return "\n".join(f"{message.role}: {said(message.content)}" for message in prompt.messages)


async def _all(page_at: Callable[[str | None], Awaitable[Any]], name: str) -> list[Any]:
    found: list[Any] = []
    cursor, seen = None, set[str]()
    while len(found) < _MOST:
        page = await page_at(cursor)
        found += getattr(page, name)
        cursor = page.next_cursor
        if not cursor or cursor in seen:
            break
        seen.add(cursor)
    return found[:_MOST]


def _plain(items: list[Any]) -> list[dict[str, Any]]:
    left_out = {"icons", "meta", "annotations"}
    return [
        item.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=left_out)
        for item in items
    ]
