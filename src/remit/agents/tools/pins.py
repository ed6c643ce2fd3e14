"""Pinned definitions of MCP servers' tools.

The first use of a tool puts its definition on record, with the server that it came from. Whatever
differs from that later, another definition or another server under the same name, must not be
called until a person accepts the difference. A definition is all that the server states of a tool:
what a model is shown, and the rest, such as annotations that say it only reads. Packages may name
what a model is shown by its hash, as ``server__tool@sha256:…`` among their permitted tools; then
that one is the first.

Other texts of a server that reach a model are pinned alike, see
:class:`remit.agents.tools.mcp.texts.PinnedTexts`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from remit.agents.tools.pin import Offered, Pin, PinnedTool, stated_hashes
from remit.kernel.errors import ConflictError
from remit.ledger import (
    LedgerClient,
    LedgerEntry,
    Transaction,
    content,
    is_authentic,
    is_plain_text,
    parse_entry_id,
)

_EVENT = "TOOL_PINNED"
_PINNED, _CHANGED, _ACCEPTED = "PINNED", "CHANGED", "ACCEPTED"
_LAST = f"SELECT max(seq) FROM entries WHERE submission_id = ? AND event_type = '{_EVENT}'"
_MARK = "@sha256:"
INSTRUCTIONS = ":instructions"
"""End of the id under which a server's instructions are pinned; it follows the server's name."""


class Refused(NamedTuple):
    """Why a tool must not be called, and its pin, which a model may still be shown."""

    reason: str
    pin: Pin | None


class Pins:
    """The pins of one ledger, of all MCP servers.

    Args:
        ledger: of the root.
        named: gives the tools that installed packages permit, as their manifests write them.
    """

    def __init__(
        self, ledger: LedgerClient, named: Callable[[], Iterable[str]] = lambda: ()
    ) -> None:
        self._ledger = ledger
        self._named = named

    def check(self, server: str, origin: str, tools: Iterable[Offered]) -> dict[str, Refused]:
        """Hold what a server offers now against the pins: what must not be called, by tool id.

        A tool without a pin gets one. What differs goes on record, once, for a person to accept.
        Blocks.

        Args:
            server: its name in the configuration.
            origin: which server it is, see :class:`Pin`.
            tools: what it offers, as :meth:`remit.agents.tools.mcp.McpServer.tools` makes them.
        """
        offered = list(tools)
        named: dict[str, set[str]] = {}
        for name in self._named():
            tool_id, mark, digest = name.partition(_MARK)
            if mark:
                named.setdefault(tool_id, set()).add(digest)
        while True:
            states, last = self._states(server)
            refused, new = _compare(server, origin, offered, states, named)
            if not new or self._append(server, last, new):
                return refused

    def tools(self, server: str = "") -> list[PinnedTool]:
        """What is pinned of one server, or of all, in the order of servers and tool ids."""
        states, _ = self._states(server)
        return sorted(states.values(), key=lambda state: (state.server, state.tool_id))

    def changed(self, server: str, tool_id: str = "") -> list[PinnedTool]:
        """What waits to be accepted of a server's tools, or of one.

        Args:
            server: the MCP server's name.
            tool_id: the tool, with or without its server's name.

        Raises:
            ConflictError: nothing has changed, or there is no such tool.
        """
        wanted = {tool_id, f"{server}__{tool_id}"}
        found = [
            state
            for state in self.tools(server)
            if state.change is not None and (not tool_id or state.tool_id in wanted)
        ]
        if not found:
            raise ConflictError(
                f"No change of {tool_id or 'a tool'} of the MCP server {server!r} waits.",
                next_step=f"`remit mcp diff {server}` asks the server what it offers now.",
            )
        return found

    def accept(self, changes: Iterable[PinnedTool], *, by: str) -> None:
        """Accept changes: from now on these definitions may be called.

        Args:
            changes: of one server, as :meth:`changed` gave them to the person.
            by: the name of who accepts them, for the record.

        Raises:
            ConflictError: the definition of one of them has changed meanwhile, or the name is
                missing.
        """
        if not by.strip():
            raise ConflictError(
                "The name of the person who accepts it is missing.", next_step="Give it as `by`."
            )
        given = [(state, state.change) for state in changes if state.change is not None]
        for server in {state.server for state, _ in given}:
            states, last = self._states(server)
            new = []
            for state, change in given:
                if state.server != server:
                    continue
                if states.get((server, state.tool_id)) != state:
                    raise ConflictError(
                        f"{state.tool_id} is not as it was shown: it changed again, or it is "
                        "accepted already.",
                        next_step=f"Look at it again with `remit mcp diff {server}`.",
                    )
                new.append(_entry(_ACCEPTED, replace(change, by=by), state.pin))
            if not self._append(server, last, new):
                raise ConflictError(
                    f"The tools of {server} changed at this moment.",
                    next_step=f"Look at them again with `remit mcp diff {server}`.",
                )

    def _states(self, server: str) -> tuple[dict[tuple[str, str], PinnedTool], int | None]:
        """The tools by server and id, and the sequence number of the last entry about them."""
        if server:
            found = self._ledger.query(event_type=_EVENT, submission_id=_submission(server))
        else:
            found = self._ledger.query(event_type=_EVENT)
        states: dict[tuple[str, str], PinnedTool] = {}
        last: int | None = None
        for entry in found:
            last = parse_entry_id(entry.id)
            if not is_authentic(entry):
                continue
            pin = _pin(entry)
            key = pin.server, pin.tool_id
            state = states.setdefault(key, PinnedTool(*key))
            if entry.decision == _CHANGED:
                state.change = pin
            else:
                state.pin, state.change = pin, None
        return states, last

    def _append(self, server: str, last: int | None, new: list[LedgerEntry]) -> bool:
        """Write them, unless something else was written about the server meanwhile."""

        def write(tx: Transaction) -> bool:
            ((latest,),) = tx.execute(_LAST, (_submission(server),))
            if latest != last:
                return False
            for entry in new:
                tx.append(entry)
            return True

        return self._ledger.transact(write)


def _compare(
    server: str,
    origin: str,
    offered: list[Offered],
    states: dict[tuple[str, str], PinnedTool],
    named: dict[str, set[str]],
) -> tuple[dict[str, Refused], list[LedgerEntry]]:
    """What must not be called, and what is to be put on record."""
    refused: dict[str, Refused] = {}
    new: list[LedgerEntry] = []
    origins = {state.pin.origin for state in states.values() if state.pin is not None}
    for tool in offered:
        state = states.get((server, tool.tool_id)) or PinnedTool(server, tool.tool_id)
        pin, allowed = state.pin, named.get(tool.tool_id, set())
        same_origin = origin == pin.origin if pin is not None else origin in origins or not origins
        shown = pin is not None and pin.digest == tool.digest
        permitted = not allowed or tool.digest in allowed
        stated, by = stated_hashes(tool.stated), ""
        if (
            same_origin and pin is not None and shown and pin.covers(stated)
            and (pin.by or permitted)
        ):  # fmt: skip
            if pin.stated is not None:
                continue
            # A pin of an earlier version: the rest of the definition joins it.
            decision, by = _PINNED, pin.by
        elif (
            same_origin and not shown and permitted
            and (allowed or (pin is None and not _are_late(tool, origins)))
        ):  # fmt: skip
            decision = _PINNED  # the first use, or a package names the new definition
        else:
            decision = _CHANGED
            refused[tool.tool_id] = Refused(_reason(server, origin, tool, pin, allowed), pin)
            seen = state.change
            if seen is not None and (seen.digest, seen.stated, seen.origin) == (
                tool.digest, stated, origin,
            ):  # fmt: skip
                continue
        offer = Pin("", server, tool.tool_id, tool.digest, origin, "", by, _text(tool), stated)
        new.append(_entry(decision, offer, pin))
    return refused, new


def _are_late(offered: Offered, origins: set[str]) -> bool:
    """Return True for instructions of a server of which something was pinned without them."""
    return bool(origins) and offered.tool_id.endswith(INSTRUCTIONS)


def _reason(server: str, origin: str, tool: Offered, pin: Pin | None, allowed: set[str]) -> str:
    step = (
        f"A person has to look at it with `remit mcp diff {server}`, and can accept it with "
        f"`remit mcp accept {server} {tool.tool_id}`."
    )
    if pin is not None and pin.origin != origin:
        return f"{tool.tool_id} comes from another server than before under this name. {step}"
    if pin is None and _are_late(tool, {origin}):
        return f"The instructions of the MCP server {server!r} are not pinned yet. {step}"
    if pin is None and not allowed:
        return f"{tool.tool_id} is new, and from another server than the tools known here. {step}"
    if allowed:
        return f"The definition of {tool.tool_id} is not the one that a package names. {step}"
    return f"The definition of {tool.tool_id} has changed since it was pinned. {step}"


def _submission(server: str) -> str:
    return f"mcp:{server}"


def _text(tool: Offered) -> str:
    parameters, stated = dict(tool.input_schema), dict(tool.stated)
    if stated.get("inputSchema") == parameters:
        del stated["inputSchema"]
    found = {"description": tool.description, "parameters": parameters, "stated": stated}
    text = json.dumps(found, ensure_ascii=False, sort_keys=True)
    return text if is_plain_text(text) else json.dumps(found, sort_keys=True)


def _entry(decision: str, new: Pin, pin: Pin | None) -> LedgerEntry:
    return LedgerEntry(
        event_type=_EVENT,
        submission_id=_submission(new.server),
        decision=decision,
        reason=f"{new.tool_id} of {new.server}",
        metadata={
            "server": new.server,
            "origin": new.origin,
            "tool_id": new.tool_id,
            "definition_hash": new.digest,
            "definition": content(new.definition),
            **({} if new.stated is None else {"stated_hashes": dict(new.stated)}),
            **({"replaces": pin.entry_id} if pin is not None else {}),
            **({"by": new.by} if new.by else {}),
        },
    )


def _pin(entry: LedgerEntry) -> Pin:
    data: dict[str, Any] = entry.metadata
    definition = data["definition"]
    return Pin(
        entry.id,
        data["server"],
        data["tool_id"],
        data["definition_hash"],
        data["origin"],
        entry.timestamp,
        data.get("by", ""),
        definition if isinstance(definition, str) else None,
        data.get("stated_hashes"),
    )
