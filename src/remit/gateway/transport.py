"""Sending of a body to a provider of its dialect, and parsing of the answer while it passes."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Coroutine
from typing import Any

from remit.gateway.memory import LARGE_BYTES, run_large
from remit.gateway.odd_events import (
    CHUNK,
    DONE,
    Opening,
    broken_off,
    named_error,
    read_constants,
    read_odd_form,
    shows_error,
)
from remit.gateway.stream import StreamTap, weight
from remit.kernel.errors import RemitError, excerpt
from remit.kernel.exchange import MAX_ID_CHARS, Reply
from remit.kernel.json_text import (
    JsonTextError,
    dump,
    has_more_values,
    load_exact,
    without_constants,
)
from remit.providers import (
    MAX_BODY_BYTES,
    NOT_THIS_API,
    AsyncProvider,
    Outgoing,
    Provider,
    ProviderError,
    ProviderReply,
    ProviderResponse,
    StreamingProvider,
    Timeouts,
    UpstreamReply,
    WireChunk,
    WireProvider,
    error_of_event,
    passed_on,
)
from remit.providers.dialects import read_answer, reported, sound_answer, stream_reader
from remit.providers.wire import (
    GENERATE,
    MESSAGES,
    Passed,
    StreamSum,
    answer_facts,
    counted_once,
    is_other_form,
    read_inputs,
    stream_sum,
)

_EVENTS_AT_ONCE = 256  # After this many events of one piece other calls get a turn.
_NULL = b',"usage":null'
_NO_USAGE = re.compile(rb',\s*"usage":\s*null')

AnyProvider = Provider | AsyncProvider | StreamingProvider | WireProvider


async def send_body(
    provider: WireProvider,
    outgoing: Outgoing,
    tap: StreamTap,
    timeouts: Timeouts,
    *,
    called: str,
) -> ProviderResponse:
    """Send a body and return the parsed answer; a stream is passed to the tap as it comes.

    The connection is closed or returned to its pool in any case. A large answer is parsed in a
    thread.

    Args:
        provider: the provider.
        outgoing: the body.
        tap: receives the stream; begun here if there is one.
        timeouts: limits for each stage; a stream that continues is not cut.
        called: name of the endpoint that the caller called; empty for a request in neutral form. A
            whole answer of another endpoint must be readable, because the caller cannot receive it
            unchanged.

    Raises:
        TimeoutError: no answer came in time.
        ProviderError: the provider reported an error, the stream broke off, the answer is too long
            or cannot be read, or the memory limit ended it.
        CancelledError: the caller was cancelled.
    """
    if outgoing.stream or tap.wanted:  # Otherwise the tap is unused.
        tap.start()
    try:
        reply: ProviderReply = await provider.send(outgoing, timeouts)
        try:
            if outgoing.body.endpoint.verbatim:
                return await _verbatim(outgoing, reply, tap)
            if outgoing.stream and await _is_events(reply):
                return await _streamed(outgoing, reply, tap, called)
            if (
                tap.sink is not None
                and isinstance(reply, UpstreamReply)
                and _is_data(outgoing, reply)
            ):
                return await _data(outgoing, reply, tap)
            raw = await _body(reply, tap)
            neutral = called != outgoing.body.endpoint.name
            if len(raw) > LARGE_BYTES:
                return await run_large(whole, outgoing, reply, raw, neutral)
            return whole(outgoing, reply, raw, neutral)
        except ProviderError:
            tap.received = reply.received if isinstance(reply, UpstreamReply) else 0
            raise
        finally:
            if outgoing.stream:
                tap.release_held()
            await reply.aclose()
    except asyncio.CancelledError as error:
        tap.raise_if_ended(error)
        raise
    finally:
        if tap.holding is not None:
            tap.settle()


async def _is_events(reply: ProviderReply) -> bool:
    if isinstance(reply, UpstreamReply):
        return await reply.is_event_stream()
    return "event-stream" in reply.content_type


def _body(reply: ProviderReply, tap: StreamTap) -> Coroutine[Any, Any, bytes]:
    return reply.read(on_growth=tap.hold) if isinstance(reply, UpstreamReply) else reply.read()


async def _streamed(
    outgoing: Outgoing, reply: ProviderReply, tap: StreamTap, called: str
) -> ProviderResponse:
    endpoint = outgoing.body.endpoint.name
    headers = passed_on(reply.headers)
    total = stream_sum(endpoint)
    translates = called != endpoint and tap.wanted
    reader = stream_reader(endpoint, total) if translates else None
    tap.listen(total, asks_usage=outgoing.asks_usage, reader=reader)
    opening: Opening | None = None
    is_over = has_begun = False
    async for events in reply.events(tap.pass_on):
        tap.catch_up()
        left = len(events)
        if not left and isinstance(reply, UpstreamReply):
            await tap.weigh(reply.waiting)
        for event in events:
            left -= 1
            if tap.wire is not None:
                tap.wire.append(event.raw)
            before = total.pieces
            if len(event.data) > LARGE_BYTES:
                value = await run_large(total.add, event.name, event.data)
            else:
                value = total.add(event.name, event.data)
            if value is None and not total.is_last and (odd := read_constants(event.data)):
                event.raw, event.data = without_constants(event.raw), without_constants(event.data)
                value = total.add(event.name, event.data, odd)
            error = error_of_event(value)
            if error is None and event.name == "error":
                error = named_error(event, value)
            is_over = error is not None or total.is_last
            is_held = False
            if is_over or value is not None:
                has_begun, opening = True, None
            elif not has_begun:
                opening = opening or Opening()
                is_held = opening.holds_back(event)
            is_shown = error is None or shows_error(endpoint, event, value)
            # The sum has read a last event without its blank line, so the client gets both. It
            # cannot read other cut events. An error that no client sees is worded by Remit.
            is_read = is_over or event.complete or value is not None
            # Gemini's clients read every event as JSON.
            if endpoint == GENERATE.name and event.data.strip() == DONE:
                is_read = False
            if not is_held and is_read and (is_shown or total.pieces > before):
                raw, asked = event.raw, False
                if outgoing.asks_usage and type(value) is dict and "usage" in value:
                    if value["usage"] is not None:
                        asked = value.get("choices") == []
                    elif raw.count(b'"usage"') == 1:  # there only because Remit asked for it
                        raw = raw.replace(_NULL, b"") if _NULL in raw else _NO_USAGE.sub(b"", raw)
                chunk = WireChunk(
                    endpoint, raw if event.complete else raw + b"\n\n", event.name, value,
                    is_over and is_shown, asked, "", left > 0, headers, total,
                    tap.read(value) if translates else None, event.data != b"",
                )  # fmt: skip
                is_error = error is not None and is_shown and total.pieces == before
                await tap.chunk(chunk, begins=chunk.has_data and not is_error)
            if has_begun:
                tap.may_pass_on()
            if error is not None:
                tap.drop_held()
                error.answer = await _assembled(total, tap, endpoint, reply.status, headers)
                raise error
            if is_over:
                break
            tap.came += weight(event.raw)
            if tap.came > tap.next_weighing:
                await tap.weigh()
                if tap.kept + (0 if opening is None else opening.size) > MAX_BODY_BYTES:
                    raise too_long("takes more")
            elif left and not left % _EVENTS_AT_ONCE:
                await asyncio.sleep(0)
        if is_over:
            break
    return await _ended(outgoing, reply, tap, called, total, opening)


async def _ended(
    outgoing: Outgoing, reply: ProviderReply, tap: StreamTap, called: str, total: StreamSum,
    opening: Opening | None,
) -> ProviderResponse:  # fmt: skip
    """Return the answer of a stream after its last event.

    Raises:
        ProviderError: the end of the answer is missing, or the answer cannot be translated.
    """
    tap.catch_up()
    if opening is not None and (came := opening.answer()) is not None:
        tap.unheard()
        return whole(outgoing, reply, came, called != outgoing.body.endpoint.name)
    if not total.ended:
        raise broken_off()
    endpoint, headers = outgoing.body.endpoint.name, passed_on(reply.headers)
    await tap.finish(endpoint)
    kind = None if called == endpoint else reply.content_type
    answer = await _assembled(total, tap, endpoint, reply.status, headers, kind)
    if called and tap.problem is not None and answer.reply is not None:
        raise _not_this_api(reply.content_type, answer.reply, total.answer()) from tap.problem
    return answer


async def _assembled(
    total: StreamSum,
    tap: StreamTap,
    endpoint: str,
    status: int,
    headers: tuple[tuple[str, str], ...],
    kind: str | None = None,
) -> ProviderResponse:
    """Return the answer that a stream adds up to."""

    def assemble() -> ProviderResponse:
        answer = total.answer()
        return response(Reply(endpoint, status, headers, dump(answer), True), answer, kind)

    return await run_large(assemble) if tap.kept + tap.came > LARGE_BYTES else assemble()


async def _verbatim(outgoing: Outgoing, reply: ProviderReply, tap: StreamTap) -> ProviderResponse:
    """Pass on and record an answer without parsing it."""
    endpoint, kind = outgoing.body.endpoint.name, reply.content_type
    headers = passed_on(reply.headers)
    if tap.sink is None or kind != "text/event-stream" or not isinstance(reply, UpstreamReply):
        raw = await _body(reply, tap)
        return response(Reply(endpoint, reply.status, headers, raw, None), None)
    total = Passed()
    tap.listen(total, asks_usage=False)
    async for piece in reply.chunks():
        total.add("", piece)
        tap.came += len(piece)
        if tap.came > tap.next_weighing:
            await tap.weigh()
        if total.size > MAX_BODY_BYTES:
            raise too_long("is longer")
        chunk = WireChunk(endpoint, piece, "", None, content_type=kind, headers=headers)
        await tap.chunk(chunk, begins=True)
    last = WireChunk(endpoint, b"", "", None, is_last=True, content_type=kind, headers=headers)
    await tap.chunk(last, begins=True)
    return response(Reply(endpoint, reply.status, headers, total.raw, is_json=False), None)


def too_long(how: str) -> ProviderError:
    """Return the error of an answer that exceeds 64 MiB.

    Args:
        how: the verb for the message, such as ``takes more`` or ``is longer``.
    """
    said = f"the answer {how} than {MAX_BODY_BYTES >> 20} MiB"
    return ProviderError("SERVER_ERROR", said, maybe_billed=True, healthy=True)


def _is_data(outgoing: Outgoing, reply: UpstreamReply) -> bool:
    """Return True for sound and the like. A model's text is none, whatever its content type."""
    kind = "" if outgoing.body.endpoint.output_limit else reply.content_type
    return bool(kind) and "json" not in kind and not kind.startswith("text/")


async def _data(outgoing: Outgoing, reply: UpstreamReply, tap: StreamTap) -> ProviderResponse:
    """Pass on an answer that is not text as it comes; its SHA-256 is recorded in its place."""
    endpoint, kind = outgoing.body.endpoint.name, reply.content_type
    headers = passed_on(reply.headers)
    digest, size, held = hashlib.sha256(), 0, b""
    async for piece in reply.chunks():
        if held:
            chunk = WireChunk(endpoint, held, "", None, content_type=kind, headers=headers)
            await tap.chunk(chunk, begins=True)
        digest.update(piece)
        size += len(piece)
        held = piece
    last = WireChunk(endpoint, held, "", None, is_last=True, content_type=kind, headers=headers)
    await tap.chunk(last, begins=True)
    about = {"content_type": kind, "bytes": size, "sha256": digest.hexdigest()}
    return response(Reply(endpoint, reply.status, headers, dump(about), True), None)


# -- parsing of answers -------------------------------------------------------------------------

_SMALL = 1024 * 1024  # bytes that hold few values in any case
_SHOWN = 500  # characters of an answer that failed
_MAX_VALUES = 5_000_000  # a large batch of embeddings has three million


def whole(outgoing: Outgoing, reply: ProviderReply, raw: bytes, neutral: bool) -> ProviderResponse:
    """Return the parsed response of an answer that came in one piece.

    Unless content blocks are wanted, an answer that Remit cannot parse is returned without usage,
    so the client receives it unchanged. A stream in place of a whole answer, which some relays send
    to every client, is added up.

    Args:
        outgoing: the request that was sent.
        reply: status and headers.
        raw: the complete body.
        neutral: whether content blocks in neutral form are wanted.

    Raises:
        ProviderError: the answer is an error, which has its ``reply`` and ``answer``; it contains
            more than 5,000,000 values; or it cannot be converted to neutral form. An error in a 200
            whose type is unknown is a retryable ``SERVER_ERROR``.
    """
    body = outgoing.body
    if len(raw) > _SMALL and has_more_values(raw, _MAX_VALUES):
        said = f"the answer contains more than {_MAX_VALUES:,} values"
        raise ProviderError("SERVER_ERROR", said, maybe_billed=True, healthy=True)
    text = raw
    try:
        value = counted_once(raw, load_exact(raw))
    except JsonTextError:
        value = None
    is_odd = type(value) is not dict or value.get("object") == CHUNK
    if is_odd and body.endpoint.output_limit:
        text, value = read_odd_form(body.endpoint, raw, value)
    is_json = value is not None
    if value is None and body.endpoint.form and reply.content_type.startswith("text/"):
        value = raw.decode("utf-8", "replace")  # a transcript
    if neutral and body.endpoint.name == MESSAGES.name:
        read_inputs(value, text)
    came = Reply(body.endpoint.name, reply.status, passed_on(reply.headers), text, is_json)
    if value is not None and (error := error_of_event(value)) is not None:
        error.reply = came
        error.answer = response(came, value)
        total = stream_sum(came.endpoint)
        total.add("", text, value)
        error.maybe_billed = total.pieces > 0 and not error.answer.usage_reported
        raise error
    # A client gets what came, also what Remit cannot read: then nothing is known of its usage.
    return response(came, value, reply.content_type if neutral else None)


def response(came: Reply, value: Any, neutral: str | None = None) -> ProviderResponse:
    """Return an answer with its text, usage and finish reason extracted.

    Lone surrogates are replaced. Unknown values are empty.

    Args:
        came: the answer's status, headers and body.
        value: the parsed body; None if it is not JSON.
        neutral: the content type if neutral content blocks are wanted; None if not.

    Raises:
        ProviderError: neutral blocks are wanted and the answer does not belong to this API. The
            error has its ``reply`` and ``answer``.
    """
    blocks: tuple[dict[str, Any], ...] = ()
    if neutral is not None:
        if value is None or is_other_form(came.endpoint, value):
            raise _not_this_api(neutral, came, value)
        try:
            blocks = read_answer(came.endpoint, value).content_blocks
        except RemitError as error:
            raise _not_this_api(neutral, came, value) from error
    # JSON text spells half a character as an escape, and in no other way.
    is_sound = bool(came.body) and (b"\\" not in came.body or b"\\u" not in came.body)
    found = answer_facts(came.endpoint, value)
    answer = ProviderResponse(
        content=found.text, model=found.model[:MAX_ID_CHARS], finish_reason=found.finish_reason,
        request_id=found.request_id, content_blocks=blocks,
        audio_seconds=found.units.get("seconds"), reply=came, more_than_text=found.more_than_text,
        failure=found.failure, **reported(found.usage),
    )  # fmt: skip
    return answer if is_sound else sound_answer(answer)


def raise_if_failed(answer: ProviderResponse) -> None:
    """Raise the failure of an answer that the provider ended as failed; else do nothing.

    The same question may be answered a moment later, so the error is retryable. The provider is in
    good health: the end of one answer says nothing about others.

    Args:
        answer: the answer; the error refers to it.

    Raises:
        ProviderError: the answer has a ``failure``.
    """
    if answer.failure:
        said = f"; received so far: {excerpt(answer.content, _SHOWN)}" if answer.content else ""
        error = ProviderError(
            "SERVER_ERROR", f"the provider ended the answer with {answer.failure!r}{said}", True,
            maybe_billed=not answer.usage_reported, reply=answer.reply, healthy=True,
        )  # fmt: skip
        error.answer = answer
        raise error


def read_result(endpoint: str, status: int, raw: bytes) -> ProviderResponse:
    """Return the parsed response of one line of a batch's results.

    A line that is not JSON gives a response without text and usage.

    Args:
        endpoint: name of the endpoint, such as ``openai.chat``.
        status: the HTTP status of the result.
        raw: the body of the result.
    """
    try:
        value, is_json = counted_once(raw, load_exact(raw)), True
    except JsonTextError:
        value, is_json = None, False
    return response(Reply(endpoint, status, (), raw, is_json), value)


def _not_this_api(content_type: str, came: Reply, value: Any) -> ProviderError:
    kind = content_type or "no content type"
    said = f"{NOT_THIS_API} ({kind}, {len(came.body)} bytes)"
    error = ProviderError(
        "SERVER_ERROR", f"{said}; check the base URL", maybe_billed=True, reply=came, healthy=True
    )
    error.answer, error.cause = response(came, value), NOT_THIS_API
    return error
