"""Errors of providers, read from any status with any body, and from error events inside streams."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import socket
import ssl
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from remit.providers.protocol import ProviderError
from remit.providers.wire.answer import stated_error
from remit.providers.wire.body import member_at

_MESSAGE_CHARS = 500
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
# Failures to connect that this machine causes, whatever the provider.
_OWN = _SHORTAGES | {errno.EADDRNOTAVAIL, errno.ENETDOWN, errno.ENETUNREACH}
_HIDDEN = "[key]"
_SECONDS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")

# HTTP statuses of the error types and codes of both dialects and of compatible servers, because an
# event of a stream has no status.
_STATUS_OF = {
    "invalid_request_error": 400,
    "invalid_request": 400,
    "invalid_prompt": 400,
    "badrequesterror": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "internal_server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_CONTEXT = frozenset({"context_length_exceeded", "model_context_window_exceeded"})
_CONTEXT_WORDS = (
    "prompt is too long",
    "context length",
    "context_length",
    "context size",
    "context window",
    "input length and `max_tokens` exceed",
)
_FILTER = frozenset({"content_filter", "content_policy_violation", "responsibleaipolicyviolation"})
_FILTER_WORDS = ("content_filter", "content management policy", "content filtering policy")
_UNPAID = frozenset({"insufficient_quota", "billing_error", "billing_hard_limit_reached"})
_NOT_A_REFUSAL_OF_CONTENT = (401, 402, 403, 429)
_RETRYABLE = (408, 409, 425, 429)
_GAVE_UP_WAITING = (504, 524)  # A proxy gave up; the model may still be working.


def error_of(
    status: int, headers: Mapping[str, str], body: bytes, secrets: Collection[str] = ()
) -> ProviderError:
    """Return the error that an answer states, with the wait that its headers ask for.

    The message begins with the status and is cut after 500 characters. A body that states an unpaid
    bill, a full context or a content filter decides before the status. An unpaid bill is
    ``RATE_LIMITED`` and not retryable. ``x-should-retry`` decides ``retryable`` if the answer has
    it. Statuses below 400, 504 and 524 are ``maybe_billed``. ``reply`` is not set.

    Args:
        status: the HTTP status.
        headers: the headers of the answer, case-insensitive.
        body: the body: an error object of any dialect, text, HTML, or nothing.
        secrets: texts that the message must not contain.
    """
    value = json_value(body)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if value is None and body:
        if kind in ("", "text/plain"):
            value = body.decode("utf-8", "replace").strip()
        else:
            value = f"{kind} body, {len(body)} bytes"
    error = _error(value, status, secrets)
    wish = headers.get("x-should-retry", "").strip().lower()
    if wish in ("true", "false"):
        error.retryable = wish == "true"
    error.retry_after_s = _retry_after_s(headers)
    if error.retry_after_s is None:
        error.retry_after_s = _retry_delay_s(value)
    return error


def error_of_event(data: bytes | object, secrets: Collection[str] = ()) -> ProviderError | None:
    """Return the error that an event of a stream states; ``None`` for other events.

    Errors are events of type ``error``, failed responses, and objects with an ``error`` that are
    messages or have no type; also the forms of MiniMax, OpenRouter (in any choice) and Groq,
    ``success: false``, and Gemini's list of one error. The error has no status, is not
    ``maybe_billed``, and is never a ``TIMEOUT``, since the provider answered. An unknown type
    without a status is a retryable ``SERVER_ERROR``.

    Args:
        data: the event's data, as bytes or parsed.
        secrets: texts that the message must not contain.
    """
    if isinstance(data, bytes):
        data = json_value(data)
    if type(data) is list and len(data) == 1:  # Gemini sends errors in a list.
        data = data[0]
    if type(data) is not dict:
        return None
    kind, stated, choices = data.get("type"), data.get("base_resp"), data.get("choices")
    response = data.get("response") if kind == "response.failed" else data
    if kind == "response.failed" or (data.get("status") == "failed" and "output" in data):
        value = response.get("error") if isinstance(response, Mapping) else None
    elif kind == "error" or data.get("object") == "error":
        value = data.get("error") or {k: v for k, v in data.items() if k != "type"}
    elif "error" in data and stated_error(data):
        if isinstance(kind, str) and kind != "message":  # an event of a tool that failed
            return None
        value = data["error"]
    elif type(stated) is dict and stated.get("status_code"):  # MiniMax
        value = {"message": stated.get("status_msg")}
    elif data.get("success") is False:
        value = data
    else:  # OpenRouter, Groq
        value = stated_error(data["x_groq"]) if "x_groq" in data else None
        for choice in choices if type(choices) is list else ():
            if type(choice) is dict:
                if "error" in choice:
                    value = value or stated_error(choice)
                for part in ("message", "delta"):
                    if part in choice and type(choice[part]) is dict and "error" in choice[part]:
                        value = value or stated_error(choice[part])
        if not value:
            return None
    error = _error(value, None, secrets)
    error.maybe_billed = False  # A refusal before any output is free.
    if error.code == "TIMEOUT":  # The provider did answer.
        error.code = "SERVER_ERROR"
    error.status = None
    return error


def is_shortage(error: BaseException | None) -> bool:
    """Return True if this machine has no file descriptors, memory or buffers left.

    Args:
        error: the error; it and its causes are examined. None gives False.
    """
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        if isinstance(error, OSError) and error.errno in _SHORTAGES:
            return True
        error = error.__cause__
    return False


def own_cause(error: Exception, tls: ssl.SSLContext | None) -> str:
    """Return the reason of a failed connection that lies in this machine; empty if none does.

    Such reasons are missing file descriptors, memory, ports and routes, the resolver, and missing
    certificates of authorities.

    Args:
        error: the failure to connect.
        tls: the context of the connection; None without TLS.
    """
    if isinstance(error, socket.gaierror):
        return f"its host name cannot be resolved ({error.strerror})"
    if isinstance(error, ssl.SSLCertVerificationError):
        if tls is not None and not tls.cert_store_stats()["x509_ca"] and not _has_folder():
            return "this machine has no CA certificates (set SSL_CERT_FILE or SSL_CERT_DIR)"
        return ""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number in _OWN and number is not None else ""


def _has_folder() -> bool:
    """Return True if the folder of certificates contains any; it is read on demand."""
    folder = ssl.get_default_verify_paths().capath
    return folder is not None and any(Path(folder).iterdir())


def hide(text: str, secrets: Collection[str]) -> str:
    """Return a text with each of ``secrets``, plain or URL-encoded, replaced by ``[key]``.

    Empty secrets are ignored.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if secret:
            text = text.replace(secret, _HIDDEN).replace(quote(secret, safe=""), _HIDDEN)
    return text


def _error(value: Any, status: int | None, secrets: Collection[str]) -> ProviderError:
    """Return the error that an error object states; ``status`` is ``None`` inside a stream."""
    text, words, stated, param = _read(value)
    message, low = _shown(text, secrets), text.lower()
    if status is not None:
        message = f"HTTP {status}: {message}"
    else:
        known = (_STATUS_OF[word] for word in sorted(words) if word in _STATUS_OF)
        status = stated or next(known, 500)
    param = hide(param, secrets) if param is not None else None
    of_content = status not in _NOT_A_REFUSAL_OF_CONTENT
    retryable = False
    if words & _UNPAID or status == 402:
        code = "RATE_LIMITED"
    elif words & _CONTEXT or (of_content and any(word in low for word in _CONTEXT_WORDS)):
        code = "CONTEXT_LENGTH"
    elif words & _FILTER or (of_content and any(word in low for word in _FILTER_WORDS)):
        code = "CONTENT_FILTERED"
    else:
        retryable = status in _RETRYABLE or status >= 500 or status < 400
        if status in (401, 403):
            code = "AUTH_ERROR"
        elif status == 408:
            code = "TIMEOUT"
        elif status == 429:
            code = "RATE_LIMITED"
        elif status >= 500 or status < 400:
            code = "SERVER_ERROR"
        else:
            code = "INVALID_REQUEST"
    billed = status in _GAVE_UP_WAITING or status < 400
    return ProviderError(
        code, message, retryable, maybe_billed=billed, status=status, param=param
    )  # fmt: skip


def _read(value: Any) -> tuple[str, set[str], int | None, str | None]:
    """Return message, type and code in lower case, status and parameter of an error object.

    The values are found in the places that known servers use. The status is a code between 400 and
    599; it and the parameter are ``None`` if the object states none.
    """
    if isinstance(value, list) and value:
        value = value[0]
    outer = value if isinstance(value, Mapping) else {}
    for name in ("error", "detail", "errors"):
        if outer.get(name):
            value = outer[name]
            break
    if isinstance(value, list) and value:
        value = value[0]
    inner = value if isinstance(value, Mapping) else {}
    message: Any = None
    for name in ("message", "msg", "detail", "error"):
        message = inner.get(name) or outer.get(name)
        if message:
            break
    else:
        message = value
    if not isinstance(message, str):
        message = _text(message) if message else ""
    words: set[str] = set()
    status = None
    for word in (inner.get("code"), inner.get("type"), inner.get("status"), outer.get("code")):
        if isinstance(word, str):
            words.add(word.lower())
        elif isinstance(word, int) and not isinstance(word, bool) and 400 <= word <= 599:
            status = word
    nested = inner.get("innererror")
    if isinstance(nested, Mapping) and isinstance(nested.get("code"), str):
        words.add(nested["code"].lower())
    param = inner.get("param")
    return message, words, status, param if isinstance(param, str) and param else None


def _text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return ""


def _shown(message: str, secrets: Collection[str]) -> str:
    # Secrets are masked before the text is cut, or a part of one would remain.
    shown = hide(message, secrets)[:_MESSAGE_CHARS].strip() or "an error without a message"
    return shown.encode("utf-8", "replace").decode()


def json_value(data: bytes) -> Any:
    """Return the value of a JSON text; None if it is not JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        said = headers.get(name)
        if said is None:
            continue
        try:
            seconds = float(said) / unit
        except ValueError:
            try:
                at = parsedate_to_datetime(said)
                seconds = (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds()
            except (ValueError, TypeError, IndexError, OverflowError):
                continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def _retry_delay_s(value: Any) -> float | None:
    """Return the ``retryDelay`` of Google's error details in seconds; None without one."""
    value = value[0] if type(value) is list and value else value
    details = member_at(value, "error.details")
    for detail in details if type(details) is list else ():
        said = member_at(detail, "retryDelay")
        if type(said) is str and (found := _SECONDS.fullmatch(said)):
            return float(found[1])
    return None
