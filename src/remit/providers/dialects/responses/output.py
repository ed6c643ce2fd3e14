"""``response`` objects, and the items of their output, put together block by block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.providers.dialects.arguments import arguments_text, free_text
from remit.providers.dialects.model_call import ModelCall
from remit.providers.dialects.names import ToolNames
from remit.providers.dialects.responses.client_tools import item_fields
from remit.providers.dialects.responses.request_writer import format_of, own_tools, tool_of
from remit.providers.dialects.seals import encrypted_of
from remit.providers.dialects.tool_choice import write_choice
from remit.providers.dialects.usage import responses_usage
from remit.providers.protocol import ProviderResponse

__all__ = ["OutputItems", "ended", "response_object"]

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ECHOED = (
    "max_tool_calls", "previous_response_id", "prompt_cache_key", "safety_identifier",
)  # fmt: skip
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "web_search_call": "ws",
    "shell_call": "sh",
    "local_shell_call": "lsh",
    "apply_patch_call": "apc",
    "tool_search_call": "tsc",
}


class OutputItems:
    """Output items made from neutral blocks; adjacent texts and refusals form one message.

    Args:
        answer_id: the ids of the items derive from it.
        names: names of the call's tools.
    """

    def __init__(self, answer_id: str, names: ToolNames) -> None:
        self._answer_id = answer_id
        self.names = names
        self.items: list[dict[str, Any]] = []
        self.message: dict[str, Any] | None = None

    def begin(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Add an item of ``kind``."""
        place = len(self.items)
        base = self._answer_id.removeprefix("resp_")
        item = {"id": f"{_PREFIXES[kind]}_{base}_{place}", "type": kind, **fields}
        self.items.append(item)
        self.message = None
        return item

    def begin_message(self) -> dict[str, Any]:
        """Add a message without content."""
        item = self.begin("message", status="in_progress", role="assistant", content=[])
        self.message = item
        return item

    def begin_call(self, identity: str, name: str, custom: bool) -> dict[str, Any]:
        """Add a call without input."""
        if (kind := self.names.kind(name)) is not None:
            fields = item_fields(kind, {})
            return self.begin(f"{kind}_call", status="in_progress", call_id=identity, **fields)
        own = self.names.in_namespace(name)
        if custom:
            return self.begin("custom_tool_call", call_id=identity, **own, input="")
        return self.begin(
            "function_call", status="in_progress", call_id=identity, **own, arguments=""
        )

    def end_call(self, item: dict[str, Any], block: Mapping[str, Any]) -> None:
        """Give a call its input."""
        if item["type"] == "custom_tool_call":
            item["input"] = free_text(block["input"])
        elif item["type"] != "function_call":
            item |= item_fields(item["type"].removesuffix("_call"), block["input"])
            item["status"] = "completed"
        else:
            item["arguments"] = arguments_text(block["input"])

    def end_reasoning(self, item: dict[str, Any], block: Mapping[str, Any]) -> None:
        """Add the text and the seal to a reasoning item."""
        thought = block.get("thinking")
        if thought and block.get("raw") is True:
            item["content"] = [{"type": "reasoning_text", "text": thought}]
        elif thought:
            item["summary"] = [{"type": "summary_text", "text": thought}]
        sealed = encrypted_of(block)
        if sealed is not None:
            item["encrypted_content"] = sealed

    def search_fields(self, block: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a search item without its id."""
        queries = list(block.get("queries", ()))
        action: dict[str, Any] = {"type": "search", "query": " ".join(queries), "queries": queries}
        sources = [{"type": "url", "url": source["url"]} for source in block.get("sources", ())]
        return {"status": "completed", "action": {**action, "sources": sources}}

    def finished(self, reason: str) -> list[dict[str, Any]]:
        """Return all items in their final state; the last is incomplete if the answer is."""
        for item in self.items:
            if "status" in item:
                item["status"] = "completed"
        if reason == "length" and self.items and "status" in self.items[-1]:
            self.items[-1]["status"] = "incomplete"
        return self.items


def ended(
    head: dict[str, Any], output: list[dict[str, Any]], answer: ProviderResponse
) -> dict[str, Any]:
    """Return a ``response`` object in its last state: completed or incomplete.

    Args:
        head: the object at its start (:func:`response_object`).
        output: the output items.
        answer: the answer, with finish reason and usage.
    """
    reason = _INCOMPLETE.get(answer.finish_reason)
    return {
        **head,
        "status": "completed" if reason is None else "incomplete",
        "incomplete_details": None if reason is None else {"reason": reason},
        "output": output,
        "usage": responses_usage(answer),
    }


def response_object(call: ModelCall, *, answer_id: str, created: int, model: str) -> dict[str, Any]:
    """Return a ``response`` object at its start, with the client's settings."""
    names = ToolNames(None)  # the client's own names
    custom = frozenset(tool["name"] for tool in call.tools if tool.get("custom") is True)
    choice = call.tool_choice or {"type": "auto"}
    text = call.other.get("text")
    verbosity = text.get("verbosity") if isinstance(text, dict) else None
    wanted = call.reasoning
    return {
        "id": answer_id,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "background": call.other.get("background") is True,
        "error": None,
        "incomplete_details": None,
        "instructions": _instructions(call),
        "max_output_tokens": call.max_tokens,
        "metadata": call.other.get("metadata") or {},
        "model": model,
        "output": [],
        "parallel_tool_calls": call.parallel_tools is not False,
        "reasoning": {
            "effort": wanted.effort if wanted is not None else None,
            "summary": wanted.summary if wanted is not None else None,
        },
        "store": call.other.get("store") is not False,
        "temperature": 1.0 if call.temperature is None else call.temperature,
        "text": {"format": format_of(call), "verbosity": verbosity or "medium"},
        "tool_choice": write_choice(choice, names, custom, nested=False),
        "tools": [tool_of(tool, names) for tool in own_tools(call.tools)],
        "top_p": 1.0 if call.top_p is None else call.top_p,
        "truncation": call.other.get("truncation") or "disabled",
        "usage": None,
        "user": call.user,
        **{key: call.other.get(key) for key in _ECHOED},
        **_conversation(call),
    }


def _conversation(call: ModelCall) -> dict[str, Any]:
    named = call.other.get("conversation")
    return {"conversation": {"id": named} if isinstance(named, str) else named} if named else {}


def _instructions(call: ModelCall) -> str | None:
    for message in call.messages[:1]:
        if message.get("instructions") is True:
            return str(message["content"])
    return None
