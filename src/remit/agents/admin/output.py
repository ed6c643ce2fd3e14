"""The base of ADMIN's tools: redacted, bounded output."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from remit.agents.admin.redaction import Redactor
from remit.agents.tools import Tool, ToolError, current_call
from remit.kernel.canonical import MAX_SAFE_INTEGER
from remit.kernel.json_text import dump
from remit.kernel.settings import ToolSettings
from remit.ledger import Erased, LedgerClient

SessionId = Annotated[str, Field(pattern="^SES-[A-Za-z0-9_.-]+$")] | SkipJsonSchema[None]
"""An optional session, such as ``SES-7K2M4QX9``."""
Positive = Annotated[int, Field(ge=1)] | SkipJsonSchema[None]
"""An optional number from 1 on."""

_MAX_DEPTH = 100
_MIN_CHARACTERS = 64  # An id or a time is never cut.


@dataclass(frozen=True)
class Toolset:
    """A base class whose subclasses hold tools as methods, and the data that the tools read.

    A method decorated with ``@tool`` is a tool; :meth:`tools` returns them bound to the object.

    Attributes:
        ledger: the ledger.
        root: the root, resolved.
        settings: settings of tools.
        redactor: removes secrets from output.
    """

    ledger: LedgerClient
    root: Path
    settings: ToolSettings
    redactor: Redactor

    def tools(self) -> list[Tool]:
        """Return the tools that the object's own class defines, in order; inherited ones are
        left out.
        """
        return [getattr(self, name) for name, made in vars(type(self)).items()
                if isinstance(made, Tool)]  # fmt: skip

    @property
    def max_bytes(self) -> int:
        """Largest size of a shown text or JSON value, in bytes: half of the largest output."""
        return self.settings.max_output_bytes // 2


def caller_session(session_id: str | None = None) -> str:
    """Return ``session_id``; without one, the session in which the tool is called.

    Args:
        session_id: id of a session; None or empty for the session of the running tool call.

    Raises:
        ToolError: no session is given, and the tool is called outside of a session.
    """
    call = current_call()
    found = session_id or (call.session_id if call is not None else "")
    if not found:
        raise ToolError("Name a session with session_id; list_sessions shows them.")
    return found


@dataclass(frozen=True, slots=True)
class Fitted:
    """A value that was cut to a size.

    Attributes:
        value: the value, with shortened texts and lists if necessary.
        cut: paths of the cut parts, such as ``entries.0.metadata.prompt``; empty if nothing was
            cut.
    """

    value: Any
    cut: tuple[str, ...] = ()


def plain_value(value: Any, depth: int = 0) -> Any:
    """Return a value of the ledger as plain JSON data; erased content becomes ``{"$erased": id}``.

    Integers remain exact. Fractions outside the exact integer range become texts, lone surrogates
    become ``?``, and parts nested deeper than 100 levels become ``…``.

    Args:
        value: a value from an entry's metadata.
        depth: nesting depth of ``value``.
    """
    if isinstance(value, Erased):
        return {"$erased": value.erasure_id}
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER else str(value)
    if depth > _MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        return {
            plain_value(str(name)): plain_value(item, depth + 1) for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [plain_value(item, depth + 1) for item in value]
    return value


def cut_to_fit(value: Any, most_bytes: int) -> Fitted:
    """Return a value, cut until its JSON has at most ``most_bytes`` bytes.

    Texts are shortened first, the longest most. Then lists lose their ends, and objects their
    fields after the 64th. A note such as ``… [12 more]`` is added to each. Values below 64
    characters remain complete, so a value with many fields can stay larger than the limit.

    Args:
        value: JSON data; it is not changed.
        most_bytes: limit of the encoded JSON.

    Returns:
        The value, and the places that were cut; no places if it fits as it is.
    """
    if _size(value) <= most_bytes:
        return Fitted(value)
    characters, items = most_bytes, most_bytes
    while True:
        places: list[str] = []
        shorter = _cut(value, characters, items, "", places)
        if _size(shorter) <= most_bytes or (characters <= _MIN_CHARACTERS and items <= 1):
            return Fitted(shorter, tuple(places))
        if characters > _MIN_CHARACTERS:
            characters = max(_MIN_CHARACTERS, characters // 2)
        else:
            items = max(1, items // 2)


def _cut(value: Any, characters: int, items: int, place: str, places: list[str]) -> Any:
    """Return a value with shorter texts and lists; append the path of each cut to ``places``."""

    def cut(item: Any, name: str) -> Any:
        return _cut(item, characters, items, f"{place}.{name}" if place else name, places)

    if isinstance(value, str) and len(value) > characters:
        places.append(place)
        return f"{value[:characters]}… [{len(value) - characters:,} more characters]"
    if isinstance(value, dict):
        most = max(items, _MIN_CHARACTERS)  # The fields of an entry or row stay together.
        shown = {name: cut(item, name) for name, item in list(value.items())[:most]}
        if len(value) > most:
            places.append(place)
            shown["…"] = f"[{len(value) - most:,} more]"
        return shown
    if isinstance(value, list):
        rows = [cut(item, str(number)) for number, item in enumerate(value[:items])]
        if len(value) > items:
            places.append(place)
            rows.append(f"… [{len(value) - items:,} more]")
        return rows
    return value


def _size(value: Any) -> int:
    return len(dump(value))
