"""Structured logs on standard error: events, without their content.

No content, key or token is logged. Text that looks like a secret is redacted, whatever its source,
and no text that a client chose can begin a line of its own.
"""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import time
from collections.abc import Mapping
from typing import IO, Any, Literal

from remit.gateway import MAX_ID_CHARS, CallReport
from remit.kernel.errors import InvalidInputError
from remit.kernel.exchange import RouteOutcome
from remit.kernel.secrets import redact_secrets
from remit.views.wording import visible

_NAME = "remit"
_SIMPLE = re.compile(r"[\w.:/@+%\[\]-]+", re.ASCII)
_STANDARD = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "color_message"}
)  # fmt: skip


def name_of(value: Any) -> str:
    """Return an id or name as valid UTF-8 text, cut to ``MAX_ID_CHARS`` characters.

    The ids of a refused call were never checked, so they can have any type, length and content.

    Args:
        value: the id or name; ``None`` becomes an empty text, and any other value its ``str``.
    """
    text = value if isinstance(value, str) else "" if value is None else str(value)
    return text[:MAX_ID_CHARS].encode("utf-8", "replace").decode("utf-8")


class SecretFilter(logging.Filter):
    """A filter that redacts secrets in a record's message, exception and extra fields.

    The record is changed in place, so no later handler sees the secret. No record is dropped. An
    instance has no state and can be used from several threads.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace secrets in the record's message, traceback and extra fields; always return True.

        The arguments are merged into the message first, and the traceback is formatted. Extra
        fields become JSON data; values of other types become texts.

        Args:
            record: the record, which is changed.
        """
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # The arguments do not fit the message.
            message = f"{record.msg} {record.args}"
        record.msg, record.args = redact_secrets(message), None
        if record.exc_info:
            if record.exc_info[0] is not None and not record.exc_text:
                record.exc_text = logging.Formatter().formatException(record.exc_info)
            record.exc_info = None
        if record.exc_text:
            record.exc_text = redact_secrets(record.exc_text)
        if record.stack_info:
            record.stack_info = redact_secrets(record.stack_info)
        for name in vars(record).keys() - _STANDARD:
            setattr(record, name, _cleaned(getattr(record, name)))
        return True


def _cleaned(value: Any) -> Any:
    """Return an extra field as JSON data, without secrets."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # JSON has no NaN
    if isinstance(value, Mapping):
        return {redact_secrets(str(key)): _cleaned(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_cleaned(inner) for inner in value]
    return redact_secrets(str(value))


def set_up_logging(
    level: str, form: Literal["text", "json"] = "text", *, stream: IO[str] | None = None
) -> logging.Handler:
    """Write the records of the logger ``remit`` and its children as lines; return the handler.

    A second call replaces the handler of the first. Records are not passed on to the root logger,
    and secrets are redacted in each.

    Args:
        level: lowest level that is logged: ``debug``, ``info``, ``warning``, ``error`` or another
            name of :mod:`logging`, in any case.
        form: ``text`` for people; ``json`` writes objects with ``time`` (ISO 8601, UTC), ``level``,
            ``logger``, ``message``, the record's extra fields, ``exception`` and ``stack``.
        stream: the stream to write to; standard error if left out.

    Raises:
        InvalidInputError: the level or form is unknown.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None or form not in ("text", "json"):
        raise InvalidInputError(
            "Unknown log level or log format.",
            next_step="Levels are debug, info, warning and error; formats are text and json.",
        )
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.set_name(_NAME)
    handler.addFilter(SecretFilter())
    handler.setFormatter(_JsonFormatter() if form == "json" else _TextFormatter())
    logger = logging.getLogger(_NAME)
    for old in [old for old in logger.handlers if old.name == _NAME]:
        logger.removeHandler(old)
    logger.addHandler(handler)
    logger.setLevel(number)
    logger.propagate = False
    return handler


class CallLog:
    """An observer of the gateway that logs a line at INFO for each ended call.

    The fields are ids, numbers and codes. The text of an error is only in the ledger, because it
    may quote the request. Add an instance to :attr:`LLMGateway.observers`.

    Args:
        logger: the logger; ``remit.calls`` if left out.
    """

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("remit.calls")

    def __call__(self, report: CallReport) -> None:
        """Log one ended call at INFO; do nothing if that level is off.

        Args:
            report: the ended call.
        """
        logger = self._logger
        if not logger.isEnabledFor(logging.INFO):
            return
        request, response, identity = report.request, report.response, report.identity
        priced = response.cost_certainty not in ("", "unpriced")
        fields: dict[str, Any] = {
            "outcome": response.outcome.value,
            "error_code": name_of(response.error_code),
            "provider": name_of(response.provider_id),
            "model": name_of(response.model_id),
            "input_tokens": response.input_tokens,
            "output_tokens": response.output_tokens,
            "cost_usd": response.cost_incurred if priced else None,
            "cost_certainty": response.cost_certainty,
            "latency_ms": response.latency_ms,
            "attempts": report.attempts,
            "session_id": name_of(request.session_id),
            "agent_id": name_of(request.agent_id),
            "key_id": name_of(identity.key_id) if identity is not None else "",
            "dispatch_entry_id": response.dispatch_entry_id,
            "exchange_entry_id": response.exchange_entry_id,
        }
        if response.replayed:
            fields["replayed"] = True
        if response.fallback_from:
            fields["fallback_from"] = {
                name_of(model): code for model, code in response.fallback_from
            }
        word = "ended" if response.outcome is RouteOutcome.SUCCESS else "failed"
        logger.info("call %s", word, extra=fields)


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class _JsonFormatter(logging.Formatter):
    """A formatter of JSON objects in ASCII, so that no text can end the line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _extra(record).items():
            line.setdefault(name, value)  # A field cannot replace one of the four above.
        if record.exc_text:
            line["exception"] = record.exc_text
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, default=str)


class _TextFormatter(logging.Formatter):
    """A formatter for ``time LEVEL logger: message key=value …``, with indented tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        head = f"{_time(record)} {record.levelname} {record.name}: "
        parts = [head + visible(record.getMessage())]
        parts += [
            f"{visible(name)}={_shown(value)}"
            for name, value in _extra(record).items()
            if value is not None and value != ""
        ]
        lines = [" ".join(parts)]
        for text in (record.exc_text, record.stack_info):
            if text:
                lines += [f"    {visible(line)}" for line in text.split("\n")]
        return "\n".join(lines)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    if not _SIMPLE.fullmatch(text):
        text = json.dumps(text, ensure_ascii=False)
    return visible(text)
