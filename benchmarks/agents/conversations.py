"""Remit's runtime and its agent, as these benchmarks want them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.agents.runners import script
from remit.agents.tools import Tool
from remit.runtime import Agent, Runtime

FLAGS: dict[str, Any] = {
    # Counted and checked, but never reached: the default, 2,000,000, is a day's conversation.
    "budget.session_tokens": 10**12,
}
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
    model = f"openai/{script.MODEL}"
    return Runtime.open(root, create=True, model=model, flags={**FLAGS, **(flags or {})})


def agent_of(runtime: Runtime) -> Agent:
    """The agent that has the script's instructions and tools; classification is off."""
    return runtime.agent("bench", instructions=script.INSTRUCTIONS, tools=tools())
