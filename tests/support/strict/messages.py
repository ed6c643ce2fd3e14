"""Anthropic's Messages: its rules, its answers, its streams."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

from tests.support.strict import models
from tests.support.strict.chat import pieces, tokens
from tests.support.strict.script import Call, Refusal, Text, Thinking, Turn, answer
from tests.support.strict.shapes import Wrong, check

__all__ = ["complete", "events", "read", "read_count"]

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_LEAST_THINKING = 1024


def read_count(body: dict[str, Any], *, beta: bool) -> int:
    """How many tokens ``count_tokens`` says.

    Raises:
        Wrong: the provider refuses the body.
    """
    check("anthropic.beta_count_tokens" if beta else "anthropic.count_tokens", body)
    models.must_be(body["model"], "messages")
    _read_messages(body["messages"], Turn())
    return tokens(body)


def read(body: dict[str, Any], *, beta: bool) -> Turn:
    """What a body asks for.

    Raises:
        Wrong: the provider refuses it.
    """
    check("anthropic.beta" if beta else "anthropic.messages", body)
    models.must_be(body["model"], "messages")
    if body["max_tokens"] < 1:
        raise Wrong("max_tokens: must be greater than or equal to 1", "max_tokens")
    for name in ("temperature", "top_p"):
        value = body.get(name)
        if value is not None and not 0 <= value <= 1:
            raise Wrong(f"{name}: range: 0..1", name)
    thinking = body.get("thinking") or {"type": "disabled"}
    if thinking["type"] == "enabled":
        budget = thinking["budget_tokens"]
        if budget < _LEAST_THINKING:
            raise Wrong("thinking.enabled.budget_tokens: Input should be greater than or equal to "
                        "1024", "thinking")  # fmt: skip
        if budget >= body["max_tokens"]:
            raise Wrong("`max_tokens` must be greater than `thinking.budget_tokens`.", "max_tokens")
    if thinking["type"] != "disabled" and body.get("temperature", 1) != 1:
        raise Wrong("`temperature` may only be set to 1 when thinking is enabled.", "temperature")
    tools: dict[str, Any] = {}
    for at, tool in enumerate(body.get("tools") or ()):
        if not _TOOL_NAME.fullmatch(tool.get("name", "mcp")):
            raise Wrong(f"tools.{at}.custom.name: String should match pattern "
                        "'^[a-zA-Z0-9_-]{1,128}$'", f"tools.{at}.custom.name")  # fmt: skip
        if tool.get("name") in tools:
            raise Wrong("tools: Tool names must be unique.", "tools")
        if "input_schema" in tool:
            tools[tool["name"]] = tool["input_schema"]
    choice = body.get("tool_choice") or {"type": "auto"}
    if choice["type"] in ("any", "tool"):
        if thinking["type"] != "disabled":
            raise Wrong("Thinking may not be enabled when tool_choice forces tool use.",
                        "tool_choice")  # fmt: skip
        if not body.get("tools"):
            raise Wrong("tool_choice: may only be specified while providing tools", "tool_choice")
        if choice["type"] == "tool" and choice["name"] not in tools:
            raise Wrong(f"Tool '{choice['name']}' not found in provided tools", "tool_choice")
    system = body.get("system") or ""
    turn = Turn(tools=tools, choice=choice.get("name", choice["type"]), thinking=thinking["type"]
                != "disabled", parallel=not choice.get("disable_parallel_tool_use"),
                system=system if isinstance(system, str) else _text(system))  # fmt: skip
    form = (body.get("output_config") or {}).get("format") or body.get("output_format")
    turn.schema = (form or {}).get("schema")
    _read_messages(body["messages"], turn)
    return turn


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content or () if part.get("type") == "text")


def _read_messages(messages: list[dict[str, Any]], turn: Turn) -> None:
    if not messages:
        raise Wrong("messages: at least one message is required", "messages")
    waiting: set[str] = set()
    for at, message in enumerate(messages):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks or (content == "" and at < len(messages) - 1):
            raise Wrong(f"messages.{at}: all messages must have non-empty content except for the "
                        "optional final assistant message", f"messages.{at}")  # fmt: skip
        answered = {b["tool_use_id"] for b in blocks if b["type"] == "tool_result"}
        if message["role"] == "user":
            if unknown := answered - waiting:
                raise Wrong(f"messages.{at}.content.0: unexpected `tool_use_id` found in "
                            f"`tool_result` blocks: {', '.join(sorted(unknown))}. Each "
                            "`tool_result` block must have a corresponding `tool_use` block in "
                            "the previous message.", f"messages.{at}")  # fmt: skip
        elif answered:
            raise Wrong(f"messages.{at}: `tool_result` blocks can only be in `user` messages",
                        f"messages.{at}")  # fmt: skip
        if waiting - answered:
            raise Wrong(f"messages.{at - 1}: `tool_use` ids were found without `tool_result` "
                        f"blocks immediately after: {', '.join(sorted(waiting - answered))}. Each "
                        "`tool_use` block must have a corresponding `tool_result` block in the "
                        "next message.", f"messages.{at}")  # fmt: skip
        waiting = {b["id"] for b in blocks if b["type"] == "tool_use"}
        for block_at, block in enumerate(blocks):
            _read_block(block, f"messages.{at}.content.{block_at}")
        if message["role"] == "user":
            said = _text(blocks)
            if said.strip():
                turn.text, turn.results = said, []
            for block in blocks:
                if block["type"] == "tool_result":
                    turn.results.append(_text(block.get("content")))
    if waiting:
        raise Wrong(f"messages.{len(messages) - 1}: `tool_use` ids were found without "
                    f"`tool_result` blocks immediately after: {', '.join(sorted(waiting))}.",
                    "messages")  # fmt: skip


def _read_block(block: dict[str, Any], where: str) -> None:
    if block["type"] == "text" and not block["text"].strip():
        raise Wrong(f"{where}: text content blocks must be non-empty", where)
    if block["type"] == "tool_use" and not re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]):
        raise Wrong(f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", where)
    ours = str(block.get("signature")).startswith(_signature("")[:8])
    if block["type"] == "thinking" and ours and block["signature"] != _signature(block["thinking"]):
        raise Wrong(f"{where}: Invalid `signature` in `thinking` block", where)
    if block["type"] in ("image", "document") and block["source"]["type"] == "base64":
        try:
            base64.b64decode(block["source"]["data"], validate=True)
        except ValueError:
            raise Wrong(f"{where}.source.base64: invalid base64 data", where) from None


def _signature(thought: str) -> str:
    return base64.b64encode(b"signed:" + thought.encode()).decode()


# -- answers -------------------------------------------------------------------------------


def complete(body: dict[str, Any], turn: Turn, number: int) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    reason = "end_turn"
    for part in answer(turn):
        if isinstance(part, Thinking):
            if turn.thinking:
                content.append({"type": "thinking", "thinking": part.text,
                                "signature": _signature(part.text)})  # fmt: skip
        elif isinstance(part, Text):
            block: dict[str, Any] = {"type": "text", "text": part.text}
            if part.cited and '"citations"' in json.dumps(body["messages"]):
                block = {"citations": [{
                    "type": "char_location", "cited_text": part.cited, "document_index": 0,
                    "document_title": "Grass", "file_id": None, "start_char_index": 0,
                    "end_char_index": len(part.cited)}], **block}  # fmt: skip
            content.append(block)
        elif isinstance(part, Refusal):
            reason = "refusal"
        elif isinstance(part, Call):
            content.append({"type": "tool_use", "id": f"toolu_{number:020d}{len(content):02d}",
                            "name": part.name, "input": part.arguments})  # fmt: skip
            reason = "tool_use"
    stop = None
    for block in content:
        if block["type"] != "text":
            continue
        for word in body.get("stop_sequences") or ():
            if word in block["text"]:
                block["text"], reason, stop = (
                    block["text"].partition(word)[0],
                    "stop_sequence",
                    word,
                )
        words = pieces(block["text"], 4)
        if len(words) > body["max_tokens"]:
            block["text"], reason = "".join(words[: body["max_tokens"]]), "max_tokens"
    return {
        "model": body["model"],
        "id": f"msg_{number:024d}",
        "type": "message",
        "role": "assistant",
        "content": content,
        "stop_reason": reason,
        "stop_sequence": stop,
        "stop_details": None,
        "usage": {
            "input_tokens": tokens(body),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": tokens(content),
            "service_tier": "standard",
        },
    }


def events(whole: dict[str, Any]) -> Iterator[bytes]:
    def event(kind: str, **fields: Any) -> bytes:
        data = json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":"))
        return f"event: {kind}\ndata: {data}\n\n".encode()

    begun = {**whole, "content": [], "stop_reason": None, "stop_sequence": None,
             "usage": {**whole["usage"], "output_tokens": 1}}  # fmt: skip
    yield event("message_start", message=begun)
    for index, block in enumerate(whole["content"]):
        kind = block["type"]
        deltas: list[dict[str, Any]] = []
        if kind == "text":
            empty: dict[str, Any] = {"type": "text", "text": ""}
            if "citations" in block:
                empty = {"citations": [], **empty}
            deltas += [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
            deltas += [{"type": "citations_delta", "citation": each}
                       for each in block.get("citations", ())]  # fmt: skip
        elif kind == "thinking":
            empty = {"type": "thinking", "thinking": "", "signature": ""}
            deltas += [{"type": "thinking_delta", "thinking": piece}
                       for piece in pieces(block["thinking"])]  # fmt: skip
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        else:
            empty = {**block, "input": {}}
            told = json.dumps(block["input"], ensure_ascii=False)
            deltas += [{"type": "input_json_delta", "partial_json": piece}
                       for piece in ["", *pieces(told)]]  # fmt: skip
        yield event("content_block_start", index=index, content_block=empty)
        if index == 0:
            yield event("ping")
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    used = {name: whole["usage"][name] for name in (
        "input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens",
        "output_tokens")}  # fmt: skip
    yield event("message_delta", usage=used, delta={
        "stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"],
        "stop_details": whole["stop_details"]})  # fmt: skip
    yield event("message_stop")
