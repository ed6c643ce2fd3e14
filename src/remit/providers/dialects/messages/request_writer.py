"""Calls in neutral form as bodies of ``POST /v1/messages``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remit.kernel.exchange import text_of
from remit.providers.dialects.effort import messages_thinking, takes_both, takes_sampling
from remit.providers.dialects.errors import (
    DialectError,
    cannot,
    foreign_part,
    leave_out_rest,
    words_of,
)
from remit.providers.dialects.media import messages_source
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.schemas import flat_schema, messages_schema
from remit.providers.dialects.tool_calls import (
    ASIDE,
    OPENING,
    ToolNames,
    free_text,
    in_rounds,
    wire_id,
)  # fmt: skip
from remit.providers.dialects.tool_choice import described, offered

_ANY_JSON = "Answer with one JSON object and nothing else: no words around it, no code fence."
_WARMEST = 1.0
_MIN_TOP_P_WITH_THINKING = 0.95
_MOST_HINTS = 4
_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
_SEARCH_KEYS = ("allowed_domains", "blocked_domains", "user_location", "max_uses")


def write_request(call: ModelCall, *, model: str, max_output_tokens: int) -> dict[str, Any]:
    """Return a call of another dialect as a body of the Messages API.

    Fields that the body cannot have are noted in the call's ``dropped``; those whose absence would
    change the answer are refused. The arguments are those of
    :func:`~remit.providers.dialects.translators.write_request`.

    Raises:
        DialectError: the Messages API cannot express the call.
    """
    searches = any(tool.get("type") == "web_search" for tool in call.tools)
    leave_out_rest(call, ("max_tool_calls",) if searches else ())
    names = ToolNames(call)
    limit = call.max_tokens or max_output_tokens
    body: dict[str, Any] = {"model": model, "max_tokens": limit}
    # The neutral form is near this API's: what callers in Python add to it may be the API's own.
    native = not call.endpoint
    system, turns = _conversation(call, names, native)
    if system:
        body["system"] = system
    body["messages"] = turns
    if call.stop:
        if not all(text.strip() for text in call.stop if text):
            raise DialectError("stop holds a text of white space alone.", param="stop")
        if stops := [text for text in call.stop if text]:
            body["stop_sequences"] = stops
        if len(stops) < len(call.stop):
            call.drop("stop")
    body |= tool_fields(call, names, native=native)
    _add_sampling(call, body, model)
    config = _thinking(call, body, model, limit)
    if call.response_format is not None and call.response_format.schema is not None:
        held = messages_schema(call.response_format.schema)
        config["format"] = {"type": "json_schema", "schema": held}
        if call.response_format.description:
            call.drop("response_format.description")
    if config:
        body["output_config"] = config
    if call.user:
        body["metadata"] = {"user_id": call.user}
    if call.stream:
        body["stream"] = True
    _limit_hints(call, body)
    return body


def _add_sampling(call: ModelCall, body: dict[str, Any], model: str) -> None:
    takes = takes_sampling(model)
    for name in ("temperature", "top_p", "top_k"):
        if (value := getattr(call, name)) is None:
            continue
        if name == "temperature" and value > _WARMEST:  # OpenAI's scale goes further
            call.drop(name)
            value = _WARMEST
        if takes:
            body[name] = value
        elif not (value == 1.0 and name != "top_k"):
            call.drop(name)
    if "temperature" in body and "top_p" in body and not takes_both(model):
        if body["temperature"] == _WARMEST:  # the default
            del body["temperature"]
        else:
            del body["top_p"]
            call.drop("top_p")


def _thinking(call: ModelCall, body: dict[str, Any], model: str, limit: int) -> dict[str, Any]:
    """Add ``thinking`` to the body; return the part that goes into ``output_config``."""
    wanted = call.reasoning
    if wanted is None:
        return {}
    said = messages_thinking(wanted, model, limit)
    thinking = said.get("thinking")
    if thinking is not None:
        # The API refuses thinking with a forced tool. It also refuses thinking in a round of
        # tool calls that began without thinking.
        forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
        if forced or (thinking["type"] == "enabled" and in_plain_round(body["messages"])):
            thinking = None
    if thinking is None and wanted.effort != "none" and "effort" not in said:
        call.drop("reasoning")
    if thinking is not None:
        body["thinking"] = thinking
        for name in ("temperature", "top_k"):
            if body.pop(name, None) is not None:
                call.drop(name)
        if body.get("top_p", 1.0) < _MIN_TOP_P_WITH_THINKING:
            del body["top_p"]
            call.drop("top_p")
    return {"effort": said["effort"]} if "effort" in said else {}


def _limit_hints(call: ModelCall, body: dict[str, Any]) -> None:
    """Remove all but the last four ``cache_control`` members, as the API takes no more."""
    hinted = [tool for tool in body.get("tools", ()) if "cache_control" in tool]
    groups = [body.get("system"), *(turn["content"] for turn in body["messages"])]
    for blocks in groups:
        for block in blocks if isinstance(blocks, list) else ():
            inner = block.get("content") if block.get("type") == "tool_result" else None
            for one in (*(inner if isinstance(inner, list) else ()), block):
                if "cache_control" in one:
                    hinted.append(one)
    for block in hinted[:-_MOST_HINTS]:
        del block["cache_control"]
        call.drop("cache_control")


def in_plain_round(turns: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if the last turn gives results to calls that no thinking came before.

    Args:
        turns: the turns; they may be a client's own, with any content.
    """
    if len(turns) < 2 or "tool_result" not in _kinds(turns[-1], "user"):
        return False
    return not {"thinking", "redacted_thinking"} & {*_kinds(turns[-2], "assistant")[:1]}


def _kinds(turn: Any, role: str) -> list[str]:
    """Return the types of a turn's blocks, or nothing if another speaks or it has none."""
    content = turn.get("content") if isinstance(turn, dict) and turn.get("role") == role else None
    if not isinstance(content, list):
        return []
    return [str(block.get("type")) if isinstance(block, dict) else "" for block in content]


def _conversation(
    call: ModelCall, names: ToolNames, native: bool
) -> tuple[str | list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the system prompt and the turns.

    System prompts at the start become the system prompt. Later ones become marked text of the
    user's turn at their place, because the API has no such role there.
    """
    messages = in_rounds(call.messages)
    leading = 0
    while leading < len(messages) and messages[leading]["role"] == "system":
        leading += 1
    if leading == len(messages) and not native:
        leading -= 1  # The API demands a turn.
    turns: list[dict[str, Any]] = []
    for index in range(leading, len(messages)):
        role, content = messages[index]["role"], messages[index]["content"]
        if role == "system":
            text = "\n\n".join(block["text"] for block in _system_texts(messages[index], index))
            role = "user"
            content = text if leading + 1 == len(messages) else ASIDE.format(text)
        elif not isinstance(content, str):
            where = f"messages[{index}]"
            read = (
                _block(call, block, f"{where}.content[{at}]", names, native)
                for at, block in enumerate(content)
            )
            content = [block for block in read if block is not None]
        if not content or (isinstance(content, str) and not content.strip()):
            continue  # the API takes no empty turn
        last = turns[-1] if turns else None
        if last is not None and last["role"] == role:
            last["content"] = [*_blocks(last["content"]), *_blocks(content)]
        else:
            turns.append({"role": role, "content": content})
    for turn in turns:
        if turn["role"] == "user" and not isinstance(turn["content"], str):
            # Results come first, or the API takes the calls for unanswered.
            turn["content"].sort(key=lambda block: block["type"] != "tool_result")
    if not native and (not turns or turns[0]["role"] == "assistant"):
        turns.insert(0, {"role": "user", "content": OPENING})
    if turns and turns[-1]["role"] == "assistant":
        _trim(turns[-1])
    return _system(call, messages[:leading]), turns


def _trim(turn: dict[str, Any]) -> None:
    """Remove white space at the end of a last assistant turn, which the API refuses."""
    content = turn["content"]
    if isinstance(content, str):
        turn["content"] = content.rstrip()
    elif content[-1]["type"] == "text":
        content[-1]["text"] = content[-1]["text"].rstrip()


def _system(call: ModelCall, messages: Sequence[Mapping[str, Any]]) -> str | list[dict[str, Any]]:
    """Return all system prompts: one text if they are only text, else blocks."""
    blocks: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        content = _system_texts(message, index)
        if any("cache_control" in block for block in content):
            blocks += [_text(block) for block in content if block["text"].strip()]
        elif text := text_of(content):
            blocks.append({"type": "text", "text": text})
    if call.response_format is not None and call.response_format.schema is None:
        blocks.append({"type": "text", "text": _ANY_JSON})
    if any("cache_control" in block for block in blocks):
        return blocks
    return "\n\n".join([block["text"] for block in blocks])


def _system_texts(message: Mapping[str, Any], index: int) -> list[dict[str, Any]]:
    """Return the text blocks of a system prompt.

    Raises:
        DialectError: a part is not text.
    """
    content = message["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    for block in content:
        if block["type"] != "text":
            where = str(block.get("at", f"messages[{index}]"))
            raise DialectError(
                f"{where} is in a system prompt and is not text, "
                "which is all that the Messages API takes there.",
                param=where,
            )
    return list(content)


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _text(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": block["text"], **_hint(block)}


def _hint(block: Mapping[str, Any]) -> dict[str, Any]:
    hint = block.get("cache_control")
    return {} if hint is None else {"cache_control": hint}


def _block(
    call: ModelCall, block: Mapping[str, Any], where: str, names: ToolNames, native: bool
) -> dict[str, Any] | None:
    kind = block["type"]
    if kind == "text":
        if not block["text"].strip():
            return None
        wire = _text(block)
        if "citations" in block:
            if native:
                wire["citations"] = block["citations"]
            else:
                call.drop("annotations")
        return wire
    if kind == "refusal":
        return {"type": "text", "text": block["refusal"]} if block["refusal"] else None
    if kind == "thinking":
        sealed = block.get("signature")
        if not sealed:
            call.drop("thoughts" if call.endpoint == "openai.chat" else "reasoning")
            return None  # not Anthropic's: it would be refused
        return {"type": kind, "thinking": block["thinking"], "signature": sealed}
    if kind == "redacted_thinking":
        return {"type": kind, "data": block["data"]}
    if kind in ("image", "document"):
        source = block["source"] if native else messages_source(block)
        extra = ("title", "context", "citations") if kind == "document" else ()
        more = {key: block[key] for key in extra if key in block}
        if block.get("detail", "auto") != "auto":
            call.drop("detail")
        return {"type": kind, "source": source, **more, **_hint(block)}
    if kind == "tool_use":
        custom = block.get("custom") is True
        value = {"input": free_text(block["input"])} if custom else block["input"]
        name = names.sent(block["name"])
        head = {"type": kind, "id": wire_id(block["id"]), "name": name, "input": value}
        return {**head, **_hint(block)}
    if kind == "tool_result":
        return _result(call, block, where, names, native)
    if kind == "server_tool":
        call.drop("web_search_call")
        return None  # a search that another provider made: only it can read it
    if kind != "other" and native:
        return dict(block)
    if kind == "other" and (words := words_of(block)) is not None:
        return {"type": "text", "text": words}
    raise foreign_part(block, where, "the Messages API")


def _result(
    call: ModelCall, block: Mapping[str, Any], where: str, names: ToolNames, native: bool
) -> dict[str, Any]:
    content = block["content"]
    if not isinstance(content, str):
        read = (
            _block(call, part, f"{where}.content[{at}]", names, native)
            for at, part in enumerate(content)
        )
        content = [part for part in read if part is not None]
    result = {
        "type": "tool_result",
        "tool_use_id": wire_id(block["tool_use_id"]),
        "content": content,
    }
    if block.get("is_error") is True:
        result["is_error"] = True
    return {**result, **_hint(block)}


def tool_fields(call: ModelCall, names: ToolNames, *, native: bool) -> dict[str, Any]:
    """Return ``tools`` and ``tool_choice``; empty without tools, as the API accepts no choice
    alone.

    A choice of allowed tools offers these alone. A search that must not use the web is left out.

    Args:
        call: the request.
        names: names of its tools.
        native: True if unknown tools may be the API's own.

    Raises:
        DialectError: only another provider has such a tool.
    """
    tools, choice = offered(call)
    wire = [
        written
        for index, tool in enumerate(tools)
        if (written := _tool(call, tool, f"tools[{index}]", names, native)) is not None
    ]
    if not wire:
        return {}
    fields: dict[str, Any] = {"tools": wire}
    if choice is not None:
        if choice["type"] == "other":
            choice = _hosted_choice(choice)
        elif choice["type"] == "tool":
            choice = {"type": "tool", "name": names.sent(choice["name"])}
        else:
            choice = {"type": choice["type"]}
    if call.parallel_tools is False:
        choice = choice or {"type": "auto"}
        if choice["type"] != "none":
            choice["disable_parallel_tool_use"] = True
    if choice is not None:
        fields["tool_choice"] = choice
    return fields


def _hosted_choice(choice: dict[str, Any]) -> dict[str, Any]:
    value = choice["value"]
    if str(value.get("type", "")).startswith("web_search"):
        return {"type": "tool", "name": _SEARCH["name"]}
    raise cannot("tool_choice", "a tool that only its own provider has")


def _tool(
    call: ModelCall, tool: dict[str, Any], where: str, names: ToolNames, native: bool
) -> dict[str, Any] | None:
    kind, where = tool.get("type"), str(tool.get("at", where))
    if kind == "web_search":
        if tool.get("external_web_access") is False:
            call.drop("tools[].web_search")
            return None  # no search of the web is wanted, and none is made
        if "search_context_size" in tool:
            call.drop("tools[].search_context_size")
        search = {**_SEARCH, **{key: tool[key] for key in _SEARCH_KEYS if key in tool}}
        if type(uses := call.other.get("max_tool_calls")) is int and uses > 0:
            search.setdefault("max_uses", uses)
        return search
    if native and kind != "other" and "input_schema" not in tool and "custom" not in tool:
        return dict(tool)
    description, schema = described(tool, where)
    if tool.get("strict") is True:
        schema = messages_schema(schema)
    wire: dict[str, Any] = {"name": names.sent(tool["name"])}
    if description:
        wire["description"] = description
    wire["input_schema"] = flat_schema(schema)
    if tool.get("strict") is True:
        wire["strict"] = True
    if "cache_control" in tool:
        wire["cache_control"] = tool["cache_control"]
    return wire
