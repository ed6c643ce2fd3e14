"""``chat.completion`` objects, to and from the neutral form."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from remit.kernel.exchange import text_of
from remit.providers.dialects.arguments import input_of
from remit.providers.dialects.citations import annotations_of
from remit.providers.dialects.seals import thought_seal
from remit.providers.dialects.unreadable import failed, shaped, unreadable
from remit.providers.dialects.usage import chat_usage, reported
from remit.providers.protocol import ProviderResponse
from remit.providers.wire.chat import facts

__all__ = [
    "call_id",
    "citations_in",
    "finish_word",
    "read_answer",
    "thoughts_in",
    "tool_call",
    "web_annotations",
    "whole",
]

_WORDS = {"length": "length", "tool_use": "tool_calls", "content_filter": "content_filter"}


def finish_word(reason: str, calls: bool) -> str:
    """Return a neutral finish reason in the API's words.

    Args:
        reason: the neutral reason; an unknown one gives ``stop``.
        calls: True if the answer calls tools.
    """
    word = _WORDS.get(reason, "stop")
    return "tool_calls" if calls and word == "stop" else word


def read_answer(answer: Mapping[str, Any]) -> ProviderResponse:
    """Return a ``chat.completion`` in neutral form: thinking, text, refusal, calls.

    Raises:
        DialectError: the answer does not have the API's form.
        ProviderError: the answer reports an error.
    """
    if answer.get("error"):
        raise failed(answer["error"])
    choices = shaped(answer.get("choices"), list, "choices")
    if not choices:
        raise unreadable("choices")
    choice = shaped(choices[0], dict, "choices[0]")
    message = shaped(choice.get("message"), dict, "choices[0].message")
    blocks = thoughts_in(message)
    text = message.get("content")
    if isinstance(text, list):  # Some servers send a list of parts.
        text = text_of(text)
    if text is not None:
        shaped(text, str, "choices[0].message.content")
    if text:
        block: dict[str, Any] = {"type": "text", "text": text}
        if cited := citations_in(message.get("annotations")):
            block["citations"] = cited
        blocks.append(block)
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        blocks.append({"type": "refusal", "refusal": refusal})
    calls = message.get("tool_calls") or []
    for index, call in enumerate(shaped(calls, list, "choices[0].message.tool_calls")):
        read = tool_call(call, index, str(answer.get("id") or ""))
        if seal := thought_seal(call):
            blocks.append(seal)
        blocks.append(read)
    found = facts(answer)
    return ProviderResponse(
        content=text or "",
        model=str(answer.get("model") or ""),
        finish_reason=found.finish_reason,
        failure=found.failure,
        request_id=str(answer.get("id") or ""),
        content_blocks=tuple(blocks),
        **reported(found.usage),
    )


def thoughts_in(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a message's thinking as a list of one block; empty without thinking.

    OpenRouter's ``reasoning_details`` are a part of the block, since OpenRouter wants them back.
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
    if not isinstance(noted, list):
        return []
    return [
        {"type": "url_citation", **note["url_citation"]}
        for note in noted
        if isinstance(note, dict) and isinstance(note.get("url_citation"), dict)
    ]


def call_id(call: Mapping[str, Any], answer_id: str, index: int) -> str:
    """Return a call's id. An absent one is made, different in each answer.

    Args:
        call: the call.
        answer_id: the answer's id.
        index: the call's place among the calls of the answer.
    """
    identity = call.get("id")
    if isinstance(identity, str) and identity:
        return identity
    digest = hashlib.sha256(f"{answer_id}:{index}".encode("utf-8", "surrogatepass"))
    return f"call_{digest.hexdigest()[:24]}"


def tool_call(call: Any, index: int, answer_id: str) -> dict[str, Any]:
    """Return a call of an assistant's message in neutral form.

    Args:
        call: the call.
        index: its place among the calls.
        answer_id: the answer's id.

    Raises:
        DialectError: the call does not have the API's form.
    """
    where = f"tool_calls[{index}]"
    call = shaped(call, dict, where)
    kind = "custom" if call.get("type") == "custom" else "function"
    called = shaped(call.get(kind), dict, f"{where}.{kind}")
    name = shaped(called.get("name"), str, f"{where}.{kind}.name")
    block: dict[str, Any] = {
        "type": "tool_use",
        "id": call_id(call, answer_id, index),
        "name": name,
    }
    if kind == "custom":
        text = shaped(called.get("input"), str, f"{where}.custom.input")
        return {**block, "input": {"input": text}, "custom": True}
    return {**block, "input": input_of(called.get("arguments"))}


def whole(value: dict[str, Any], answer: ProviderResponse) -> dict[str, Any]:
    """Return a ``chat.completion`` with the members that its stream leaves out.

    Args:
        value: the sum of the stream.
        answer: the answer.
    """
    message = value["choices"][0]["message"]
    message.setdefault("refusal", None)
    if not message["content"] and (message.get("tool_calls") or message["refusal"]):
        message["content"] = None
    return {**value, "usage": chat_usage(answer)}


def web_annotations(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the web citations of all texts as annotations, by place in the joined text."""
    noted: list[dict[str, Any]] = []
    start = 0
    for block in blocks:
        if block["type"] != "text":
            continue
        for annotation in annotations_of(block, start):
            if annotation["type"] == "url_citation":
                held = {key: value for key, value in annotation.items() if key != "type"}
                noted.append({"type": "url_citation", "url_citation": held})
        start += len(block["text"])
    return noted
