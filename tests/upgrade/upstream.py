"""A provider for roots of every version: real HTTP, answers by what a request asks for.

For ``build.py``, a request that says ``Please hang.`` is never answered. A request that says ``call
NAME {ARGUMENTS}`` and offers the tool NAME is answered with a call of the tool.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from tests.support.keeping import Asked, Keeper, keeping

__all__ = ["answering"]

_CLASSIFIED = '{"speech_act":"question","ambiguity":"low"}'
_CALL = re.compile(r'call (\w+) (\{.*?\})(?: |\\|")')
_CREATED = 1_770_000_000
_numbers = itertools.count(1)


class _NoAnswer(web.StreamResponse):
    """A response that never begins."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        await asyncio.Event().wait()
        return None


@contextlib.contextmanager
def answering(*, hangs: bool = False) -> Iterator[Keeper]:
    """Run the provider until the block ends.

    Args:
        hangs: never answer a request that says ``Please hang.``.
    """
    with keeping() as upstream:
        for path, reply in (("chat/completions", _chat), ("messages", _message)):
            upstream.replies[path] = functools.partial(_reply, reply, hangs)
        upstream.replies["responses"] = _response
        yield upstream


def _reply(
    reply: Callable[[dict[str, Any], str], web.StreamResponse | dict[str, Any]],
    hangs: bool,
    asked: Asked,
) -> web.StreamResponse | dict[str, Any]:
    body = json.loads(asked.body)
    said = json.dumps(body, ensure_ascii=False)
    if "speech_act" in said:
        return reply(body, _CLASSIFIED)
    if hangs and "Please hang." in said:
        return _NoAnswer()
    return reply(body, "Oolong steeps for three minutes.")


def _chat(body: dict[str, Any], text: str) -> web.StreamResponse | dict[str, Any]:
    answer: dict[str, Any] = {"role": "assistant", "content": text}
    finish = "stop"
    if call := _tool_call(body):
        answer |= {"content": None, "tool_calls": [call]}
        finish = "tool_calls"
    if body.get("stream"):
        return _streamed(body["model"], answer, finish)
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": _CREATED,
        "model": body["model"],
        "choices": [{"index": 0, "message": answer, "finish_reason": finish}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28},
    }  # fmt: skip


def _tool_call(body: dict[str, Any]) -> dict[str, Any] | None:
    offered = {one["function"]["name"]: one["function"] for one in body.get("tools") or ()}
    last = body["messages"][-1]
    if not offered or last["role"] == "tool":
        return None
    for name, arguments in _CALL.findall(str(last["content"]).replace('\\"', '"') + " "):
        found = [one for one in offered if one == name or one.endswith(name)]
        if found:
            function = {"name": found[0], "arguments": arguments}
            return {"id": f"call_{next(_numbers):024}", "type": "function", "function": function}
    return None


def _streamed(model: str, answer: dict[str, Any], finish: str) -> web.Response:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": _CREATED,
            "model": model}  # fmt: skip
    usage = {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28}
    chunks = [
        {**head, "choices": [{"index": 0, "delta": answer, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
        {**head, "choices": [], "usage": usage},
    ]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return web.Response(
        text="".join([*lines, "data: [DONE]\n\n"]), content_type="text/event-stream"
    )


def _response(asked: Asked) -> web.StreamResponse | dict[str, Any]:
    body = json.loads(asked.body)
    number = next(_numbers)
    content = {"type": "output_text", "text": "Oolong.", "annotations": []}
    item = {"id": f"msg_{number:048d}", "type": "message", "role": "assistant",
            "status": "completed", "content": [content]}  # fmt: skip
    return {
        "id": f"resp_{number:048d}", "object": "response", "created_at": _CREATED,
        "status": "completed", "model": body["model"], "output": [item],
        "parallel_tool_calls": True, "tools": [], "tool_choice": "auto",
        "usage": {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13,
                  "input_tokens_details": {"cached_tokens": 0},
                  "output_tokens_details": {"reasoning_tokens": 0}},
    }  # fmt: skip


def _message(body: dict[str, Any], text: str) -> dict[str, Any]:
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": body["model"],
        "content": [{"type": "text", "text": text}], "stop_reason": "end_turn",
        "stop_sequence": None, "usage": {"input_tokens": 20, "output_tokens": 8},
    }  # fmt: skip
