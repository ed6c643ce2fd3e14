"""Plain lines of the messages and answers of a call over HTTP, in any dialect.

The record holds bodies in their wire format. The shapes of the dialects do not overlap, so one
reader serves all; unknown items are shown unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from remit.views.wording import is_missing

_LONGEST_DATA = 200  # longer texts without a space are data, of which only the length is shown
_DEEPEST = 100
_MEDIA = frozenset(
    {"image", "image_url", "input_image", "document", "file", "input_file", "input_audio", "audio"}
)
_OURS = frozenset({"function_call", "custom_tool_call", "reasoning"})  # items that a model makes
_TEXTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})


class Line(NamedTuple):
    """A message, or a part of a message.

    Attributes:
        role: the speaker, such as ``user``.
        label: kind of the part; empty for plain text.
        content: a text, or data.
    """

    role: str
    label: str
    content: Any


def said(call: Mapping[str, Any]) -> list[Line]:
    """Return the lines of a call's request: system prompt, then messages or input, in order.

    Without a system prompt and prompt there are no lines. A message without a role is the user's.
    Data of over 200 characters without a space, outside of plain text, is replaced by its length;
    erased content gives its marker.

    Args:
        call: a step of a journey, or the metadata of an ``EXCHANGE``.
    """
    lines: list[Line] = []
    if call.get("system") is not None:
        lines += _message("system", call["system"])
    for item in _listed(call.get("prompt")):
        lines += _item(item, "user")
    return lines


def answered(call: Mapping[str, Any]) -> list[Line]:
    """Return the lines of a call's answer, in any dialect: text, thinking, tool calls, refusals,
    sources.

    Data of over 200 characters without a space is replaced by its length; an answer of an unknown
    form is one line with its data, said by the provider if the call failed. Empty without an
    answer; erased content gives one line with its marker.

    Args:
        call: a step of a journey, or the metadata of an ``EXCHANGE``.
    """
    answer = call.get("answer")
    failed = call.get("outcome", "success") != "success"
    speaker = "provider" if failed else "assistant"
    if not isinstance(answer, dict) or is_missing(answer):
        return [] if answer is None else [Line(speaker, "", answer)]
    if isinstance(choices := answer.get("choices"), list):  # chat and completions
        return [line for choice in choices for line in _choice(choice, len(choices) > 1)]
    if isinstance(output := answer.get("output"), list):  # responses
        return [line for item in output for line in _item(item, "assistant")]
    if isinstance(candidates := answer.get("candidates"), list):  # Gemini
        contents = [one.get("content") if isinstance(one, dict) else one for one in candidates]
        return [line for content in contents for line in _message("assistant", content)]
    if "content" in answer:  # messages
        return list(_message(str(answer.get("role") or "assistant"), answer["content"]))
    if isinstance(data := answer.get("data"), list):  # embeddings, images
        return [Line("assistant", "data", _short(item)) for item in data]
    return [Line(speaker, "", _short(answer))]


def asked(call: Mapping[str, Any]) -> Any:
    """Return the user's last text in a call's request; ``None`` if there is none.

    Args:
        call: a step of a journey, or the metadata of an ``EXCHANGE``.
    """
    found = [line for line in said(call) if line.role == "user" and not line.label]
    return found[-1].content if found else None


def _choice(choice: Any, several: bool) -> Iterator[Line]:
    if not isinstance(choice, dict):
        yield Line("assistant", "", choice)
        return
    message = choice.get("message")
    said_here: Iterable[Line]
    if isinstance(message, dict):
        said_here = _item(message, "assistant")
    else:
        said_here = [Line("assistant", "", choice.get("text", _short(choice)))]
    number = f"choice {choice.get('index', '?')}" if several else ""
    for line in said_here:
        yield line._replace(label=" ".join(part for part in (number, line.label) if part))


def _item(item: Any, role: str) -> Iterator[Line]:
    """A message, or an item of a response's input or output."""
    if not isinstance(item, dict) or is_missing(item):
        yield Line(role, "", item)
        return
    kind = item.get("type")
    if "role" not in item and "parts" not in item and kind != "message":
        yield from _block(item, role)
        return
    role = str(item.get("role") or role)
    for key in ("reasoning_content", "reasoning"):
        if isinstance(item.get(key), str):
            yield Line(role, "thinking", item[key])
    if "parts" in item:  # Gemini
        yield from _message("assistant" if role == "model" else role, item)
    elif role in ("tool", "function"):
        yield Line(role, "result", _joined(item.get("content")))
    else:
        yield from _message(role, item.get("content"))
    if item.get("refusal"):
        yield Line(role, "refuses", item["refusal"])
    if sources := item.get("annotations"):
        yield Line(role, "sources", _sources(sources))
    if isinstance(audio := item.get("audio"), dict):
        yield Line(role, "audio", audio.get("transcript") or _short(audio))
    calls = _listed(item.get("tool_calls")) + _listed(item.get("function_call"))
    for call in calls:
        yield from _called(call, role)


def _called(call: Any, role: str) -> Iterator[Line]:
    """Yield the line of a chat's call of a function or custom tool."""
    fields = call if isinstance(call, dict) else {}
    kinds = (fields.get("function"), fields.get("custom"))
    inner = next((kind for kind in kinds if isinstance(kind, dict)), fields)
    given = inner.get("arguments", inner.get("input"))
    if given is None:
        yield Line(role, "calls a tool", _short(call))
    else:
        yield Line(role, f"calls {inner.get('name', 'a tool')}", given)


def _message(role: str, content: Any) -> Iterator[Line]:
    if content is None or content == "":
        return
    if isinstance(content, dict) and "parts" in content:  # Gemini
        for part in _listed(content["parts"]):
            yield _part(part, role)
        return
    if not isinstance(content, list):
        yield Line(role, "", content)
        return
    for block in content:
        yield from _block(block, role)


def _part(part: Any, role: str) -> Line:
    """Return the line of a part of Gemini's contents."""
    if not isinstance(part, dict) or is_missing(part):
        return Line(role, "", part)
    if isinstance(call := part.get("functionCall"), dict):
        return Line(role, f"calls {call.get('name', 'a tool')}", call.get("args"))
    if isinstance(result := part.get("functionResponse"), dict):
        return Line("tool", "result", _short(result.get("response")))
    if isinstance(text := part.get("text"), str):
        return Line(role, "thinking" if part.get("thought") else "", text)
    return Line(role, next(iter(part), ""), _short(part))


def _block(block: Any, role: str) -> Iterator[Line]:
    if not isinstance(block, dict) or is_missing(block):
        yield Line(role, "", block)
        return
    kind = str(block.get("type") or "")
    if kind in _OURS or kind.endswith("_call"):
        role = "assistant"
    if kind in _TEXTS:
        yield Line(role, "", block.get("text", ""))
        if sources := block.get("citations") or block.get("annotations"):
            yield Line(role, "sources", _sources(sources))
    elif kind == "thinking":
        yield Line(role, "thinking", block.get("thinking") or "(kept by the provider)")
    elif kind == "reasoning":
        parts = [*_listed(block.get("summary")), *_listed(block.get("content"))]
        yield Line(role, "thinking", _joined(parts) if parts else "(kept by the provider)")
    elif kind == "redacted_thinking":
        yield Line(role, "thinking", "(kept by the provider)")
    elif kind == "refusal":
        yield Line(role, "refuses", block.get("refusal", ""))
    elif kind in ("function_call", "custom_tool_call") or kind.endswith("tool_use"):
        yield from _called(block, role)
    elif kind.endswith(("_output", "tool_result")):
        label = "failed result" if block.get("is_error") else "result"
        yield Line("tool", label, _joined(block.get("output", block.get("content"))))
    elif kind in _MEDIA:
        yield Line(role, kind.removeprefix("input_").removesuffix("_url"), _short(block))
    else:
        yield Line(role, kind, _short(block))


def _joined(content: Any) -> Any:
    """Return the joined text of blocks that are all text; otherwise the blocks."""
    if not isinstance(content, list):
        return _short(content) if isinstance(content, dict) else content
    texts = [
        block["text"]
        for block in content
        if isinstance(block, dict)
        and block.get("type") in _TEXTS
        and isinstance(block.get("text"), str)
    ]
    return "\n".join(texts) if len(texts) == len(content) else _short(content)


def _sources(sources: Any) -> Any:
    """Return the sources of an answer, each on a line."""
    return "\n".join(map(_source, sources)) if isinstance(sources, list) else sources


def _source(source: Any) -> str:
    fields = source if isinstance(source, dict) else {}
    if isinstance(inner := fields.get("url_citation"), dict):
        fields = inner
    named = [fields.get(key) for key in
             ("title", "document_title", "filename", "url", "cited_text", "file_id")]  # fmt: skip
    return " ".join(text for text in named if isinstance(text, str)) or str(_short(source))


def _short(value: Any, depth: int = 0) -> Any:
    """``value`` with long data (a picture, a signature, a vector) replaced by its length."""
    if depth > _DEEPEST:
        return "(nested too deep to be shown)"
    if isinstance(value, str):
        if len(value) > _LONGEST_DATA and " " not in value[:_LONGEST_DATA]:
            return f"({len(value):,} characters of data)"
        return value
    if isinstance(value, dict):
        return {key: _short(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        if len(value) > _LONGEST_DATA:
            return f"({len(value):,} values)"
        return [_short(item, depth + 1) for item in value]
    return value


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]
