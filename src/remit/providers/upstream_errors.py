"""What a provider's refusal means: any status with any body, and error events inside streams."""

from __future__ import annotations

import errno
import json
import math
import os
import socket
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from remit.providers.protocol import ProviderError

__all__ = ["error_of", "error_of_event", "hide", "is_shortage", "own_cause"]

_MESSAGE_CHARS = 500
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
# Of connecting: what this machine lacks, with any provider.
_OWN = _SHORTAGES | {errno.EADDRNOTAVAIL, errno.ENETDOWN, errno.ENETUNREACH}
_HIDDEN = "[key]"

# The error types and codes of both dialects (and of compatible servers), as HTTP statuses: inside
# a stream there is no status to go by.
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
_GAVE_UP_WAITING = (504, 524)  # a proxy did; the model behind it may still be at work


@dataclass(frozen=True, slots=True)
class _Said:
    """What an error body says, whatever its shape."""

    message: str
    words: frozenset[str]  # its type and code, in lower case
    status: int | None  # a code that is an HTTP status
    param: str | None


def error_of(
    status: int, headers: Mapping[str, str], body: bytes, secrets: Collection[str] = ()
) -> ProviderError:
    """The error that an answer with an error status (or an error for a body) is.

    Args:
        status: the HTTP status.
        headers: of the answer, case-insensitive.
        body: as it came: an error object of any dialect, a text, HTML, nothing.
        secrets: texts that its message must not hold.
    """
    value = _json(body)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if value is None and body:
        if kind in ("", "text/plain"):
            value = body.decode("utf-8", "replace").strip()
        else:
            value = f"{kind} body, {len(body)} bytes"
    said = _read(value)
    error = _error(said, status, f"HTTP {status}: {_shown(said.message, secrets)}", secrets)
    wish = headers.get("x-should-retry", "").strip().lower()
    if wish in ("true", "false"):
        error.retryable = wish == "true"
    error.retry_after_s = _retry_after_s(headers)
    return error


def error_of_event(data: bytes | object, secrets: Collection[str] = ()) -> ProviderError | None:
    """The error that an event of a stream is; ``None`` for all other events.

    Args:
        data: the event's data, or the same already read.
        secrets: texts that its message must not hold.
    """
    if isinstance(data, bytes):
        data = _json(data)
    if type(data) is list and len(data) == 1:  # as Gemini has an error
        data = data[0]
    if type(data) is not dict:
        return None
    kind, stated, choices = data.get("type"), data.get("base_resp"), data.get("choices")
    response = data.get("response") if kind == "response.failed" else data
    if kind == "response.failed" or (data.get("status") == "failed" and "output" in data):
        value = response.get("error") if isinstance(response, Mapping) else None
    elif kind == "error" or data.get("object") == "error":
        value = data.get("error") or {k: v for k, v in data.items() if k != "type"}
    elif data.get("error"):
        if isinstance(kind, str):
            return None
        value = data["error"]
    elif type(stated) is dict and stated.get("status_code"):  # as MiniMax has it
        value = {"message": stated.get("status_msg")}
    elif data.get("success") is False:
        value = data
    else:  # as OpenRouter has it
        first = choices[0] if type(choices) is list and choices else None
        value = first.get("error") if type(first) is dict else None
        if not value:
            return None
    said = _read(value)
    status = said.status or next(
        (_STATUS_OF[word] for word in sorted(said.words) if word in _STATUS_OF), 500
    )
    error = _error(said, status, _shown(said.message, secrets), secrets)
    error.maybe_billed = False  # a refusal before any output is free
    if error.code == "TIMEOUT":  # the provider's own, which did answer
        error.code = "SERVER_ERROR"
    error.status = None
    return error


def is_shortage(error: BaseException | None) -> bool:
    """Whether this machine has no file descriptors, memory or buffers left, by an error or what
    it came of; it passes."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        if isinstance(error, OSError) and error.errno in _SHORTAGES:
            return True
        error = error.__cause__
    return False


def own_cause(error: Exception, tls: ssl.SSLContext | None) -> str:
    """Why a connection that failed says nothing of the provider; empty where it may.

    File descriptors, memory, ports and routes are this machine's, and so are its resolver and the
    certificates that it trusts.
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
    """Whether there is a folder of certificates: they are read from it as they are needed."""
    folder = ssl.get_default_verify_paths().capath
    return folder is not None and any(Path(folder).iterdir())


def hide(text: str, secrets: Collection[str]) -> str:
    """Return a text with each of ``secrets`` masked, also as a URL spells it."""
    for secret in sorted(secrets, key=len, reverse=True):
        if secret:
            text = text.replace(secret, _HIDDEN).replace(quote(secret, safe=""), _HIDDEN)
    return text


def _error(said: _Said, status: int, message: str, secrets: Collection[str]) -> ProviderError:
    param = hide(said.param, secrets) if said.param is not None else None
    low = said.message.lower()
    of_content = status not in _NOT_A_REFUSAL_OF_CONTENT
    retryable = False
    if said.words & _UNPAID or status == 402:
        code = "RATE_LIMITED"
    elif said.words & _CONTEXT or (of_content and any(word in low for word in _CONTEXT_WORDS)):
        code = "CONTEXT_LENGTH"
    elif said.words & _FILTER or (of_content and any(word in low for word in _FILTER_WORDS)):
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


def _read(value: Any) -> _Said:
    """What an error says, found wherever the servers we know put it."""
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
    words, status = set(), None
    for word in (inner.get("code"), inner.get("type"), inner.get("status"), outer.get("code")):
        if isinstance(word, str):
            words.add(word.lower())
        elif isinstance(word, int) and not isinstance(word, bool) and 400 <= word <= 599:
            status = word
    nested = inner.get("innererror")
    if isinstance(nested, Mapping) and isinstance(nested.get("code"), str):
        words.add(nested["code"].lower())
    param = inner.get("param")
    return _Said(
        message, frozenset(words), status, param if isinstance(param, str) and param else None
    )


def _text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return ""


def _shown(message: str, secrets: Collection[str]) -> str:
    # Secrets go before the text is cut, or a part of one would stay.
    shown = hide(message, secrets)[:_MESSAGE_CHARS].strip() or "an error without a message"
    return shown.encode("utf-8", "replace").decode()


def _json(data: bytes) -> Any:
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
