"""A program whose tool keeps failing, killed as its session is about to set the tool aside."""

from __future__ import annotations

import os
import signal
from typing import Any

from remit.agents.supervisor.exclusions import Exclusions
from remit.agents.tools import Tool
from remit.runtime import Agent, Runtime


def agent_of(runtime: Runtime) -> Agent:
    """An agent with a tool that is out of order and one that works."""

    def stock(**_: Any) -> None:
        raise ConnectionError("refused")

    tools = [
        Tool("stock", "What there is.", {"type": "object"}, stock),
        Tool("list", "What there was.", {"type": "object"}, lambda **_: "sencha"),
    ]
    return runtime.agent("seller", tools=tools, max_retries=0)


def main(root: str) -> None:
    """Have three turns; the third is not survived."""

    def killed(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    Exclusions._exclude = killed  # type: ignore[method-assign]
    with Runtime.open(root) as runtime:
        session = agent_of(runtime).session()
        print(session.session_id, flush=True)
        for _turn in range(3):
            session.turn("Is there any oolong?")
