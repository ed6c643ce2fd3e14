"""Error bodies in each dialect's form; the official SDKs choose their exception by them."""

from __future__ import annotations

from typing import Any

__all__ = ["error_body"]

_OPENAI = {
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    429: "rate_limit_error",
}
_ANTHROPIC = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_SPENT = ("budget", "quota")


def error_body(
    endpoint: str, status: int, code: str, message: str, param: str | None = None
) -> dict[str, Any]:
    """Return an error body in the dialect of an endpoint.

    Args:
        endpoint: the client's endpoint; every endpoint but Anthropic's gets OpenAI's form.
        status: the HTTP status.
        code: the kind of the error, for programs; Anthropic's form has no field for it. A code that
            names a budget or quota makes a 429 ``insufficient_quota`` with OpenAI, which clients do
            not retry; ``BUDGET_BUSY`` passes and stays ``rate_limit_error``.
        message: the error, for people.
        param: the field at fault; None without one.
    """
    other = "api_error" if status >= 500 else "invalid_request_error"
    if endpoint.startswith("anthropic."):
        return {
            "type": "error",
            "error": {"type": _ANTHROPIC.get(status, other), "message": message},
        }
    kind = _OPENAI.get(status, "server_error" if status >= 500 else "invalid_request_error")
    if (
        status == 429
        and any(word in code.lower() for word in _SPENT)
        and "busy" not in code.lower()
    ):
        kind = "insufficient_quota"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
