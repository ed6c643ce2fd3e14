"""Runs tools: arguments checked, time and output bounded, exceptions contained."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from remit.blocking import call_in_thread, run_blocking
from remit.canonical import canonical_json
from remit.config import ToolSettings
from remit.errors import InvalidInputError, RemitError
from remit.schemas import first_problem
from remit.tools.tool import Tool, UnknownToolError

__all__ = ["ToolDispatcher", "ToolResult"]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of a tool call.

    Attributes:
        status: ``ok``, ``error`` (it raised, or the arguments do not fit), ``timeout``, or
            ``refused`` (it was not allowed).
        output: a JSON value; ``None`` unless ``ok``.
        error: a sentence for the model; empty when ``ok``.
    """

    status: Literal["ok", "error", "timeout", "refused"]
    output: Any = None
    error: str = ""


class ToolDispatcher:
    """The tools of one runtime.

    Args:
        tools: what there is.
        settings: time and output limits.
    """

    def __init__(self, tools: Iterable[Tool], settings: ToolSettings) -> None:
        self._tools = {tool.tool_id: tool for tool in tools}
        self._settings = settings

    def tools(self, tool_ids: Iterable[str]) -> list[Tool]:
        """The tools with these ids, in this order.

        Raises:
            UnknownToolError: one of them does not exist.
        """
        wanted = list(tool_ids)
        for tool_id in wanted:
            if tool_id not in self._tools:
                raise UnknownToolError(
                    f"There is no tool {tool_id!r}.",
                    next_step=f"Known: {', '.join(sorted(self._tools))}.",
                )
        return [self._tools[tool_id] for tool_id in wanted]

    def execute(self, tool_id: str, arguments: Mapping[str, Any]) -> ToolResult:
        """:meth:`aexecute` for callers without an event loop."""
        return run_blocking(self.aexecute(tool_id, arguments))

    async def aexecute(self, tool_id: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run one tool. Never raises: what goes wrong is in the result."""
        tool = self._tools.get(tool_id)
        if tool is None:
            return ToolResult("error", error=f"There is no tool {tool_id!r}.")
        if problem := first_problem(tool.input_schema, dict(arguments)):
            return ToolResult("error", error=problem)
        try:
            output = await asyncio.wait_for(_call(tool, arguments), self._settings.timeout_s)
        except TimeoutError:
            seconds = f"{self._settings.timeout_s:g}"
            return ToolResult("timeout", error=f"{tool_id} did not end within {seconds} s.")
        except RemitError as error:
            return ToolResult("error", error=str(error))
        except Exception as error:  # noqa: BLE001 - a tool must not take the runtime down
            return ToolResult("error", error=f"{tool_id} raised {type(error).__name__}: {error}")
        return self._bounded(tool_id, output)

    def _bounded(self, tool_id: str, output: Any) -> ToolResult:
        if isinstance(output, (bytes, bytearray)):
            return ToolResult("error", error=f"{tool_id} gave back bytes, not JSON.")
        try:
            size = len(canonical_json(output))
        except InvalidInputError as error:
            return ToolResult("error", error=f"{tool_id} gave back no JSON: {error.message}")
        limit = self._settings.max_output_bytes
        if size > limit:
            return ToolResult(
                "error", error=f"{tool_id} gave back {size:,} bytes; the limit is {limit:,}."
            )
        return ToolResult("ok", output)


async def _call(tool: Tool, arguments: Mapping[str, Any]) -> Any:
    if inspect.iscoroutinefunction(tool.function):
        return await tool.function(**arguments)
    return await call_in_thread(f"remit-tool-{tool.tool_id}", lambda: tool.function(**arguments))
