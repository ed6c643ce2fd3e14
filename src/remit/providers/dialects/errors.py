"""Fields and answers that a dialect cannot express, and error bodies by dialect.

A field that only the client's own API has is refused if its absence would change the answer or
miss a promise. All others are named in
:attr:`~remit.providers.dialects.model_call.ModelCall.dropped`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from remit.kernel.errors import RemitError
from remit.providers.dialects.model_call import ModelCall

_OPENAI = {
    401: "authentication_error", 402: "insufficient_quota", 403: "permission_error",
    429: "rate_limit_error",
}  # fmt: skip
_ANTHROPIC = {
    401: "authentication_error", 402: "billing_error", 403: "permission_error",
    404: "not_found_error", 408: "timeout_error", 413: "request_too_large",
    429: "rate_limit_error", 503: "overloaded_error", 504: "timeout_error",
    529: "overloaded_error",
}  # fmt: skip
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
_OVERFLOW = "prompt is too long"
"""Anthropic's words for a full context, by which Claude Code knows when to compact."""
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_SPENT = ("budget", "quota")
_NEXT_STEP = "Leave out the field, or use a model whose provider supports this API."
_PROMISES: dict[str, dict[str, str]] = {
    "openai.chat": {
        "logprobs": "log probabilities",
        "top_logprobs": "log probabilities",
        "audio": "audio",
        "logit_bias": "a token bias",
        "moderation": "moderation results",
        "n": "more than one answer",
        "modalities": "an answer that is not only text",
    },
    "openai.responses": {
        "top_logprobs": "log probabilities",
        "moderation": "moderation results",
        "prompt": "a prompt stored by the provider",
        "previous_response_id": "a response stored by another provider",
        "conversation": "a conversation stored by another provider",
    },
    "anthropic.messages": {
        "mcp_servers": "MCP servers run by the provider",
        "container": "a container run by the provider",
        "inference_geo": "an inference region",
        "thread": "a conversation stored by another provider",
        "compaction": "a compaction of the conversation",
        "billing_policy": "the bill of another organisation",
    },
    "bedrock.converse": {
        "guardrailConfig": "a guardrail of the provider",
        "promptVariables": "a prompt stored by the provider",
    },
    "gemini.generate": {
        "cachedContent": "content stored by the provider",
        "generationConfig.candidateCount": "more than one answer",
        "generationConfig.responseLogprobs": "log probabilities",
        "generationConfig.logprobs": "log probabilities",
        "generationConfig.responseModalities": "an answer that is not only text",
        "generationConfig.speechConfig": "speech",
    },
}
"""Fields whose absence a client would miss unawares, and the words for the refusal."""

_NO_EFFECT: dict[str, Any] = {
    "n": 1, "modalities": ["text"], "truncation": "disabled", "service_tier": "auto",
}  # fmt: skip
"""Values that equal the default of the field."""

_HONOURED = {
    "openai.responses": frozenset(
        ("background", "conversation", "metadata", "previous_response_id", "store",
         "stream_options", "truncation")
    ),
    "openai.chat": frozenset(("stream_options",)),
}  # fmt: skip
"""Fields that Remit honours itself, whatever the provider."""

_ENCRYPTED = "reasoning.encrypted_content"
_LOGPROBS = "message.output_text.logprobs"


class DialectError(RemitError):
    """A body that is invalid, or that another dialect cannot express.

    Args:
        message: the fault; quotes nothing of the body.
        param: the field at fault, such as ``messages[1].content``; None for the whole body.
    """

    def __init__(self, message: str, *, param: str | None = None, next_step: str = "") -> None:
        super().__init__(message, next_step=next_step)
        self.param = param


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


def check_members(value: Mapping[str, Any], members: Mapping[str, type], where: str) -> None:
    """Raise :func:`unreadable` if a member is of another type than ``members`` states.

    A member may be absent or null.
    """
    for name, kind in members.items():
        if (found := value.get(name)) is not None and type(found) is not kind:
            raise unreadable(f"{where}.{name}")


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
        code: the kind of the error, for programs. Anthropic's form omits it, and names a full
            context in the message instead. A code that names a budget or quota makes a 429
            ``insufficient_quota`` with OpenAI, which clients do not retry; ``BUDGET_BUSY`` passes
            and stays ``rate_limit_error``.
        message: the error, for people.
        param: the field at fault; None without one. Anthropic's form omits it.
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
        if code == "context_length_exceeded" and _OVERFLOW not in message.lower():
            message = f"{_OVERFLOW}: {message}"
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


def cannot(param: str, what: str) -> DialectError:
    """Return the error for a field that asks for ``what``."""
    return DialectError(
        f"{param} requests {what}, which this model's provider does not support; leave this out, "
        "or use another model.",
        param=param,
        next_step=_NEXT_STEP,
    )


_CHAT_PARTS = ("text", "refusal", "image_url", "input_audio", "file", "video_url")
_ANTHROPIC_PARTS = ("tool_use", "tool_result", "thinking", "image", "document")


def foreign_part(block: Mapping[str, Any], where: str, api: str) -> DialectError:
    """Return the error for a part of a message that the provider's API does not have.

    For a part of a type that Chat Completions does not have, in a body of that API, the error says
    what the API accepts. Only types of Anthropic's API are named.

    Args:
        block: the part in neutral form.
        where: its place, unless the block names it.
        api: the provider's API, for the message.
    """
    where = str(block.get("at", where))
    value = block.get("value") if block.get("endpoint") == "openai.chat" else None
    kind = value.get("type") if isinstance(value, dict) else None
    if kind is not None and kind not in _CHAT_PARTS:
        named = f"the type `{kind}`, which" if kind in _ANTHROPIC_PARTS else "a type that"
        return DialectError(
            f"{where} has {named} Chat Completions does not have. Accepted are "
            f"{', '.join(_CHAT_PARTS)}; a call of a tool belongs in tool_calls, and its result in "
            "a message with the role tool.",
            param=where,
        )
    return DialectError(
        f"{where} is a part that {api} does not have.",
        param=where,
        next_step="Use a model whose provider speaks the client's dialect, or leave it out.",
    )


def words_of(block: Mapping[str, Any]) -> str | None:
    """Return in words a part that only its own API has; None if words cannot say it.

    Tool references and search results without citations have words: Claude Code searches its tools
    itself, and answers with references to the found tools.

    Args:
        block: a block of the type ``other``.
    """
    value = block.get("value")
    if type(value) is not dict:
        return None
    if value.get("type") == "tool_reference":
        return f"The tool {value.get('tool_name')} is available."
    if value.get("type") != "search_result" or value.get("citations"):
        return None
    content = value.get("content")
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    said = (value.get("title"), value.get("source"), *texts)
    return "\n".join(str(text) for text in said if text)


def leave_out_rest(call: ModelCall, carried: Collection[str] = ()) -> None:
    """Refuse or note each field of a call that no neutral field holds.

    Empty values, defaults of the API, and fields that Remit honours itself are neither refused nor
    noted.

    Args:
        call: the call; the fields left out are added to its ``dropped``.
        carried: fields that the target has too.

    Raises:
        DialectError: only the client's own API can honour a field; ``param`` names it.
    """
    other = call.other
    for key, what in _PROMISES.get(call.endpoint, {}).items():
        if other.get(key) and other[key] != _NO_EFFECT.get(key):
            raise cannot(key, what)
    if any("name" in message for message in call.messages):
        call.drop("messages[].name")
    honoured = _HONOURED.get(call.endpoint, frozenset())
    for key, value in other.items():
        if key in carried or key in honoured or value == _NO_EFFECT.get(key):
            continue
        if key == "include" and isinstance(value, list):
            if _LOGPROBS in value:
                raise cannot("include", "log probabilities")
            if all(item == _ENCRYPTED for item in value):
                continue
        if key == "text" and isinstance(value, dict):
            if value.get("verbosity") not in (None, "medium") and "text.verbosity" not in carried:
                call.drop("text.verbosity")
            for name in value.keys() - {"format", "verbosity"}:
                call.drop(f"text.{name}")
            continue
        if value is None or value is False or value == [] or value == {} or value == "":
            continue
        if key.endswith("_penalty") and value == 0:
            continue
        call.drop(key)
