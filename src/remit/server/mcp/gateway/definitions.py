"""The current tools of one upstream server, checked against their pins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp import MCPError
from mcp.types import INTERNAL_ERROR

from remit.agents.tools import Pins, Tool, mcp_schema, mcp_tool_id

_FRESH_S = 60.0  # a change that a server does not speak of is seen within this time
_MAX_PAGES = 100
_MAX_RELOADS = 3  # while the tools are read; then the latest list counts
_UNSEEN = "Not available until a person accepts its definition."

Ask = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Definition:
    """A tool as its server describes it.

    Attributes:
        tool: the tool with its recorded id and digest.
        output_schema: JSON Schema of its structured results; None without one.
        refusal: why the tool must not be called; empty if it may be.
    """

    tool: Tool
    output_schema: Mapping[str, Any] | None
    refusal: str = ""


class Definitions:
    """The tools of one connection's server, compared with their pins.

    Args:
        server: its name.
        origin: returns the server's command or URL, for the record.
        pins: the pinned definitions.
        always: True to list the tools before each call; else only if the list is over a minute
            old, lacks the tool, or was announced as changed.
    """

    def __init__(
        self, server: str, origin: Callable[[], str], pins: Pins, *, always: bool = False
    ) -> None:
        self._server = server
        self._origin = origin
        self._pins = pins
        self._always = always
        self._known: dict[str, Definition] = {}
        self._found: list[dict[str, Any]] = []
        self._checked_at = -_FRESH_S
        self._changes = self._seen = 0  # changes announced, and how many of them were read

    def changed(self) -> None:
        """Note that the server announced a change of its tools.

        The list is read again before the next call.
        """
        self._changes += 1

    async def find(self, name: str, ask: Ask, meta: Any) -> Definition | None:
        """Return the definition of a tool; None if the server offers none with this name.

        A tool whose definition has a ``refusal`` must not be called. The list is read again if it
        is over a minute old, lacks the name, or was announced as changed; with ``always``, always.
        If changes are announced meanwhile, reading is repeated, up to three readings in all; then
        the latest list counts. Reading pins new tools and records changes (``TOOL_PINNED``).

        Args:
            name: the server's name of the tool.
            ask: sends a request to the server.
            meta: ``_meta`` of the client's request.

        Raises:
            MCPError: the server does not list its tools, or sends an invalid list.
            LedgerError: a pin cannot be read or recorded.
        """
        late = time.monotonic() - self._checked_at > _FRESH_S
        if self._always or late or name not in self._known or self._seen != self._changes:
            for _ in range(_MAX_RELOADS):
                await self._read(ask, meta)
                if self._seen == self._changes:
                    break
        return self._known.get(name)

    async def checked(self, page: Mapping[str, Any]) -> dict[str, Any]:
        """Return a page of ``tools/list`` for the client, with changed tools as they were pinned.

        New tools are pinned; changes are recorded and wait for acceptance. A changed tool whose pin
        cannot be read has a placeholder as its description. The last of equal names is shown.

        Args:
            page: the server's answer.

        Raises:
            MCPError: the page is not a list of tools.
            LedgerError: a pin cannot be read or recorded.
        """
        shown, found = [], _tools_of(page, self._server)
        taken = await self._take(found)
        for raw in found:
            definition = taken[raw["name"]]
            if definition.refusal:
                tool = definition.tool
                raw = {"name": raw["name"], "description": tool.description, **tool.stated}
            shown.append(raw)
        return {**page, "tools": shown}

    async def _read(self, ask: Ask, meta: Any) -> None:
        kept = dict(meta) if isinstance(meta, Mapping) else {}
        kept.pop("progressToken", None)
        params: dict[str, Any] = {"_meta": kept} if kept else {}
        found: list[dict[str, Any]] = []
        began, changes = time.monotonic(), self._changes
        for _ in range(_MAX_PAGES):
            page = await ask("tools/list", params)
            found += _tools_of(page, self._server)
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or cursor == params.get("cursor"):
                break
            params = {**params, "cursor": cursor}
        refused = any(definition.refusal for definition in self._known.values())
        if found != self._found or refused or began - self._checked_at > _FRESH_S:
            self._known = await self._take(found)
            self._found, self._checked_at = found, began
        self._seen = changes

    async def _take(self, found: list[dict[str, Any]]) -> dict[str, Definition]:
        tools = {raw["name"]: _tool(self._server, raw) for raw in found}
        refused = await asyncio.to_thread(
            self._pins.check, self._server, self._origin(), tools.values()
        )
        taken = {}
        for raw in found:
            tool, schema = tools[raw["name"]], raw.get("outputSchema")
            schema = mcp_schema(schema) if isinstance(schema, dict) else None
            if (why := refused.get(tool.tool_id)) is None:
                taken[raw["name"]] = Definition(tool, schema)
                continue
            pinned = why.pin.read() if why.pin is not None else None
            description, _, stated = pinned or (_UNSEEN, {}, {"inputSchema": {"type": "object"}})
            shown = _tool(self._server, {**stated, "name": raw["name"],
                                         "description": description})  # fmt: skip
            taken[raw["name"]] = Definition(shown, schema, why.reason)
        return taken


def _tools_of(page: Mapping[str, Any], server: str) -> list[dict[str, Any]]:
    tools = page.get("tools")
    if isinstance(tools, list) and all(
        isinstance(tool, dict)
        and isinstance(tool.get("name"), str)
        and isinstance(tool.get("inputSchema"), dict)
        for tool in tools
    ):
        # Names are unique: of one that stands twice the last is called, and so shown.
        return [*{tool["name"]: tool for tool in tools}.values()]
    raise MCPError(INTERNAL_ERROR, f"The MCP server {server!r} sent an invalid list of tools.")


def _tool(server: str, raw: Mapping[str, Any]) -> Tool:
    description = raw.get("description") or raw.get("title") or raw["name"]
    return Tool(
        mcp_tool_id(server, raw["name"]),
        str(description),
        mcp_schema(raw["inputSchema"]),
        _none,
        stated={key: raw[key] for key in raw if key not in ("name", "description")},
    )


def _none() -> None:
    """Do nothing: the upstream server runs the tool."""
