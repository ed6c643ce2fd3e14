"""Checks and encoding of requests, and checks of answers against a schema."""

from __future__ import annotations

import functools
import hashlib
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from remit.gateway.bounds import Media
from remit.kernel.canonical import NotCanonicalError, canonical_json, exact_json
from remit.kernel.exchange import (
    MAX_ID_CHARS,
    Message,
    PromptRequest,
    check_messages,
)
from remit.kernel.json_text import JsonTextError, load_unique
from remit.kernel.schemas import problems
from remit.ledger import is_plain_text

MAX_TOKENS = 10**9
"""Most output tokens that anybody can mean."""

_MAX_ERRORS = 10
_IDS = (
    "contract_id", "session_id", "agent_id", "agent_class", "work_order_id", "framework_id",
    "package_id", "prompt_pack_id", "tier", "model_id", "provider_id", "subject_id",
    "idempotency_key",
)  # fmt: skip


_NEEDED = _IDS[:2]
_is_given = functools.partial(operator.is_not, None)
ids_of = operator.attrgetter(*_IDS)
"""Returns the ids that a request names, in one order."""


class Sent(Struct, gc=False):
    """A request, encoded once for hashing, bounding and recording.

    Not changed once made.

    Attributes:
        messages: the conversation in neutral form; empty if a body is sent.
        encoded: the prompt, or each message, as :func:`remit.kernel.canonical.exact_json` encodes
            it.
        context_hash: SHA-256 of the prompt's UTF-8, of the messages' JCS, or of the body.
        size: bytes of the request with tool definitions and schema, without the data of images.
        images: number of images.
        bounded: whether the tokens of all parts can be bounded here. Documents, audio, files by
            reference and unknown blocks cannot.
        is_exact: whether a message contains integers that JCS cannot express.
    """

    messages: tuple[Message, ...]
    encoded: bytes | list[bytes]
    context_hash: str
    size: int
    images: int = 0
    bounded: bool = True
    is_exact: bool = False


def check_request(request: PromptRequest) -> str:
    """Return the first problem of a request without quoting content; empty if there is none.

    Checks messages or prompt, the ids (``contract_id`` and ``session_id`` are required),
    ``max_tokens`` (1 to 1,000,000,000), ``temperature`` (0 to 2), the form of ``tools``, and
    ``template_variables`` against ``input_schema``. A body is not checked here.

    Args:
        request: the request.
    """
    if request.body is not None:
        pass  # The body was checked when it was read; the provider judges the rest.
    elif request.messages is not None:
        if problem := check_messages(request.messages):
            return problem
    elif not isinstance(request.prompt, str) or not request.prompt.strip():
        return "prompt is blank"
    ids = ids_of(request)
    for name, value in zip(_NEEDED, ids, strict=False):
        if not str(value or "").strip():
            return f"{name} is missing"
    try:
        text = "".join(filter(_is_given, ids))
    except TypeError:
        text = "\x00"
    # Nearly all are short and plain.
    if (len(text) > MAX_ID_CHARS or not text.isascii() or "\x00" in text) and (
        problem := next(filter(None, map(_wrong_text, _IDS, ids)), "")
    ):
        return problem
    most, warmth = request.max_tokens, request.temperature
    if most is not None and (type(most) is not int or not 1 <= most <= MAX_TOKENS):
        return f"max_tokens is not an integer between 1 and {MAX_TOKENS}"
    if warmth is not None and (type(warmth) not in (int, float) or not 0 <= warmth <= 2):
        return "temperature is not between 0 and 2"
    if problem := _wrong_text("user_id", request.user_id):
        return problem
    if (tools := request.tools) and not (
        isinstance(tools, (list, tuple)) and all(isinstance(tool, Mapping) for tool in tools)
    ):
        return "tools is not a list of objects"
    if (schema := request.input_schema) is not None:
        given: Any = request.template_variables
        if given is not None and not isinstance(given, Mapping):
            return "template_variables is not an object"
        found = problems(schema, dict(given or {}), 1)
        if found:
            return f"template_variables: {found[0]}"
    return ""


def _wrong_text(name: str, value: Any) -> str:
    if value is None or value == "":
        return ""
    if not isinstance(value, str):
        return f"{name} is not a string"
    is_plain = value.isascii() or is_plain_text(value)
    if len(value) > MAX_ID_CHARS or not is_plain or "\x00" in value:
        return (
            f"{name} contains NUL or a lone surrogate, or is longer than {MAX_ID_CHARS} characters"
        )
    return ""


def encode_sent(request: PromptRequest) -> Sent:
    """Return a request encoded for hashing, bounding and recording.

    A body is not encoded again; only its digest and size are stated.

    Args:
        request: the request.

    Raises:
        InvalidInputError: the request has no canonical form (a lone surrogate, NaN, …).
    """
    if request.body is not None:
        raw = request.body.raw
        digest = request.body.digest or hashlib.sha256(raw).hexdigest()
        return Sent((), b"", digest, len(raw))
    extra = 0
    if request.tools or request.structured_output:
        extras = [list(request.tools or ()), response_schema(request)]
        extra = len(exact_json(extras))
    if request.messages is None:
        encoded = canonical_json(request.prompt)
        plain = request.prompt.encode()
        message = {"role": "user", "content": request.prompt}
        digest = hashlib.sha256(plain).hexdigest()
        return Sent((message,), encoded, digest, len(plain) + extra)
    is_exact = False
    try:
        parts = [canonical_json(message) for message in request.messages]
    except NotCanonicalError:
        parts, is_exact = [exact_json(message) for message in request.messages], True
    digest = hashlib.sha256(b"[" + b",".join(parts) + b"]").hexdigest()
    size = sum(map(len, parts)) + extra
    if all(isinstance(message["content"], str) for message in request.messages):
        media = Media(other="audio" if any("audio" in one for one in request.messages) else "")
    else:
        media = _media(request.messages)
    return Sent(
        tuple(request.messages),
        parts,
        digest,
        size - media.data,
        media.images,
        not media.other,
        is_exact,
    )


def response_schema(request: PromptRequest) -> Mapping[str, Any] | None:
    """Return the JSON Schema that the provider is asked to follow; None without one."""
    if request.structured_output is True:
        return request.output_schema
    return request.structured_output or None


def check_output(schema: Mapping[str, Any], content: str) -> list[str]:
    """Return how a response's text fails a JSON Schema, quoting nothing of it; empty if it fits.

    Text that is nearly JSON is repaired before the check.

    Args:
        schema: the JSON Schema.
        content: the text.

    Returns:
        At most ten problems, as sentences.
    """
    try:
        value = load_unique(content, repair=True)
    except JsonTextError as error:
        return [f"the output is not JSON: {error.message}"]
    return problems(schema, value, _MAX_ERRORS)


def _media(messages: Sequence[Message]) -> Media:
    found = Media()
    for message in messages:
        if "audio" in message:
            found.other = "audio"
        if not isinstance(message["content"], str):
            _look(message["content"], found)
    return found


def _look(blocks: Sequence[Any], found: Media) -> None:
    for block in blocks:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "image":
            source = block.get("source")
            place = source.get("type") if isinstance(source, dict) else None
            if place == "base64" and isinstance(source.get("data"), str):
                found.data += len(source["data"])
            elif place != "url":
                found.other = kind
            found.images += 1
        elif kind == "tool_result":
            if isinstance(block.get("content"), (list, tuple)):
                _look(block["content"], found)
        elif kind not in _TEXTUAL:
            found.other = str(kind)


_TEXTUAL = frozenset({"text", "tool_use", "thinking", "redacted_thinking", "refusal"})
"""Blocks whose tokens are bounded by their bytes."""
