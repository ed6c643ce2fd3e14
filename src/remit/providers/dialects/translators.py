"""The readers and writers of the dialects, chosen by endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from remit.kernel.exchange import BlockEnd, ToolUseStart, text_of
from remit.kernel.json_text import has_wide_number, load_exact
from remit.providers.dialects import converse
from remit.providers.dialects.chat import (
    request_reader as chat_reader,
    request_writer as chat_writer,
    streams as chat_streams,
)
from remit.providers.dialects.errors import DialectError, unreadable
from remit.providers.dialects.gemini import (
    request_reader as gemini_reader,
    request_writer as gemini_writer,
)
from remit.providers.dialects.gemini.streams import GeminiReader, GeminiWriter
from remit.providers.dialects.messages import (
    request_reader as messages_reader,
    request_writer as messages_writer,
    streams as messages_streams,
)
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.responses import (
    request_reader as responses_reader,
    request_writer as responses_writer,
)
from remit.providers.dialects.responses.streams import ResponsesReader, ResponsesWriter
from remit.providers.dialects.streaming import (
    StreamReader,
    StreamWriter,
    sound_answer,
    stream_events,
)
from remit.providers.protocol import ProviderResponse
from remit.providers.sse import SseParser
from remit.providers.upstream_errors import error_of_event
from remit.providers.wire.answer import StreamSum
from remit.providers.wire.readers import answer_facts, stream_sum
from remit.providers.wire.usage import reported

_CHAT, _RESPONSES, _MESSAGES = "openai.chat", "openai.responses", "anthropic.messages"
_GEMINI, _CONVERSE = "gemini.generate", "bedrock.converse"


class _Dialect(NamedTuple):
    """The readers and writers of a dialect, and the function that completes a written stream."""

    read_request: Callable[[Any], ModelCall]
    write_request: Callable[..., dict[str, Any]]
    reader: Callable[[Any], StreamReader]
    writer: Callable[..., StreamWriter]
    whole: Callable[[dict[str, Any], ProviderResponse], dict[str, Any]] = lambda value, _: value


_DIALECTS = {
    _CHAT: _Dialect(
        chat_reader.read_request, chat_writer.write_request,
        chat_streams.ChatReader, chat_streams.ChatWriter, chat_streams.whole,
    ),
    _RESPONSES: _Dialect(
        responses_reader.read_request, responses_writer.write_request,
        ResponsesReader, ResponsesWriter,
    ),
    _MESSAGES: _Dialect(
        messages_reader.read_request, messages_writer.write_request,
        messages_streams.MessagesReader, messages_streams.MessagesWriter, messages_streams.whole,
    ),
    _GEMINI: _Dialect(
        gemini_reader.read_request, gemini_writer.write_request, GeminiReader, GeminiWriter
    ),
    _CONVERSE: _Dialect(
        converse.read_request, converse.write_request,
        converse.ConverseReader, converse.ConverseWriter, converse.whole,
    ),
}  # fmt: skip


def _of(endpoint: str) -> _Dialect:
    """Return the dialect of an endpoint; raise DialectError if it cannot be translated."""
    found = _DIALECTS.get(endpoint)
    if found is None:
        raise DialectError(
            f"The provider of this model does not have this endpoint ({endpoint}) or an "
            "equivalent; use a model of a provider that has.",
            param="model",
        )
    return found


def read_request(endpoint: str, body: Mapping[str, Any]) -> ModelCall:
    """Return a request body of ``endpoint`` in neutral form.

    Args:
        endpoint: the client's endpoint, such as ``openai.chat``.
        body: the parsed body.

    Raises:
        DialectError: the body is invalid (``param`` names the field), or bodies of the endpoint
            cannot be translated.
    """
    return _of(endpoint).read_request(body)


def write_request(
    endpoint: str, call: ModelCall, *, model: str, max_output_tokens: int
) -> dict[str, Any]:
    """Return a call as a request body of ``endpoint``.

    Args:
        endpoint: the provider's endpoint.
        call: the request; fields that the API lacks are added to its ``dropped``.
        model: the provider's name of the model.
        max_output_tokens: the model's largest output, sent if the API requires a limit and the
            client set none.

    Raises:
        DialectError: the endpoint cannot express the call; ``param`` names the client's own field.
    """
    return _of(endpoint).write_request(call, model=model, max_output_tokens=max_output_tokens)


def read_answer(endpoint: str, answer: Mapping[str, Any]) -> ProviderResponse:
    """Return an answer of ``endpoint`` in neutral form, read as a stream of one event.

    Args:
        endpoint: the provider's endpoint, such as ``openai.chat``.
        answer: the parsed answer.

    Raises:
        DialectError: the answer does not have the API's form, or answers of the endpoint cannot be
            translated.
        ProviderError: the answer reports an error.
    """
    if (error := error_of_event(answer)) is not None:
        raise error
    total = stream_sum(endpoint)
    reader = stream_reader(endpoint, total)
    total.add("", b"", answer)
    events = reader.feed(answer)
    if not total.is_whole:
        raise unreadable("it")
    blocks: list[dict[str, Any]] = []
    places: dict[int | None, int] = {}
    for event in (*events, *reader.finish()):
        if type(event) is ToolUseStart:  # A call stands where it begins.
            places[event.index] = len(blocks)
            blocks.append({})
        elif type(event) is BlockEnd and event.index is None:
            blocks.append(event.block)
        elif type(event) is BlockEnd:
            blocks[places[event.index]] = event.block
    found = answer_facts(endpoint, answer)
    return sound_answer(
        ProviderResponse(
            content=text_of(blocks),
            model=found.model,
            finish_reason=found.finish_reason,
            failure=found.failure,
            request_id=found.request_id,
            content_blocks=tuple(blocks),
            **reported(found.usage),
        )
    )


def write_answer(
    endpoint: str,
    answer: ProviderResponse,
    call: ModelCall,
    *,
    answer_id: str,
    created: int,
    model: str,
) -> dict[str, Any]:
    """Return an answer as an object of ``endpoint`` for the client that sent ``call``.

    The object is the sum of the stream that :func:`stream_writer` writes.

    Args:
        endpoint: the client's endpoint.
        answer: a successful answer.
        call: the client's request.
        answer_id: the object's ``id``; ids within the object derive from it.
        created: seconds since 1970.
        model: the client's name of the model.
    """
    call = replace(call, include_usage=True)
    writer = stream_writer(endpoint, call, answer_id=answer_id, created=created, model=model)
    total, parser = stream_sum(endpoint), SseParser()
    wire = [writer.start(), *map(writer.event, stream_events(answer)), writer.end(answer)]
    for event in parser.feed(b"".join(wire)):
        value = load_exact(event.data) if has_wide_number(event.data) else None
        total.add(event.name, event.data, value)
    return _of(endpoint).whole(total.answer(), answer)


def stream_reader(endpoint: str, total: StreamSum | None) -> StreamReader:
    """Return a reader of one stream of ``endpoint``.

    Args:
        endpoint: the provider's endpoint.
        total: the sum of the stream, to which each event is added before it is fed. None for a
            stream of bytes, which is not translated.

    Raises:
        DialectError: streams of ``endpoint`` cannot be translated.
    """
    return _of(endpoint).reader(total)


def stream_writer(
    endpoint: str, call: ModelCall, *, answer_id: str, created: int, model: str
) -> StreamWriter:
    """Return a writer of one answer as a stream of ``endpoint``.

    The arguments are those of :func:`write_answer`.

    Raises:
        DialectError: streams of ``endpoint`` cannot be translated.
    """
    return _of(endpoint).writer(call, answer_id=answer_id, created=created, model=model)
