"""OpenAI's Chat Completions, by its wire format: OpenAI, vLLM, Ollama, llama.cpp and others."""

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
)
from remit.kernel.settings import ProviderSettings
from remit.providers._http import JsonHttpClient
from remit.providers._wire import count, free, number_or_none, texts_of, well_formed
from remit.providers.dialects.call import Dialect, DialectError
from remit.providers.dialects.openai import openai_messages, openai_tools
from remit.providers.dialects.parameters import translate_parameters
from remit.providers.protocol import (
    EventSink,
    ProviderError,
    ProviderRequest,
    ProviderResponse,
    WireChunk,
)

__all__ = ["OpenAIProvider", "StreamedChat", "chat_body", "chat_response"]

_FINISH = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "content_filter",
}


class OpenAIProvider:
    """Speaks ``POST /chat/completions``.

    Args:
        base_url: with the ``/v1``, where the server has one.
        api_key: sent as a bearer token; empty for servers that want none.
        settings: default model and abilities.
    """

    def __init__(self, base_url: str, api_key: str, settings: ProviderSettings) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = JsonHttpClient(base_url, headers)
        self._settings = settings
        self._api_key = api_key

    def __repr__(self) -> str:
        return f"OpenAIProvider({self._http!r})"

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
        body = chat_body(request)
        if any(map(request.model_id.startswith, self._settings.max_completion_tokens_models)):
            if "max_tokens" in body:
                body["max_completion_tokens"] = body.pop("max_tokens")
            if request.dialect is None:  # a client that names a temperature knows its model
                body.pop("temperature", None)
        elif not self._settings.send_temperature:
            body.pop("temperature", None)
        with well_formed(self._api_key):
            if on_event is None:
                answer, raw = await self._http.post("/chat/completions", body, request.timeout_s)
                return chat_response(answer, raw)
            body |= {"stream": True, "stream_options": {"include_usage": True}}
            collected = StreamedChat(on_event)
            async for chunk, raw in self._http.stream("/chat/completions", body, request.timeout_s):
                collected.add(chunk, raw)
            return chat_response(collected.body())

    async def asend(
        self, request: ProviderRequest, *, on_text: TextSink | None = None
    ) -> ProviderResponse:
        """See :class:`~remit.providers.AsyncProvider`."""
        return await self.astream(request, texts_of(on_text))


def chat_body(request: ProviderRequest) -> dict[str, Any]:
    """A request in the form of Chat Completions.

    Raises:
        ProviderError: it holds what this API cannot carry.
    """
    body: dict[str, Any] = {"model": request.model_id}
    try:
        # What agents say may hold blocks of any provider: only what all know is sent.
        source: Dialect = "openai" if request.dialect == "openai" else "anthropic"
        body["messages"] = openai_messages(request.messages, source=source)
        if request.tools:
            body["tools"] = openai_tools(request.tools, source=source)
        if request.dialect == "openai":
            body |= free(request.parameters)
        elif request.dialect is not None:
            body |= free(translate_parameters(request.parameters, "anthropic", "openai"))
            if not request.tools:
                body.pop("tool_choice", None)
    except DialectError as error:
        raise ProviderError("INVALID_REQUEST", error.message) from error
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.response_schema is not None and "response_format" not in body:
        schema = {"name": "answer", "schema": dict(request.response_schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def chat_response(answer: dict[str, Any], raw: bytes | None = None) -> ProviderResponse:
    """A Chat Completions answer in neutral form.

    Args:
        answer: the answer, read.
        raw: the same as it came.

    Raises:
        ProviderError: it holds an error.
        KeyError, IndexError, TypeError, AttributeError: it is none.
    """
    if isinstance(answer.get("error"), dict):
        said = answer["error"].get("message", "an error without a message")
        raise ProviderError("SERVER_ERROR", str(said), True, maybe_billed=True)
    choice = answer["choices"][0]
    message = choice["message"]
    text = message.get("content") or ""
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        blocks.append(
            {
                "type": "tool_use",
                "id": str(call["id"]),
                "name": str(function["name"]),
                "input": _arguments(function.get("arguments")),
            }
        )
    if not isinstance(text, str):
        raise TypeError("content is not a text")
    usage = answer.get("usage") or {}
    reported = "prompt_tokens" in usage and "completion_tokens" in usage
    details = usage.get("prompt_tokens_details") or {}
    thinking = usage.get("completion_tokens_details") or {}
    uses_tool = any(block["type"] == "tool_use" for block in blocks)
    return ProviderResponse(
        content=text,
        model=str(answer.get("model") or ""),
        input_tokens=count(usage.get("prompt_tokens")),
        output_tokens=count(usage.get("completion_tokens")),
        finish_reason="tool_use"
        if uses_tool
        else _FINISH.get(str(choice.get("finish_reason")), "stop"),
        request_id=str(answer.get("id") or ""),
        content_blocks=tuple(blocks),
        cached_input_tokens=number_or_none(details.get("cached_tokens")) or None,
        reasoning_tokens=number_or_none(thinking.get("reasoning_tokens")) or None,
        usage_reported=reported,
        wire=("openai", raw) if raw is not None else None,
    )


class StreamedChat:
    """Puts an answer together from the chunks of a stream."""

    def __init__(self, on_event: EventSink) -> None:
        self._on_event = on_event
        self._answer: dict[str, Any] = {}
        self._text: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: str | None = None
        self._told: set[int] = set()

    def add(self, chunk: dict[str, Any], raw: bytes | None = None) -> None:
        """Take one chunk; raises :class:`ProviderError` for an error chunk."""
        if chunk.get("error"):
            detail = chunk["error"]
            said = detail.get("message", detail) if isinstance(detail, dict) else detail
            raise ProviderError("SERVER_ERROR", str(said), True, maybe_billed=True)
        emit = self._on_event
        choices = chunk.get("choices") or ()
        if raw is not None and not any("message" in choice for choice in choices):
            emit(WireChunk("openai", "", raw, chunk))
        for key in ("id", "model", "usage"):
            if chunk.get(key):
                self._answer[key] = chunk[key]
        for choice in choices:
            if "message" in choice:  # a server that does not stream answers at once
                emit(TextDelta(choice["message"].get("content") or ""))
                for index, call in enumerate(choice["message"].get("tool_calls") or ()):
                    self._add_call({**call, "index": index})
                self._answer = chunk
                self._finish = "at once"
                return
            delta = choice.get("delta") or {}
            if thought := delta.get("reasoning_content") or delta.get("reasoning"):
                emit(ThinkingDelta(str(thought)))
            if delta.get("content"):
                self._text.append(delta["content"])
                emit(TextDelta(delta["content"]))
            for part in delta.get("tool_calls") or ():
                self._add_call(part)
            self._finish = choice.get("finish_reason") or self._finish

    def _add_call(self, part: dict[str, Any]) -> None:
        empty = {"id": "", "function": {"name": "", "arguments": ""}}
        index = part.get("index", 0)
        call = self._calls.setdefault(index, empty)
        call["id"] = part.get("id") or call["id"]
        function = part.get("function") or {}
        call["function"]["name"] += function.get("name") or ""
        arguments = function.get("arguments") or ""
        call["function"]["arguments"] += arguments
        if index not in self._told and call["id"] and call["function"]["name"]:
            self._told.add(index)  # both are known now: some servers send them one by one
            self._on_event(ToolUseStart(index, str(call["id"]), str(call["function"]["name"])))
            arguments = call["function"]["arguments"]
        if arguments and index in self._told:
            self._on_event(ToolInputDelta(index, arguments))

    def body(self) -> dict[str, Any]:
        """The answer as if it had come in one piece.

        Raises:
            ProviderError: the stream was cut off.
        """
        if self._finish == "at once":
            return self._answer
        if self._finish is None:
            raise ProviderError(
                "SERVER_ERROR", "the stream ended before the message did", True, maybe_billed=True
            )
        message: dict[str, Any] = {"content": "".join(self._text)}
        if self._calls:
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        choice = {"message": message, "finish_reason": self._finish}
        return {**self._answer, "choices": [choice]}


def _arguments(text: Any) -> dict[str, Any]:
    """A tool call's arguments; what is not a JSON object is kept under ``_unparsed``."""
    try:
        value = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        value = None
    return value if isinstance(value, dict) else {"_unparsed": str(text)}
