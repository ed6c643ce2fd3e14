"""Pinned definitions of tools, and the changes that servers offered since."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from remit.agents.tools.definition import Tool, definition_digest, json_digest
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

_NESTED_FIELDS = ("annotations", "execution", "_meta")


def stated_hashes(stated: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 (64 lower-case hex digits) of each field that a server states of a tool.

    Top-level fields whose value is None are left out.

    Args:
        stated: :attr:`remit.Tool.stated`. Each key of its ``annotations``, ``execution`` and
            ``_meta`` is a field of its own, such as ``annotations.readOnlyHint``.
    """
    hashes: dict[str, str] = {}
    for name, value in stated.items():
        if name in _NESTED_FIELDS and isinstance(value, Mapping):
            hashes |= {f"{name}.{key}": json_digest(inner) for key, inner in value.items()}
        elif value is not None:
            hashes[name] = json_digest(value)
    return hashes


@dataclass(frozen=True, slots=True)
class OfferedText:
    """A text of a server that is not a tool, in the form in which definitions are pinned.

    Immutable, with the attributes of :class:`remit.Tool` that :class:`Pins` compares.

    Attributes:
        tool_id: the id of its pin, see :class:`Pin`.
        description: the text that a model is shown.
        stated: everything else that the server states of it.
        input_schema: always empty.
    """

    tool_id: str
    description: str
    stated: Mapping[str, Any]
    input_schema: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of id, description and schema in hex, see
        :func:`remit.agents.tools.definition.definition_digest`.
        """
        return definition_digest(self.tool_id, self.description, self.input_schema)


Offered = Tool | OfferedText
"""A definition that a server offers."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A recorded definition of a server's tool or text: an accepted one, or a change of it.

    Only a tool whose present definition equals the accepted one may be called. Immutable.

    Attributes:
        entry_id: id of the ``TOOL_PINNED`` entry; empty before it is written.
        server: name of the MCP server, as in ``[mcp.NAME]``.
        tool_id: the tool's id, ``{server}__{tool}``; for another text ``{server}:{kind}:{name}``.
        digest: :attr:`remit.Tool.digest`.
        stated: hashes of the other stated fields, see :func:`stated_hashes`; None in pins of
            earlier versions.
        origin: the server's command line or URL, see
            :func:`remit.agents.tools.mcp.transports.mcp_origin`.
        at: time of recording.
        by: the person who accepted the definition; empty for the first use.
        definition: JSON text of the definition; None if it was erased or not read.
    """

    entry_id: str
    server: str
    tool_id: str
    digest: str
    origin: str
    at: str
    by: str = ""
    definition: str | None = None
    stated: Mapping[str, str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes by name, as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}

    def covers(self, stated: Mapping[str, str]) -> bool:
        """Return True if all given hashes are as pinned; always True for a pin without hashes.

        Pinned fields that the server now omits do not count: they depend on the protocol version of
        the client. A new field counts as a difference.

        Args:
            stated: hashes of the fields that the server states now, see :func:`stated_hashes`.
        """
        pinned = self.stated
        return pinned is None or all(pinned.get(name) == one for name, one in stated.items())

    def read(self) -> tuple[str, dict[str, Any], dict[str, Any]] | None:
        """Return the definition's description, parameters and stated fields with ``inputSchema``.

        None if the definition was erased or not read.
        """
        if self.definition is None:
            return None
        found = json.loads(self.definition)
        parameters = dict(found["parameters"])
        stated = {"inputSchema": parameters, **found.get("stated", {})}
        return str(found["description"]), parameters, stated

    def lines(self) -> list[str]:
        """Return the definition as lines of text, for people and for a diff.

        The first line names the server's origin. Each further line begins with the name of its
        part, such as ``description`` or ``parameters``; JSON is indented, with sorted keys. The
        schema as the server sent it (``inputSchema``) appears only if it differs from the
        parameters. If the definition was erased or not read, the second and last line says that it
        was erased.
        """
        if (found := self.read()) is None:
            return [f"server: {self.origin}", "the definition was erased"]
        description, parameters, stated = found
        parts: dict[str, Any] = {"parameters": parameters, **stated}
        if parts["inputSchema"] == parameters:
            del parts["inputSchema"]
        return [
            f"server: {self.origin}",
            *(f"description: {line}" for line in description.splitlines()),
            *(
                f"{name}: {line}"
                for name, part in parts.items()
                for line in json.dumps(
                    part, indent=2, ensure_ascii=False, sort_keys=True
                ).splitlines()
            ),
        ]


@dataclass(slots=True)
class PinnedTool:
    """A tool's pin, and a differing definition that waits for a person.

    Mutable, a snapshot of the ledger.

    Attributes:
        server: name of the MCP server.
        tool_id: the tool's id.
        pin: the accepted definition; None if none was accepted yet.
        change: the definition that waits for acceptance; None if none does.
        reason: why the tool must not be called now, as a sentence; set by :meth:`Pins.check`.
    """

    server: str
    tool_id: str
    pin: Pin | None = None
    change: Pin | None = None
    reason: str = ""

    def diff(self) -> list[str]:
        """Return the lines of a unified diff from the pin to the change; empty without a change.

        The two header lines name the digests. Without a pin, every line of the change is new.
        """
        if self.change is None:
            return []
        before = self.pin.lines() if self.pin is not None else []
        old = self.pin.digest if self.pin is not None else "nothing"
        return list(
            difflib.unified_diff(
                before, self.change.lines(), f"pinned {old}", f"offered {self.change.digest}",
                lineterm="",
            )
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return ``server``, ``tool_id``, ``state``, ``pin``, ``change`` and ``diff`` as data.

        ``state`` is ``changed`` while a change waits for a person, otherwise ``pinned``. ``pin``
        (None before a definition is accepted) and ``change`` (None if none waits) are as
        :meth:`Pin.to_dict` returns them, ``diff`` the lines of :meth:`diff`.
        """
        return {
            "server": self.server,
            "tool_id": self.tool_id,
            "state": "changed" if self.change is not None else "pinned",
            "pin": self.pin.to_dict() if self.pin is not None else None,
            "change": self.change.to_dict() if self.change is not None else None,
            "diff": self.diff(),
        }


_EVENT = "TOOL_PINNED"
_PINNED, _CHANGED, _ACCEPTED = "PINNED", "CHANGED", "ACCEPTED"
_LAST = f"SELECT max(seq) FROM entries WHERE submission_id = ? AND event_type = '{_EVENT}'"
_DIGEST_SEPARATOR = "@sha256:"
INSTRUCTIONS = ":instructions"
"""End of the id under which a server's instructions are pinned; it follows the server's name."""


class Pins:
    """The pins of a ledger, for all MCP servers: recorded definitions that may be called.

    :meth:`check` and :meth:`accept` write ``TOOL_PINNED`` entries. Each method reads the ledger
    anew and blocks. Entries whose writer was not permitted to pin are ignored.

    Args:
        ledger: the ledger of the root; pins are its ``TOOL_PINNED`` entries.
        permitted: returns the tools that installed packages permit, as their manifests name them.
            Only names with a digest (``ID@sha256:HEX``) name a definition.
    """

    def __init__(
        self, ledger: LedgerClient, permitted: Callable[[], Iterable[str]] = lambda: ()
    ) -> None:
        self._ledger = ledger
        self._permitted = permitted

    def check(self, server: str, origin: str, tools: Iterable[Offered]) -> dict[str, PinnedTool]:
        """Compare a server's offered definitions with the pins; return the refused ones by tool id.

        A definition without a pin is pinned, and so is a changed one that a package names. Refused
        are other definitions that differ from their pin, definitions of another server than the
        one pinned under this name, definitions other than the ones that a package names for the
        tool unless a person accepted them, and instructions that appear after other pins. Each
        refused one has a ``reason``, and is recorded once as a change that a person can accept.
        Each pin and change is a ``TOOL_PINNED`` entry. Blocks. If another process pins at the same
        time, the comparison is repeated. Errors of ``permitted`` are let through.

        Args:
            server: name of the server in the configuration.
            origin: the server's command line or URL, see :class:`Pin`.
            tools: the offered definitions.

        Raises:
            LedgerError: the ledger cannot be read or written.
        """
        offered = list(tools)
        permitted: dict[str, set[str]] = {}
        for name in self._permitted():
            tool_id, mark, digest = name.partition(_DIGEST_SEPARATOR)
            if mark:
                permitted.setdefault(tool_id, set()).add(digest)
        while True:
            states, last = self._states(server)
            refused, new = _compare(server, origin, offered, states, permitted)
            if not new or self._append(server, last, new):
                return refused

    def tools(self, server: str = "") -> list[PinnedTool]:
        """Return the pinned tools and other texts, sorted by server and tool id. Read-only.

        Args:
            server: name of the MCP server; empty for all.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        states, _ = self._states(server)
        return sorted(states.values(), key=lambda state: (state.server, state.tool_id))

    def changed(self, server: str, tool_id: str = "") -> list[PinnedTool]:
        """Return the tools of a server whose change waits for acceptance, by id. Read-only.

        Args:
            server: name of the MCP server.
            tool_id: one tool, with or without the server's name; empty for all.

        Raises:
            ConflictError: no such tool has changed.
            LedgerError: the ledger cannot be read.
        """
        wanted = {tool_id, f"{server}__{tool_id}"}
        found = [
            state
            for state in self.tools(server)
            if state.change is not None and (not tool_id or state.tool_id in wanted)
        ]
        if not found:
            raise ConflictError(
                f"No change of {tool_id or 'a tool'} of the MCP server {server!r} is pending.",
                next_step=f"Run `remit mcp diff {server}` to read the server's present offer.",
            )
        return found

    def accept(self, changes: Iterable[PinnedTool], *, by: str) -> None:
        """Record that a person accepts changes; these definitions may be called from now on.

        Appends a ``TOOL_PINNED`` entry for each change, in one transaction for each server, in no
        fixed order; those before an error stay. Nothing is written for items without a change.

        Args:
            changes: the changes as :meth:`changed` returned them for the person.
            by: the recorded name of the person.

        Raises:
            ConflictError: the name is missing; a definition has changed again or was accepted; or
                another process wrote about the server at the same time.
            LedgerError: the ledger cannot be read or written.
        """
        if not by.strip():
            raise ConflictError(
                "The name of the person who accepts is missing.", next_step="Pass it as `by`."
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
                        f"{state.tool_id} is not as shown: it changed again or was accepted.",
                        next_step=f"Run `remit mcp diff {server}` to see the present change.",
                    )
                new.append(_entry(_ACCEPTED, replace(change, by=by), state.pin))
            if not self._append(server, last, new):
                raise ConflictError(
                    f"The tools of {server} changed at the same time.",
                    next_step=f"Run `remit mcp diff {server}` to see the present changes.",
                )

    def _states(self, server: str) -> tuple[dict[tuple[str, str], PinnedTool], int | None]:
        """Return the tools by (server, id), and the sequence number of the latest pin entry."""
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
        """Append entries; return False if another process wrote about the server since ``last``."""

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
    permitted: dict[str, set[str]],
) -> tuple[dict[str, PinnedTool], list[LedgerEntry]]:
    """Return the refused tools by id, and the entries to write."""
    refused: dict[str, PinnedTool] = {}
    new: list[LedgerEntry] = []
    origins = {state.pin.origin for state in states.values() if state.pin is not None}
    for tool in offered:
        state = states.get((server, tool.tool_id)) or PinnedTool(server, tool.tool_id)
        pin, digests = state.pin, permitted.get(tool.tool_id, set())
        same_origin = origin == pin.origin if pin is not None else origin in origins or not origins
        is_same = pin is not None and pin.digest == tool.digest
        is_permitted = not digests or tool.digest in digests
        stated, by = stated_hashes(tool.stated), ""
        if (
            same_origin and pin is not None and is_same and pin.covers(stated)
            and (pin.by or is_permitted)
        ):  # fmt: skip
            if pin.stated is not None:
                continue
            # The pin of an earlier version is completed with the rest of the definition.
            decision, by = _PINNED, pin.by
        elif (
            same_origin and not is_same and is_permitted
            and (digests or (pin is None and not _is_late_instructions(tool, origins)))
        ):  # fmt: skip
            decision = _PINNED  # The first use, or a package names the new definition.
        else:
            decision = _CHANGED
            reason = _reason(server, origin, tool, pin, digests)
            refused[tool.tool_id] = replace(state, reason=reason)
            change = state.change
            if change is not None and (change.digest, change.stated, change.origin) == (
                tool.digest, stated, origin,
            ):  # fmt: skip
                continue
        offer = Pin("", server, tool.tool_id, tool.digest, origin, "", by, _text(tool), stated)
        new.append(_entry(decision, offer, pin))
    return refused, new


def _is_late_instructions(offered: Offered, origins: set[str]) -> bool:
    """Return True for instructions of a server that is already pinned without any."""
    return bool(origins) and offered.tool_id.endswith(INSTRUCTIONS)


def _reason(server: str, origin: str, tool: Offered, pin: Pin | None, digests: set[str]) -> str:
    step = (
        f"Run `remit mcp diff {server}` to see the change, and "
        f"`remit mcp accept {server} {tool.tool_id}` to accept it."
    )
    if pin is not None and pin.origin != origin:
        return f"{tool.tool_id} comes from another server than before under this name. {step}"
    if pin is None and _is_late_instructions(tool, {origin}):
        return f"The instructions of the MCP server {server!r} are not pinned yet. {step}"
    if pin is None and not digests:
        return f"{tool.tool_id} is new, and from another server than the tools known here. {step}"
    if digests:
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
