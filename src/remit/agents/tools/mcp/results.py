"""What a server's tools and answers are here."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
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

from remit.agents.tools.tool import ToolError

_LONGEST_ID = 64
_DIGEST = 8
_DECLINED = "[While it ran, the server asked, and nobody could answer: {}]"


def identity(server: str, name: str) -> str:
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
    """The structured answer where there is one, else its texts; media become a short note.

    Args:
        result: of the server.
        asked: what the server asked a person meanwhile, and got no answer to; the model should
            know, so that it can ask.
    """
    notes = [_DECLINED.format(question) for question in asked]
    if result.is_error:
        text = _text(result) or "The tool failed and does not say why."
        raise ToolError("\n".join([text, *notes]))
    if result.structured_content is None:
        return "\n".join([_text(result), *notes])
    if notes:
        return {**result.structured_content, "unanswered_questions": [*asked]}
    return result.structured_content


def _text(result: CallToolResult) -> str:
    return "\n".join(said(block) for block in result.content)


def said(block: Any) -> str:
    """A block of content as text; media become a short note."""
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, (ImageContent, AudioContent)):
        return _note(block.type, block.mime_type, block.data)
    if isinstance(block, ResourceLink):
        return f"[resource {block.name}: {block.uri}]"
    if isinstance(block, EmbeddedResource):
        return said_resource(block.resource)
    return f"[{type(block).__name__}]"


def said_resource(contents: TextResourceContents | BlobResourceContents) -> str:
    """The text of a resource; of a binary one, a short note."""
    if isinstance(contents, TextResourceContents):
        return contents.text
    return _note("resource", contents.mime_type or "binary", contents.blob)


def _note(kind: str, media_type: str, base64: str) -> str:
    size = len(base64) * 3 // 4 - base64[-2:].count("=")
    return f"[{kind}, {media_type}, {size:,} bytes, not shown]"


def without_patterns(schema: Any) -> Any:
    """A server's schema without its regular expressions.

    One that backtracks without end would block this process, and a server is a stranger.
    It checks what it gets by itself.
    """
    if isinstance(schema, list):
        return [without_patterns(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for name, value in schema.items():
        if name in ("pattern", "patternProperties"):
            continue
        if name in ("properties", "$defs", "definitions", "dependentSchemas") and isinstance(
            value, dict
        ):
            kept[name] = {key: without_patterns(item) for key, item in value.items()}
        elif name in ("enum", "const", "default", "examples", "required"):
            kept[name] = value
        else:
            kept[name] = without_patterns(value)
    return kept
