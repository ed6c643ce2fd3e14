"""One pinned definition of an MCP server's tool, and what was offered since instead of it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from remit.kernel.canonical import NotCanonicalError, canonical_json, sha256_hex

_TAKEN_APART = ("annotations", "execution", "_meta")


def stated_hashes(stated: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256, 64 lower-case hex digits, of each thing that a server states of a tool.

    Args:
        stated: :attr:`remit.Tool.stated`. Of its ``annotations``, ``execution`` and ``_meta`` each
            key is one thing, such as ``annotations.readOnlyHint``.
    """
    hashes: dict[str, str] = {}
    for name, value in stated.items():
        if name in _TAKEN_APART and isinstance(value, Mapping):
            hashes |= {f"{name}.{key}": _hash(inner) for key, inner in value.items()}
        elif value is not None:
            hashes[name] = _hash(value)
    return hashes


def _hash(value: Any) -> str:
    try:
        return sha256_hex(canonical_json(value))
    except NotCanonicalError:
        return sha256_hex(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


class Offered(Protocol):
    """A definition as a server offers it now: a :class:`remit.Tool`, or another text."""

    @property
    def tool_id(self) -> str:
        """Its id, see :class:`Pin`."""
        ...

    @property
    def description(self) -> str:
        """The text that a model is shown."""
        ...

    @property
    def input_schema(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments; empty for a text that is no tool."""
        ...

    @property
    def stated(self) -> Mapping[str, Any]:
        """Everything else that the server states."""
        ...

    @property
    def digest(self) -> str:
        """See :attr:`remit.Tool.digest`."""
        ...


class Pinned(NamedTuple):
    """A definition as it was pinned: what a model is shown, and what else its server stated."""

    description: str
    parameters: dict[str, Any]
    stated: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pin:
    """One definition of a tool, as it is on record.

    Attributes:
        entry_id: of the ``TOOL_PINNED`` that holds it.
        server: name of the MCP server, as in ``[mcp.NAME]``.
        tool_id: the tool's id here, ``{server}__{tool}``; of another text
            ``{server}:{kind}:{name}``.
        digest: :attr:`remit.Tool.digest`.
        stated: hashes of what else its server stated of it, see :func:`stated_hashes`; ``None``
            in pins of earlier versions, which did not cover that.
        origin: which server it came from, see :func:`remit.agents.tools.mcp.origin.mcp_origin`.
        at: when it was recorded.
        by: who accepted it; empty for the first use.
        definition: JSON text; ``None`` when it was erased or not read.
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
        """As plain data."""
        return {name: getattr(self, name) for name in self.__slots__}

    def covers(self, stated: Mapping[str, str]) -> bool:
        """Whether all of this is as it was pinned. What a server leaves out is no change: what it
        states depends on the version of the protocol that its client speaks."""
        pinned = self.stated
        return pinned is None or all(pinned.get(name) == one for name, one in stated.items())

    def read(self) -> Pinned | None:
        """The definition; ``None`` where it was erased."""
        if self.definition is None:
            return None
        found = json.loads(self.definition)
        parameters = dict(found["parameters"])
        stated = {"inputSchema": parameters, **found.get("stated", {})}
        return Pinned(str(found["description"]), parameters, stated)

    def lines(self) -> list[str]:
        """The definition for people and for a diff, a line each."""
        if (found := self.read()) is None:
            return [f"server: {self.origin}", "the definition was erased"]
        parts: dict[str, Any] = {"parameters": found.parameters, **found.stated}
        if parts["inputSchema"] == found.parameters:
            del parts["inputSchema"]
        return [
            f"server: {self.origin}",
            *(f"description: {line}" for line in found.description.splitlines()),
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
    """A tool's pin, and what was offered since instead of it.

    Attributes:
        server: see :class:`Pin`.
        tool_id: likewise.
        pin: what may be called; ``None`` when nothing was accepted yet.
        change: what waits for a person; ``None`` when nothing does.
    """

    server: str
    tool_id: str
    pin: Pin | None = None
    change: Pin | None = None

    def diff(self) -> list[str]:
        """From the pin to the change, as a unified diff; empty when nothing differs."""
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
        """As plain data."""
        return {
            "server": self.server,
            "tool_id": self.tool_id,
            "state": "changed" if self.change is not None else "pinned",
            "pin": self.pin.to_dict() if self.pin is not None else None,
            "change": self.change.to_dict() if self.change is not None else None,
            "diff": self.diff(),
        }
