"""The agent whose orders workers do: ``remit worker --app benchmarks.cluster.clerk:agents``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.overspend import MODELS
from remit.runtime import Agent, Runtime

NAME = "clerk"


def agents(runtime: Runtime) -> Iterator[Agent[Any]]:
    """One, whose turn is one call."""
    model = f"openai/{MODELS['openai']}"
    yield runtime.agent(NAME, instructions="Answer.", model=model, max_retries=0)
