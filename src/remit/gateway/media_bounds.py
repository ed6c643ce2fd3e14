"""The parts of a conversation that are not text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from remit.providers.wire import is_reference, member_at

_IMAGES = frozenset(
    {"image", "image_url", "input_image", "computer_screenshot", "image_generation_call"}
)
_TEXTUAL = frozenset(
    {
        None, "text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal",
        "thinking", "redacted_thinking", "reasoning", "compaction", "search_result",
        "tool_reference", "tool_use", "server_tool_use", "mcp_tool_use", "function_call",
        "custom_tool_call", "web_search_call", "file_search_call", "code_interpreter_call",
        "computer_call", "local_shell_call", "local_shell_call_output", "shell_call",
        "shell_call_output", "apply_patch_call", "apply_patch_call_output", "mcp_call",
        "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "tool_search_call",
        "tool_search_output", "web_search_tool_result", "code_execution_tool_result",
        "bash_code_execution_tool_result", "text_editor_code_execution_tool_result",
        "tool_search_tool_result", "mcp_tool_result",
    }
)  # fmt: skip
"""Blocks and items whose tokens are bounded by their bytes."""

_OF_A_MESSAGE = frozenset({"role", "content"})
_TEXTS_OF_CONVERSE = frozenset(
    {"text", "json", "toolUse", "toolResult", "cachePoint", "reasoningContent", "citationsContent",
     "searchResult"}
)  # fmt: skip
_INSIDE = {"tool_result": "content", "message": "content", "function_call_output": "output",
           "custom_tool_call_output": "output", "computer_call_output": "output"}  # fmt: skip
"""Where such a block or item holds others."""


class Media(Struct, gc=False):
    """The parts of a body that are not text.

    Attributes:
        images: number of images.
        data: bytes of their base64, which say nothing about tokens.
        other: the first part whose tokens only the context window bounds; empty without one.
        seconds: longest duration of the sound files; None if unknown.
        tools: definitions of tools that the conversation adds.
    """

    images: int = 0
    data: int = 0
    other: str = ""
    seconds: float | None = 0.0
    tools: tuple[Any, ...] = ()


def media_of(body: Mapping[str, Any]) -> Media:
    """Return the parts of a body's conversation that are not text, in any dialect.

    Blocks of an unknown type count as ``other``, because their bytes do not bound their tokens.
    ``seconds`` stays 0: sound files are not measured here.

    Args:
        body: the parsed body; ``messages``, ``input``, ``system``, ``contents``,
            ``systemInstruction``, ``content`` and ``requests`` are searched.
    """
    found = Media()
    for holder in _HOLDERS_OF_GEMINI:
        if holder not in body:
            continue
        for number, part in enumerate(_parts(body[holder])):
            _look_at(part, f"{holder} (part {number + 1})", found)
    for name in ("messages", "input", "system"):
        value = body.get(name)
        if isinstance(value, (list, tuple)):
            _look(value, name, found)
    return found


def _parts(holder: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in Gemini's contents: parts, results of functions, and their parts."""
    left: list[Any] = [holder]
    while left:
        value = left.pop()
        if isinstance(value, (list, tuple)):
            left += value
        elif isinstance(value, Mapping):
            left += [value[name] for name in _HOLDERS if name in value]
            yield value


def _look_at(part: Mapping[str, Any], where: str, found: Media) -> None:
    for name, value in part.items():
        if name == "inlineData" and isinstance(value, Mapping):
            kind = value.get("mimeType")
            if isinstance(kind, str) and kind.lower().startswith("image/"):
                data = value.get("data")
                found.images += 1
                found.data += len(data) if isinstance(data, str) else 0
                continue
        if name not in _PARTS_OF_TEXT and name not in _HOLDERS:
            found.other = found.other or f"{where}.{name[:40]}"


_HOLDERS_OF_GEMINI = ("contents", "systemInstruction", "content", "requests")
_HOLDERS = ("parts", "content", "functionResponse")
_PARTS_OF_TEXT = frozenset(
    {"text", "thought", "thoughtSignature", "functionCall", "executableCode",
     "codeExecutionResult", "role", "id", "name", "response", "model", "taskType", "title",
     "outputDimensionality", "willContinue", "scheduling"}
)  # fmt: skip


def _look(blocks: Sequence[Any], at: str, found: Media) -> None:
    for number, block in enumerate(blocks):
        if type(block) is dict:
            if type(block.get("content")) is str and "audio" not in block and "type" not in block:
                continue  # a message of text
        elif not isinstance(block, Mapping):
            continue
        kind = block.get("type")
        kind = kind if isinstance(kind, str) else None
        if kind is None and at != "input" and block.keys().isdisjoint(_OF_A_MESSAGE):
            _look_at_converse(block, f"{at}[{number}]", found)
            continue
        inside = _INSIDE.get(kind or "message")
        if kind is None and at == "input" and is_reference(block):
            found.other = found.other or f"{at}[{number}] (a reference)"
            continue
        if kind in _IMAGES:
            found.images += 1
            found.data += _inline(block)
        elif inside is not None:
            if block.get("audio") is not None:
                found.other = found.other or f"{at}[{number}].audio"
            value = block.get(inside)
            if isinstance(value, Mapping):
                value = [value]
            if isinstance(value, (list, tuple)):
                _look(value, f"{at}[{number}].{inside}", found)
        elif kind == "document" and _source(block) in ("text", "content"):
            value = block["source"].get("content")
            if isinstance(value, (list, tuple)):
                _look(value, f"{at}[{number}].source.content", found)
        elif kind not in _TEXTUAL:
            found.other = found.other or f'{at}[{number}] (type "{str(kind)[:40]}")'
            if kind == "tool_addition" and (tool := member_at(block, "tool.definition")):
                found.tools = (*found.tools, tool)


def _look_at_converse(block: Mapping[str, Any], at: str, found: Media) -> None:
    """Add the media in a block of Converse, which names its kind by its only member."""
    for name, value in block.items():
        data = member_at(value, "source.bytes")
        if name == "image" and isinstance(data, str):
            found.images += 1
            found.data += len(data)
        elif name == "toolResult" and isinstance(inner := member_at(value, "content"), list):
            _look(inner, f"{at}.{name}.content", found)
        elif name not in _TEXTS_OF_CONVERSE:
            found.other = found.other or f"{at}.{str(name)[:40]}"


def _source(block: Mapping[str, Any]) -> Any:
    source = block.get("source")
    return source.get("type") if isinstance(source, Mapping) else None


def _inline(block: Mapping[str, Any]) -> int:
    """Return the bytes of an image that the body contains."""
    source, url = block.get("source"), block.get("image_url") or block.get("result")
    if isinstance(url, Mapping):
        url = url.get("url")
    data = source.get("data") if isinstance(source, Mapping) else None
    if data is None and (block.get("result") or (isinstance(url, str) and url[:5] == "data:")):
        data = url
    return len(data) if isinstance(data, str) else 0
