"""OpenAI's Responses: its rules, its answers, its streams."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.strict import models
from tests.support.strict.chat import TOOL_NAME, pieces, sampling_rules, strict_schema, tokens
from tests.support.strict.script import Part, Refusal, Text, Thinking, Turn, answer
from tests.support.strict.shapes import Wrong, check

__all__ = ["complete", "events", "items_of", "read"]

_CREATED = 1_700_000_000
_CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output",
          "local_shell_call": "local_shell_call_output", "shell_call": "shell_call_output",
          "apply_patch_call": "apply_patch_call_output"}  # fmt: skip


def items_of(given: Any, number: int) -> list[dict[str, Any]]:
    """The input as the provider lists it: each item with an id."""
    if isinstance(given, str):
        given = [{"type": "message", "role": "user",
                  "content": [{"type": "input_text", "text": given}]}]  # fmt: skip
    listed = []
    for at, item in enumerate(given or ()):
        item = {"type": "message", **item}
        if item["type"] == "message" and isinstance(item["content"], str):
            kind = "output_text" if item["role"] == "assistant" else "input_text"
            item["content"] = [{"type": kind, "text": item["content"]}]
        listed.append({"id": f"in_{number:08d}{at}", **item})
    return listed


def read(body: dict[str, Any], stored: Mapping[str, Any]) -> Turn:
    """What a body asks for; ``stored`` holds earlier responses by id, with their whole context.

    Raises:
        Wrong: the provider refuses it.
    """
    check("openai.responses", _documented(body))
    if "model" not in body:
        raise Wrong("Missing required parameter: 'model'.", "model", "missing_required_parameter")
    models.must_be(body["model"], "chat")
    sampling_rules(body)
    if "input" not in body and not body.get("previous_response_id"):
        raise Wrong("Missing required parameter: 'input'.", "input", "missing_required_parameter")
    if body.get("max_output_tokens") is not None and body["max_output_tokens"] < 16:
        raise Wrong("Invalid 'max_output_tokens': integer below minimum value. Expected a value "
                    ">= 16.", "max_output_tokens", "integer_below_min_value")  # fmt: skip
    if body.get("reasoning") and not models.reasons(body["model"]):
        raise Wrong("Unsupported parameter: 'reasoning.effort' is not supported with this model.",
                    "reasoning.effort", "unsupported_parameter")  # fmt: skip
    turn = Turn(tools=_tools(_offered(body)), system=_text(body.get("instructions")),
                parallel=body.get("parallel_tool_calls") is not False,
                thinking=bool((body.get("reasoning") or {}).get("summary")))  # fmt: skip
    turn.choice = _choice(body.get("tool_choice"), turn.tools)
    earlier: list[dict[str, Any]] = []
    if before := body.get("previous_response_id"):
        if before not in stored:
            raise Wrong(f"Previous response with id '{before}' not found.", "previous_response_id",
                        "previous_response_not_found")  # fmt: skip
        earlier = stored[before]["context"]
    _read_items([*earlier, *items_of(body.get("input"), 0)], turn)
    form = (body.get("text") or {}).get("format") or {"type": "text"}
    if form["type"] == "json_schema":
        strict_schema(form, "text.format")
        turn.schema = form["schema"]
    elif form["type"] == "json_object":
        if "json" not in json.dumps(body.get("input")).lower() + turn.system.lower():
            raise Wrong("Response input messages must contain the word 'json' in some form to use "
                        "'text.format' of type 'json_object'.", "input")  # fmt: skip
        turn.schema = {}
    return turn


def _documented(body: dict[str, Any]) -> dict[str, Any]:
    """The body less what OpenAI's own programs send that the SDKs do not describe."""
    body = {name: value for name, value in body.items() if name != "client_metadata"}
    if isinstance(body.get("input"), list):
        body["input"] = [
            {name: value for name, value in item.items()
             if name != "internal_chat_message_metadata_passthrough" and value is not None}
            for item in body["input"]
            if not isinstance(item, dict) or item.get("type") != "configuration_update"
        ]  # fmt: skip
    return body


def _offered(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools on offer, those of input items and of namespaces included."""
    found = list(body.get("tools") or ())
    if isinstance(body.get("input"), list):
        for item in body["input"]:
            if item.get("type") == "additional_tools":
                found += item["tools"]
    for tool in [*found]:
        if tool["type"] == "namespace":
            found += [{**each, "namespace": tool["name"]} for each in tool["tools"]]
    return found


def _tools(given: Any) -> dict[str, Any]:
    tools: dict[str, Any] = {}
    for at, tool in enumerate(given):
        if tool["type"] not in ("function", "custom"):
            continue
        if not TOOL_NAME.fullmatch(tool["name"]):
            raise Wrong(f"Invalid 'tools[{at}].name': string does not match pattern. Expected a "
                        "string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
                        f"tools[{at}].name", "invalid_value")  # fmt: skip
        if tool["type"] == "function" and tool.get("strict"):
            strict_schema(tool, "function")
        tools[tool["name"]] = None if tool["type"] == "custom" else tool.get("parameters") or {}
    return tools


def _choice(given: Any, tools: dict[str, Any]) -> str:
    if given is None or isinstance(given, str):
        return "any" if given == "required" else given or "auto"
    if given["type"] == "allowed_tools":
        return "any" if given["mode"] == "required" else "auto"
    if given["type"] not in ("function", "custom"):
        return "auto"
    if given["name"] not in tools:
        raise Wrong(f"Tool choice '{given['type']}' not found in 'tools' parameter.", "tool_choice")
    return str(given["name"])


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content or () if isinstance(part, dict))


def _read_items(items: list[dict[str, Any]], turn: Turn) -> None:
    waiting: dict[str, str] = {}
    reasoning = False
    for item in items:
        kind = item["type"]
        if kind in _CALLS:
            waiting[item["call_id"]] = _CALLS[kind]
        elif kind in _CALLS.values():
            if waiting.pop(item["call_id"], None) != kind:
                told = kind.removesuffix("_output").replace("_", " ")
                raise Wrong(f"No tool call found for {told} output with call_id "
                            f"{item['call_id']}.", "input")  # fmt: skip
            turn.results.append(_text(item["output"]))
        elif kind == "message" and item["role"] == "user":
            turn.text, turn.results = _text(item["content"]), []
        elif kind == "message" and item["role"] in ("system", "developer"):
            turn.system += _text(item["content"])
        if reasoning and (kind in _CALLS.values() or item.get("role") in ("user", "system")):
            raise Wrong("Item of type 'reasoning' was provided without its required following "
                        "item.", "input")  # fmt: skip
        reasoning = kind == "reasoning"
    if waiting:
        raise Wrong(f"No tool output found for function call {next(iter(waiting))}.", "input")


# -- answers -------------------------------------------------------------------------------


def complete(body: dict[str, Any], turn: Turn, number: int) -> dict[str, Any]:
    output = _output(answer(turn), body, number)
    items = body.get("input")
    if isinstance(items, list) and items[-1:] and items[-1].get("type") == "compaction_trigger":
        # How Codex has the conversation compacted.
        output = [{"id": f"cmp_{number:048x}", "type": "compaction", "encrypted_content": "gAAA"}]
    reason, limit = None, body.get("max_output_tokens")
    for item in output:
        if item["type"] == "message" and limit is not None:
            words = pieces(item["content"][0].get("text", ""), 4)
            if len(words) > limit:
                item["content"][0]["text"] = "".join(words[:limit])
                item["status"], reason = "incomplete", "max_output_tokens"
    given, made = tokens(body.get("input")), tokens(output)
    text = dict(body.get("text") or {})
    return {
        "id": f"resp_{number:048x}",
        "object": "response",
        "created_at": _CREATED,
        "status": "incomplete" if reason else "completed",
        "background": body.get("background") or False,
        "billing": {"payer": "developer"},
        "completed_at": _CREATED + 1,
        "error": None,
        "frequency_penalty": 0.0,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": body.get("instructions"),
        "max_output_tokens": limit,
        "max_tool_calls": body.get("max_tool_calls"),
        "model": body["model"],
        "output": output,
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "presence_penalty": 0.0,
        "previous_response_id": body.get("previous_response_id"),
        "prompt_cache_key": body.get("prompt_cache_key"),
        "prompt_cache_retention": None,
        "reasoning": {"effort": None, "summary": None, **(body.get("reasoning") or {})},
        "safety_identifier": body.get("safety_identifier"),
        "service_tier": "default",
        "store": body.get("store") is not False,
        "temperature": body.get("temperature", 1.0),
        "text": {"format": {"type": "text"}, "verbosity": "medium", **text},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": [
            {"strict": True, **tool} if tool.get("type") == "function" else tool
            for tool in body.get("tools") or []
        ],
        "top_logprobs": body.get("top_logprobs") or 0,
        "top_p": body.get("top_p", 1.0),
        "truncation": body.get("truncation") or "disabled",
        "usage": {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": given + made,
        },
        "user": body.get("user"),
        "metadata": body.get("metadata") or {},
    }


def _output(parts: list[Part], body: dict[str, Any], number: int) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    content: list[dict[str, Any]] = []

    spaces = {tool["name"]: tool["namespace"] for tool in _offered(body) if "namespace" in tool}

    def name(kind: str) -> str:
        return f"{kind}_{number:040x}{len(output):08x}"

    def close() -> None:
        if content:
            output.append({"id": name("msg"), "type": "message", "status": "completed",
                           "content": [*content], "role": "assistant"})  # fmt: skip
            content.clear()

    if models.reasons(body["model"]) and not isinstance(parts[0], Thinking):
        parts = [Thinking(""), *parts]
    for part in parts:
        if isinstance(part, Text):
            cited = [{"type": "url_citation", "start_index": 0, "end_index": 3, "title": "Grass",
                      "url": "https://example.com/grass"}] if part.cited else []  # fmt: skip
            if content and content[-1]["type"] == "output_text":
                content[-1]["text"] += part.text
                content[-1]["annotations"] += cited
            else:
                content.append({"type": "output_text", "annotations": cited, "logprobs": [],
                                "text": part.text})  # fmt: skip
        elif isinstance(part, Refusal):
            content.append({"type": "refusal", "refusal": part.text})
        elif isinstance(part, Thinking):
            close()
            said = [{"type": "summary_text", "text": part.text}] if part.text else []
            item = {"id": name("rs"), "type": "reasoning", "summary": said}
            if "reasoning.encrypted_content" in (body.get("include") or ()):
                item["encrypted_content"] = f"gAAAAAB{number:064x}=="
            output.append(item)
        else:
            close()
            free = isinstance(part.arguments, str)
            told = part.arguments if free else json.dumps(
                part.arguments, ensure_ascii=False, separators=(",", ":"))  # fmt: skip
            call = {"type": "custom_tool_call", "input": told} if free else {
                "type": "function_call", "status": "completed", "arguments": told}  # fmt: skip
            output.append({"id": name("ctc" if free else "fc"), **call,
                           "call_id": f"call_{number:016x}{len(output):08x}",
                           "name": part.name})  # fmt: skip
            if part.name in spaces:
                output[-1]["namespace"] = spaces[part.name]
    close()
    return output


def events(body: dict[str, Any], whole: dict[str, Any]) -> Iterator[bytes]:
    """The same answer as a stream of events; there is no closing mark."""
    count = 0
    obfuscated = (body.get("stream_options") or {}).get("include_obfuscation") is not False

    def event(kind: str, **fields: Any) -> bytes:
        nonlocal count
        told = {"type": kind, "sequence_number": count, **fields}
        if kind.endswith(".delta") and obfuscated:
            told["obfuscation"] = "q7Zt"
        count += 1
        data = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
        return f"event: {kind}\ndata: {data}\n\n".encode()

    begun = {**whole, "status": "in_progress", "completed_at": None, "output": [], "usage": None,
             "incomplete_details": None, "service_tier": body.get("service_tier")
             or "auto"}  # fmt: skip
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for index, item in enumerate(whole["output"]):
        at = {"item_id": item["id"], "output_index": index}
        if item["type"] == "message":
            begun_item = {**item, "status": "in_progress", "content": []}
        elif item["type"] == "reasoning":
            begun_item = {**item, "summary": []}
        elif item["type"] == "compaction":
            begun_item = item
        else:
            field = "arguments" if "arguments" in item else "input"
            begun_item = {**item, field: ""}
            if "status" in item:
                begun_item["status"] = "in_progress"
        yield event("response.output_item.added", output_index=index, item=begun_item)
        for part_at, part in enumerate(item.get("content", ())):
            here = {**at, "content_index": part_at}
            if part["type"] == "refusal":
                yield event("response.content_part.added", **here,
                            part={"type": "refusal", "refusal": ""})  # fmt: skip
                for piece in pieces(part["refusal"]):
                    yield event("response.refusal.delta", **here, delta=piece)
                yield event("response.refusal.done", **here, refusal=part["refusal"])
            else:
                yield event("response.content_part.added", **here,
                            part={**part, "text": "", "annotations": []})  # fmt: skip
                for piece in pieces(part["text"]):
                    yield event("response.output_text.delta", **here, delta=piece, logprobs=[])
                for note_at, note in enumerate(part["annotations"]):
                    yield event("response.output_text.annotation.added", **here,
                                annotation_index=note_at, annotation=note)  # fmt: skip
                yield event("response.output_text.done", **here, text=part["text"], logprobs=[])
            yield event("response.content_part.done", **here, part=part)
        for part_at, part in enumerate(item.get("summary", ())):
            here = {**at, "summary_index": part_at}
            yield event("response.reasoning_summary_part.added", **here, part={**part, "text": ""})
            for piece in pieces(part["text"]):
                yield event("response.reasoning_summary_text.delta", **here, delta=piece)
            yield event("response.reasoning_summary_text.done", **here, text=part["text"])
            yield event("response.reasoning_summary_part.done", **here, part=part)
        if item["type"] == "function_call":
            for piece in pieces(item["arguments"]):
                yield event("response.function_call_arguments.delta", **at, delta=piece)
            yield event("response.function_call_arguments.done", **at,
                        arguments=item["arguments"], name=item["name"])  # fmt: skip
        elif item["type"] == "custom_tool_call":
            for piece in pieces(item["input"]):
                yield event("response.custom_tool_call_input.delta", **at, delta=piece)
            yield event("response.custom_tool_call_input.done", **at, input=item["input"])
        yield event("response.output_item.done", output_index=index, item=item)
    yield event(f"response.{whole['status']}", response=whole)
