"""A real HTTP server on loopback that speaks the providers' wire formats, or breaks them.

Each request takes the next step of a script. A step is a JSON body, a :class:`Raw` reply, or a
function of the request that gives either.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.listening import listening


@dataclass
class Raw:
    """A reply as bytes, possibly cut off, slow or refused."""

    body: bytes = b""
    status: int = 200
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    cut: bool = False
    chunks: list[bytes] = field(default_factory=list)


Step = dict[str, Any] | Raw | Callable[[dict[str, Any]], "dict[str, Any] | Raw"]


@dataclass
class Call:
    """A request as the server got it."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: bytes


class WireServer:
    """See the module. ``calls`` holds what came in; the last step is repeated."""

    def __init__(self, script: list[Step]) -> None:
        self.script = script
        self.calls: list[Call] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw) if raw.startswith(b"{") else {}  # a form
        self.calls.append(Call(request.path, dict(request.headers), body, raw))
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        reply = step(body) if callable(step) else step
        if isinstance(reply, dict):
            return web.json_response(reply)
        await asyncio.sleep(reply.delay_s)
        if not reply.chunks and not reply.cut:
            return web.Response(
                body=reply.body,
                status=reply.status,
                headers={"content-type": reply.content_type, **reply.headers},
            )
        response = web.StreamResponse(
            status=reply.status, headers={"content-type": reply.content_type, **reply.headers}
        )
        await response.prepare(request)
        for chunk in reply.chunks or [reply.body]:
            await response.write(chunk)
        if reply.cut:
            assert request.transport is not None
            request.transport.abort()
        return response


@contextmanager
def serve(*script: Step) -> Iterator[WireServer]:
    server = WireServer(list(script))
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/{path:.*}", server.answer)
    with listening(app) as server.url:
        yield server


# -- the Anthropic Messages API ------------------------------------------------------------


def message(*blocks: dict[str, Any] | str, stop: str | None = None, **usage: int) -> dict[str, Any]:
    """A whole answer of the Messages API; a text stands for a text block."""
    content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
    uses_tool = any(block["type"] == "tool_use" for block in content)
    return {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-test-1",
        "content": content,
        "stop_reason": stop or ("tool_use" if uses_tool else "end_turn"),
        "usage": {"input_tokens": 11, "output_tokens": 7, **usage},
    }


def tool_use(name: str, arguments: dict[str, Any], call_id: str = "toolu_1") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def message_events(answer: dict[str, Any]) -> list[dict[str, Any]]:
    usage = {**answer["usage"], "output_tokens": 1}
    begun = {**answer, "content": [], "stop_reason": None, "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(answer["content"]):
        empty, deltas = _block_deltas(block)
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": one} for one in deltas]
        events.append({"type": "content_block_stop", "index": index})
    ended = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    made = {"output_tokens": answer["usage"]["output_tokens"]}
    return [*events, {"type": "message_delta", "delta": ended, "usage": made},
            {"type": "message_stop"}]  # fmt: skip


def _block_deltas(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it begins in a stream, and what is added to it."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [
                {"type": "text_delta", "text": piece} for piece in _pieces(block["text"], 4)
            ]
        case "thinking":
            return {**block, "thinking": "", "signature": ""}, [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case "tool_use":
            return {**block, "input": {}}, [
                {"type": "input_json_delta", "partial_json": piece}
                for piece in _pieces(json.dumps(block["input"]), 5)
            ]
    return block, []


def _pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def sse(events: Iterable[dict[str, Any]]) -> list[bytes]:
    """Each event as a server sends it, by its name if it has a type."""
    return [
        (f"event: {event['type']}\n" if "type" in event else "").encode()
        + f"data: {json.dumps(event)}\n\n".encode()
        for event in events
    ]


def message_stream(answer: dict[str, Any], *, cut_after: int | None = None) -> Raw:
    """The same answer as a stream of server-sent events."""
    chunks = sse(message_events(answer))
    cut = cut_after is not None
    return Raw(content_type="text/event-stream", chunks=chunks[:cut_after], cut=cut)


def anthropic_answer(*blocks: dict[str, Any] | str) -> Step:
    """Streams when it is asked to."""
    answer = message(*blocks)
    return lambda body: message_stream(answer) if body.get("stream") else answer


# -- OpenAI Chat Completions ---------------------------------------------------------------


def completion(
    text: str = "", calls: list[dict[str, Any]] | None = None, **usage: int
) -> dict[str, Any]:
    """A whole answer of Chat Completions."""
    usage = {"prompt_tokens": 13, "completion_tokens": 5, **usage}
    turn: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        turn["tool_calls"] = calls
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-test-1",
        "choices": [
            {"index": 0, "message": turn, "finish_reason": "tool_calls" if calls else "stop"}
        ],
        "usage": {**usage, "total_tokens": usage["prompt_tokens"] + usage["completion_tokens"]},
    }


def function_call(name: str, arguments: str, call_id: str = "call_1") -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def completion_stream(answer: dict[str, Any], *, cut_after: int | None = None) -> Raw:
    """The same answer as a stream of server-sent events."""
    turn = answer["choices"][0]["message"]
    text = turn.get("content") or ""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None}]
    deltas += [{"content": piece} for piece in _pieces(text, 4)]
    for index, call in enumerate(turn.get("tool_calls", ())):
        arguments = call["function"]["arguments"]
        head = {**call, "index": index, "function": {**call["function"], "arguments": ""}}
        deltas.append({"tool_calls": [head]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in _pieces(arguments, 5)
        ]
    base = {"id": answer["id"], "object": "chat.completion.chunk", "model": answer["model"]}
    bodies = [
        {**base, "choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas
    ]
    finish = answer["choices"][0]["finish_reason"]
    bodies.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    bodies.append({**base, "choices": [], "usage": answer["usage"]})
    chunks = [*sse(bodies), b"data: [DONE]\n\n"]
    cut = cut_after is not None
    return Raw(content_type="text/event-stream", chunks=chunks[:cut_after], cut=cut)


# -- OpenAI Responses ----------------------------------------------------------------------


def response(*items: dict[str, Any] | str, **usage: int) -> dict[str, Any]:
    """A whole answer of the Responses API; a text stands for a message."""
    usage = {"input_tokens": 9, "output_tokens": 4, **usage}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "gpt-test-1",
        "output": [_said(item) if isinstance(item, str) else item for item in items],
        "usage": {**usage, "total_tokens": usage["input_tokens"] + usage["output_tokens"]},
    }


def _said(text: str) -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}]}  # fmt: skip
