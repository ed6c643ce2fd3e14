"""Pins of the other texts of an MCP server: instructions, prompts, resources and templates.

Their pins have ids that no tool can have, such as ``server:prompt:NAME``. A text is pinned at its
first use, like a tool. Instructions that appear after something of the server was pinned count as a
change: the server sent none before, or an earlier version of Remit did not pin them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from remit.agents.tools.definition import ToolError
from remit.agents.tools.pins import INSTRUCTIONS, OfferedText, PinnedTool, Pins
from remit.kernel.canonical import sha256_hex

MCP_LISTS = {
    "prompts/list": ("prompts", "prompt", "name"),
    "resources/list": ("resources", "resource", "uri"),
    "resources/templates/list": ("resourceTemplates", "template", "uriTemplate"),
}
"""Per request: the member that holds the list, the kind of its items, and their key."""

_NAME_CHARS = 48
_DIGEST_CHARS = 16
# Facts about a resource's present content, which change while its description stays.
_VOLATILE = ("size", "lastModified")
_SERVER_TEXTS = ("title", "description")


class PinnedTexts:
    """The texts of one server other than tools: instructions, prompts, resources and templates.

    A text is pinned at its first use. A later difference is refused until a person accepts it: a
    list shows the pinned text, a changed prompt or resource raises ToolError. Methods that compare
    texts read the ledger and block. :meth:`refused` names the texts that differed at their last
    comparison; the object remembers them.

    Args:
        server: name of the server in the configuration.
        origin: returns the server's command line or URL, see :class:`remit.agents.tools.Pin`.
        pins: the pins of the root; None accepts every text.
    """

    def __init__(self, server: str, origin: Callable[[], str], pins: Pins | None) -> None:
        self._server = server
        self._origin = origin
        self._pins = pins
        self._refused: dict[str, PinnedTool] = {}

    def listed(self, request: str, items: Any) -> list[dict[str, Any]]:
        """Return the items of a list in the form to show: a changed item as pinned.

        An item without a pin is pinned, and a change is recorded (``TOOL_PINNED``). An item that is
        refused and was never pinned, or whose pin was erased, keeps its name and says why. If
        several items have one key, only the last is shown. Without pins nothing is compared.

        Args:
            request: a key of :data:`MCP_LISTS`.
            items: the items as the server sent them.

        Raises:
            ToolError: the items are not a list, or an item has no key.
            LedgerError: a pin cannot be read or recorded.
        """
        _, kind, key = MCP_LISTS[request]
        # If several items have one key, the last is shown, as for tools with one name.
        known: dict[str, Mapping[str, Any]] = {}
        for item in items if isinstance(items, list) else [items]:
            if not isinstance(item, Mapping) or not isinstance(item.get(key), str):
                raise ToolError(f"The MCP server {self._server!r} did not send a list of {kind}s.")
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
        """Return lists, keyed by request, in the form to show: a changed item as pinned.

        An item without a pin is pinned, and a change is recorded (``TOOL_PINNED``). After an error,
        pins of earlier lists stay.

        Args:
            found: the items of each list as the server sent them, keyed by request.

        Raises:
            LedgerError: the ledger cannot be read or written.
            ToolError: a list is not one, or an item has no key.
            KeyError: a request is no key of :data:`MCP_LISTS`.
        """
        return {request: self.listed(request, items) for request, items in found.items()}

    def initialized(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to ``initialize`` or ``server/discover`` with accepted texts only.

        Instructions and the server's title and description are pinned together at first use, unless
        something of the server is pinned already. Differing ones are recorded as a change and
        replaced by the pinned texts, or by the reason if none was pinned. Nothing is pinned if the
        server states none of these.

        Args:
            result: the server's answer; not modified.

        Raises:
            LedgerError: a pin cannot be read or recorded.
        """
        instructions = result.get("instructions")
        server_info = result.get("serverInfo")
        stated = {
            name: server_info[name]
            for name in _SERVER_TEXTS
            if isinstance(server_info, Mapping) and server_info.get(name)
        }
        if not instructions and not stated:
            return dict(result)
        identity = f"{self._server}{INSTRUCTIONS}"
        self._check([_text(identity, str(instructions or ""), stated, "")])
        if identity not in self._refused:
            return dict(result)
        shown = self._shown(identity, {})
        found = {**result, "instructions": shown.pop("description")}
        if isinstance(server_info, Mapping):
            other = {name: server_info[name] for name in server_info if name not in _SERVER_TEXTS}
            found["serverInfo"] = {**other, **shown}
        return found

    def require_prompt(self, name: str, arguments: Any, result: Mapping[str, Any]) -> None:
        """Raise ToolError if a prompt, or its text with these arguments, differs from its pin.

        The text is pinned at its first use, for each set of arguments. Of the prompt itself, the
        latest list that :meth:`listed` compared decides.

        Args:
            name: the prompt.
            arguments: its arguments.
            result: the server's answer, with ``description`` and ``messages``.

        Raises:
            ToolError: the prompt or its text waits for a person's acceptance.
            LedgerError: a pin cannot be read or recorded.
        """
        definition = self._id("prompt", name)
        identity = self._id("prompt_text", name, arguments)
        texts = {key: result.get(key) for key in ("description", "messages")}
        text = json.dumps(texts, ensure_ascii=False, sort_keys=True)
        self._check([OfferedText(identity, text, {})])
        for refused in (self._refused.get(definition), self._refused.get(identity)):
            if refused is not None:
                raise ToolError(refused.reason)

    def require_resource(self, uri: str) -> None:
        """Raise ToolError if a resource's description differs from its pin.

        Judged by the latest list that :meth:`listed` compared. Reads no ledger; a resource that no
        list contained is accepted.

        Args:
            uri: the resource.

        Raises:
            ToolError: its description waits for a person's acceptance.
        """
        if refused := self._refused.get(self._id("resource", uri)):
            raise ToolError(refused.reason)

    def refused(self) -> dict[str, PinnedTool]:
        """Return the texts that wait for a person's acceptance, by id, as last compared."""
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
        refused = self._pins.check(self._server, self._origin(), texts)
        for text in texts:
            self._refused.pop(text.tool_id, None)
        self._refused |= refused

    def _shown(self, identity: str, key: dict[str, Any]) -> dict[str, Any]:
        """Return a refused text as pinned; the reason of the refusal if nothing was pinned."""
        refused = self._refused[identity]
        pinned = refused.pin.read() if refused.pin is not None else None
        if pinned is None:
            # MCP requires a name of every item.
            name = {"name": next(iter(key.values()))} if key else {}
            return {**name, **key, "description": f"Held back: {refused.reason}"}
        description, _, stated = pinned
        other = {name: value for name, value in stated.items() if name != "inputSchema"}
        return {**key, "description": description, **other}


def _text(identity: str, description: str, stated: Mapping[str, Any], key: str) -> OfferedText:
    """Return a text without the parts that its pin does not cover."""
    pinned = {
        name: value
        for name, value in stated.items()
        if name not in ("description", key, *_VOLATILE)
    }
    if isinstance(notes := pinned.get("annotations"), Mapping):
        pinned["annotations"] = {name: notes[name] for name in notes if name not in _VOLATILE}
    return OfferedText(identity, description, pinned)
