"""The base of ADMIN's tools: redacted, bounded output."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from remit.agents.admin.redaction import Redactor
from remit.agents.tools import Tool, ToolError, current_call
from remit.kernel.canonical import MAX_SAFE_INTEGER
from remit.kernel.json_text import dump
from remit.kernel.settings import LoadedSettings, ToolSettings
from remit.ledger import Erased, LedgerClient

SessionId = Annotated[str, Field(pattern="^SES-[A-Za-z0-9_.-]+$")] | SkipJsonSchema[None]
"""An optional session, such as ``SES-7K2M4QX9``."""
Positive = Annotated[int, Field(ge=1)] | SkipJsonSchema[None]
"""An optional number from 1 on."""

_MAX_DEPTH = 100
_MIN_CHARACTERS = 64  # An id or a time is never cut.


class GatePort(Protocol):
    """The gates and packages of a root, as ADMIN needs them."""

    @property
    def names(self) -> tuple[str, ...]:
        """The gates there are."""
        ...

    def check(self, gate: str | None) -> dict[str, Any]:
        """Run one gate, or all: ``{"passed", "gates": [{"gate", "passed", …}]}``."""
        ...

    def packages(self) -> list[dict[str, Any]]:
        """Return a row for each installed package."""
        ...


@dataclass(frozen=True)
class Toolset:
    """Tools that are methods, and the data they read.

    Attributes:
        ledger: the ledger.
        root: the root, resolved.
        loaded: settings with their sources.
        settings: settings of tools.
        redactor: removes secrets from output.
    """

    ledger: LedgerClient
    root: Path
    loaded: LoadedSettings
    settings: ToolSettings
    redactor: Redactor
    gates: GatePort | None = None

    def tools(self) -> list[Tool]:
        """The tools, in the order in which they are written down."""
        return [getattr(self, name) for name, made in vars(type(self)).items()
                if isinstance(made, Tool)]  # fmt: skip

    @property
    def max_bytes(self) -> int:
        """Longest text or JSON that is shown, bytes: the rest of an output is around it."""
        return self.settings.max_output_bytes // 2

    def shown(self, output: dict[str, Any], name: str, note: str) -> dict[str, Any]:
        """Return ``output`` with its value ``name`` cut to fit; add ``note`` if it was cut."""
        fitted = cut_to_fit(output[name], self.max_bytes)
        return {**output, name: fitted.value, **({"note": note} if fitted.cut else {})}


def caller_session(session_id: str | None = None) -> str:
    """The session that is meant: ``session_id``, or else the one whose turn this is."""
    call = current_call()
    found = session_id or (call.session_id if call is not None else "")
    if not found:
        raise ToolError("Name a session with session_id; list_sessions shows them.")
    return found


@dataclass(frozen=True, slots=True)
class Fitted:
    """A value that fits.

    Attributes:
        value: with shorter texts and lists, where it had to be.
        cut: where something was cut, as paths such as ``entries.0.metadata.prompt``.
    """

    value: Any
    cut: tuple[str, ...] = ()


def plain_value(value: Any, depth: int = 0) -> Any:
    """Return a value of the ledger as a tool's result has it; erased content as interfaces show it.

    Integers stay exact. Fractions that RFC 8785 cannot carry become texts, lone surrogates ``?``;
    a part nested more than 100 deep is cut.
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
    """Cut texts and lists evenly until the JSON of ``value`` is at most ``most_bytes`` long.

    Texts go first, the longest most; then lists lose their ends. Short values stay complete.
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
