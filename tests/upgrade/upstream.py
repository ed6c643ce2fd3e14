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
from tests.support.wire import completion, completion_stream, message, response

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
    call = _tool_call(body)
    answer = {
        **completion("" if call else text, [call] if call else None,
                     prompt_tokens=20, completion_tokens=8),
        "created": _CREATED, "model": body["model"],
    }  # fmt: skip
    if not body.get("stream"):
        return answer
    stream = completion_stream(answer)
    return web.Response(body=b"".join(stream.chunks), content_type=stream.content_type)


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


def _response(asked: Asked) -> web.StreamResponse | dict[str, Any]:
    number = next(_numbers)
    answer = response("Oolong.", input_tokens=10, output_tokens=3)
    answer["output"][0]["id"] = f"msg_{number:048d}"
    return {
        **answer, "id": f"resp_{number:048d}", "created_at": _CREATED,
        "model": json.loads(asked.body)["model"],
    }  # fmt: skip


def _message(body: dict[str, Any], text: str) -> dict[str, Any]:
    return {**message(text, input_tokens=20, output_tokens=8), "model": body["model"]}
