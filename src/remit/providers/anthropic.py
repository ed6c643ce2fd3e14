"""Anthropic's Messages API, by its wire format."""

from __future__ import annotations

from typing import Any

import orjson

from remit.config import ProviderSettings
from remit.exchange import Message, ModelCapabilities, TextSink, text_of
from remit.providers._http import JsonHttpClient
from remit.providers._wire import count, number_or_none, well_formed
from remit.providers.protocol import ProviderError, ProviderRequest, ProviderResponse

__all__ = ["AnthropicProvider"]

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_use",
    "refusal": "content_filter",
}
_ANSWER_TOOL = "answer"


class AnthropicProvider:
    """Speaks ``POST /v1/messages``.

    Args:
        base_url: without the ``/v1/messages``.
        api_key: sent as ``x-api-key``; empty for servers that want none.
        settings: version header, default model and abilities.
    """

    def __init__(self, base_url: str, api_key: str, settings: ProviderSettings) -> None:
        headers = {"anthropic-version": settings.api_version}
        if api_key:
            headers["x-api-key"] = api_key
        self._http = JsonHttpClient(base_url, headers)
        self._settings = settings
        self._api_key = api_key

    def __repr__(self) -> str:
        return f"AnthropicProvider({self._http!r})"

    def capabilities(self, model_id: str) -> ModelCapabilities:
        """What its models can do, as configured."""
        return ModelCapabilities(self._settings.native_tools, self._settings.structured_output)

    async def aclose(self) -> None:
        """Close the connections of the running loop."""
        await self._http.aclose()

    async def asend(
        self, request: ProviderRequest, *, on_text: TextSink | None = None
    ) -> ProviderResponse:
        """See :class:`~remit.providers.AsyncProvider`."""
        body = self._body(request)
        with well_formed(self._api_key):
            if on_text is None:
                answer = await self._http.post("/v1/messages", body, request.timeout_s)
            else:
                answer = await self._streamed(body, request.timeout_s, on_text)
            return _parse(answer, forced=request.response_schema is not None)

    def _body(self, request: ProviderRequest) -> dict[str, Any]:
        system = "\n\n".join(
            text_of(message["content"])
            for message in request.messages
            if message["role"] == "system"
        )
        body: dict[str, Any] = {
            "model": request.model_id,
            "max_tokens": request.max_tokens,
            "messages": _turns(request.messages),
        }
        if system:
            body["system"] = system
        if self._settings.send_temperature:
            body["temperature"] = min(request.temperature, 1.0)
        if request.response_schema is not None:
            # Every model that takes tools can be held to a schema by having to use one.
            body["tools"] = [
                {
                    "name": _ANSWER_TOOL,
                    "description": "Give the answer.",
                    "input_schema": dict(request.response_schema),
                }
            ]
            body["tool_choice"] = {"type": "tool", "name": _ANSWER_TOOL}
        elif request.tools:
            body["tools"] = [dict(tool) for tool in request.tools]
        return body

    async def _streamed(
        self, body: dict[str, Any], timeout_s: float, on_text: TextSink
    ) -> dict[str, Any]:
        """The whole message put together from the events of a stream."""
        message: dict[str, Any] = {}
        blocks: dict[int, dict[str, Any]] = {}
        inputs: dict[int, list[str]] = {}
        ended = False
        stream = self._http.stream("/v1/messages", {**body, "stream": True}, timeout_s)
        async for event in stream:
            kind = event.get("type")
            if kind == "message_start":
                message = dict(event.get("message", {}))
            elif kind == "content_block_start":
                blocks[event["index"]] = dict(event["content_block"])
                inputs[event["index"]] = []
            elif kind == "content_block_delta":
                delta, block = event["delta"], blocks.get(event["index"], {})
                if delta.get("type") == "text_delta":
                    block["text"] = block.get("text", "") + delta["text"]
                    on_text(delta["text"])
                elif delta.get("type") == "input_json_delta":
                    inputs[event["index"]].append(delta["partial_json"])
            elif kind == "message_delta":
                message.update(event.get("delta", {}))
                message["usage"] = {**message.get("usage", {}), **event.get("usage", {})}
            elif kind == "message_stop":
                ended = True
            elif kind == "error":
                detail = event.get("error", {})
                raise ProviderError(
                    "SERVER_ERROR", str(detail.get("message", detail)), True, maybe_billed=True
                )
            elif kind == "message":  # a server that does not stream answers whole
                on_text(text_of(event.get("content")))
                return event
        if not ended:
            raise ProviderError(
                "SERVER_ERROR", "the stream ended before the message did", True, maybe_billed=True
            )
        for index, parts in inputs.items():
            if parts:
                try:
                    blocks[index]["input"] = orjson.loads("".join(parts) or "{}")
                except orjson.JSONDecodeError as error:
                    raise ProviderError(
                        "SERVER_ERROR", "a tool's input is not JSON", True, maybe_billed=True
                    ) from error
        message["content"] = [blocks[index] for index in sorted(blocks)]
        return message


def _turns(messages: tuple[Message, ...]) -> list[dict[str, Any]]:
    """Messages in the API's form; a turn of one role after itself is joined."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "system":
            continue
        content = message["content"]
        if turns and turns[-1]["role"] == message["role"]:
            turns[-1]["content"] = [*_blocks(turns[-1]["content"]), *_blocks(content)]
        else:
            turns.append({"role": message["role"], "content": content})
    return turns


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _parse(answer: dict[str, Any], *, forced: bool) -> ProviderResponse:
    blocks = answer.get("content")
    usage = answer.get("usage") or {}
    if not isinstance(blocks, list) or not isinstance(usage, dict):
        raise ProviderError(
            "SERVER_ERROR", "the answer is not a message of the Messages API", True,
            maybe_billed=True,
        )  # fmt: skip
    kept = tuple(block for block in blocks if isinstance(block, dict) and "type" in block)
    finish = _FINISH.get(str(answer.get("stop_reason")), "stop")
    content = text_of(kept)
    if forced:
        for block in kept:
            if block["type"] == "tool_use" and block.get("name") == _ANSWER_TOOL:
                content = orjson.dumps(block.get("input")).decode()
                kept = ({"type": "text", "text": content},)
                finish = "length" if finish == "length" else "stop"
    cached = number_or_none(usage.get("cache_read_input_tokens"))
    written = count(usage.get("cache_creation_input_tokens"))
    return ProviderResponse(
        content=content,
        model=str(answer.get("model", "")),
        # The API counts cached tokens beside input_tokens; here they are a part of them.
        input_tokens=count(usage.get("input_tokens")) + (cached or 0) + written,
        output_tokens=count(usage.get("output_tokens")),
        finish_reason=finish,
        request_id=str(answer.get("id", "")),
        content_blocks=kept,
        cached_input_tokens=cached or None,
        usage_reported="input_tokens" in usage and "output_tokens" in usage,
    )
