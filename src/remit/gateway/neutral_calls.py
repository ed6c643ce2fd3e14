"""Calls of provider objects that speak no dialect: neutral requests, answers and time limits."""

from __future__ import annotations

import asyncio
import math
import operator
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from msgspec import structs

from remit.gateway.memory import LARGE_BYTES
from remit.gateway.stream import StreamTap
from remit.gateway.transport import AnyProvider, too_long
from remit.kernel.canonical import is_countable
from remit.kernel.exchange import MAX_ID_CHARS, PromptRequest, Reply, TextDelta
from remit.kernel.loops import abandon, call_in_thread
from remit.providers import MAX_BODY_BYTES, ProviderError, ProviderRequest, ProviderResponse
from remit.providers.dialects import PARTS, SoundStream, read_request, sound_answer
from remit.providers.wire import ended_by


def in_neutral_form(request: PromptRequest) -> PromptRequest:
    """Return a copy of a request with messages, tools and limits in place of its body.

    Args:
        request: a request with a body.

    Raises:
        DialectError: the neutral form cannot express the body.
    """
    body = request.body
    call = read_request(body.endpoint.name, body.exact)
    wanted = call.response_format
    return replace(
        request,
        body=None,
        messages=call.messages,
        max_tokens=call.max_tokens,
        temperature=call.temperature,
        tools=call.tools or None,
        structured_output=None if wanted is None else wanted.schema,
    )


def finite(seconds: Any) -> float | None:
    """Return a provider object's number of seconds as a float of at least 0; None if it is not one.

    Args:
        seconds: any value; NaN, infinity and other types give None, a negative number gives 0.
    """
    if isinstance(seconds, (int, float)) and math.isfinite(seconds):
        return max(0.0, float(seconds))
    return None


async def send(
    provider: AnyProvider, request: ProviderRequest, tap: StreamTap, first_s: float | None = None
) -> ProviderResponse:
    """Send a request to a provider object and return its answer within ``request.timeout_s``.

    A blocking provider runs in a thread. A provider that does not answer in time, or whose caller
    is cancelled, is cancelled and not awaited. Streamed pieces go to the tap; an answer in one
    piece too, if the tap wants it. Other errors of the provider are let through.

    Args:
        provider: the provider object.
        request: the request in neutral form; ``timeout_s`` is counted anew from the first piece if
            ``first_s`` is given.
        tap: receives the stream; begun here.
        first_s: longest wait for the first piece of the stream in seconds; None for no extra limit.

    Raises:
        TimeoutError: the time is up.
        ProviderError: the provider raised it, cancelled the call, returned no valid
            ProviderResponse, or its answer is too long; or the memory limit ended the answer.
        TypeError: the provider raised a malformed ProviderError.
        RuntimeError: the provider raised an error that is no ``Exception``, such as SystemExit.
        CancelledError: the caller was cancelled.
    """
    tap.start()
    # By their methods: looking a protocol up by isinstance costs more than the call itself.
    stream = getattr(provider, "astream", None)
    streams_text = hasattr(provider, "asend")
    queue: asyncio.Queue[Any] = asyncio.Queue()
    texts = SoundStream()
    if stream is not None:
        listener: Any = queue.put_nowait if tap.wanted else None
        task = asyncio.ensure_future(_guarded(stream(request, listener)))
    elif streams_text:
        listener = (lambda text: queue.put_nowait(TextDelta(text))) if tap.wanted else None
        task = asyncio.ensure_future(_guarded(provider.asend(request, on_text=listener)))  # type: ignore[union-attr]
    else:
        task = asyncio.ensure_future(_in_thread(provider, request))
    task.add_done_callback(lambda _: queue.put_nowait(queue))
    try:
        try:
            async with asyncio.timeout(request.timeout_s if first_s is None else first_s) as limit:
                async for piece in _pieces(queue):
                    if first_s is not None:
                        limit.reschedule(asyncio.get_running_loop().time() + request.timeout_s)
                        first_s = None
                    for event in texts.repaired([piece]):
                        await tap.event(event)
                        _require_bounded(tap.size)
                await asyncio.wait({task})
        except BaseException:
            _abandon(task)
            raise
        if task.cancelled():
            raise ProviderError("SERVER_ERROR", "the provider cancelled the call", True)
        response = _checked(task.result())
        _require_bounded(size := len(response.content))
        if tap.wanted and stream is None and not streams_text:
            await tap.event(TextDelta(response.content))
        elif size > LARGE_BYTES:
            tap.kept = max(size, tap.kept)
            await tap.weigh()
        return response
    except asyncio.CancelledError as error:
        tap.raise_if_ended(error)
        raise
    except ProviderError as error:
        answer = error.answer
        if not _is_reply(error.reply) or (answer is not None and _fault(answer)):
            raise TypeError("the ProviderError is malformed") from error
        if answer is not None:
            error.answer = sound_answer(_countable(answer))
        raise
    finally:
        if tap.holding is not None:
            tap.settle()


def _require_bounded(size: int) -> None:
    if size > MAX_BODY_BYTES:
        raise too_long("is longer")


async def _pieces(queue: asyncio.Queue[Any]) -> AsyncIterator[Any]:
    """Yield the events that a provider's callback put, until the queue itself is put."""
    while (event := await queue.get()) is not queue:
        yield event


def _checked(answer: Any) -> ProviderResponse:
    """Return a sound answer, with unreported usage if a count cannot be counted."""
    if fault := _fault(answer):
        raise ProviderError("SERVER_ERROR", f"the provider returned {fault}", maybe_billed=True)
    answer = _countable(answer)
    reason, failure = ended_by(answer.finish_reason)
    return structs.replace(sound_answer(answer), finish_reason=reason, failure=failure)


def _fault(answer: Any) -> str:
    """Return the fault of a provider object's answer as a noun phrase; empty for a sound answer."""
    if not isinstance(answer, ProviderResponse):
        return f"a {type(answer).__name__}, not a ProviderResponse"
    blocks = answer.content_blocks
    is_sound = {
        "content": isinstance(answer.content, str),
        "model": isinstance(answer.model, str) and len(answer.model) <= MAX_ID_CHARS,
        "finish_reason": isinstance(answer.finish_reason, str)
        and len(answer.finish_reason) <= MAX_ID_CHARS,
        "request_id": isinstance(answer.request_id, str),
        "content_blocks": isinstance(blocks, tuple)
        and all(isinstance(one, dict) for one in blocks),
        "reply": _is_reply(answer.reply),
    }
    odd = [name for name, holds in is_sound.items() if not holds]
    return f"a ProviderResponse with an unusable {' and '.join(odd)}" if odd else ""


def _is_reply(reply: Any) -> bool:
    return reply is None or (isinstance(reply, Reply) and isinstance(reply.body, bytes))


def _countable(answer: ProviderResponse) -> ProviderResponse:
    """Return an answer with unreported usage if a count cannot be counted.

    What the provider says about the service is omitted where it is not text: the counts still hold.
    """
    served: Any = answer.served
    if not isinstance(served, Mapping):
        answer = structs.replace(answer, served={})
    elif not all(isinstance(text, str) for item in served.items() for text in item):
        both = ((name, text) for name, text in served.items() if isinstance(name, str))
        texts = {name: text for name, text in both if isinstance(text, str)}
        answer = structs.replace(answer, served=texts)
    return answer if _is_countable_usage(answer) else structs.replace(answer, **_UNREPORTED)


def _is_countable_usage(answer: ProviderResponse) -> bool:
    uses, seconds = answer.server_tool_uses, answer.audio_seconds
    return (
        is_countable(answer.input_tokens)
        and is_countable(answer.output_tokens)
        and all(count is None or is_countable(count) for count in _more_counts(answer))
        and (seconds is None or (finite(seconds) is not None and seconds >= 0))
        and isinstance(uses, Mapping)
        and all(isinstance(tool, str) and is_countable(times) for tool, times in uses.items())
    )


_more_counts = operator.attrgetter(*PARTS)
_UNREPORTED: dict[str, Any] = {
    **dict.fromkeys((*PARTS, "audio_seconds")),
    "input_tokens": 0, "output_tokens": 0, "usage_reported": False, "server_tool_uses": {},
    "served": {},
}  # fmt: skip
"""The fields of an answer whose provider reported no usage."""


async def _guarded(answer: Any) -> Any:
    try:
        return await answer
    except (KeyboardInterrupt, SystemExit) as error:  # raised in a task, it would end the loop
        raise RuntimeError(type(error).__name__) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise ProviderError(
            "SERVER_ERROR", "the provider cancelled the call", True, maybe_billed=True
        ) from error


async def _in_thread(provider: Any, request: ProviderRequest) -> Any:
    value: Any = await call_in_thread("remit-provider", lambda: provider.send(request))
    return await value if asyncio.iscoroutine(value) else value


def _abandon(task: asyncio.Future[Any]) -> None:
    task.cancel()
    abandon(task)
