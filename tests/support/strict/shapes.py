"""What a request body may hold, read from the type definitions of the providers' own SDKs."""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

__all__ = ["Reply", "Wrong", "check", "data", "refusal", "stream", "whole"]

_SHAPES = {
    "openai.chat": "openai.types.chat.completion_create_params:CompletionCreateParamsBase",
    "openai.responses": "openai.types.responses.response_create_params:ResponseCreateParamsBase",
    "openai.embeddings": "openai.types.embedding_create_params:EmbeddingCreateParams",
    "openai.completions": "openai.types.completion_create_params:CompletionCreateParamsBase",
    "openai.moderations": "openai.types.moderation_create_params:ModerationCreateParams",
    "openai.images": "openai.types.image_generate_params:ImageGenerateParamsBase",
    "openai.speech": "openai.types.audio.speech_create_params:SpeechCreateParams",
    "openai.batches": "openai.types.batch_create_params:BatchCreateParams",
    "anthropic.messages": "anthropic.types.message_create_params:MessageCreateParamsBase",
    "anthropic.beta": "anthropic.types.beta.message_create_params:MessageCreateParamsBase",
    "anthropic.count_tokens": (
        "anthropic.types.message_count_tokens_params:MessageCountTokensParams"
    ),
    "anthropic.beta_count_tokens": (
        "anthropic.types.beta.message_count_tokens_params:MessageCountTokensParams"
    ),
}
# Fields of the SDKs' methods that travel as headers, and one that travels beside the others.
_NOT_IN_BODY = {"betas", "user_profile_id"}
_ELSEWHERE = {"stream"}
# What the providers take too, though the newest SDKs do not say so: fields of answers that come
# back in a request, and parameters that newer models have no more.
_NUMBER = {"type": "nullable", "schema": {"type": "float"}}
_TAKEN_TOO: dict[tuple[str, str], dict[str, Any]] = {
    ("openai", "ChatCompletionAssistantMessageParam"): {
        "annotations": {"type": "any"},
        "provider_specific_fields": {"type": "any"},  # as LiteLLM's client sends it back
    },
    ("openai", "EasyInputMessageParam"): {"id": {"type": "str"}},
    ("openai", "Message"): {"id": {"type": "str"}},
    ("openai", "ChatCompletionToolMessageParam"): {"name": {"type": "str"}},
    ("anthropic", "MessageCreateParamsBase"): dict.fromkeys(
        ("temperature", "top_p", "top_k"), _NUMBER),
}  # fmt: skip
# What they do not insist on, though the SDKs say so.
_NOT_INSISTED = {
    "ResponseOutputMessageParam": ("id", "status", "type"),
    "ResponseOutputTextParam": ("annotations",),
    "ResponseInputImageParam": ("detail",),
    "ResponseReasoningItemParam": ("id",),
    "FunctionToolParam": ("strict", "parameters"),
    "ToolParam": ("strict",),
}


class Wrong(ValueError):  # noqa: N818
    """A body that the provider refuses: what to say, and where."""

    def __init__(self, message: str, path: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.code = code


def check(shape: str, body: dict[str, Any]) -> None:
    """Compare a body with a shape.

    Raises:
        Wrong: something is missing, unknown or of a wrong type; the deepest such place is named.
    """
    # OpenAI reads null as a field left out.
    nothing = shape.startswith("openai.")
    given = {name: value for name, value in body.items()
             if name not in _ELSEWHERE and not (nothing and value is None)}  # fmt: skip
    if not isinstance(body.get("stream"), bool | None):
        raise Wrong("stream: Input should be a valid boolean", "stream")
    try:
        _validator(shape).validate_python(given, strict=True)
    except ValidationError as error:
        raise _refusal(error, body) from None


def _refusal(error: ValidationError, body: dict[str, Any]) -> Wrong:
    errors = error.errors(include_url=False)
    # A union's member whose tag does not fit was not meant.
    others = [one["loc"][:-1] for one in errors if one["type"] == "literal_error"]
    meant = [one for one in errors if not any(one["loc"][: len(o)] == o and o for o in others)]
    found = []
    for one in meant or errors:
        path, value = [], body
        for step in one["loc"]:  # names of union members stand among the steps
            known = value if isinstance(value, dict) else range(len(value or ())) if isinstance(
                value, list) else ()  # fmt: skip
            if step in known:
                value = value[step]
            elif step is not one["loc"][-1] or one["type"] != "missing":
                continue
            path.append(step)
        found.append((len(path), one["type"] != "literal_error", path, one))
    _, _, path, one = max(found, key=lambda each: each[:2])
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]
    if one["type"] == "extra_forbidden":
        return Wrong(f"Unknown parameter: '{where}'.", where, "unknown_parameter")
    if one["type"] == "missing":
        return Wrong(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    return Wrong(f"Invalid value for '{where}': {one['msg']}.", where, "invalid_value")


@functools.cache
def _validator(shape: str) -> SchemaValidator:
    module, name = _SHAPES[shape].split(":")
    core = TypeAdapter(getattr(importlib.import_module(module), name)).core_schema
    return SchemaValidator(_sealed(core))


def _sealed(core: Any) -> Any:
    """The same schema without room for more: the SDKs' iterables are lists on the wire."""
    if isinstance(core, dict):
        kind = core.get("type")
        if kind == "generator":
            core = {**core, "type": "list"}
        elif kind == "typed-dict" and "extras_schema" not in core:
            core = {**core, "extra_behavior": "forbid"}
            fields = {k: v for k, v in core["fields"].items() if k not in _NOT_IN_BODY}
            made = core["cls"]
            more = _TAKEN_TOO.get((made.__module__.partition(".")[0], made.__name__), {})
            for name, schema in more.items():
                field = {"type": "typed-dict-field", "schema": schema, "required": False}
                fields.setdefault(name, field)
            for name in _NOT_INSISTED.get(made.__name__, ()):
                if name in fields:
                    fields[name] = {**fields[name], "required": False}
            core["fields"] = fields
        elif kind == "function-plain":  # SequenceNotStr: a protocol that only checks by looks
            return {"type": "list"}
        elif kind == "is-instance":
            return {"type": "any"}
        return {name: value if name == "ref" else _sealed(value) for name, value in core.items()}
    if isinstance(core, list | tuple):
        return type(core)(_sealed(value) for value in core)
    return core


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
