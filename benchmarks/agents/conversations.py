"""Remit's runtime and its agent, as these benchmarks want them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from benchmarks.agents.runners import script
from remit.runtime import Runtime
from remit.tools import Tool

FLAGS: dict[str, Any] = {
    "supervisor.classify": False,
    "chat.tools_allowed": [],
    # Counted and checked, but never reached: the default, 2,000,000, is a day's conversation.
    "budget.session_tokens": 10**12,
}
_agents: WeakKeyDictionary[Runtime, Any] = WeakKeyDictionary()
_FUNCTIONS = {"find_city": script.find_city, "find_weather": script.find_weather}


def tools() -> list[Tool]:
    """The tools of the script, as Remit takes them."""
    return [
        Tool(
            name,
            one.description,
            {
                "type": "object",
                "required": list(one.arguments),
                "properties": {key: {"type": "string"} for key in one.arguments},
                "additionalProperties": False,
            },
            _FUNCTIONS[name],
        )
        for name, one in script.TOOLS.items()
    ]


def opened_runtime(root: Path, url: str, *, flags: Mapping[str, Any] | None = None) -> Runtime:
    """A runtime over a root, which is made where it is not there.

    Args:
        root: where.
        url: of the upstream, with ``/v1``.
        flags: settings beside :data:`FLAGS`.
    """
    os.environ |= {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "x"}
    return Runtime.open(
        root,
        create=True,
        model=f"openai/{script.MODEL}",
        flags={**FLAGS, **(flags or {})},
        tools=() if hasattr(Runtime, "agent") else tools(),
    )


def begin_session(runtime: Runtime) -> Any:
    """A new session with the agent that has the script's tools."""
    return _agent(runtime).session()


def go_on(runtime: Runtime, session_id: str) -> Any:
    """A session of that agent which another process left."""
    _agent(runtime)
    return runtime.session(session_id)


def _agent(runtime: Runtime) -> Any:
    """The agent of that runtime, made once; a runtime without agents has one, ADMIN."""
    agent = getattr(runtime, "agent", None)
    if agent is None:
        return runtime
    if runtime not in _agents:
        _agents[runtime] = agent("bench", instructions=script.INSTRUCTIONS, tools=tools())
    return _agents[runtime]
