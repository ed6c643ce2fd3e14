"""Answers to model calls: the body, ``x-remit-`` headers, and errors in the dialect."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import PromptResponse, RouteOutcome
from remit.kernel.json_text import load, load_exact
from remit.providers import (
    NOT_THIS_API,
    UNREACHABLE,
    Body,
    ProviderResponse,
    error_of_event,
)
from remit.providers.dialects import DialectError, read_answer, read_request, reported, write_answer
from remit.providers.wire import RESPONSES, Endpoint, Usage, is_other_form
from remit.server.asgi import Answer, Headers, Send, reply
from remit.server.refusals import HttpError, status_of

_LAST_STATUS = 599  # HTTP defines no status above, and uvicorn cannot send one.
_JSON_TYPE = "application/json"
_CANNOT_TRANSLATE = "The provider's answer cannot be translated into this dialect."


def call_headers(response: PromptResponse) -> Headers:
    """Return the ``x-remit-`` headers of a call.

    ``x-remit-exchange``, an entry's id, is always present. ``-dispatch``, ``-decision``,
    ``-cost-certainty``, ``-cost-usd`` (nine decimals), ``-fallback-from`` (:func:`fallback_text`),
    ``-replayed`` (``true``) and ``-dropped`` (parameters) follow in this order, each only if it
    has a value.

    Args:
        response: outcome of the call.
    """
    headers = [(b"x-remit-exchange", response.exchange_entry_id.encode())]
    if response.dispatch_entry_id:
        headers.append((b"x-remit-dispatch", response.dispatch_entry_id.encode()))
    if response.decision_entry_id:
        headers.append((b"x-remit-decision", response.decision_entry_id.encode()))
    if response.cost_certainty:
        headers.append((b"x-remit-cost-certainty", response.cost_certainty.encode()))
        if response.cost_known:
            headers.append((b"x-remit-cost-usd", b"%.9f" % response.cost_incurred))
    if response.fallback_from:
        headers.append((b"x-remit-fallback-from", fallback_text(response).encode()))
    if response.replayed:
        headers.append((b"x-remit-replayed", b"true"))
    if response.dropped:
        headers.append((b"x-remit-dropped", ", ".join(response.dropped).encode()))
    return headers


def fallback_text(response: PromptResponse) -> str:
    """Return the models that failed before the answer, as ``model=CODE, model=CODE``.

    The order is that of the attempts. Characters outside printable ASCII become ``?``. Empty if no
    model failed.

    Args:
        response: outcome of the call.
    """
    text = ", ".join(f"{model}={code}" for model, code in response.fallback_from)
    return "".join(char if " " <= char <= "~" else "?" for char in text)


def is_own_answer(response: PromptResponse, endpoint: str) -> bool:
    """Return True if the provider's reply can be sent unchanged to a client of ``endpoint``.

    False if there is no reply, if the reply is of another endpoint, if it is an error with status
    200, also within an answer, and for status 401: that status speaks of Remit's key, not of the
    client's. A failed response is an answer of the Responses API.

    Args:
        response: the call's response.
        endpoint: name of the client's endpoint, such as ``openai.chat``.
    """
    came = response.reply
    if came is None or came.endpoint != endpoint or came.status == 401:
        return False
    if response.outcome is RouteOutcome.SUCCESS or came.status >= 400 or not came.is_json:
        return True
    value = load(came.body)
    if is_other_form(endpoint, value):
        return False
    is_failed = endpoint == RESPONSES.name and value.get("status") == "failed"
    return is_failed or error_of_event(value) is None


def lacks_events(response: PromptResponse, endpoint: Endpoint) -> bool:
    """Return True if the provider's reply is a whole answer where a stream was asked for.

    The answer is that of a model, or calls itself a stream. Clients would read no event in it.

    Args:
        response: the call's response.
        endpoint: the client's endpoint, whose dialect the reply has.
    """
    came = response.reply
    if came is None or not came.is_json or response.outcome is not RouteOutcome.SUCCESS:
        return False
    if any(name == "content-type" and "event-stream" in kind for name, kind in came.headers):
        return True
    return bool(endpoint.output_limit) and not is_other_form(endpoint.name, load(came.body))


def upstream_answer(response: PromptResponse) -> Answer:
    """Return the provider's reply with the call's headers added. The response must have a reply.

    The body is not changed. A reply without ``content-type`` is answered as JSON, and so is an
    answer that is a JSON object, whatever its type was. A status above 599 becomes 502, because
    HTTP defines none there. For an error after several attempts, ``x-should-retry: false`` tells
    clients not to try again.

    Args:
        response: outcome of the call, with a reply.
    """
    came = response.reply
    assert came is not None
    kind = b"application/json"
    is_object = came.status < 400 and came.is_json and came.body[:1] == b"{"
    more = [*call_headers(response)]
    for name, value in came.headers:
        if name == "content-type":
            if not is_object or _JSON_TYPE in value:
                kind = value.encode("latin-1", "replace")
        else:
            more.append((name.encode("latin-1", "replace"), value.encode("latin-1", "replace")))
    if came.status >= 400:
        more = [*tried(response, more)]
    status = came.status if came.status <= _LAST_STATUS else 502
    return Answer(status, came.body, kind, more)


def tried(response: PromptResponse, headers: list[tuple[bytes, bytes]]) -> Headers:
    """Return the headers of a failed call's answer, with the advice whether to retry.

    A call that was charged has ``x-should-retry: false``. So has one that Remit tried several
    times, unless the provider's advice is among ``headers``.

    Args:
        response: outcome of the call.
        headers: headers of the answer.
    """
    name = b"x-should-retry"
    if response.input_tokens or response.output_tokens or response.cost_incurred:
        return [*(header for header in headers if header[0] != name), (name, b"false")]
    if response.attempts > 1 and not any(header[0] == name for header in headers):
        return [*headers, (name, b"false")]
    return headers


def translated(body: Body, response: PromptResponse) -> dict[str, Any]:
    """Return a successful answer as JSON data in the form of the client's endpoint.

    The id of the answer is that of the call's ``DISPATCH``, or of its ``EXCHANGE`` without one.

    Args:
        body: the client's request.
        response: the call's response, an answer.

    Raises:
        HttpError: 502, the answer cannot be expressed in the client's dialect. The call is recorded
            and paid, so the error asks clients not to retry.
    """
    try:
        return write_answer(
            body.endpoint.name,
            answer_of(response),
            read_request(body.endpoint.name, body.value),
            answer_id=response.dispatch_entry_id or response.exchange_entry_id,
            created=response.created,
            model=response.model_id,
        )
    except (DialectError, InvalidInputError) as error:
        raise untranslatable(response) from error


def untranslatable(response: PromptResponse | None) -> HttpError:
    """Return the 502 for an answer that cannot be expressed in the client's dialect.

    The call is recorded and paid, so the error asks clients not to retry. The error is returned,
    not raised; its code is ``answer_untranslatable``.

    Args:
        response: outcome of the call; ``None`` if it is not known.
    """
    headers = [(b"x-should-retry", b"false"), *(call_headers(response) if response else ())]
    return HttpError(502, "answer_untranslatable", _CANNOT_TRANSLATE, headers=headers)


def answer_of(response: PromptResponse) -> ProviderResponse:
    """Return the answer of a call in neutral form, from the provider's reply if there is one.

    The token counts are those that were billed. Without a reply, the response's own fields are
    used.

    Args:
        response: outcome of a successful call.

    Raises:
        DialectError: the provider's reply cannot be read (:func:`read_reply`).
        ProviderError: the reply reports an error, which the reply of a successful call does not.
        InvalidInputError: the reply is not JSON, or its counts contradict each other.
    """
    came = response.reply
    if came is not None:
        answer = read_reply(came.endpoint, came.body)
        tokens = response.input_tokens, response.output_tokens
        return billed(answer, tokens, response.cost_certainty)
    return ProviderResponse(
        content=response.content,
        model=response.model_id,
        input_tokens=response.input_tokens,
        output_tokens=response.output_tokens,
        finish_reason=response.finish_reason,
        content_blocks=response.content_blocks or (),
        cached_input_tokens=response.cached_input_tokens or None,
        reasoning_tokens=response.reasoning_tokens or None,
    )


def read_reply(endpoint: str, body: bytes) -> ProviderResponse:
    """Return a provider's reply in neutral form, with the provider's own token counts.

    Args:
        endpoint: the provider's endpoint.
        body: the body of the reply.

    Raises:
        DialectError: the reply cannot be read, or an argument of a tool call is a number that
            cannot be kept: over 4,300 digits or, with a fraction or exponent, beyond a double.
        ProviderError: the reply reports an error.
        InvalidInputError: the reply is not JSON.
    """
    return read_answer(endpoint, load_exact(body))


def billed(
    answer: ProviderResponse, tokens: tuple[int, int], certainty: str | None
) -> ProviderResponse:
    """Return an answer with the token counts that were billed.

    Args:
        answer: the provider's answer, returned unchanged if it states counts and they were used.
        tokens: input and output tokens billed.
        certainty: certainty of the cost; ``upper_bound`` if the provider's counts were not used.
            ``None`` if the cost is not known.

    Raises:
        InvalidInputError: the counts contradict each other.
    """
    if answer.usage_reported and certainty != "upper_bound":
        return answer
    return structs.replace(
        answer, **reported(Usage(*tokens, server_tool_uses=answer.server_tool_uses))
    )


def failure(response: PromptResponse) -> HttpError:
    """Return (not raise) the error for a call that did not succeed, with its headers and retry
    time.

    The code and message are the call's; a call without them gets ``error`` and a general message.
    The address of a provider that cannot be reached is left out of the message. The status follows
    from the error code (:func:`~remit.server.refusals.status_of`). After several attempts, or if
    the provider refuses Remit's key, ``x-should-retry: false`` is added. An answer that cannot be
    read for translation gives the error of :func:`untranslatable`.

    Args:
        response: outcome of the call.
    """
    message = response.error_message or "The call failed."
    came = response.reply
    if came is not None and came.status < 400 and response.cause == NOT_THIS_API:
        return untranslatable(response)
    headers = list(call_headers(response))
    status = status_of(response)
    if response.error_code == "AUTH_ERROR" and status >= 500:  # The key stays refused.
        headers.append((b"x-should-retry", b"false"))
    if response.cause == UNREACHABLE and response.error_code == "SERVER_ERROR":
        message = "The provider cannot be reached."  # The message hides its address.
    return HttpError(
        status,
        response.error_code or "error",
        message,
        param=response.error_param,
        retry_after_s=response.retry_after_s,
        headers=tried(response, headers),
    )


def end_comment(response: PromptResponse) -> bytes:
    """Return the headers of :func:`call_headers` as an SSE comment, for the end of a stream.

    The comment is ``: name=value name=value`` with an empty line after it.

    Args:
        response: outcome of the call.
    """
    fields = [b"%s=%s" % (name, value) for name, value in call_headers(response)]
    return b": %s\n\n" % b" ".join(fields)


async def reply_upstream(send: Send, response: PromptResponse) -> None:
    """Send the provider's own reply, with the call's headers.

    Args:
        send: takes the answer.
        response: the call's response, which must have a reply.
    """
    await reply(send, upstream_answer(response))
