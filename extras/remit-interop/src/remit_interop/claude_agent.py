"""The Claude Agent SDK (extra ``claude-agent``): Claude Code's models, tools and hooks in a run.

.. code-block:: python

    agent = runtime.agent("fixer", tools=[stock, *builtin("Read", "Bash")], approve=["Bash"])
    with agent.session() as session, door.attach(session, task, key="fix-7") as run:
        async for message in query(prompt=task, options=options(run)):
            ...

Tools of Python run here, as MCP tools of a server ``remit``; those of :func:`builtin` run in Claude
Code; all others are refused. A call that a person must release first is deferred: the query ends,
and is gone on with by ``resume`` once it is decided.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    HookMatcher,
    SdkMcpTool,
    create_sdk_mcp_server,
)

from remit.agents import WorkParkedError, result_text
from remit.agents.tools import Tool, ToolError, ToolResult, current_call
from remit.kernel.canonical import canonical_json
from remit_interop.run import Run

_SERVER = "remit"
_OWN = f"mcp__{_SERVER}__"
_LONGEST_S = 3600.0
_OUTSIDE: dict[str, _Outside] = {}


class _Outside:
    """One call of a tool of Claude Code's own, between its two hooks."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[ToolResult] | None = None


def builtin(*names: str) -> list[Tool]:
    """Tools of Claude Code's own, for :meth:`remit.Runtime.agent`: they run there."""
    return [
        Tool(name, "A tool of Claude Code's own.", {"type": "object"}, _outside,
             timeout_s=_LONGEST_S)
        for name in names
    ]  # fmt: skip


def options(run: Run, **more: Any) -> ClaudeAgentOptions:
    """Options whose models, tools and permissions are the run's.

    Args:
        more: other options, as ``model`` or ``resume``; ``env``, ``hooks``, ``mcp_servers``,
            ``tools`` and ``allowed_tools`` are the run's.
    """
    hooks = _Hooks(run)
    own = [tool for tool in run.tools if tool.function is not _outside]
    base = run.anthropic
    return ClaudeAgentOptions(
        env={
            "ANTHROPIC_BASE_URL": base["base_url"],
            "ANTHROPIC_AUTH_TOKEN": base["api_key"],
            "ANTHROPIC_API_KEY": "",
        },
        tools=[tool.tool_id for tool in run.tools if tool.function is _outside],
        allowed_tools=[_OWN + tool.tool_id for tool in own],
        mcp_servers={_SERVER: create_sdk_mcp_server(_SERVER, tools=[hooks.tool(t) for t in own])},
        hooks={
            "PreToolUse": [HookMatcher(hooks=[hooks.before], timeout=_LONGEST_S)],
            "PostToolUse": [HookMatcher(hooks=[hooks.after])],
            "PostToolUseFailure": [HookMatcher(hooks=[hooks.failed])],
        },
        **more,
    )


class _Hooks:
    def __init__(self, run: Run) -> None:
        self._run = run
        self._results: defaultdict[bytes, deque[ToolResult]] = defaultdict(deque)
        self._outside: dict[str, _Outside] = {}

    def tool(self, tool: Tool) -> SdkMcpTool[Any]:
        """Gives back what the call's own hook, which knows its id, has had done."""

        async def give(arguments: dict[str, Any]) -> dict[str, Any]:
            result = self._results[_named(tool.tool_id, arguments)].popleft()
            text = {"type": "text", "text": result_text(result)}
            return {"content": [text], "is_error": result.status != "ok"}

        return SdkMcpTool(tool.tool_id, tool.description, dict(tool.input_schema), give)

    async def before(self, given: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        """Whether a tool may run; a Python tool has run by then."""
        call_id, arguments = str(call_id or given["tool_use_id"]), given["tool_input"]
        name = str(given["tool_name"])
        tool_id = name.removeprefix(_OWN)
        try:
            result = await (self._use if name != tool_id else self._begin)(
                tool_id, arguments, call_id
            )
        except WorkParkedError as parked:
            return _decided("defer", str(parked))
        if result is not None and result.status == "refused":
            return _decided("deny", result_text(result))
        return _decided("allow", "")

    async def after(self, given: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        """A tool of Claude Code's own has ended."""
        await self._end(given, call_id, given.get("tool_response"))
        return {}

    async def failed(self, given: Any, call_id: str | None, context: Any) -> dict[str, Any]:
        """A tool of Claude Code's own has failed."""
        await self._end(given, call_id, ToolError(str(given.get("error"))))
        return {}

    async def _use(self, tool_id: str, arguments: Any, call_id: str) -> ToolResult:
        result = await self._run.acall(tool_id, arguments, call_id)
        if result.status != "refused":
            self._results[_named(tool_id, arguments)].append(result)
        return result

    async def _begin(self, tool_id: str, arguments: Any, call_id: str) -> ToolResult | None:
        """The intent is on record and the call under way; or what became of it already."""
        outside = self._outside[call_id] = _OUTSIDE[call_id] = _Outside()
        outside.task = asyncio.create_task(self._run.acall(tool_id, arguments, call_id))
        began = asyncio.create_task(outside.began.wait())
        done, _ = await asyncio.wait({outside.task, began}, return_when="FIRST_COMPLETED")
        began.cancel()
        if outside.task not in done:
            return None
        del self._outside[call_id], _OUTSIDE[call_id]
        result = outside.task.result()
        if result.status == "ok":  # on record from before: Claude Code must not do it again
            return ToolResult("refused", error=f"It has run: {result_text(result)}")
        return result

    async def _end(self, given: Any, call_id: str | None, response: Any) -> None:
        outside = self._outside.pop(str(call_id or given["tool_use_id"]), None)
        if outside is not None and outside.task is not None:
            outside.result.set_result(response)
            await outside.task


async def _outside(**_: Any) -> Any:
    """Waits, on the loop of the hooks, until the one after the call says what came of it."""
    call = current_call()
    call_id = call.idempotency_key.split("/")[1] if call is not None else ""
    pending = _OUTSIDE.pop(call_id, None)
    if pending is None:
        raise ToolError("This tool runs in Claude Code alone.")
    pending.began.set()
    response = await pending.result
    if isinstance(response, ToolError):
        raise response
    return response


def _named(tool_id: str, arguments: Any) -> bytes:
    return canonical_json([tool_id, arguments])


def _decided(decision: str, reason: str) -> dict[str, Any]:
    said = {"permissionDecision": decision, "permissionDecisionReason": reason}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **said}}
