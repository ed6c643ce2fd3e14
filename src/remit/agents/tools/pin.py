"""Pinned definitions of tools, and the changes that servers offered since."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.agents.tools.definition import Tool, definition_digest
from remit.kernel.canonical import NotCanonicalError, canonical_json, sha256_hex

_NESTED_FIELDS = ("annotations", "execution", "_meta")


def stated_hashes(stated: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 (64 lower-case hex digits) of each field that a server states of a tool.

    Args:
        stated: :attr:`remit.Tool.stated`. Each key of its ``annotations``, ``execution`` and
            ``_meta`` is a field of its own, such as ``annotations.readOnlyHint``.
    """
    hashes: dict[str, str] = {}
    for name, value in stated.items():
        if name in _NESTED_FIELDS and isinstance(value, Mapping):
            hashes |= {f"{name}.{key}": _hash(inner) for key, inner in value.items()}
        elif value is not None:
            hashes[name] = _hash(value)
    return hashes


def _hash(value: Any) -> str:
    try:
        return sha256_hex(canonical_json(value))
    except NotCanonicalError:
        return sha256_hex(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class OfferedText:
    """A text of a server that is not a tool, in the form in which definitions are pinned.

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

    Only a tool whose present definition equals the accepted one may be called.

    Attributes:
        entry_id: id of the ``TOOL_PINNED`` entry; empty before it is written.
        server: name of the MCP server, as in ``[mcp.NAME]``.
        tool_id: the tool's id, ``{server}__{tool}``; for another text ``{server}:{kind}:{name}``.
        digest: :attr:`remit.Tool.digest`.
        stated: hashes of the other stated fields, see :func:`stated_hashes`; None in pins of
            earlier versions.
        origin: the server's command line or URL, see
            :func:`remit.agents.tools.mcp.origin.mcp_origin`.
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
        """Return the definition's description, parameters and stated fields.

        None if the definition was erased or not read.
        """
        if self.definition is None:
            return None
        found = json.loads(self.definition)
        parameters = dict(found["parameters"])
        stated = {"inputSchema": parameters, **found.get("stated", {})}
        return str(found["description"]), parameters, stated

    def lines(self) -> list[str]:
        """Return the definition as lines of text, for people and for a diff."""
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

        Without a pin, every line of the change is new.
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
        """Return server, tool id, pin, change and diff as plain data.

        ``state`` is ``changed`` while a change waits for a person, otherwise ``pinned``. ``pin``
        and ``change`` may be None.
        """
        return {
            "server": self.server,
            "tool_id": self.tool_id,
            "state": "changed" if self.change is not None else "pinned",
            "pin": self.pin.to_dict() if self.pin is not None else None,
            "change": self.change.to_dict() if self.change is not None else None,
            "diff": self.diff(),
        }
