"""Pinned texts of MCP servers besides tools: instructions, prompts, resources and templates.

A pin of a text has an id that no tool can have, ``server:prompt:NAME`` for example. The first use
pins a text, as it pins a tool. Instructions that a server gives only after something of it was
pinned are a change: the server gave none before, or an earlier version of Remit did not pin them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from remit.agents.tools.definition import ToolError, definition_digest
from remit.agents.tools.pins import INSTRUCTIONS, Pins, Refused
from remit.kernel.canonical import sha256_hex

MCP_LISTS = {
    "prompts/list": ("prompts", "prompt", "name"),
    "resources/list": ("resources", "resource", "uri"),
    "resources/templates/list": ("resourceTemplates", "template", "uriTemplate"),
}
"""Per request: the member that holds the list, the kind of its items, and their key."""

_NAME_CHARS = 48
_DIGEST_CHARS = 16
# Facts about a resource's present content, which change without a change of its description.
_VOLATILE = ("size", "lastModified")
_OF_SERVER = ("title", "description")


@dataclass(frozen=True, slots=True)
class OfferedText:
    """A text as a server offers it, in the form in which definitions are pinned."""

    tool_id: str
    description: str
    stated: Mapping[str, Any]
    input_schema: Mapping[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of the text, see :func:`remit.agents.tools.definition.definition_digest`."""
        return definition_digest(self.tool_id, self.description, self.input_schema)


class PinnedTexts:
    """The texts of one server, compared with their pins. Every method blocks.

    Args:
        server: the server's name in the configuration.
        origin: returns the server behind the name, see :class:`remit.agents.tools.Pin`.
        pins: the pins of the root; ``None`` accepts every text.
    """

    def __init__(self, server: str, origin: Callable[[], str], pins: Pins | None) -> None:
        self._server = server
        self._origin = origin
        self._pins = pins
        self._refused: dict[str, Refused] = {}

    def listed(self, request: str, items: Any) -> list[dict[str, Any]]:
        """Return the items of a list as they may be shown: changed ones as they were pinned.

        Args:
            request: a key of :data:`LISTS`.
            items: as the server sent them.

        Raises:
            ToolError: they are no list, or an item has no key.
        """
        _, kind, key = MCP_LISTS[request]
        # Of several items with one key the last is shown, as of tools with one name.
        known: dict[str, Mapping[str, Any]] = {}
        for item in items if isinstance(items, list) else [items]:
            if not isinstance(item, Mapping) or not isinstance(item.get(key), str):
                raise ToolError(f"The MCP server {self._server!r} sent no list of {kind}s.")
            known[item[key]] = item
        ids = {name: self._id(kind, name) for name in known}
        self._check(
            [_text(ids[name], str(item.get("description") or ""), item, key)
             for name, item in known.items()]
        )  # fmt: skip
        return [
            self._shown(ids[name], {key: name}) if ids[name] in self._refused else dict(item)
            for name, item in known.items()
        ]

    def lists(self, found: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """Return lists, by request, as they may be shown; see :meth:`listed`."""
        return {request: self.listed(request, items) for request, items in found.items()}

    def initialized(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to ``initialize`` or ``server/discover`` with accepted texts only."""
        said = result.get("instructions")
        about = result.get("serverInfo")
        stated = {
            name: about[name]
            for name in _OF_SERVER
            if isinstance(about, Mapping) and about.get(name)
        }
        if not said and not stated:
            return dict(result)
        identity = f"{self._server}{INSTRUCTIONS}"
        self._check([_text(identity, str(said or ""), stated, "")])
        if identity not in self._refused:
            return dict(result)
        shown = self._shown(identity, {})
        found = {**result, "instructions": shown.pop("description")}
        if isinstance(about, Mapping):
            kept = {name: about[name] for name in about if name not in _OF_SERVER}
            found["serverInfo"] = {**kept, **shown}
        return found

    def require_prompt(self, name: str, arguments: Any, result: Mapping[str, Any]) -> None:
        """Raise ToolError if a prompt, or its text with these arguments, is not the pinned one."""
        definition = self._id("prompt", name)
        identity = self._id("prompt_text", name, arguments)
        said = {key: result.get(key) for key in ("description", "messages")}
        text = json.dumps(said, ensure_ascii=False, sort_keys=True)
        self._check([OfferedText(identity, text, {})])
        for refused in (self._refused.get(definition), self._refused.get(identity)):
            if refused is not None:
                raise ToolError(refused.reason)

    def require_resource(self, uri: str) -> None:
        """Raise ToolError if the description of a resource is not the pinned one."""
        if refused := self._refused.get(self._id("resource", uri)):
            raise ToolError(refused.reason)

    def refused(self) -> dict[str, Refused]:
        """Return the texts that wait for a person, by id."""
        return dict(self._refused)

    def _id(self, kind: str, name: str, arguments: Any = None) -> str:
        slug = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:_NAME_CHARS]
        if slug != name or arguments:
            text = json.dumps([name, arguments or {}], sort_keys=True)
            digest = sha256_hex(text.encode())[:_DIGEST_CHARS]
            slug = f"{slug}:{digest}"
        return f"{self._server}:{kind}:{slug}"

    def _check(self, texts: Sequence[OfferedText]) -> None:
        if self._pins is None:
            return
        now = self._pins.check(self._server, self._origin(), texts)
        for text in texts:
            self._refused.pop(text.tool_id, None)
        self._refused |= now

    def _shown(self, identity: str, key: dict[str, Any]) -> dict[str, Any]:
        """Return a refused text as it was pinned, or the reason why it is held back."""
        reason, pin = self._refused[identity]
        pinned = pin.read() if pin is not None else None
        if pinned is None:
            # MCP requires a name of every item.
            named = {"name": next(iter(key.values()))} if key else {}
            return {**named, **key, "description": f"Held back: {reason}"}
        stated = {name: one for name, one in pinned.stated.items() if name != "inputSchema"}
        return {**key, "description": pinned.description, **stated}


def _text(identity: str, description: str, stated: Mapping[str, Any], key: str) -> OfferedText:
    """Return a text without the parts that do not belong to its pin."""
    kept = {
        name: value
        for name, value in stated.items()
        if name not in ("description", key, *_VOLATILE)
    }
    if isinstance(notes := kept.get("annotations"), Mapping):
        kept["annotations"] = {name: notes[name] for name in notes if name not in _VOLATILE}
    return OfferedText(identity, description, kept)
