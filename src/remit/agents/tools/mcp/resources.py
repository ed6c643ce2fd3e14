"""A server's resources and prompts as tools.

The tools have the names that other frameworks use: ``list_resources``, ``read_resource``,
``list_prompts`` and ``get_prompt``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp import Client, MCPError
from mcp.types import METHOD_NOT_FOUND, Tool as Offered

from remit.agents.tools.mcp.answers import pages
from remit.agents.tools.mcp.conversion import block_text, resource_text, with_images
from remit.agents.tools.mcp.text_pins import PinnedTexts

# Maximum number of items of a list that are read.
_MAX_ITEMS = 1000
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}
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
    """A tool that Remit provides for a server's resources or prompts."""


async def context_tools(client: Client, reserved: set[str]) -> list[Offered]:
    """Return the definitions of Remit's tools for a server's resources and prompts.

    They are ``list_resources`` and ``read_resource`` if the server offers a resource or a template,
    and ``list_prompts`` and ``get_prompt`` if it offers a prompt. Asks the server for the first
    page of each list that it claims as a capability, but for templates only if there are no
    resources. A list counts as not offered if it is empty or the request fails with any MCPError:
    a timeout and a closed connection are not distinguished from a refusal. Other errors are let
    through.

    Args:
        client: the connected client.
        reserved: names of the server's own tools; tools of Remit with these names are left out.
    """
    offers = client.server_capabilities
    found: list[Offered] = []
    # Many servers claim the capability and offer nothing.
    if offers.resources is not None and (
        await _has(client.list_resources, "resources")
        or await _has(client.list_resource_templates, "resource_templates")
    ):
        found += [
            _tool(
                "list_resources",
                _NO_ARGUMENTS,
                "List the server's resources.",
            ),
            _tool("read_resource", _URI, "Read one of the server's resources."),
        ]
    if offers.prompts is not None and await _has(client.list_prompts, "prompts"):
        found += [
            _tool("list_prompts", _NO_ARGUMENTS, "List the server's prompts and their arguments."),
            _tool("get_prompt", _PROMPT, "Get one of the server's prompts, filled in."),
        ]
    return [tool for tool in found if tool.name not in reserved]


async def _has(first_page: Callable[[], Awaitable[Any]], name: str) -> bool:
    try:
        return bool(getattr(await first_page(), name))
    except MCPError:  # Some servers refuse the request despite their claim.
        return False


def _tool(name: str, schema: dict[str, Any], description: str) -> ContextTool:
    return ContextTool(name=name, input_schema=schema, description=description)


async def call_context_tool(
    client: Client, name: str, arguments: Mapping[str, Any], texts: PinnedTexts
) -> Any:
    """Return the result of a tool of :func:`context_tools`, as JSON or as text.

    A list is ``{"resources": […], "templates": […]}`` or ``{"prompts": […]}``, without icons and
    annotations; a resource or prompt is a text. Reads the server's lists first, at most 1,000 items
    each. The lists and the prompt's text are compared with their pins; new ones are pinned. A list
    shows changed items as pinned. A resource or prompt that no list names is requested all the
    same. Images come as an :class:`Illustrated`.

    Args:
        client: the connected client.
        name: ``list_resources``, ``read_resource``, ``list_prompts`` or ``get_prompt``.
        arguments: the tool's arguments: ``uri``, or ``name`` and ``arguments``.
        texts: the pins of the server's texts.

    Raises:
        ToolError: the prompt or the resource's description differs from its pin, or an item of a
            list has no key.
        KeyError: ``uri`` or ``name`` is missing in ``arguments``, or the server does not offer the
            requested list.
        MCPError: a request is refused or times out, or the connection is closed.
        LedgerError: a pin cannot be read or recorded.
    """
    if name == "list_resources":
        found = await asyncio.to_thread(texts.lists, await text_lists(client, prompts=False))
        return {"resources": _plain(found["resources/list"]),
                "templates": _plain(found["resources/templates/list"])}  # fmt: skip
    if name == "read_resource":
        uri = str(arguments["uri"])
        await asyncio.to_thread(texts.lists, await text_lists(client, prompts=False))
        texts.require_resource(uri)
        read = await client.read_resource(uri)
        text = "\n".join(resource_text(content) for content in read.contents)
        return with_images(text, read.contents)
    found = await asyncio.to_thread(texts.lists, await text_lists(client, resources=False))
    if name == "list_prompts":
        return {"prompts": _plain(found["prompts/list"])}
    given = {str(key): str(value) for key, value in (arguments.get("arguments") or {}).items()}
    prompt = await client.get_prompt(str(arguments["name"]), given)
    await asyncio.to_thread(texts.require_prompt, str(arguments["name"]), given, _dumped(prompt))
    text = "\n".join(
        f"{message.role}: {block_text(message.content)}" for message in prompt.messages
    )
    return with_images(text, [message.content for message in prompt.messages])


async def text_lists(
    client: Client, *, resources: bool = True, prompts: bool = True
) -> dict[str, list[dict[str, Any]]]:
    """Return the server's lists of resources, resource templates and prompts, keyed by request.

    Items are returned as the server sent them, at most 1,000 of each list. A list that the server
    does not claim as a capability is absent; one whose request the server does not know is empty.

    Args:
        client: the connected client.
        resources: True to read resources and templates.
        prompts: True to read prompts.

    Raises:
        MCPError: a request is refused for another reason or times out, or the connection is closed.
    """
    offers = client.server_capabilities
    found: dict[str, list[dict[str, Any]]] = {}
    if resources and offers.resources is not None:
        found["resources/list"] = await _all(
            lambda at: client.list_resources(cursor=at), "resources"
        )
        found["resources/templates/list"] = await _all(
            lambda at: client.list_resource_templates(cursor=at), "resource_templates"
        )
    if prompts and offers.prompts is not None:
        found["prompts/list"] = await _all(lambda at: client.list_prompts(cursor=at), "prompts")
    return {request: [_dumped(item) for item in items] for request, items in found.items()}


async def _all(page_at: Callable[[str | None], Awaitable[Any]], name: str) -> list[Any]:
    found: list[Any] = []
    try:
        async for page in pages(page_at):
            found += getattr(page, name)
            if len(found) >= _MAX_ITEMS:
                break
    except MCPError as error:
        if error.code != METHOD_NOT_FOUND:  # Some servers claim the capability only.
            raise
    return found[:_MAX_ITEMS]


def _dumped(sent: Any) -> dict[str, Any]:
    return dict(sent.model_dump(mode="json", by_alias=True, exclude_unset=True))


def _plain(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    omitted = ("icons", "_meta", "annotations")
    return [
        {name: value for name, value in item.items() if name not in omitted and value is not None}
        for item in items
    ]
