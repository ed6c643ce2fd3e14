"""Errors of requests: status, code and message, in the shape of the client's dialect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Literal

from remit.gateway import LeaseLostError
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptResponse, RouteOutcome
from remit.kernel.json_text import dump
from remit.ledger import LedgerConnectionError, LedgerRollbackError, LedgerWriteError
from remit.providers import is_shortage
from remit.providers.dialects import error_body
from remit.providers.wire import A2A, CONVERSE, MESSAGES, RESPONSES

_log = logging.getLogger("remit.server")

Shape = Literal["openai", "anthropic", "bedrock", "gemini", "a2a"]

# Statuses of calls that Remit refused.
REJECTED = {
    "INVALID_INPUT": 400,
    "AUTH_ERROR": 403,
    "MODEL_NOT_ALLOWED": 403,
    "SESSION_NOT_YOURS": 403,
    "PROVIDER_NOT_FOUND": 404,
    "FILE_NOT_FOUND": 404,
    "PREVIOUS_RESPONSE_NOT_FOUND": 400,
    "CONTEXT_LENGTH": 400,
    "BUDGET_EXHAUSTED": 402,
    "BUDGET_BUSY": 429,
    "TURN_LIMIT": 402,
    "NOT_ALLOCATED": 402,
    "UNPRICED": 402,
    "UNBOUNDED": 402,
    "RATE_LIMITED": 429,
    "CIRCUIT_OPEN": 503,
    "IDEMPOTENCY_CONFLICT": 409,
    "IDEMPOTENCY_MISMATCH": 422,
    "IDEMPOTENCY_ERASED": 410,
    "REPLAY_DIFFERS": 422,
    "PROVIDER_ERROR": 502,
}
# Statuses of calls that failed at the provider. The provider's refusal of Remit's key says nothing
# about the client's key.
_FAILED = {
    "INVALID_REQUEST": 400,
    "CONTENT_FILTERED": 400,
    "CONTEXT_LENGTH": 400,
    "RATE_LIMITED": 429,
    "AUTH_ERROR": 502,
    "SERVER_ERROR": 502,
    "PROVIDER_ERROR": 502,
    "CANCELLED": 499,
    "TIMEOUT": 504,
    "LOCAL_ERROR": 503,
}
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"  # The type of details in A2A errors.
_INVALID_REQUEST, _INTERNAL_ERROR = -32600, -32603
_NOT_SENT = "This request cannot be recorded now, so this attempt was not sent to a provider."
_SENT = (
    "The request was sent to a provider, but its answer cannot be recorded; Remit charges at most "
    "the reserved amount."
)
_NAMES = {"CONTEXT_LENGTH": "context_length_exceeded"}
"""Error codes that clients know by another name."""


class HttpError(Exception):
    """An error that ends a request.

    Args:
        status: HTTP status.
        code: error code, for programs.
        message: sentence for people; contains no secret.
        param: the field or header that caused the error.
        retry_after_s: seconds after which to try again.
        close: True to close the connection because part of the request is unread.
        headers: more headers of the answer.

    Attributes:
        status: HTTP status.
        code: error code; the answer has it in lower case.
        message: sentence for people.
        param: the field or header; ``None`` for none.
        retry_after_s: seconds; ``None`` if a retry at once is as good.
        close: True to close the connection.
        headers: more headers of the answer.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        close: bool = False,
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.close = close
        self.headers = headers


def refusal_of(error: BaseException) -> HttpError:
    """Return the answer to a request that ended with any exception; log unexpected exceptions.

    An HttpError is returned unchanged. A cancelled task is uncancelled, so that it can answer and
    end normally, with 503 ``shutting_down``. A database that does not answer, and a machine out of
    resources, give 503; any other exception gives 500 ``internal_error``, whose message never
    quotes it.

    Args:
        error: the exception that ended the request.
    """
    if isinstance(error, HttpError):
        return error
    if isinstance(error, asyncio.CancelledError):
        # The client went away, or the server shuts down: the record is complete either way, and
        # the task may end normally.
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
        return shutting_down()
    if isinstance(error, LedgerConnectionError):
        _log.error("a request was refused without its database: %s", error.message)
        said = "The ledger's database does not answer; try again once it does."
        return HttpError(503, "record_unavailable", said, retry_after_s=1)
    if is_shortage(error):
        _log.error("a request was refused for want of what this machine has no more: %s", error)
        said = "This machine has run out of a resource such as file descriptors; try again later."
        return HttpError(503, "local_error", said, retry_after_s=1)
    _log.error("a request failed unexpectedly", exc_info=error)
    return HttpError(500, "internal_error", "Remit failed unexpectedly; see the server's log.")


def invalid(param: str, message: str) -> HttpError:
    """Return (not raise) the 400 ``invalid_request`` for a request with an invalid field.

    Args:
        param: name of the field.
        message: sentence that says what is wrong with it.
    """
    return HttpError(400, "invalid_request", message, param=param)


def shutting_down() -> HttpError:
    """Return (not raise) the 503 for requests after the server began to shut down.

    Clients may retry in a second; the connection closes.
    """
    said = "The server is shutting down; try again in a moment."
    return HttpError(503, "shutting_down", said, retry_after_s=1, close=True)


def no_record(error: RemitError) -> HttpError:
    """Return (not raise) the 503 for a request whose record could not be written; log the reason.

    The message says whether the request was sent. A ledger that was rolled back needs an operator,
    so that error carries no retry time.

    Args:
        error: the error of the write.
    """
    _log.error("a record could not be made: %s", error.message)
    was_sent = isinstance(error, LeaseLostError) or (
        isinstance(error, LedgerWriteError) and error.was_sent
    )
    said = _SENT if was_sent else _NOT_SENT
    if isinstance(error.__cause__ if was_sent else error, LedgerRollbackError):
        return HttpError(503, "record_unavailable", f"{said} {error}")  # A retry cannot succeed.
    return HttpError(503, "record_unavailable", f"{said} Try again later.", retry_after_s=1)


def status_of(response: PromptResponse) -> int:
    """Return the HTTP status of a call that did not succeed; 500 for an unknown code.

    Args:
        response: outcome of the call, with its error code.
    """
    table = REJECTED if response.outcome is RouteOutcome.REJECTED else _FAILED
    return table.get(response.error_code or "", 500)


def refusal_body(
    endpoint: str, status: int, code: str, message: str, param: str | None = None
) -> dict[str, Any]:
    """Return the body of an error in a dialect.

    A2A gets a JSON-RPC error, whose ``id`` is ``None``.

    Args:
        endpoint: name of the endpoint, such as ``openai.chat``.
        status: HTTP status.
        code: error code, which the body holds in lower case; in capitals as the ``reason`` of
            Google's details. ``CONTEXT_LENGTH`` becomes ``context_length_exceeded``.
        message: sentence for people.
        param: the field that caused the error.
    """
    name = _NAMES.get(code, code.lower())
    if endpoint == A2A.name:
        about = {"@type": _ERROR_INFO, "reason": name.upper(), "domain": "remit"}
        number = _INVALID_REQUEST if 400 <= status < 500 else _INTERNAL_ERROR
        said = {"code": number, "message": message, "data": [about]}
        return {"jsonrpc": "2.0", "id": None, "error": said}
    body = error_body(endpoint, status, name, message, param)
    if not endpoint.startswith(("bedrock.", "gemini.")):  # Google's code is the status.
        body["error"]["code"] = name
    return body


def error_event(endpoint: str, status: int, code: str, message: str) -> bytes:
    """Return an error inside a stream, as a server-sent event of the endpoint's dialect.

    The event is named ``error``, except for Chat Completions and Gemini, whose events have no name.
    For Bedrock's ``converse`` the event has Anthropic's form; :mod:`~remit.server.stream_formats`
    makes a frame of it.

    Args:
        endpoint: name of the endpoint, such as ``openai.chat``.
        status: HTTP status that the error would have.
        code: error code.
        message: sentence for people.
    """
    if endpoint == CONVERSE.name:  # The server makes a frame of it.
        endpoint = MESSAGES.name
    value = refusal_body(endpoint, status, code, message)
    if endpoint == RESPONSES.name:  # Its clients read an event's type in the data.
        said = {name: value["error"][name] for name in ("code", "message", "param")}
        value = {"type": "error", "sequence_number": 0, **said, **value}
    body = dump(value)
    if endpoint in ("openai.chat", "gemini.generate"):
        return b"data: %s\n\n" % body
    return b"event: error\ndata: %s\n\n" % body
