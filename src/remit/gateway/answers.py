"""What a provider answered, as the gateway records and bills it."""

from __future__ import annotations

from typing import Any

from remit.gateway.validation import MAX_ID_CHARS
from remit.kernel.errors import RemitError
from remit.kernel.exchange import Reply
from remit.kernel.json_text import JsonTextError, load
from remit.providers import Outgoing, ProviderError, ProviderReply, ProviderResponse
from remit.providers.dialects import read_answer
from remit.providers.upstream import passed_on
from remit.providers.upstream_errors import error_of_event
from remit.providers.wire.answers import error_in, facts

__all__ = ["read_result", "response", "whole"]


def whole(outgoing: Outgoing, reply: ProviderReply, raw: bytes, neutral: bool) -> ProviderResponse:
    """An answer that came in one piece.

    Raises:
        ProviderError: it is an error, or cannot be had in neutral form.
    """
    endpoint = outgoing.body.endpoint.name
    try:
        value = load(raw)
    except JsonTextError:
        value = None
        if outgoing.body.endpoint.form and reply.content_type.startswith("text/"):
            value = raw.decode("utf-8", "replace")  # a transcript
    if value is not None and (error := error_of_event(value)) is not None:
        error.reply = Reply(endpoint, reply.status, passed_on(reply.headers), raw)
        raise error
    # A client gets what came, also what Remit cannot read: then nothing is known of its usage.
    return response(outgoing, reply, value, raw, neutral)


def response(
    outgoing: Outgoing, reply: ProviderReply, value: Any, raw: bytes, neutral: bool
) -> ProviderResponse:
    """An answer, and what it says.

    Args:
        value: what ``raw`` holds; ``None`` where it is no JSON.
        neutral: whether the answer is wanted in neutral form, blocks and all.

    Raises:
        ProviderError: it is wanted, and cannot be had.
    """
    endpoint = outgoing.body.endpoint.name
    came = Reply(endpoint, reply.status, passed_on(reply.headers), raw)
    blocks: tuple[dict[str, Any], ...] = ()
    if neutral:
        if value is None or error_in(endpoint, value):
            raise _not_this_api(reply, raw)
        try:
            blocks = read_answer(endpoint, value).content_blocks
        except RemitError as error:
            raise _not_this_api(reply, raw) from error
    return _response(came, value, blocks)


def read_result(endpoint: str, status: int, raw: bytes) -> ProviderResponse:
    """An answer that did not come over a connection of its own: a line of a batch's results."""
    try:
        value = load(raw)
    except JsonTextError:
        value = None
    return _response(Reply(endpoint, status, (), raw), value)


def _response(came: Reply, value: Any, blocks: tuple[dict[str, Any], ...] = ()) -> ProviderResponse:
    found = facts(came.endpoint, value)
    usage = found.usage
    return ProviderResponse(
        content=found.text,
        model=found.model[:MAX_ID_CHARS],
        input_tokens=usage.input_tokens if usage else 0,
        output_tokens=usage.output_tokens if usage else 0,
        finish_reason=found.finish_reason,
        request_id=found.request_id,
        content_blocks=blocks,
        cached_input_tokens=(usage.cached_input_tokens or None) if usage else None,
        reasoning_tokens=(usage.reasoning_tokens or None) if usage else None,
        usage_reported=usage is not None,
        cache_write_tokens=(usage.cache_write_tokens or None) if usage else None,
        cache_write_short_tokens=(usage.cache_write_short_tokens or None) if usage else None,
        audio_input_tokens=(usage.audio_input_tokens or None) if usage else None,
        audio_output_tokens=(usage.audio_output_tokens or None) if usage else None,
        audio_seconds=found.units.get("seconds"),
        server_tool_uses=usage.server_tool_uses if usage else {},
        reply=came,
        more_than_text=found.more_than_text,
    )


def _not_this_api(reply: ProviderReply, raw: bytes) -> ProviderError:
    kind = reply.content_type or "no content type"
    return ProviderError(
        "SERVER_ERROR",
        f"the answer is none of this API ({kind}, {len(raw)} bytes); is the base URL right?",
        maybe_billed=True,
        healthy=True,
    )
