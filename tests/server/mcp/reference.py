"""A server that offers what `@modelcontextprotocol/conformance` asks servers for.

``python -m tests.server.mcp.reference`` speaks stdio; ``… --http`` streamable HTTP on a free port,
which it prints. What the tools are called and answer is the suite's to say. ``… --fork SOCKET``
serves whatever stdio comes over a Unix socket (``forked.py``) in a copy of itself, which spares
each session the imports.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from typing import Any

import uvicorn
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.types import (
    INVALID_PARAMS,
    CallToolResult,
    CompleteResult,
    EmptyResult,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceResult,
)

Context = ServerRequestContext[Any, Any]
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # noqa: E501
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
OPEN: dict[str, Any] = {"type": "object", "properties": {}}
KEYWORDS = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
_TITLED = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
_PLAIN = {"type": "string", "enum": ["option1", "option2", "option3"]}
ENUMS = {
    "untitledSingle": _PLAIN,
    "titledSingle": {"type": "string", "oneOf": _TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": _PLAIN},
    "titledMulti": {"type": "array", "items": {"anyOf": _TITLED}},
}
PROMPTS: dict[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _resource(uri: str) -> dict[str, Any]:
    shown = {"uri": uri, "mimeType": "text/plain", "text": "This is an embedded resource content."}
    return {"type": "resource", "resource": shown}


async def _ask(context: Context, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """A request to the client, on the stream of the request that runs."""
    asked = await context.session._request_outbound.send_raw_request(method, params)
    return dict(asked)


async def _elicited(context: Context, message: str, properties: dict[str, Any]) -> Any:
    schema = {"type": "object", "properties": properties, "required": []}
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    found = await _ask(context, "elicitation/create", params)
    said = f"action={found.get('action')}, content={found.get('content')}"
    return [_text(f"Elicitation completed: {said}")]


async def _run(context: Context, name: str, arguments: dict[str, Any]) -> Any:
    out = context.session._request_outbound
    match name:
        case "test_simple_text":
            return [_text("This is a simple text response for testing.")]
        case "test_image_content":
            return [IMAGE]
        case "test_audio_content":
            return [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]
        case "test_embedded_resource":
            return [_resource("test://embedded-resource")]
        case "test_multiple_content_types":
            return [_text("Multiple content types test:"), IMAGE, _resource("test://mixed")]
        case "test_tool_with_logging":
            for data in ("Tool execution started", "Tool processing data", "Tool completed"):
                await out.notify("notifications/message", {"level": "info", "data": data})
                await asyncio.sleep(0.05)
            return [_text("Tool with logging executed successfully")]
        case "test_tool_with_progress":
            for done in (0, 50, 100):
                await out.progress(done, 100, f"Completed step {done} of 100")
                await asyncio.sleep(0.05)
            return [_text("done")]
        case "test_error_handling":
            raise ValueError("This tool intentionally returns an error for testing")
        case "test_sampling":
            asked = {"role": "user", "content": _text(str(arguments.get("prompt")))}
            params = {"messages": [asked], "maxTokens": 100}
            found = await _ask(context, "sampling/createMessage", params)
            return [_text(f"LLM response: {found['content']}")]
        case "test_elicitation":
            properties = {"response": {"type": "string", "description": "User's response"}}
            return await _elicited(context, str(arguments.get("message")), properties)
        case "test_elicitation_sep1034_defaults":
            return await _elicited(context, "Please review these defaults", DEFAULTS)
        case "test_elicitation_sep1330_enums":
            return await _elicited(context, "Please choose", ENUMS)
        case "json_schema_2020_12_tool":
            return [_text(f"called with {arguments}")]
        case "flood":
            for number in range(1000):
                data = {"level": "info", "data": f"{number} " + "x" * 100}
                await out.notify("notifications/message", data)
            return [_text("flooded")]
        case "wait":
            await out.progress(1, 2)
            await asyncio.sleep(600)
    raise MCPError(INVALID_PARAMS, f"Unknown tool: {name}")


TOOLS: dict[str, Any] = {
    "test_simple_text": OPEN,
    "test_image_content": OPEN,
    "test_audio_content": OPEN,
    "test_embedded_resource": OPEN,
    "test_multiple_content_types": OPEN,
    "test_tool_with_logging": OPEN,
    "test_tool_with_progress": OPEN,
    "test_error_handling": OPEN,
    "test_sampling": {"type": "object", "properties": {"prompt": {"type": "string"}}},
    "test_elicitation": {"type": "object", "properties": {"message": {"type": "string"}}},
    "test_elicitation_sep1034_defaults": OPEN,
    "test_elicitation_sep1330_enums": OPEN,
    "json_schema_2020_12_tool": KEYWORDS,
    "flood": OPEN,
    "wait": OPEN,
}


async def _list_tools(_: Context, __: Any) -> ListToolsResult:
    tools = [
        {"name": name, "description": f"{name} of the suite", "inputSchema": schema}
        for name, schema in TOOLS.items()
    ]
    return ListToolsResult.model_validate({"tools": tools})


async def _call_tool(context: Context, params: Any) -> CallToolResult:
    try:
        content = await _run(context, params.name, params.arguments or {})
    except ValueError as error:
        return CallToolResult.model_validate({"content": [_text(str(error))], "isError": True})
    return CallToolResult.model_validate({"content": content})


async def _list_resources(_: Context, __: Any) -> ListResourcesResult:
    names = ("static-text", "static-binary", "watched-resource")
    found = [{"uri": f"test://{name}", "name": name, "description": name} for name in names]
    return ListResourcesResult.model_validate({"resources": found})


async def _list_templates(_: Context, __: Any) -> ListResourceTemplatesResult:
    template = {"uriTemplate": "test://template/{id}/data", "name": "template"}
    return ListResourceTemplatesResult.model_validate({"resourceTemplates": [template]})


async def _read(_: Context, params: Any) -> ReadResourceResult:
    uri = str(params.uri)
    shown: dict[str, Any] = {
        "uri": uri,
        "mimeType": "text/plain",
        "text": f"The text of {uri}: 123",
    }
    if "binary" in uri:
        shown = {"uri": uri, "mimeType": "image/png", "blob": PNG}
    return ReadResourceResult.model_validate({"contents": [shown]})


async def _nothing(_: Context, __: Any) -> EmptyResult:
    return EmptyResult()


async def _list_prompts(_: Context, __: Any) -> ListPromptsResult:
    found = [
        {
            "name": name,
            "description": name,
            "arguments": [{"name": one, "description": one, "required": True} for one in arguments],
        }
        for name, arguments in PROMPTS.items()
    ]
    return ListPromptsResult.model_validate({"prompts": found})


async def _get_prompt(_: Context, params: Any) -> GetPromptResult:
    arguments = params.arguments or {}
    said = ", ".join(f"{name}='{value}'" for name, value in arguments.items())
    content: list[Any] = [_text(f"Prompt with arguments: {said}" if said else "A simple prompt.")]
    if "resource" in params.name:
        content = [_resource(arguments["resourceUri"]), *content]
    if "image" in params.name:
        content = [IMAGE, *content]
    messages = [{"role": "user", "content": block} for block in content]
    return GetPromptResult.model_validate({"messages": messages})


async def _complete(_: Context, __: Any) -> CompleteResult:
    return CompleteResult.model_validate({"completion": {"values": ["test"], "hasMore": False}})


def server() -> Server[Any]:
    return Server(
        "reference",
        version="1",
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        on_list_resources=_list_resources,
        on_list_resource_templates=_list_templates,
        on_read_resource=_read,
        on_subscribe_resource=_nothing,
        on_unsubscribe_resource=_nothing,
        on_list_prompts=_list_prompts,
        on_get_prompt=_get_prompt,
        on_completion=_complete,
        on_set_logging_level=_nothing,
    )


async def _stdio() -> None:
    own = server()
    async with stdio_server() as (receive, send):
        await own.run(receive, send, own.create_initialization_options())


def _http() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server().streamable_http_app(), log_level="error")
    uvicorn.Server(config).run(sockets=[listening])


def _fork(path: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        while True:
            client, _ = listening.accept()
            _, given, _, _ = socket.recv_fds(client, 1, 3)
            if os.fork() == 0:
                listening.close()
                for number, descriptor in enumerate(given):
                    os.dup2(descriptor, number)
                    os.close(descriptor)
                asyncio.run(_stdio())
                os._exit(0)
            for descriptor in given:
                os.close(descriptor)
            client.close()


if __name__ == "__main__":
    if "--fork" in sys.argv:
        _fork(sys.argv[-1])
    elif "--http" in sys.argv:
        _http()
    else:
        asyncio.run(_stdio())
