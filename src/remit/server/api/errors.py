"""Errors of the API, in one shape."""

from __future__ import annotations

from typing import Any

from remit.agents.approvals import ApprovalError
from remit.agents.sessions.manager import SessionNotFoundError
from remit.gateway.auth import AuthUnavailableError, VirtualKeyError, VirtualKeyNotFoundError
from remit.kernel.errors import InvalidInputError, RemitError
from remit.ledger import (
    EntryNotFoundError,
    LedgerClosedError,
    LedgerWriteError,
    NoSignerError,
)
from remit.server.refusals import HttpError
from remit.server.replies import Scope, Send, reply_json

__all__ = ["error_answer", "error_body", "refuse"]

Headers = list[tuple[bytes, bytes]]

# The first that matches.
_STATUSES: tuple[tuple[type[RemitError], int, str], ...] = (
    (EntryNotFoundError, 404, "not_found"),
    (VirtualKeyNotFoundError, 404, "not_found"),
    (SessionNotFoundError, 404, "not_found"),
    (VirtualKeyError, 409, "conflict"),
    (ApprovalError, 409, "conflict"),
    (AuthUnavailableError, 503, "unavailable"),
    (LedgerWriteError, 503, "unavailable"),
    (LedgerClosedError, 503, "unavailable"),
    (NoSignerError, 503, "unavailable"),
    (InvalidInputError, 400, "invalid_input"),
)


def error_answer(error: HttpError | RemitError) -> tuple[int, dict[str, Any], Headers]:
    """Status, body and headers that answer ``error``."""
    if isinstance(error, RemitError):
        status, code = next(
            ((status, code) for kind, status, code in _STATUSES if isinstance(error, kind)),
            (500, "internal_error"),
        )
        return status, error_body(code, error.message, error.next_step), []
    cause = error.__cause__
    if isinstance(cause, AuthUnavailableError):  # the key may be valid
        return error_answer(cause)
    headers: Headers = []
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if error.close:
        headers.append((b"connection", b"close"))
    next_step = cause.next_step if isinstance(cause, RemitError) else ""
    return error.status, error_body(error.code, error.message, next_step, error.param), headers


async def refuse(scope: Scope, send: Send, error: HttpError) -> None:
    """Answer a request that ended before the API saw it."""
    status, body, headers = error_answer(error)
    await reply_json(send, body, status, headers)


def error_body(
    code: str, message: str, next_step: str = "", param: str | None = None
) -> dict[str, Any]:
    """``{"error": {"code", "message", "next_step"?, "param"?}}``."""
    body = {"code": code, "message": message}
    if next_step:
        body["next_step"] = next_step
    if param:
        body["param"] = param
    return {"error": body}
