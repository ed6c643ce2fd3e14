"""Anthropic's Messages API, by its wire format."""

from __future__ import annotations

from typing import Any

import orjson

from remit.kernel.exchange import (
    ModelCapabilities,
    TextDelta,
    TextSink,
    ThinkingDelta,
    ToolInputDelta,
    ToolUseStart,
    text_of,
)
from remit.kernel.settings import ProviderSettings
from remit.providers._http import JsonHttpClient
from remit.providers._wire import count, free, number_or_none, texts_of, well_formed
from remit.providers.dialects.anthropic import anthropic_messages, anthropic_tools
from remit.providers.dialects.call import Dialect, DialectError
from remit.providers.dialects.parameters import translate_parameters
from remit.providers.protocol import (
    EventSink,
    ProviderError,
    ProviderRequest,
    ProviderResponse,
    UsageReported,
    WireChunk,
)

__all__ = ["AnthropicProvider"]

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_use",
    "refusal": "content_filter",
}
_ANSWER_TOOL = "answer"
_BETA = "anthropic-beta"


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

    async def astream(
        self, request: ProviderRequest, on_event: EventSink | None
    ) -> ProviderResponse:
        """See :class:`~remit.providers.StreamingProvider`."""
        body = self._body(request)
        beta = body.pop(_BETA, None)
        headers = {_BETA: str(beta)} if beta else None
        forced = _ANSWER_TOOL if "tool_choice" in body and _forced(body) else ""
        with well_formed(self._api_key):
            if on_event is None:
                answer, raw = await self._http.post(
                    "/v1/messages", body, request.timeout_s, headers
                )
                return _parse(answer, forced, None if forced else raw)
            collected = _StreamedMessage(on_event, forced)
            body["stream"] = True
            async for event, raw in self._http.stream(
                "/v1/messages", body, request.timeout_s, headers
            ):
                collected.add(event, raw)
            return _parse(collected.body(), forced)

    async def asend(
        self, request: ProviderRequest, *, on_text: TextSink | None = None
    ) -> ProviderResponse:
        """See :class:`~remit.providers.AsyncProvider`."""
        return await self.astream(request, texts_of(on_text))

    def _body(self, request: ProviderRequest) -> dict[str, Any]:
        """A request in the form of the Messages API.

        Raises:
            ProviderError: it holds what this API cannot carry.
        """
        body: dict[str, Any] = {"model": request.model_id}
        try:
            source: Dialect = "openai" if request.dialect == "openai" else "anthropic"
            system, body["messages"] = anthropic_messages(request.messages, source=source)
            if system:
                body["system"] = system
            if request.tools:
                body["tools"] = anthropic_tools(request.tools, source=source)
            if request.dialect == "anthropic":
                body |= free(request.parameters)
            elif request.dialect is not None:
                body |= free(translate_parameters(request.parameters, "openai", "anthropic"))
                if not request.tools:
                    body.pop("tool_choice", None)
        except DialectError as error:
            raise ProviderError("INVALID_REQUEST", error.message) from error
        body["max_tokens"] = request.max_tokens or self._settings.max_output_tokens
        if request.temperature is not None and self._settings.send_temperature:
            # The API refuses what is out of its range; other dialects' scale goes further.
            own = request.dialect == "anthropic"
            body["temperature"] = request.temperature if own else min(request.temperature, 1.0)
        if request.response_schema is not None and request.dialect != "anthropic":
            # Every model that takes tools can be held to a schema by having to use one.
            body["tools"] = [
                {
                    "name": _ANSWER_TOOL,
                    "description": "Give the answer.",
                    "input_schema": dict(request.response_schema),
                }
            ]
            body["tool_choice"] = {"type": "tool", "name": _ANSWER_TOOL}
        return body


class _StreamedMessage:
    """Puts a message together from the events of a stream."""

    def __init__(self, emit: EventSink, forced: str) -> None:
        self._emit = emit
        self._forced = forced
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}
        self._ended = False
        self._is_whole = False

    def add(self, event: dict[str, Any], raw: bytes) -> None:
        """Take one event; raises :class:`ProviderError` for an error event."""
        if self._ended:
            return  # what comes behind the end changes nothing
        kind = event.get("type")
        if kind == "error":
            detail = event.get("error", {})
            raise ProviderError(
                "SERVER_ERROR", str(detail.get("message", detail)), True, maybe_billed=True
            )
        # A made-up tool is no business of the client's, and a complete answer is no event.
        if not self._forced and kind != "message":
            self._emit(WireChunk("anthropic", str(kind), raw, event))
        if kind == "message_start":
            self._message = dict(event.get("message", {}))
            self._told(self._message.get("usage"))
        elif kind == "content_block_start":
            self._begin(event["index"], dict(event["content_block"]))
        elif kind == "content_block_delta":
            self._delta(event["index"], event["delta"])
        elif kind == "message_delta":
            self._message.update(event.get("delta", {}))
            self._message["usage"] = {**self._message.get("usage", {}), **event.get("usage", {})}
        elif kind == "message_stop":
            self._ended = True
        elif kind == "message":  # a server that does not stream answers at once
            self._emit(TextDelta(text_of(event.get("content"))))
            for index, block in enumerate(event.get("content") or ()):
                if block.get("type") == "tool_use":
                    self._emit(ToolUseStart(index, str(block["id"]), str(block["name"])))
                    self._emit(ToolInputDelta(index, orjson.dumps(block["input"]).decode()))
            self._message = event
            self._ended = self._is_whole = True

    def _told(self, usage: Any) -> None:
        if isinstance(usage, dict) and "input_tokens" in usage:
            tokens_in, _, _ = _input_tokens(usage)
            self._emit(UsageReported(tokens_in, number_or_none(usage.get("output_tokens"))))

    def _begin(self, index: int, block: dict[str, Any]) -> None:
        self._blocks[index] = block
        self._inputs[index] = []
        if block.get("type") == "tool_use" and not self._forced:
            self._emit(ToolUseStart(index, str(block.get("id")), str(block.get("name"))))

    def _delta(self, index: int, delta: dict[str, Any]) -> None:
        kind, block = delta.get("type"), self._blocks.get(index, {})
        if kind == "text_delta":
            block["text"] = block.get("text", "") + delta["text"]
            if not self._forced:
                self._emit(TextDelta(delta["text"]))
        elif kind == "input_json_delta":
            self._inputs[index].append(delta["partial_json"])
            piece = delta["partial_json"]
            self._emit(TextDelta(piece) if self._forced else ToolInputDelta(index, piece))
        elif kind == "thinking_delta":
            block["thinking"] = block.get("thinking", "") + delta["thinking"]
            self._emit(ThinkingDelta(delta["thinking"]))
        elif kind == "signature_delta":
            block["signature"] = delta["signature"]
            self._emit(ThinkingDelta("", delta["signature"]))
        elif kind == "citations_delta":
            block.setdefault("citations", []).append(delta["citation"])

    def body(self) -> dict[str, Any]:
        """The message as if it had come in one piece.

        Raises:
            ProviderError: the stream was cut off, or a tool's input is no JSON.
        """
        if self._is_whole:
            return self._message
        if not self._ended:
            raise ProviderError(
                "SERVER_ERROR", "the stream ended before the message did", True, maybe_billed=True
            )
        for index, parts in self._inputs.items():
            if parts:
                try:
                    self._blocks[index]["input"] = orjson.loads("".join(parts) or "{}")
                except orjson.JSONDecodeError as error:
                    raise ProviderError(
                        "SERVER_ERROR", "a tool's input is not JSON", True, maybe_billed=True
                    ) from error
        self._message["content"] = [self._blocks[index] for index in sorted(self._blocks)]
        return self._message


def _forced(body: dict[str, Any]) -> bool:
    choice = body["tool_choice"]
    return isinstance(choice, dict) and choice.get("name") == _ANSWER_TOOL


def _parse(answer: dict[str, Any], forced: str, raw: bytes | None = None) -> ProviderResponse:
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
    tokens_in, cached, written = _input_tokens(usage)
    kinds = usage.get("cache_creation")
    short = count(kinds.get("ephemeral_5m_input_tokens")) if isinstance(kinds, dict) else 0
    return ProviderResponse(
        content=content,
        model=str(answer.get("model", "")),
        input_tokens=tokens_in,
        output_tokens=count(usage.get("output_tokens")),
        finish_reason=finish,
        request_id=str(answer.get("id", "")),
        content_blocks=kept,
        cached_input_tokens=cached or None,
        cache_write_tokens=written or None,
        cache_write_short_tokens=min(short, written) or None,
        usage_reported="input_tokens" in usage and "output_tokens" in usage,
        wire=("anthropic", raw) if raw is not None else None,
    )


def _input_tokens(usage: dict[str, Any]) -> tuple[int, int, int]:
    """Input tokens in all, those read from a cache, those written to one.

    The API counts cached tokens beside ``input_tokens``; here they are a part of them.
    """
    cached = count(usage.get("cache_read_input_tokens"))
    written = count(usage.get("cache_creation_input_tokens"))
    return count(usage.get("input_tokens")) + cached + written, cached, written
