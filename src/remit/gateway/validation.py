"""Checks of what comes in and what goes out."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema
import orjson
from jsonschema.exceptions import SchemaError

from remit.canonical import canonical_json
from remit.errors import InvalidInputError
from remit.exchange import Message, PromptRequest, check_messages

__all__ = ["Sent", "check_output", "check_request", "encode_sent"]

_MOST_ERRORS = 10


@dataclass(frozen=True, slots=True)
class Sent:
    """What goes out, encoded once for hashing, bounding and recording.

    Attributes:
        messages: the conversation in neutral form.
        encoded: JCS bytes: of the prompt, or of each message.
        context_hash: SHA-256 of the prompt's UTF-8, or of the messages' JCS.
        size: bytes of what is sent, tool definitions and schema included.
    """

    messages: tuple[Message, ...]
    encoded: bytes | list[bytes]
    context_hash: str
    size: int


def check_request(request: PromptRequest) -> str:
    """The first thing wrong with ``request``, quoting no content; else ``""``."""
    if request.messages is not None:
        if problem := check_messages(request.messages):
            return problem
    elif not isinstance(request.prompt, str) or not request.prompt.strip():
        return "prompt is blank"
    for name in ("contract_id", "session_id"):
        value = getattr(request, name)
        if not isinstance(value, str) or not value.strip():
            return f"{name} is missing"
    if not isinstance(request.max_tokens, int) or request.max_tokens < 1:
        return "max_tokens is not a positive integer"
    if not isinstance(request.temperature, (int, float)) or not 0 <= request.temperature <= 2:
        return "temperature is not between 0 and 2"
    if request.input_schema is not None:
        problems = _schema_problems(request.input_schema, dict(request.template_variables or {}))
        if problems:
            return f"template_variables: {problems[0]}"
    return ""


def encode_sent(request: PromptRequest) -> Sent:
    """Encode what will be sent.

    Raises:
        InvalidInputError: it has no canonical form (a lone surrogate, NaN, …).
    """
    extra = len(canonical_json([list(request.tools or ()), request.structured_output or None]))
    if request.messages is None:
        encoded = canonical_json(request.prompt)
        plain = request.prompt.encode()
        message = {"role": "user", "content": request.prompt}
        digest = hashlib.sha256(plain).hexdigest()
        return Sent((message,), encoded, digest, len(plain) + extra)
    parts = [canonical_json(message) for message in request.messages]
    digest = hashlib.sha256(b"[" + b",".join(parts) + b"]").hexdigest()
    return Sent(tuple(request.messages), parts, digest, sum(map(len, parts)) + extra)


def check_output(schema: Mapping[str, Any], content: str) -> list[str]:
    """What is wrong with a response's text against a JSON Schema; empty when nothing."""
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        return [f"the output is not JSON: {error}"]
    return _schema_problems(schema, value)


def _schema_problems(schema: Mapping[str, Any], value: Any) -> list[str]:
    try:
        validator = _validator(canonical_json(dict(schema)))
    except (SchemaError, InvalidInputError) as invalid:
        return [f"the schema itself is invalid: {invalid.message}"]
    problems = []
    for error in validator.iter_errors(value):
        place = "/".join(str(part) for part in error.absolute_path) or "value"
        problems.append(f"{place} fails {error.validator!r}")
        if len(problems) >= _MOST_ERRORS:
            break
    return problems


@functools.lru_cache(maxsize=256)
def _validator(schema: bytes) -> jsonschema.Draft202012Validator:
    loaded = orjson.loads(schema)
    jsonschema.Draft202012Validator.check_schema(loaded)
    return jsonschema.Draft202012Validator(loaded)
