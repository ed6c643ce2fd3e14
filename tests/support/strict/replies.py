"""Replies of the strict provider: JSON, streams, bytes and refusals, each as its provider's."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.support.strict.shapes import Wrong

__all__ = ["Reply", "data", "refusal", "stream", "whole"]

_ANTHROPIC_KINDS = {400: "invalid_request_error", 401: "authentication_error",
                    403: "permission_error", 404: "not_found_error", 413: "request_too_large",
                    429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}  # fmt: skip


@dataclass
class Reply:
    """Status, headers, and the body in the pieces in which it is sent."""

    status: int
    kind: str
    chunks: list[bytes]
    headers: dict[str, str] = field(default_factory=dict)


def whole(dialect: str, value: Any) -> Reply:
    if dialect == "openai":
        text = json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    else:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Reply(200, "application/json", [text.encode()])


def stream(events: Iterable[bytes]) -> Reply:
    return Reply(200, "text/event-stream; charset=utf-8", list(events))


def data(value: bytes, kind: str = "application/octet-stream") -> Reply:
    return Reply(200, kind, [value])


def refusal(dialect: str, status: int, wrong: Wrong, number: int) -> Reply:
    if wrong.code == "model_not_found":
        status = 404
    if dialect == "anthropic":
        reply = whole(dialect, {"type": "error",
                                "error": {"type": _ANTHROPIC_KINDS[status], "message": str(wrong)},
                                "request_id": f"req_{number:024d}"})  # fmt: skip
    elif dialect == "cloud":
        reply = whole(dialect, {"message": str(wrong)})
        reply.headers["x-amzn-errortype"] = {429: "ThrottlingException"}.get(
            status, "ValidationException")  # fmt: skip
    elif dialect == "gemini":
        word = {401: "UNAUTHENTICATED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED",
                503: "UNAVAILABLE"}.get(status, "INVALID_ARGUMENT")  # fmt: skip
        said = {"code": status, "message": str(wrong), "status": word}
        reply = whole(dialect, {"error": said})
    else:
        kind = {401: "invalid_request_error", 429: "requests", 500: "server_error"}.get(
            status, "invalid_request_error")  # fmt: skip
        reply = whole(
            dialect,
            {
                "error": {
                    "message": str(wrong),
                    "type": kind,
                    "param": wrong.path or None,
                    "code": wrong.code,
                }
            },
        )
    reply.status = status
    if status == 429:
        reply.headers["retry-after"] = "1"
    return reply
