"""Parsing of a provider's answer into the form that the gateway records and bills."""

from __future__ import annotations

from typing import Any

from remit.gateway.validation import MAX_ID_CHARS
from remit.kernel.errors import RemitError, excerpt
from remit.kernel.exchange import Reply
from remit.kernel.json_text import JsonTextError, has_more_values, load_exact
from remit.providers import (
    Outgoing,
    ProviderError,
    ProviderReply,
    ProviderResponse,
    error_of_event,
    passed_on,
)
from remit.providers.dialects import read_answer, reported, sound_answer
from remit.providers.wire import MESSAGES, answer_facts, counted_once, error_in, read_inputs

__all__ = ["read_result", "refuse_failed", "response", "whole"]

_SMALL = 1024 * 1024  # bytes that hold few values in any case
_SHOWN = 500  # characters of an answer that failed
_MAX_VALUES = 5_000_000  # a large batch of embeddings has three million


def whole(outgoing: Outgoing, reply: ProviderReply, raw: bytes, neutral: bool) -> ProviderResponse:
    """Return the parsed response of an answer that came in one piece.

    An answer that Remit cannot parse is returned without usage, so the client receives it
    unchanged.

    Args:
        outgoing: the request that was sent.
        reply: status and headers.
        raw: the complete body.
        neutral: whether content blocks in neutral form are wanted.

    Raises:
        ProviderError: the answer is an error, contains more than 5,000,000 values, or cannot be
            converted to neutral form.
    """
    body = outgoing.body
    if len(raw) > _SMALL and has_more_values(raw, _MAX_VALUES):
        said = f"the answer contains more than {_MAX_VALUES:,} values"
        raise ProviderError("SERVER_ERROR", said, maybe_billed=True, healthy=True)
    try:
        value, is_json = counted_once(raw, load_exact(raw)), True
    except JsonTextError:
        value, is_json = None, False
        if body.endpoint.form and reply.content_type.startswith("text/"):
            value = raw.decode("utf-8", "replace")  # a transcript
    if neutral and body.endpoint.name == MESSAGES.name:
        read_inputs(value, raw)
    came = Reply(body.endpoint.name, reply.status, passed_on(reply.headers), raw, is_json)
    if value is not None and (error := error_of_event(value)) is not None:
        error.reply = came
        served = response(came, value)
        error.answer = served if served.usage_reported else None
        raise error
    # A client gets what came, also what Remit cannot read: then nothing is known of its usage.
    return response(came, value, reply.content_type if neutral else None)


def response(came: Reply, value: Any, neutral: str | None = None) -> ProviderResponse:
    """Return an answer with its text, usage and finish reason extracted.

    Args:
        came: the answer's status, headers and body.
        value: the parsed body; None if it is not JSON.
        neutral: the content type if neutral content blocks are wanted; None if not.

    Raises:
        ProviderError: neutral blocks are wanted and the answer does not belong to this API.
    """
    blocks: tuple[dict[str, Any], ...] = ()
    if neutral is not None:
        if value is None or error_in(came.endpoint, value):
            raise _not_this_api(neutral, came.body)
        try:
            blocks = read_answer(came.endpoint, value).content_blocks
        except RemitError as error:
            raise _not_this_api(neutral, came.body) from error
    # JSON text spells half a character as an escape, and in no other way.
    is_sound = bool(came.body) and b"\\u" not in came.body
    found = answer_facts(came.endpoint, value)
    answer = ProviderResponse(
        content=found.text, model=found.model[:MAX_ID_CHARS], finish_reason=found.finish_reason,
        request_id=found.request_id, content_blocks=blocks,
        audio_seconds=found.units.get("seconds"), reply=came, more_than_text=found.more_than_text,
        failure=found.failure, **reported(found.usage),
    )  # fmt: skip
    return answer if is_sound else sound_answer(answer)


def refuse_failed(answer: ProviderResponse) -> None:
    """Raise the failure of an answer that the provider ended as failed; else do nothing.

    The same question may be answered a moment later. The provider is in good health: the end of one
    answer says nothing about others.

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
    """Return the parsed response of one line of a batch's results."""
    try:
        value, is_json = counted_once(raw, load_exact(raw)), True
    except JsonTextError:
        value, is_json = None, False
    return response(Reply(endpoint, status, (), raw, is_json), value)


def _not_this_api(content_type: str, raw: bytes) -> ProviderError:
    kind = content_type or "no content type"
    return ProviderError(
        "SERVER_ERROR",
        f"the answer does not have the format of this API ({kind}, {len(raw)} bytes); check the "
        "base URL",
        maybe_billed=True,
        healthy=True,
    )
