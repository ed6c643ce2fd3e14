"""Conversion of MCP results, schemas and names to those of Remit's tools."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from remit.agents.attachments import MAX_IMAGES, image_of
from remit.agents.tools.definition import ToolError
from remit.agents.tools.result_conversion import Illustrated
from remit.kernel.errors import excerpt
from remit.kernel.json_text import JsonTextError, load_exact
from remit.kernel.schemas import first_problem, schema_problem

_MAX_ID_CHARS = 64
_DIGEST_CHARS = 8
_DECLINED_QUESTION = (
    "[While the tool ran, the server asked a question that nobody could answer: {}]"
)


def mcp_tool_id(server: str, name: str) -> str:
    """Return the id of a server's tool, ``{server}__{tool}``, in characters that providers accept.

    Other characters become ``_``. An id over 64 characters is cut and ends with the beginning of
    its hash.

    Args:
        server: the server's name.
        name: the tool's name, as the server states it.
    """
    full = f"{server}__{name}"
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", full)
    if len(plain) <= _MAX_ID_CHARS:
        return plain
    digest = hashlib.sha256(full.encode("utf-8", "replace")).hexdigest()[:_DIGEST_CHARS]
    return f"{plain[: _MAX_ID_CHARS - _DIGEST_CHARS - 1]}_{digest}"


def tool_output(result: CallToolResult, questions: Sequence[str] = ()) -> Any:
    """Return a tool's answer: its data, its texts, or both if they differ.

    Media become short notes; images that a provider accepts are attached, at most 20, as an
    :class:`Illustrated`. Texts that only repeat the data are left out. A dict with ``text`` and
    ``structuredContent`` holds both. Declined questions follow a text, or join the data as
    ``unanswered_questions``; data that is no object is then put under ``structuredContent``.

    Args:
        result: the server's answer.
        questions: questions that the server asked during the call and nobody answered; the model is
            told, so that it can ask the user.

    Raises:
        ToolError: the server reports that the tool failed.
    """
    notes = [_DECLINED_QUESTION.format(question) for question in questions]
    texts = [text for block in result.content if (text := block_text(block))]
    if result.is_error:
        text = "\n".join(texts) or "The tool failed without a reason."
        raise ToolError("\n".join([text, *notes]))
    data = result.structured_content
    if data is None:
        return with_images("\n".join([*texts, *notes]), result.content)
    shown = data if _repeats(texts, data) else {"text": "\n".join(texts), "structuredContent": data}
    if notes:
        members = shown if isinstance(shown, dict) else {"structuredContent": shown}
        shown = {**members, "unanswered_questions": [*questions]}
    return with_images(shown, result.content)


def add_mismatch(result: CallToolResult, schema: Mapping[str, Any] | None) -> None:
    """Add a text to a successful result that does not match the tool's output schema.

    The text names the first problem, or that of a schema that is not valid.

    Args:
        result: the server's answer, which is changed.
        schema: the output schema that the server states; None without one.
    """
    if schema is None or result.is_error:
        return
    plain = mcp_schema(schema)
    problem = schema_problem(plain) or first_problem(plain, result.structured_content)
    if problem:
        text = f"[The result does not match the tool's output schema: {excerpt(problem)}]"
        result.content.append(TextContent(type="text", text=text))


def with_images(value: Any, blocks: Iterable[Any]) -> Any:
    """Return a value, with the images of a server's answer if it has any.

    Only the first 20 images are kept. Images of over 3,700,000 bytes, and in formats that providers
    do not accept, are left out silently; text blocks are ignored.

    Args:
        value: the result without images.
        blocks: content blocks or resource contents of the server.

    Returns:
        An :class:`Illustrated` of the value and the images; ``value`` itself without images.
    """
    images = [image for block in blocks if (image := _image(block))]
    return Illustrated(value, tuple(images[:MAX_IMAGES])) if images else value


def _image(block: Any) -> dict[str, Any] | None:
    if isinstance(block, EmbeddedResource):
        block = block.resource
    if isinstance(block, ImageContent):
        data = block.data
    elif isinstance(block, BlobResourceContents) and (block.mime_type or "").startswith("image/"):
        data = block.blob
    else:
        return None
    return _read_image(data)


def _read_image(data: str) -> dict[str, Any] | None:
    try:
        return image_of(base64.b64decode(data, validate=True))
    except ValueError:
        return None


def _repeats(texts: Sequence[str], data: Any) -> bool:
    """Return True if texts only repeat the structured content, as the protocol recommends.

    Servers put a value that is not an object under ``result``, and each item of a list in a text.
    """
    is_wrapped = isinstance(data, dict) and data.keys() == {"result"}
    plain = data["result"] if is_wrapped else data
    values = [_parsed(text) for text in texts]
    if not values or values in ([data], [plain], plain):
        return True
    return texts in ([plain], plain)


def _parsed(text: str) -> Any:
    try:
        return load_exact(text.encode("utf-8", "replace"))
    except JsonTextError:
        return text


def block_text(block: Any) -> str:
    """Return a content block as text; media become a short note.

    Text and the texts of resources are given whole. The note of an image, audio, binary resource or
    unknown block names its type, and the size of media in bytes; that of a link its name and URI,
    with title, description and media type if stated.

    Args:
        block: a content block of a server.
    """
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ImageContent) and _read_image(block.data):
        return f"[image, {block.mime_type}, {_size(block.data):,} bytes]"
    if isinstance(block, (ImageContent, AudioContent)):
        return _note(block.type, block.mime_type, block.data)
    if isinstance(block, ResourceLink):
        details = [block.title, block.description, block.mime_type]
        return f"[resource {block.name}: {'; '.join([str(block.uri), *filter(None, details)])}]"
    if isinstance(block, EmbeddedResource):
        return f"[resource {block.resource.uri}]\n{resource_text(block.resource)}"
    return f"[{type(block).__name__}]"


def resource_text(contents: TextResourceContents | BlobResourceContents) -> str:
    """Return the text of a resource; a short note for binary data.

    Args:
        contents: text or bytes of a resource.
    """
    if isinstance(contents, TextResourceContents):
        return contents.text
    return _note("resource", contents.mime_type or "binary", contents.blob)


def _note(kind: str, media_type: str, base64: str) -> str:
    return f"[{kind}, {media_type}, {_size(base64):,} bytes, not shown]"


def _size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def mcp_schema(schema: Any) -> Any:
    """Return a server's schema in JSON Schema draft 2020-12, without regular expressions.

    Servers may use older drafts with boolean ``exclusiveMinimum``, and lists in ``items``; both are
    converted. A boolean ``required``, and an exclusive limit that is false or has no limit, are
    removed. A schema without such parts is unchanged, so that its pin stays the same. Regular
    expressions are removed because a hostile one could block this process; the server checks
    arguments itself. Values under ``enum``, ``const``, ``default`` and ``examples`` are not
    converted.

    Args:
        schema: a JSON value; it is not changed. A value that is no object or list is returned as it
            is.
    """
    if isinstance(schema, list):
        return [mcp_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    converted: dict[str, Any] = {}
    for name, value in schema.items():
        if name in ("pattern", "patternProperties"):
            continue
        if name in ("properties", "$defs", "definitions", "dependentSchemas") and isinstance(
            value, dict
        ):
            converted[name] = {key: mcp_schema(item) for key, item in value.items()}
        elif name in ("enum", "const", "default", "examples", "required"):
            converted[name] = value
        else:
            converted[name] = mcp_schema(value)
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if (
            isinstance(converted.get(exclusive), bool)
            and converted.pop(exclusive)
            and limit in converted
        ):
            converted[exclusive] = converted.pop(limit)
    if isinstance(converted.get("items"), list):
        converted["prefixItems"] = converted.pop("items")
        if "additionalItems" in converted:
            converted["items"] = converted.pop("additionalItems")
    if isinstance(converted.get("required"), bool):  # Draft 3 of JSON Schema.
        del converted["required"]
    return converted
