"""Bodies of ``POST /v1/chat/completions``, read into the neutral form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.kernel.exchange import Message
from remit.providers.dialects import _checks as checks
from remit.providers.dialects.errors import DialectError
from remit.providers.dialects.media import document_block, source_of_url
from remit.providers.dialects.model_call import ModelCall, Reasoning
from remit.providers.dialects.seals import thought_seal
from remit.providers.dialects.tool_calls import input_of, read_arguments
from remit.providers.dialects.tool_choice import (
    read_choice,
    read_response_format,
    read_stop,
    read_tool,
)

ENDPOINT = "openai.chat"
_KNOWN = {
    "": frozenset(
        ("model", "messages", "max_tokens", "max_completion_tokens", "temperature", "tools",
         "tool_choice", "parallel_tool_calls", "response_format", "stop", "top_p", "top_k",
         "reasoning_effort", "reasoning", "thinking", "user", "stream", "web_search_options",
         "functions", "function_call", "stream_options")
    ),
    "messages[]": frozenset(
        ("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio", "annotations",
         "reasoning_content", "reasoning", "reasoning_details", "cache_control", "function_call")
    ),
    "messages[].content[]": frozenset(
        ("type", "text", "refusal", "image_url", "file", "cache_control", "input_audio",
         "video_url")
    ),
    "messages[].content[].image_url": frozenset(("url", "detail")),
    "messages[].content[].file": frozenset(("file_data", "file_id", "filename")),
    "messages[].tool_calls[]": frozenset(
        ("id", "type", "function", "custom", "index", "extra_content")
    ),
    "messages[].tool_calls[].function": frozenset(("name", "arguments")),
    "tools[]": frozenset(("type", "function", "custom", "cache_control")),
    "tools[].function": frozenset(("name", "description", "parameters", "strict", "cache_control")),
    "tools[].custom": frozenset(("name", "description", "format")),
    "thinking": frozenset(("type", "budget_tokens", "display", "effort")),
    "reasoning": frozenset(("effort", "max_tokens", "enabled", "exclude", "summary")),
}  # fmt: skip
_PAYLOADS = {name: (name,) for name in
             ("text", "refusal", "image_url", "file", "input_audio", "video_url")}  # fmt: skip
_FUNCTIONS = {"function": ("function",), "custom": ("custom",)}
_ROLES = ("user", "assistant", "system", "developer", "tool")
_USE_TOOLS = "Use tools and tool_calls, which took its place."


def read_request(body: Any) -> ModelCall:
    """Return a body of Chat Completions in neutral form.

    Fields that the neutral form does not have are in ``other``, unread members in ``dropped``.

    Raises:
        DialectError: the body is invalid, or uses the functions that came before tools.
    """
    body = checks.checked_body(body)
    for key in ("functions", "function_call"):
        if body.get(key) is not None:
            raise DialectError(f"{key} is not supported.", param=key, next_step=_USE_TOOLS)
    limit = checks.max_tokens(body, "max_completion_tokens")
    older = checks.max_tokens(body, "max_tokens")
    options = checks.optional(body, "stream_options", dict) or {}
    usage = checks.optional(options, "include_usage", bool, "stream_options")
    return ModelCall(
        **checks.read_common(body, ENDPOINT, _KNOWN),
        messages=_messages(body.get("messages")),
        max_tokens=older if limit is None else limit,
        tools=_tools(body),
        tool_choice=read_choice(body.get("tool_choice"), nested=True),
        parallel_tools=checks.optional(body, "parallel_tool_calls", bool),
        response_format=read_response_format(body, "response_format", "", nested=True),
        stop=read_stop(body.get("stop"), "stop"),
        top_k=checks.number(body, "top_k"),
        reasoning=_reasoning(body),
        user=checks.optional(body, "user", str),
        include_usage=usage or False,
    )


def _reasoning(body: dict[str, Any]) -> Reasoning | None:
    """Return the requested thinking; ``None`` if the body requests none.

    The fields are ``reasoning_effort``, and Anthropic's ``thinking`` or OpenRouter's
    ``reasoning``, which clients add to the body.
    """
    effort = checks.optional(body, "reasoning_effort", str) or None
    thinking = checks.optional(body, "thinking", dict)
    if thinking is not None:
        kind = checks.text(thinking, "type", "thinking")
        if kind == "disabled":
            return Reasoning(effort=effort or "none")
        if "budget_tokens" in thinking:
            tokens = checks.required(thinking, "budget_tokens", int, "thinking")
            return Reasoning(effort=effort, budget_tokens=tokens)
        own = checks.optional(thinking, "effort", str, "thinking") or None
        return Reasoning(effort=effort or own, adaptive=True)
    wanted = checks.optional(body, "reasoning", dict)
    if wanted is None:
        return Reasoning(effort=effort) if effort else None
    effort = effort or checks.optional(wanted, "effort", str, "reasoning") or None
    if wanted.get("enabled") is False:
        return Reasoning(effort="none")
    budget = checks.optional(wanted, "max_tokens", int, "reasoning")
    summary = "omitted" if wanted.get("exclude") is True else None
    if effort is None and budget is None and wanted.get("enabled") is not True:
        return None
    return Reasoning(effort, budget, summary, adaptive=effort is None and budget is None)


def _messages(items: Any) -> list[Message]:
    if type(items) is not list or not items:
        raise checks.refuse("is not a non-empty list", "messages")
    messages: list[Message] = []
    results: list[dict[str, Any]] | None = None
    for item, where in checks.objects(items, "messages"):
        if item.get("role") == "function":
            at = f"{where}.role"
            raise DialectError(f"{at} `function` is not supported.", param=at, next_step=_USE_TOOLS)
        role = checks.role_of(item, _ROLES, where)
        if role == "tool":
            if results is None:
                results = []
                messages.append({"role": "user", "content": results})
            content = _content(item, where)
            identity = checks.text(item, "tool_call_id", where)
            result = {"type": "tool_result", "tool_use_id": identity, "content": content}
            results.append(checks.with_hint(result, item))
            continue
        results = None
        if role == "assistant":
            messages.append({"role": role, "content": _said(item, where)})
            continue
        message: Message = {"role": role, "content": _hinted(item, _content(item, where))}
        if role == "developer":
            message |= {"role": "system", "developer": True}
        if name := checks.optional(item, "name", str, where):
            message["name"] = name
        messages.append(message)
    return messages


def _hinted(item: dict[str, Any], content: str | list[Any]) -> str | list[Any]:
    """Return a message's content; a ``cache_control`` of the message goes to its last part."""
    hint = item.get("cache_control")
    if not isinstance(hint, dict) or not content:
        return content
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [*parts[:-1], {"cache_control": hint, **parts[-1]}]


def _content(item: dict[str, Any], where: str) -> str | list[dict[str, Any]]:
    return checks.content(item.get("content"), f"{where}.content", _part, _PAYLOADS)


def _said(item: dict[str, Any], where: str) -> str | list[Any]:
    """Return an assistant message's content: thinking, text, refusal, calls, in this order.

    Raises:
        DialectError: the message has the old ``function_call``, or a malformed part.
    """
    if item.get("function_call") is not None:
        at = f"{where}.function_call"
        raise DialectError(f"{at} is not supported.", param=at, next_step=_USE_TOOLS)
    content: str | list[Any] = "" if item.get("content") is None else _content(item, where)
    content = _hinted(item, content)
    is_text = isinstance(content, str)
    said = [{"type": "text", "text": content}] if is_text and content else [*content]
    blocks = [*thoughts_in(item), *said]
    if refusal := checks.optional(item, "refusal", str, where):
        blocks.append({"type": "refusal", "refusal": refusal})
    if cited := citations_in(item.get("annotations")):
        for block in blocks:
            if block["type"] == "text":
                block["citations"] = cited
                is_text = False
                break
    if item.get("audio") is not None:
        blocks.append(checks.other(ENDPOINT, item["audio"], f"{where}.audio"))
    calls = checks.optional(item, "tool_calls", list, where)
    for number, call in enumerate(calls or ()):
        block = read_call(call, f"{where}.tool_calls[{number}]")
        if seal := thought_seal(call):
            blocks.append(seal)
        blocks.append(block)
    return content if is_text and len(blocks) == len(said) else blocks


def _part(part: dict[str, Any], kind: str, where: str) -> dict[str, Any]:
    block: dict[str, Any]
    if kind in ("text", "refusal"):
        block = {"type": kind, kind: checks.text(part, kind, where, empty=True)}
    elif kind == "image_url":
        at, image = f"{where}.image_url", part.get("image_url")
        if type(image) is str:  # Some servers and clients send a plain URL.
            image = {"url": image}
        image = checks.checked_object(image, at)
        block = {"type": "image", "source": source_of_url(checks.text(image, "url", at))}
        block["at"] = where
        if isinstance(image.get("detail"), str):
            block["detail"] = image["detail"]
    elif kind == "file":
        block = document_block(checks.required(part, kind, dict, where), f"{where}.file")
    else:
        return checks.other(ENDPOINT, part, where)
    return checks.with_hint(block, part)


def read_call(call: Any, where: str, own_id: str = "") -> dict[str, Any]:
    """Return a tool call in neutral form.

    Args:
        call: the call.
        where: its place, for errors.
        own_id: the id of a call of an answer. Its name may be empty, and its arguments absent or an
            object, as some servers write them. Empty for a call in a request.

    Raises:
        DialectError: the call is malformed.
    """
    kind = checks.checked_object(call, where).get("type", "function")
    if kind not in ("function", "custom"):
        raise checks.refuse("is neither 'function' nor 'custom'", f"{where}.type")
    if not own_id:
        checks.check_payload(call, kind, where, _FUNCTIONS)
    called, at = checks.required(call, kind, dict, where), f"{where}.{kind}"
    identity = own_id or checks.text(call, "id", where)
    name = checks.text(called, "name", at, empty=bool(own_id))
    block = {"type": "tool_use", "id": identity, "name": name}
    if kind == "custom":
        value = {"input": checks.text(called, "input", at, empty=True)}
        return {**block, "input": value, "custom": True}
    if own_id:
        return {**block, "input": input_of(called.get("arguments"))}
    return {**block, "input": read_arguments(checks.text(called, "arguments", at, empty=True))}


def thoughts_in(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a message's thinking as a list of one block; empty without thinking.

    The text is that of ``reasoning_content``, else of ``reasoning``, else of OpenRouter's
    ``reasoning_details``. These are a part of the block, since OpenRouter wants them back.
    """
    thought = message.get("reasoning_content") or message.get("reasoning")
    details = message.get("reasoning_details")
    block: dict[str, Any] = {"type": "thinking", "thinking": "", "raw": True}
    if isinstance(details, list) and details:
        block["details"] = details
        block["thinking"] = "".join(
            str(part.get("text") or part.get("summary") or "")
            for part in details
            if isinstance(part, dict)
        )
    if isinstance(thought, str) and thought:
        block["thinking"] = thought
    return [block] if block["thinking"] or "details" in block else []


def citations_in(noted: Any) -> list[dict[str, Any]]:
    """Return a message's ``annotations`` as citations of its text."""
    return [
        {"type": "url_citation", **note["url_citation"]}
        for note in (noted if isinstance(noted, list) else ())
        if isinstance(note, dict) and isinstance(note.get("url_citation"), dict)
    ]


def _tools(body: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    items = checks.optional(body, "tools", list) or []
    tools = [read_tool(tool, f"tools[{index}]", nested=True) for index, tool in enumerate(items)]
    search = checks.optional(body, "web_search_options", dict)
    if search is not None:
        at = "web_search_options"
        tool: dict[str, Any] = {"type": "web_search", "at": at}
        place = checks.optional(search, "user_location", dict, at)
        if place is not None:
            near = checks.required(place, "approximate", dict, f"{at}.user_location")
            tool["user_location"] = {"type": "approximate", **near}
        if "search_context_size" in search:
            tool["search_context_size"] = search["search_context_size"]
        tools.append(tool)
    return tuple(tools)
