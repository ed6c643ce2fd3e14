"""What a server's tools and answers are here."""

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

from remit.agents.tools.definition import ToolError
from remit.agents.tools.output import Illustrated
from remit.kernel.json_text import JsonTextError, load_exact

# Images that providers take, by the bytes with which the data begins.
_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}
_MAX_IMAGES = 20  # of one result
_MAX_IMAGE_BYTES = 3_700_000  # 5 MB of base64, the lowest limit of the large providers
_LONGEST_ID = 64
_DIGEST = 8
_DECLINED = "[While it ran, the server asked, and nobody could answer: {}]"


def mcp_tool_id(server: str, name: str) -> str:
    """The id of a server's tool: ``{server}__{tool}``, in the characters that providers take.

    One that would be too long ends in the start of its hash.
    """
    full = f"{server}__{name}"
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", full)
    if len(plain) <= _LONGEST_ID:
        return plain
    digest = hashlib.sha256(full.encode("utf-8", "replace")).hexdigest()[:_DIGEST]
    return f"{plain[: _LONGEST_ID - _DIGEST - 1]}_{digest}"


def output(result: CallToolResult, asked: Sequence[str] = ()) -> Any:
    """Return the answer of a server's tool: its data, its texts, or both if they differ.

    Media become a short note; images that a provider can take follow as content blocks.

    Args:
        result: the server's answer.
        asked: questions that the server put to a person while the tool ran, and that nobody
            answered; the model should know them, so that it can ask.

    Raises:
        ToolError: the server says that the tool failed.
    """
    notes = [_DECLINED.format(question) for question in asked]
    texts = [text for block in result.content if (text := said(block))]
    if result.is_error:
        text = "\n".join(texts) or "The tool failed and does not say why."
        raise ToolError("\n".join([text, *notes]))
    data = result.structured_content
    if data is None:
        return illustrated("\n".join([*texts, *notes]), result.content)
    shown = data if _repeats(texts, data) else {"text": "\n".join(texts), "structuredContent": data}
    shown = {**shown, "unanswered_questions": [*asked]} if notes else shown
    return illustrated(shown, result.content)


def illustrated(value: Any, blocks: Iterable[Any]) -> Any:
    """Return a value, together with the images among content blocks or resources."""
    images = [image for block in blocks if (image := _image(block))]
    return Illustrated(value, tuple(images[:_MAX_IMAGES])) if images else value


def _image(block: Any) -> dict[str, Any] | None:
    if isinstance(block, EmbeddedResource):
        block = block.resource
    if isinstance(block, ImageContent):
        data = block.data
    elif isinstance(block, BlobResourceContents) and (block.mime_type or "").startswith("image/"):
        data = block.blob
    else:
        return None
    media_type, plain = _read_image(data)
    if not media_type:
        return None
    source = {"type": "base64", "media_type": media_type, "data": plain}
    return {"type": "image", "source": source}


def _read_image(data: str) -> tuple[str, str]:
    """Return the media type by the data itself, and the data; empty if no provider takes it."""
    try:
        read = base64.b64decode(data, validate=True)
    except ValueError:
        return "", ""
    is_webp = read[:4] == b"RIFF" and read[8:12] == b"WEBP"
    found = next((kind for start, kind in _IMAGES.items() if read.startswith(start)), "")
    if len(read) > _MAX_IMAGE_BYTES:
        return "", ""
    return ("image/webp" if is_webp else found), data


def _repeats(texts: Sequence[str], data: Mapping[str, Any]) -> bool:
    """Return True if texts say no more than structured content, as the protocol recommends.

    Servers put a value that is no object under ``result``, and a list in one text an item.
    """
    plain = data["result"] if data.keys() == {"result"} else data
    values = [_parsed(text) for text in texts]
    if not values or values in ([data], [plain], plain):
        return True
    return texts in ([plain], plain)


def _parsed(text: str) -> Any:
    try:
        return load_exact(text.encode("utf-8", "replace"))
    except JsonTextError:
        return text


def said(block: Any) -> str:
    """A block of content as text; media become a short note."""
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ImageContent) and _read_image(block.data)[0]:
        return f"[image, {block.mime_type}, {_size(block.data):,} bytes]"
    if isinstance(block, (ImageContent, AudioContent)):
        return _note(block.type, block.mime_type, block.data)
    if isinstance(block, ResourceLink):
        about = [block.title, block.description, block.mime_type]
        return f"[resource {block.name}: {'; '.join([str(block.uri), *filter(None, about)])}]"
    if isinstance(block, EmbeddedResource):
        return f"[resource {block.resource.uri}]\n{said_resource(block.resource)}"
    return f"[{type(block).__name__}]"


def said_resource(contents: TextResourceContents | BlobResourceContents) -> str:
    """The text of a resource; of a binary one, a short note."""
    if isinstance(contents, TextResourceContents):
        return contents.text
    return _note("resource", contents.mime_type or "binary", contents.blob)


def _note(kind: str, media_type: str, base64: str) -> str:
    return f"[{kind}, {media_type}, {_size(base64):,} bytes, not shown]"


def _size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def mcp_schema(schema: Any) -> Any:
    """Return a server's schema as one of draft 2020-12, without its regular expressions.

    Servers may write older drafts, which have boolean ``exclusiveMinimum`` and ``required``, and
    lists in ``items``. A schema without these is unchanged, so that its pin stays the same. A
    regular expression that backtracks without end would block this process, and a server is a
    stranger; it checks by itself what it gets.
    """
    if isinstance(schema, list):
        return [mcp_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for name, value in schema.items():
        if name in ("pattern", "patternProperties"):
            continue
        if name in ("properties", "$defs", "definitions", "dependentSchemas") and isinstance(
            value, dict
        ):
            kept[name] = {key: mcp_schema(item) for key, item in value.items()}
        elif name in ("enum", "const", "default", "examples", "required"):
            kept[name] = value
        else:
            kept[name] = mcp_schema(value)
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(kept.get(exclusive), bool) and kept.pop(exclusive) and limit in kept:
            kept[exclusive] = kept.pop(limit)
    if isinstance(kept.get("items"), list):
        kept["prefixItems"] = kept.pop("items")
        if "additionalItems" in kept:
            kept["items"] = kept.pop("additionalItems")
    if isinstance(kept.get("required"), bool):  # of draft 3
        del kept["required"]
    return kept
