"""Calls in neutral form as bodies of ``POST /v1/messages``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remit.kernel.exchange import text_of
from remit.providers.dialects.arguments import free_text
from remit.providers.dialects.dialect_error import DialectError
from remit.providers.dialects.effort import messages_thinking, said_thinking, takes_sampling
from remit.providers.dialects.media import messages_source
from remit.providers.dialects.messages.tools import tool_fields
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.names import ToolNames, wire_id
from remit.providers.dialects.refusals import refuse_promises
from remit.providers.dialects.schemas import messages_schema

__all__ = ["in_plain_round", "write_request"]

ENDPOINT = "anthropic.messages"
_ANY_JSON = "Answer with one JSON object and nothing else: no words around it, no code fence."
_WARMEST = 1.0
_MIN_TOP_P_WITH_THINKING = 0.95


def write_request(call: ModelCall, *, model: str, max_output_tokens: int) -> dict[str, Any]:
    """Return a call as a body of the Messages API.

    Args:
        call: the request.
        model: the provider's name of the model.
        max_output_tokens: the model's largest output, sent if the client set no limit.

    Raises:
        DialectError: the Messages API cannot express the call.
    """
    own = call.endpoint == ENDPOINT
    if not own:
        refuse_promises(call)
    names = ToolNames(call)
    limit = call.max_tokens or max_output_tokens
    body: dict[str, Any] = {"model": model, "max_tokens": limit}
    if system := _system(call):
        body["system"] = system
    # The neutral form is near this API's: what callers in Python add to it may be the API's own.
    native = own or not call.endpoint
    body["messages"] = _messages(call, names, native)
    if call.stop:
        if not own and not all(text.strip() for text in call.stop):
            raise DialectError("stop holds a text of white space alone.", param="stop")
        body["stop_sequences"] = list(call.stop)
    body |= tool_fields(call, names, own=own, native=native)
    if own or takes_sampling(model):
        _add_sampling(call, body, own)
    config = _thinking(call, body, model, limit, own)
    if call.response_format is not None and call.response_format.schema is not None:
        schema = call.response_format.schema
        held = schema if own else messages_schema(schema)
        config["format"] = {"type": "json_schema", "schema": held}
    if config:
        body["output_config"] = config
    if call.user:
        body["metadata"] = {"user_id": call.user}
    if call.stream:
        body["stream"] = True
    return body | call.other if own else body


def _add_sampling(call: ModelCall, body: dict[str, Any], own: bool) -> None:
    temperature = call.temperature
    if temperature is not None:  # the other dialects' scale goes further
        body["temperature"] = temperature if own else min(temperature, _WARMEST)
    if call.top_p is not None:
        body["top_p"] = call.top_p
    if call.top_k is not None:
        body["top_k"] = call.top_k


def _thinking(
    call: ModelCall, body: dict[str, Any], model: str, limit: int, own: bool
) -> dict[str, Any]:
    """Add ``thinking`` to the body; return the part that goes into ``output_config``."""
    wanted = call.reasoning
    if wanted is None:
        return {}
    said = said_thinking(wanted) if own else messages_thinking(wanted, model, limit)
    thinking = said.get("thinking")
    if thinking is not None and not own:
        # The API refuses thinking with a forced tool. It also refuses thinking in a round of
        # tool calls that began without thinking.
        forced = body.get("tool_choice", {}).get("type") in ("any", "tool")
        if forced or (thinking["type"] == "enabled" and in_plain_round(body["messages"])):
            thinking = None
    if thinking is not None:
        body["thinking"] = thinking
        if not own:
            body.pop("temperature", None)
            body.pop("top_k", None)
            if body.get("top_p", 1.0) < _MIN_TOP_P_WITH_THINKING:
                del body["top_p"]
    return {"effort": said["effort"]} if "effort" in said else {}


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


def _system(call: ModelCall) -> str | list[dict[str, Any]]:
    """Return all system prompts: one text if they are only text, else blocks."""
    blocks: list[dict[str, Any]] = []
    for index, message in enumerate(call.messages):
        if message["role"] != "system":
            continue
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        for block in content:
            if block["type"] != "text":
                where = str(block.get("at", f"messages[{index}]"))
                raise DialectError(
                    f"{where} is in a system prompt and is not text, "
                    "which is all that the Messages API takes there.",
                    param=where,
                )
        if any("cache_control" in block for block in content):
            blocks += [_text(block) for block in content if block["text"]]
        elif text := text_of(content):
            blocks.append({"type": "text", "text": text})
    if call.response_format is not None and call.response_format.schema is None:
        blocks.append({"type": "text", "text": _ANY_JSON})
    if any("cache_control" in block for block in blocks):
        return blocks
    return "\n\n".join([block["text"] for block in blocks])


def _messages(call: ModelCall, names: ToolNames, native: bool) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = []
    for index, message in enumerate(call.messages):
        role, content = message["role"], message["content"]
        if role == "system":
            continue
        if not isinstance(content, str):
            where = f"messages[{index}]"
            read = (
                _block(block, f"{where}.content[{at}]", names, native)
                for at, block in enumerate(content)
            )
            content = [block for block in read if block is not None]
        if not content:
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
    return turns


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _text(block: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": block["text"], **_hint(block)}


def _hint(block: Mapping[str, Any]) -> dict[str, Any]:
    hint = block.get("cache_control")
    return {} if hint is None else {"cache_control": hint}


def _block(
    block: Mapping[str, Any], where: str, names: ToolNames, native: bool
) -> dict[str, Any] | None:
    kind = block["type"]
    if kind == "text":
        if not block["text"]:
            return None
        wire = _text(block)
        if native and "citations" in block:
            wire["citations"] = block["citations"]
        return wire
    if kind == "refusal":
        return {"type": "text", "text": block["refusal"]} if block["refusal"] else None
    if kind == "thinking":
        sealed = block.get("signature")
        if not sealed:
            return None  # not Anthropic's: it would be refused
        return {"type": kind, "thinking": block["thinking"], "signature": sealed}
    if kind == "redacted_thinking":
        return {"type": kind, "data": block["data"]}
    if kind in ("image", "document"):
        source = block["source"] if native else messages_source(block)
        extra = ("title", "context", "citations") if kind == "document" else ()
        more = {key: block[key] for key in extra if key in block}
        return {"type": kind, "source": source, **more, **_hint(block)}
    if kind == "tool_use":
        custom = block.get("custom") is True
        value = {"input": free_text(block["input"])} if custom else block["input"]
        name = names.sent(block["name"])
        head = {"type": kind, "id": wire_id(block["id"]), "name": name, "input": value}
        return {**head, **_hint(block)}
    if kind == "tool_result":
        return _result(block, where, names, native)
    if kind in ("other", "server_tool"):
        if block.get("endpoint") == ENDPOINT:
            return dict(block["value"])
        if kind == "server_tool":
            return None  # a search that another provider made: only it can read it
    elif native:
        return dict(block)
    at = str(block.get("at", where))
    raise DialectError(
        f"{at} is a part that the Messages API does not have.",
        param=at,
        next_step="Use a model whose provider speaks the client's dialect, or leave it out.",
    )


def _result(block: Mapping[str, Any], where: str, names: ToolNames, native: bool) -> dict[str, Any]:
    content = block["content"]
    if not isinstance(content, str):
        read = (
            _block(part, f"{where}.content[{at}]", names, native) for at, part in enumerate(content)
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
