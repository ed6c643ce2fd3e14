"""The tools one order may use: intent on record before, result after, refusals told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from remit.canonical import canonical_json
from remit.errors import InvalidInputError
from remit.tools import Tool, ToolResult
from remit.worker.journal import Journal
from remit.worker.ports import ToolPort
from remit.workorders import EventSink, ToolEnded, ToolStarted

__all__ = ["UNKNOWN_TOOL", "Toolbox"]

UNKNOWN_TOOL = "unknown"
"""What the record calls a tool that the order may not use."""


class Toolbox:
    """Runs tools for one order.

    Args:
        tools: the dispatcher.
        allowed: ids the order may use; all others are refused.
        needs_approval: of these, the ones that a person must release first.
        journal: where intent and result are noted.
        wo_id: of the order, for idempotency keys.
        on_event: hears of starts and ends.

    Attributes:
        calls: how many tools ran.
        results: what they gave back, in order, as data.
    """

    def __init__(
        self,
        tools: ToolPort,
        allowed: Sequence[str],
        needs_approval: Sequence[str],
        journal: Journal,
        wo_id: str,
        on_event: EventSink | None,
    ) -> None:
        self._port = tools
        self._allowed = tuple(allowed)
        self._needs_approval = frozenset(needs_approval)
        self._journal = journal
        self._wo_id = wo_id
        self._on_event = on_event or (lambda _: None)
        self._numbered = 0
        self.calls = 0
        self.results: list[dict[str, Any]] = []

    def available(self) -> list[Tool]:
        """The tools the order may use."""
        return self._port.tools(self._allowed)

    async def use_all(self, blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Answer tool_use blocks with tool_result blocks, side by side and in their order."""
        outcomes = await asyncio.gather(
            *(self.use(str(block.get("name", "")), block.get("input")) for block in blocks)
        )
        return [
            {
                "type": "tool_result",
                "tool_use_id": str(block.get("id", "")),
                "content": result_text(outcome),
                "is_error": outcome.status != "ok",
            }
            for block, outcome in zip(blocks, outcomes, strict=True)
        ]

    async def use(self, tool_id: str, arguments: Any) -> ToolResult:
        """Run one tool, or refuse it; either is on record."""
        self._numbered += 1
        key = f"{self._wo_id}/tool-{self._numbered:03d}"
        given = arguments if isinstance(arguments, dict) else {"_unparsed": str(arguments)}
        try:
            size = len(canonical_json(given))
        except InvalidInputError as error:
            given, size = {}, 0
            result = ToolResult("error", error=f"The arguments cannot be recorded: {error.message}")
        else:
            if tool_id in self._needs_approval:
                result = ToolResult(
                    "refused",
                    error=f"approval_denied: {tool_id} needs an approval; none can be given yet.",
                )
            elif tool_id in self._allowed:
                await self._journal.write(
                    "TOOL_INTENT", tool_id=tool_id, arguments=given, idempotency_key=key
                )
                self._on_event(ToolStarted(tool_id, given))
                result = await self._port.aexecute(tool_id, given)
                self.calls += 1
            else:
                allowed = ", ".join(self._allowed) or "none"
                result = ToolResult(
                    "refused",
                    error=f"tool_not_allowed: this work order may use {allowed}, not {tool_id!r}.",
                )
        await self._journal.write(
            "TOOL_CALL",
            # A name the model made up is its text, not an id: it stands in tool_error, as content.
            tool_id=tool_id if tool_id in self._allowed else UNKNOWN_TOOL,
            status=result.status,
            arguments=given,
            result=result.output,
            arguments_bytes=size,
            result_bytes=len(canonical_json(result.output)),
            tool_error=result.error,
            idempotency_key=key,
        )
        self.results.append(
            {
                "tool_id": tool_id,
                "status": result.status,
                "arguments": given,
                "output": result.output,
                "error": result.error,
            }
        )
        self._on_event(ToolEnded(tool_id, result.status, result.output, result.error))
        return result


def sendable(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A model's blocks as they can be sent back to it.

    Arguments that JSON readers cannot keep (an integer beyond 2**53, say) are left out: the
    tool was not run with them, and the result beside says why.
    """
    kept = []
    for block in blocks:
        try:
            canonical_json(block)
            kept.append(dict(block))
        except InvalidInputError:
            kept.append({**block, "input": {}})
    return kept


def result_text(result: ToolResult) -> str:
    """A tool's result as the model reads it."""
    if result.status != "ok":
        return f"{result.status}: {result.error}"
    if isinstance(result.output, str):
        return result.output
    return orjson.dumps(result.output).decode()
