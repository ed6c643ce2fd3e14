"""The error of a call or an answer that a dialect cannot express, and error bodies by dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.kernel.errors import RemitError
from remit.providers.protocol import ProviderError

__all__ = [
    "DialectError", "bedrock_exception", "error_body", "failed", "refuse", "shaped", "unreadable",
]  # fmt: skip

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
_GOOGLE = {
    401: "UNAUTHENTICATED", 402: "RESOURCE_EXHAUSTED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    409: "ABORTED", 429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}  # fmt: skip
_BEDROCK = {
    401: "UnrecognizedClientException", 402: "ServiceQuotaExceededException",
    403: "AccessDeniedException", 404: "ResourceNotFoundException", 408: "ModelTimeoutException",
    429: "ThrottlingException", 503: "ServiceUnavailableException",
    504: "ModelTimeoutException", 529: "ServiceUnavailableException",
}  # fmt: skip
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_SPENT = ("budget", "quota")


class DialectError(RemitError):
    """A body that is invalid, or that another dialect cannot express.

    Args:
        message: the fault; quotes nothing of the body.
        param: the field at fault, such as ``messages[1].content``; None for the whole body.
    """

    def __init__(self, message: str, *, param: str | None = None, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.param = param


def refuse(what: str, param: str | None) -> DialectError:
    """Return the error for the value at ``param``; ``what`` completes the sentence."""
    return DialectError(f"{param or 'The request body'} {what}.", param=param)


def unreadable(where: str) -> DialectError:
    """Return the error for an answer whose part ``where`` does not have the API's form."""
    return DialectError(
        f"The provider's answer cannot be translated: {where} does not have the API's form."
    )


def shaped(value: Any, kind: type, where: str) -> Any:
    """Return ``value`` if it is of the type ``kind``; raise :func:`unreadable` otherwise."""
    if type(value) is not kind:
        raise unreadable(where)
    return value


def failed(error: Any) -> ProviderError:
    """Return the error that a provider reports in place of an answer or event."""
    said = error.get("message", error) if isinstance(error, Mapping) else error
    return ProviderError("SERVER_ERROR", str(said), True, maybe_billed=True)


def bedrock_exception(status: int) -> str:
    """Return Bedrock's name for the error of an HTTP status."""
    other = "InternalServerException" if status >= 500 else "ValidationException"
    return _BEDROCK.get(status, other)


def error_body(
    endpoint: str, status: int, code: str, message: str, param: str | None = None
) -> dict[str, Any]:
    """Return an error body in the dialect of an endpoint.

    Args:
        endpoint: the client's endpoint; all but those of Anthropic, Bedrock and Gemini
            get OpenAI's form.
        status: the HTTP status.
        code: the kind of the error, for programs; Anthropic's form has no field for it. A code that
            names a budget or quota makes a 429 ``insufficient_quota`` with OpenAI, which clients do
            not retry; ``BUDGET_BUSY`` passes and stays ``rate_limit_error``.
        message: the error, for people.
        param: the field at fault; None without one.
    """
    if endpoint.startswith("gemini."):
        reason = {"@type": _ERROR_INFO, "reason": code.upper(), "domain": "remit"}
        if param:
            reason["metadata"] = {"param": param}  # type: ignore[assignment]
        word = _GOOGLE.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
        said = {"code": status, "message": message, "status": word, "details": [reason]}
        return {"error": said}
    if endpoint.startswith("bedrock."):
        return {"message": message, "code": code, **({"param": param} if param else {})}
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
