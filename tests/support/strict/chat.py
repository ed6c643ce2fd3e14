"""OpenAI's Chat Completions: its rules, its answers, its streams."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.support.strict import models
from tests.support.strict.script import Call, Part, Refusal, Text, Turn, answer
from tests.support.strict.shapes import Wrong, check

__all__ = ["chunks", "complete", "pieces", "read", "tokens"]

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CREATED = 1_700_000_000


def tokens(value: Any) -> int:
    """How many tokens a value is: a word of four characters each, whatever it says."""
    return max(1, len(json.dumps(value, ensure_ascii=False)) // 4)


def pieces(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]


def read(body: dict[str, Any]) -> Turn:
    """What a body asks for.

    Raises:
        Wrong: the provider refuses it.
    """
    check("openai.chat", body)
    models.must_be(body["model"], "chat")
    sampling_rules(body)
    if models.reasons(body["model"]) and "max_tokens" in body:
        raise Wrong(
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.", "max_tokens", "unsupported_parameter",
        )  # fmt: skip
    if body.get("stream_options") is not None and not body.get("stream"):
        raise Wrong("The 'stream_options' parameter is only allowed when 'stream' is enabled.",
                    "stream_options")  # fmt: skip
    if not body["messages"]:
        raise Wrong("Invalid 'messages': empty array. Expected an array with minimum length 1.",
                    "messages", "empty_array")  # fmt: skip
    tools = {}
    for at, tool in enumerate(body.get("tools") or ()):
        told = tool[tool["type"]]
        if not TOOL_NAME.fullmatch(told["name"]):
            raise Wrong(f"Invalid 'tools[{at}].{tool['type']}.name': string does not match pattern."
                        , f"tools[{at}].{tool['type']}.name", "invalid_value")  # fmt: skip
        free = tool["type"] == "custom"
        tools[told["name"]] = None if free else told.get("parameters", {})
    if not tools and (body.get("tool_choice") or "parallel_tool_calls" in body):
        name = "tool_choice" if body.get("tool_choice") else "parallel_tool_calls"
        raise Wrong(f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are "
                    "specified.", name)  # fmt: skip
    turn = Turn(tools=tools, parallel=body.get("parallel_tool_calls") is not False)
    turn.choice = _choice(body.get("tool_choice"), tools)
    _read_messages(body["messages"], turn)
    turn.schema = _schema(body.get("response_format"), body["messages"])
    return turn


def sampling_rules(body: dict[str, Any]) -> None:
    """Ranges that both of OpenAI's interfaces share."""
    for name, low, high in (("temperature", 0, 2), ("top_p", 0, 1), ("presence_penalty", -2, 2),
                            ("frequency_penalty", -2, 2), ("top_logprobs", 0, 20)):  # fmt: skip
        value = body.get(name)
        if value is not None and not low <= value <= high:
            raise Wrong(f"Invalid '{name}': expected a value between {low} and {high}, got {value}",
                        name, "decimal_out_of_range")  # fmt: skip
    if models.reasons(body["model"]) and body.get("temperature") not in (None, 1):
        raise Wrong("Unsupported value: 'temperature' does not support this value with this model. "
                    "Only the default (1) value is supported.", "temperature",
                    "unsupported_value")  # fmt: skip


def _choice(given: Any, tools: dict[str, Any]) -> str:
    if given is None or isinstance(given, str):
        return "any" if given == "required" else given or "auto"
    if given["type"] == "allowed_tools":
        return "any" if given["allowed_tools"]["mode"] == "required" else "auto"
    name = str(given[given["type"]]["name"])
    if name not in tools:
        raise Wrong(f"Tool choice '{name}' not found in 'tools' parameter.", "tool_choice")
    return name


def _schema(given: Any, messages: list[dict[str, Any]]) -> dict[str, Any] | None:
    if given is None or given["type"] == "text":
        return None
    if given["type"] == "json_object":
        if "json" not in json.dumps(messages).lower():
            raise Wrong("'messages' must contain the word 'json' in some form, to use "
                        "'response_format' of type 'json_object'.", "messages")  # fmt: skip
        return {}
    strict_schema(given["json_schema"], "response_format")
    return dict(given["json_schema"].get("schema") or {})


def strict_schema(given: dict[str, Any], where: str) -> None:
    """Strict schemas close their objects and require every property."""
    if not TOOL_NAME.fullmatch(given.get("name", "")):
        raise Wrong(f"Invalid '{where}.name': string does not match pattern.", f"{where}.name")
    if not given.get("strict"):
        return

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("type") == "object":
                if node.get("additionalProperties") is not False:
                    raise Wrong(f"Invalid schema for {where} '{given['name']}': "
                                "'additionalProperties' is required to be supplied and to be "
                                "false.", where, "invalid_json_schema")  # fmt: skip
                if set(node.get("required", ())) != set(node.get("properties", {})):
                    raise Wrong(f"Invalid schema for {where} '{given['name']}': 'required' is "
                                "required to be supplied and to be an array including every key "
                                "in properties.", where, "invalid_json_schema")  # fmt: skip
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(given.get("schema") or given.get("parameters") or {})


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content or () if isinstance(part, dict))


def _read_messages(messages: list[dict[str, Any]], turn: Turn) -> None:
    waiting: list[str] = []
    for at, message in enumerate(messages):
        role = message["role"]
        if waiting and role != "tool":
            raise Wrong("An assistant message with 'tool_calls' must be followed by tool messages "
                        "responding to each 'tool_call_id'. The following tool_call_ids did not "
                        f"have response messages: {', '.join(waiting)}", "messages")  # fmt: skip
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                raise Wrong("Invalid parameter: messages with role 'tool' must be a response to a "
                            "preceding message with 'tool_calls'.",
                            f"messages.[{at}].role")  # fmt: skip
            waiting.remove(message["tool_call_id"])
            turn.results.append(_text(message["content"]))
        elif role == "assistant":
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
            if not waiting and not any(message.get(f) for f in ("content", "audio", "refusal")) \
                    and message.get("content") != "":  # fmt: skip
                raise Wrong("Invalid value for 'content': expected a string, got null.",
                            f"messages.[{at}].content")  # fmt: skip
        elif role == "user":
            turn.text, turn.results = _text(message["content"]), []
        else:
            turn.system += _text(message["content"])
    if waiting:
        raise Wrong("An assistant message with 'tool_calls' must be followed by tool messages "
                    "responding to each 'tool_call_id'. The following tool_call_ids did not have "
                    f"response messages: {', '.join(waiting)}", "messages")  # fmt: skip


# -- answers -------------------------------------------------------------------------------


def complete(body: dict[str, Any], turn: Turn, number: int) -> dict[str, Any]:
    parts = answer(turn)
    message = _message(parts, number, body)
    calls, limit = "tool_calls" in message, body.get("max_completion_tokens",
                                                     body.get("max_tokens"))  # fmt: skip
    reason = "tool_calls" if calls else "stop"
    if limit is not None and not calls and message["content"] is not None:
        words = pieces(message["content"], 4)
        if len(words) > limit:
            message["content"], reason = "".join(words[:limit]), "length"
    for stop in _stops(body.get("stop")):
        if message["content"] and stop in message["content"]:
            message["content"] = message["content"].partition(stop)[0]
    choices = []
    for index in range(body.get("n") or 1):
        choices.append({"index": index, "message": message, "logprobs": _logprobs(body, message),
                        "finish_reason": reason})  # fmt: skip
    thought = 64 if models.reasons(body["model"]) else 0
    return {
        "id": f"chatcmpl-{number:08d}",
        "object": "chat.completion",
        "created": _CREATED,
        "model": body["model"],
        "choices": choices,
        "usage": usage(tokens(body["messages"]), tokens(message) * len(choices) + thought, thought),
        "service_tier": "default",
        "system_fingerprint": "fp_5747c0ffee",
    }


def usage(given: int, made: int, thought: int = 0) -> dict[str, Any]:
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": thought, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    }  # fmt: skip


def _stops(given: Any) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _message(parts: list[Part], number: int, body: dict[str, Any]) -> dict[str, Any]:
    text = "".join(part.text for part in parts if isinstance(part, Text))
    refusal = "".join(part.text for part in parts if isinstance(part, Refusal))
    calls: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, Call):
            call_id = f"call_{number:08d}{len(calls)}"
            if isinstance(part.arguments, str):
                custom = {"name": part.name, "input": part.arguments}
                calls.append({"id": call_id, "type": "custom", "custom": custom})
            else:
                told = {"name": part.name,
                        "arguments": json.dumps(part.arguments, ensure_ascii=False,
                                                separators=(",", ":"))}  # fmt: skip
                calls.append({"id": call_id, "type": "function", "function": told})
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = calls
    message["refusal"] = refusal or None
    message["annotations"] = [
        {"type": "url_citation",
         "url_citation": {"start_index": 0, "end_index": 3, "title": "Grass",
                          "url": "https://example.com/grass"}}
        for part in parts if isinstance(part, Text) and part.cited
    ]  # fmt: skip
    if "audio" in (body.get("modalities") or ()):
        message["content"] = None
        message["audio"] = {"id": f"audio_{number:08d}", "data": "UklGRgAAAABXQVZF",
                            "expires_at": _CREATED + 3600, "transcript": text}  # fmt: skip
    return message


def _logprobs(body: dict[str, Any], message: dict[str, Any]) -> dict[str, Any] | None:
    if not body.get("logprobs"):
        return None
    most = body.get("top_logprobs") or 0
    content = [
        {"token": piece, "logprob": -0.25, "bytes": list(piece.encode()),
         "top_logprobs": [{"token": piece, "logprob": -0.25, "bytes": list(piece.encode())}][:most]}
        for piece in pieces(message["content"] or "")
    ]  # fmt: skip
    return {"content": content, "refusal": None}


def chunks(body: dict[str, Any], whole: dict[str, Any]) -> Iterator[bytes]:
    """The same answer as a stream of events, the closing ``[DONE]`` included."""
    options = body.get("stream_options") or {}
    wanted = options.get("include_usage") is True
    base = {"id": whole["id"], "object": "chat.completion.chunk", "created": whole["created"],
            "model": whole["model"], "service_tier": "default",
            "system_fingerprint": whole["system_fingerprint"]}  # fmt: skip

    def event(choices: list[dict[str, Any]], used: Any = None) -> bytes:
        chunk = {**base, "choices": choices}
        if wanted:
            chunk["usage"] = used
        if options.get("include_obfuscation") is not False:
            chunk["obfuscation"] = "xY7" * (1 + len(choices))
        return b"data: " + json.dumps(chunk, ensure_ascii=False,
                                      separators=(",", ":")).encode() + b"\n\n"  # fmt: skip

    for choice in whole["choices"]:
        probabilities = (choice["logprobs"] or {}).get("content")
        for at, delta in enumerate(_deltas(choice["message"])):
            one: dict[str, Any] = {"index": choice["index"], "delta": delta, "logprobs": None,
                                   "finish_reason": None}  # fmt: skip
            if probabilities and 0 < at <= len(probabilities):
                one["logprobs"] = {"content": [probabilities[at - 1]], "refusal": None}
            yield event([one])
        yield event([{"index": choice["index"], "delta": {}, "logprobs": None,
                      "finish_reason": choice["finish_reason"]}])  # fmt: skip
    if wanted:
        yield event([], whole["usage"])
    yield b"data: [DONE]\n\n"


def _deltas(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    calls = message.get("tool_calls", ())
    if calls and message["content"] is None:
        yield {"role": "assistant", "content": None, "refusal": None}
    else:
        yield {"role": "assistant", "content": "", "refusal": None}
    if message["content"]:
        yield from ({"content": piece} for piece in pieces(message["content"]))
    if message["refusal"]:
        yield from ({"refusal": piece} for piece in pieces(message["refusal"]))
    if message["annotations"]:
        yield {"annotations": message["annotations"]}
    for index, call in enumerate(calls):
        kind = call["type"]
        field = "arguments" if kind == "function" else "input"
        yield {"tool_calls": [{"index": index, **call, kind: {**call[kind], field: ""}}]}
        for piece in pieces(call[kind][field]):
            yield {"tool_calls": [{"index": index, kind: {field: piece}}]}
