"""Neutral messages and tools in the form of the Messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remit.kernel.exchange import Message, text_of
from remit.providers.dialects.call import Dialect, DialectError

__all__ = ["anthropic_messages", "anthropic_tools"]

_ONLY_OPENAI = frozenset(("image_url", "input_audio", "file", "video_url", "audio_url"))
_KNOWN_TO_BOTH = frozenset(("document", "search_result", "thinking", "redacted_thinking"))
_IMAGE_SOURCE = {"url": ("type", "url"), "base64": ("type", "media_type", "data")}


def anthropic_messages(
    messages: Sequence[Message], *, source: Dialect = "anthropic"
) -> tuple[str | list[dict[str, Any]], list[dict[str, Any]]]:
    """Neutral messages as ``system`` and ``messages`` of the Messages API.

    ``system`` is one text where all of it is plain text (empty where there is none), else
    text blocks. Neighbours of one role are joined.

    Args:
        messages: as in :mod:`remit.kernel.exchange`.
        source: the dialect that their unknown keys come from. Those of the other dialect
            (``name``, an image's ``detail``) and empty texts are left out, which the API
            would refuse; a ``refusal`` becomes text.

    Raises:
        DialectError: a block has no form in the Messages API.
    """
    own = source == "anthropic"
    prompts: list[tuple[str, Any]] = []
    turns: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role, content = message["role"], message["content"]
        if role == "system" and not (own and message.get("inline") is True):
            prompts.append((where, content))
            continue
        if not own:
            content = _translated(message, content, where)
            if not content:
                continue
        elif not isinstance(content, str):
            _check_known(content, where)
        turn = {"role": role, "content": content}
        if own and len(message) > 2:
            more = ("role", "content", "inline", "developer")
            turn |= {key: value for key, value in message.items() if key not in more}
        last = turns[-1] if turns else None
        if last is not None and last["role"] == role and len(last) == len(turn) == 2:
            last["content"] = [*_blocks(last["content"]), *_blocks(content)]
        else:
            turns.append(turn)
    return _system(prompts, own), turns


def anthropic_tools(
    tools: Sequence[Mapping[str, Any]], *, source: Dialect = "anthropic"
) -> list[dict[str, Any]]:
    """Neutral tools as the ``tools`` of the Messages API.

    Args:
        tools: ``{"name", "description"?, "input_schema", …}``.
        source: the dialect that their unknown keys come from; of the other one only
            ``strict`` and ``cache_control`` are kept.

    Raises:
        DialectError: a tool has no form in the Messages API.
    """
    own = source == "anthropic"
    return [_tool(tool, f"tools[{index}]", own) for index, tool in enumerate(tools)]


def _system(prompts: list[tuple[str, Any]], own: bool) -> str | list[dict[str, Any]]:
    plain = True
    for where, content in prompts:
        for block in () if isinstance(content, str) else content:
            if block["type"] != "text":
                raise DialectError(
                    f"{where} is a system prompt that is not text, "
                    "which is all that the Messages API takes there.",
                    param=where,
                )
            plain = plain and not (set(block) - {"type", "text"} if own else _hint(block))
    if plain:
        texts = [text_of(content) for _, content in prompts]
        return "\n\n".join([text for text in texts if text])
    blocks = [block for _, content in prompts for block in _blocks(content)]
    return [
        dict(block) if own else {"type": "text", "text": block["text"], **_hint(block)}
        for block in blocks
        if block["text"] or own
    ]


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _hint(block: Mapping[str, Any]) -> dict[str, Any]:
    """The one key of OpenAI's clients beside the block's own that Anthropic knows."""
    hint = block.get("cache_control")
    return {} if hint is None else {"cache_control": hint}


def _check_known(content: Sequence[Any], where: str) -> None:
    for index, block in enumerate(content):
        if block["type"] in _ONLY_OPENAI:
            raise _foreign(f"{where}.content[{index}]")


def _foreign(where: str) -> DialectError:
    return DialectError(
        f"{where} is a part that the Messages API does not have.",
        param=where,
        next_step="Use a model of a provider that speaks Chat Completions, or leave it out.",
    )


def _translated(message: Message, content: Any, where: str) -> str | list[dict[str, Any]]:
    """Content that came from Chat Completions; empty where nothing of it is left."""
    if message.get("audio") is not None:
        raise _foreign(f"{where}.audio")
    refusal = message.get("refusal")
    if isinstance(content, str) and not refusal:
        return content
    blocks: list[dict[str, Any]] = []
    for index, block in enumerate(_blocks(content)):
        translated = _block(block, f"{where}.content[{index}]")
        if translated is not None:
            blocks.append(translated)
    if isinstance(refusal, str) and refusal:
        blocks.append({"type": "text", "text": refusal})
    return blocks


def _block(block: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    kind = block["type"]
    if kind in ("text", "refusal"):
        text = block.get(kind)
        return {"type": "text", "text": text, **_hint(block)} if text else None
    if kind == "image":
        return {"type": "image", "source": _source(block["source"], where), **_hint(block)}
    if kind == "tool_use":
        keys = ("type", "id", "name", "input")
        return {**{key: block[key] for key in keys}, **_hint(block)}
    if kind == "tool_result":
        content = block["content"]
        if not isinstance(content, str):
            translated = (
                _block(part, f"{where}.content[{index}]") for index, part in enumerate(content)
            )
            content = [part for part in translated if part is not None]
        result = {"type": kind, "tool_use_id": block["tool_use_id"], "content": content}
        if "is_error" in block:
            result["is_error"] = block["is_error"]
        return {**result, **_hint(block)}
    if kind in _KNOWN_TO_BOTH:
        return dict(block)
    raise _foreign(where)


def _source(source: Mapping[str, Any], where: str) -> dict[str, Any]:
    kind = source.get("type")
    if kind == "url" and not str(source.get("url")).startswith(("https://", "http://")):
        raise DialectError(
            f"{where} is an image whose URL is neither http(s) nor base64 data.", param=where
        )
    keys = _IMAGE_SOURCE.get(str(kind))
    return {key: value for key, value in source.items() if keys is None or key in keys}


def _tool(tool: Mapping[str, Any], where: str, own: bool) -> dict[str, Any]:
    if "input_schema" not in tool:
        if own and "custom" not in tool and "function" not in tool:
            return dict(tool)
        raise DialectError(
            f"{where} is a tool that the Messages API does not have.",
            param=where,
            next_step="Use tools of the type 'function'.",
        )
    if own:
        return dict(tool)
    schema = tool["input_schema"]
    wire: dict[str, Any] = {"name": tool["name"]}
    if "description" in tool:
        wire["description"] = tool["description"]
    wire["input_schema"] = schema if "type" in schema else {"type": "object", **schema}
    if isinstance(tool.get("strict"), bool):
        wire["strict"] = tool["strict"]
    return wire | _hint(tool)
