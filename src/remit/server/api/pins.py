"""Routes of pins: recorded definitions of MCP servers' tools, and the acceptance of changes."""

from __future__ import annotations

from typing import Any

from remit.agents.tools import PinnedTool, Pins
from remit.kernel.errors import ConflictError
from remit.ledger import LedgerClient
from remit.server.api.requests import Acceptance
from remit.server.api.routes import Caller, Routes, name_of
from remit.server.refusals import HttpError


def pin_routes(ledger: LedgerClient) -> Routes:
    """Return the routes that list pinned tools of MCP servers, and accept a changed one.

    Args:
        ledger: ledger of the root, in which the pins are recorded.
    """
    routes = Routes("pins")
    pins = Pins(ledger)

    @routes.add("GET", "/pins", "List pinned tools", needs="read", shape="PinPage")
    def listed() -> dict[str, Any]:
        """Return the pinned tools of MCP servers with their changes."""
        return {"pins": [tool.to_dict() for tool in pins.tools()]}

    @routes.add(
        "POST", "/pins/{tool_id}", "Accept a changed tool",
        needs="approve", shape="PinnedToolShape", fails=[409],
    )  # fmt: skip
    def accept(tool_id: str, acceptance: Acceptance, caller: Caller) -> dict[str, Any]:
        """Accept a changed definition, so that the tool can be called. The key is recorded."""
        found = _found(pins, tool_id)
        if found.change is None or found.change.digest != acceptance.digest:
            raise ConflictError(
                f"No change of {tool_id} to this definition waits for acceptance.",
                next_step="GET /api/pins lists the waiting changes.",
            )
        pins.accept([found], by=name_of(caller))
        return _found(pins, tool_id).to_dict()

    return routes


def _found(pins: Pins, tool_id: str) -> PinnedTool:
    for tool in pins.tools():
        if tool.tool_id == tool_id:
            return tool
    raise HttpError(404, "not_found", f"No tool {tool_id!r} is pinned.")
