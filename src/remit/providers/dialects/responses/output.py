"""The items of a ``response``'s output, put together block by block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.providers.dialects.arguments import arguments_text, free_text
from remit.providers.dialects.names import ToolNames
from remit.providers.dialects.responses.client_tools import item_fields
from remit.providers.dialects.seals import encrypted_of

__all__ = ["OutputItems"]

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
