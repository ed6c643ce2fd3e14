"""Getting one answer out of a provider: held to a time, whatever the provider does."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from remit.blocking import call_in_thread
from remit.canonical import MAX_SAFE_INTEGER
from remit.exchange import TextSink
from remit.gateway.records import Attempt
from remit.gateway.validation import MAX_ID_CHARS
from remit.providers import (
    AsyncProvider,
    Provider,
    ProviderError,
    ProviderRequest,
    ProviderResponse,
)

__all__ = ["ProtocolBrokenError", "send", "sink"]

_log = logging.getLogger("remit.gateway")


class ProtocolBrokenError(ProviderError):
    """The provider object gave back something that is no answer."""


async def send(
    provider: Provider | AsyncProvider, request: ProviderRequest, on_text: TextSink | None
) -> ProviderResponse:
    """The provider's answer within ``request.timeout_s``.

    A provider that only blocks gets a thread. One that does not answer in time is cancelled
    and not waited for.

    Raises:
        TimeoutError: the time ran out.
        ProviderError: the provider said so, or broke its protocol.
    """
    if isinstance(provider, AsyncProvider):
        task = asyncio.ensure_future(_guarded(provider, request, on_text))
    else:
        task = asyncio.ensure_future(_in_thread(provider, request))
    try:
        done, _ = await asyncio.wait({task}, timeout=request.timeout_s)
    except asyncio.CancelledError:
        _abandon(task)
        raise
    if not done:
        _abandon(task)
        raise TimeoutError
    if task.cancelled():
        raise ProtocolBrokenError("SERVER_ERROR", "the provider cancelled itself", True)
    answer: Any = task.result()
    if not _is_answer(answer):
        raise ProtocolBrokenError(
            "SERVER_ERROR",
            f"the provider gave back a {type(answer).__name__} that is no ProviderResponse",
            maybe_billed=True,
        )
    response: ProviderResponse = answer
    if on_text is not None and not isinstance(provider, AsyncProvider):
        on_text(response.content)
    return response


def _is_answer(answer: Any) -> bool:
    return (
        isinstance(answer, ProviderResponse)
        and isinstance(answer.content, str)
        and isinstance(answer.model, str)
        and len(answer.model) <= MAX_ID_CHARS
        and isinstance(answer.finish_reason, str)
        and len(answer.finish_reason) <= MAX_ID_CHARS
        and isinstance(answer.content_blocks, tuple)
        and all(isinstance(block, dict) for block in answer.content_blocks)
        and all(
            type(tokens) is int and 0 <= tokens <= MAX_SAFE_INTEGER
            for tokens in (answer.input_tokens, answer.output_tokens)
        )
    )


async def _guarded(
    provider: AsyncProvider, request: ProviderRequest, on_text: TextSink | None
) -> Any:
    try:
        return await provider.asend(request, on_text=on_text)
    except (KeyboardInterrupt, SystemExit) as error:  # raised in a task, it would end the loop
        raise RuntimeError(type(error).__name__) from error


async def _in_thread(provider: Provider, request: ProviderRequest) -> Any:
    value: Any = await call_in_thread("remit-provider", lambda: provider.send(request))
    return await value if asyncio.iscoroutine(value) else value


def _abandon(task: asyncio.Future[Any]) -> None:
    task.cancel()
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


def sink(attempt: Attempt, on_text: TextSink | None) -> TextSink | None:
    """Collects what is streamed, and passes it on as long as the listener does not raise."""
    if on_text is None:
        return None

    listening = True

    def take(text: str) -> None:
        nonlocal listening
        attempt.streamed += text
        if not listening:
            return
        try:
            on_text(text)
        except Exception as error:  # noqa: BLE001 - a listener must not change the record
            listening = False
            _log.warning(
                "the listener of a stream raised %s; it is told no more", type(error).__name__
            )

    return take
