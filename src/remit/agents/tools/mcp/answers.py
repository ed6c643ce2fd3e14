"""Answers of servers, in a form that the SDK accepts.

The SDK refuses a whole answer if any part of it is not as the protocol says. But a tool that ran
must not count as failed for the form of its result, and a malformed tool must not hide the others.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from mcp import Client, MCPError
from mcp.types import INVALID_PARAMS
from mcp_types.methods import parse_server_result
from pydantic import ValidationError

from remit.kernel.errors import excerpt

_log = logging.getLogger("remit.tools")
_CALL, _LIST = "tools/call", "tools/list"
_DEFINITION = ("name", "title", "description", "inputSchema")


def accept_odd_answers(client: Client, server: str) -> None:
    """Let a connected client accept malformed tools and results of tools.

    Malformed parts are converted, see :func:`readable`. A result is accepted even if it does not
    match the tool's output schema.

    Args:
        client: the connected client, which is changed.
        server: the server's name, for warnings.
    """

    async def accept(name: str, result: object) -> None:
        """Check nothing: the SDK would ask for the list of tools, and throw the result away."""

    session = client.session
    dispatcher = session._dispatcher
    send = dispatcher.send_raw_request

    async def send_raw_request(method: str, *rest: Any, **more: Any) -> dict[str, Any]:
        answer = await send(method, *rest, **more)
        return readable(method, client.protocol_version, answer, server)

    session.validate_tool_result = accept  # type: ignore[method-assign]
    dispatcher.send_raw_request = send_raw_request  # type: ignore[method-assign]


def readable(method: str, version: str, answer: dict[str, Any], server: str) -> dict[str, Any]:
    """Return a server's answer with its malformed parts converted; other answers unchanged.

    In a tool's result, blocks and structured content that the protocol does not know become JSON
    texts, and missing content an empty list. In a list of tools, a tool without an object schema
    takes any arguments, and malformed additions to a tool are removed. A tool that is still not
    valid is left out, with a warning.

    Args:
        method: the method that the server answers.
        version: the protocol version of the connection.
        answer: the result as received; it is not changed.
        server: the server's name, for warnings.
    """
    if method not in (_CALL, _LIST) or _is_valid(method, version, answer):
        return answer
    if method == _CALL:
        return _readable_result(version, answer)
    tools = answer.get("tools")
    if not isinstance(tools, list):
        return answer
    around = {key: value for key, value in answer.items() if key != "tools"}
    found = []
    for tool in tools:
        kept = next(
            (one for one in (tool, _plain_tool(tool))
             if _is_valid(_LIST, version, {**around, "tools": [one]})),
            None,
        )  # fmt: skip
        if kept is None:
            name = tool.get("name") if isinstance(tool, dict) else tool
            _log.warning("ignored the tool %s of the MCP server %s: its definition is not MCP",
                         excerpt(str(name)), server)  # fmt: skip
        else:
            found.append(kept)
    return {**around, "tools": found}


async def pages(page_at: Callable[[str | None], Awaitable[Any]]) -> AsyncIterator[Any]:
    """Yield the pages of a server's list, until it has no cursor or repeats a page or cursor.

    An empty cursor is a cursor, but counts as none if the server refuses it.

    Args:
        page_at: requests the page at a cursor; the first page at None.

    Raises:
        MCPError: a request is refused or times out, or the connection is closed.
    """
    cursor: str | None = None
    before, seen = None, set[str]()
    while True:
        try:
            page = await page_at(cursor)
        except MCPError as error:
            if cursor == "" and error.code == INVALID_PARAMS:
                return
            raise
        if page == before:
            return
        yield page
        before, cursor = page, page.next_cursor
        if cursor is None or cursor in seen:
            return
        seen.add(cursor)


def _readable_result(version: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    content = answer.get("content")
    sent = content if isinstance(content, list) else [] if content is None else [content]
    around = {key: value for key, value in answer.items() if key != "structuredContent"}
    blocks = [
        block if _is_valid(_CALL, version, {**around, "content": [block]}) else _text(block)
        for block in sent
    ]
    found = {**answer, "content": blocks}
    if _is_valid(_CALL, version, found):
        return found
    structured = answer.get("structuredContent")
    texts = [] if structured is None else [_text(structured)]
    return {**around, "content": [*blocks, *texts]}


def _text(value: object) -> dict[str, Any]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return {"type": "text", "text": text}


def _plain_tool(tool: Any) -> Any:
    """Return a tool's essential members, with an object schema unless it states another type."""
    if not isinstance(tool, dict):
        return tool
    found = {key: value for key, value in tool.items() if key in _DEFINITION and value is not None}
    schema = found.get("inputSchema")
    found["inputSchema"] = schema = dict(schema) if isinstance(schema, dict) else {}
    kinds = schema.get("type", "object")
    if kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
        schema["type"] = "object"
    return found


def _is_valid(method: str, version: str, answer: Mapping[str, Any]) -> bool:
    try:
        parse_server_result(method, version, answer)
    except ValidationError:
        return False
    except (KeyError, ValueError, RuntimeError):  # A version that only the SDK can judge.
        return True
    return True
