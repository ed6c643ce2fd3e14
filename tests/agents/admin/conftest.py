"""A root with real conversations in it, and ADMIN's tools over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remit.agents import Redactor, admin_tools
from remit.agents.tools import Context, Tool, ToolDispatcher
from remit.gateway.auth import Identity
from remit.kernel.settings import ToolSettings
from remit.operations import Caller, make_tools
from remit.runtime import OpenRoot, Runtime
from remit.runtime.operations import all_operations
from tests.support.agents import anthropic_runtime, by_kind
from tests.support.wire import Step


@dataclass
class Office:
    """An open root."""

    runtime: Runtime
    root: Path

    def run(self, tool_id: str, *, session: str = "", most: int = 0, **arguments: Any) -> Any:
        """The result of one tool, asked in ``session``; ``most`` bytes of output."""
        settings = self.runtime.loaded.settings.tools
        if most:
            settings = settings.model_copy(update={"max_output_bytes": most})
        tools = self.tools(settings)
        call = Context(tool_id, "k", f"WO-{session}-001", session) if session else None
        return ToolDispatcher(tools, settings).execute(tool_id, arguments, call=call)

    def tools(self, settings: ToolSettings) -> list[Tool]:
        """All tools of ADMIN."""
        ledger, loaded = self.runtime.ledger, self.runtime.loaded
        root = OpenRoot(lambda: (self.runtime.root, loaded), lambda: ledger)
        caller = Caller(Identity("ADMIN", "operator"))
        made = make_tools(all_operations(), root, lambda: caller, settings, Redactor.of(loaded))
        tools = [tool for stated, tool in made if stated.label]
        return admin_tools(ledger, self.root, settings, loaded, operations=tools)

    def output(self, tool_id: str, **more: Any) -> Any:
        """Its output; it must go well."""
        result = self.run(tool_id, **more)
        assert result.status == "ok", result.error
        return result.output

    def error(self, tool_id: str, **more: Any) -> str:
        """What it says went wrong."""
        result = self.run(tool_id, **more)
        assert result.status == "error"
        return result.error


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Office]]:
    """Opens a root whose model answers by a script."""
    opened: list[Any] = []

    def make(*script: Step, **flags: Any) -> Office:
        root = tmp_path / "root"
        entered = anthropic_runtime(root, monkeypatch, by_kind(*script), flags=flags)
        runtime, _ = entered.__enter__()
        opened.append(entered)
        return Office(runtime, root)

    yield make
    for one in opened:
        one.__exit__(None, None, None)
