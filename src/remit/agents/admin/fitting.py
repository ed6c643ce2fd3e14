"""Making a tool's output fit: what is long is cut, and it is said where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from remit.ledger import Erased

__all__ = ["Fitted", "fit", "plain"]

_LEAST = 64  # an id or a time is never cut


@dataclass(frozen=True, slots=True)
class Fitted:
    """A value that fits.

    Attributes:
        value: with shorter texts and lists, where it had to be.
        cut: where something was cut, as paths such as ``entries.0.metadata.prompt``.
    """

    value: Any
    cut: tuple[str, ...] = ()


def plain(value: Any) -> Any:
    """A value of the ledger as JSON has it; what was erased as the interfaces show it."""
    if isinstance(value, Erased):
        return {"$erased": value.erasure_id}
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def fit(value: Any, most_bytes: int) -> Fitted:
    """Cut texts and lists evenly until the JSON of ``value`` is at most ``most_bytes`` long.

    Texts go first, the longest most; then lists lose their ends. What is short stays whole.

    Args:
        value: of dicts, lists, texts, numbers, booleans and ``None``.
        most_bytes: longest JSON.
    """
    if _size(value) <= most_bytes:
        return Fitted(value)
    characters, items = most_bytes, most_bytes
    while True:
        cutter = _Cutter(characters, items)
        shorter = cutter.cut(value, "")
        if _size(shorter) <= most_bytes or (characters <= _LEAST and items <= 1):
            return Fitted(shorter, tuple(cutter.places))
        if characters > _LEAST:
            characters = max(_LEAST, characters // 2)
        else:
            items = max(1, items // 2)


@dataclass(slots=True)
class _Cutter:
    characters: int
    items: int
    places: list[str] = field(default_factory=list)

    def cut(self, value: Any, place: str) -> Any:
        if isinstance(value, str):
            if len(value) <= self.characters:
                return value
            self.places.append(place)
            left = len(value) - self.characters
            return f"{value[: self.characters]}… [{left:,} more characters]"
        if isinstance(value, dict):
            most = max(self.items, _LEAST)  # what an entry or a row is made of stays together
            shown = {
                name: self.cut(item, _below(place, name))
                for name, item in list(value.items())[:most]
            }
            if len(value) > most:
                self.places.append(place)
                shown["…"] = f"[{len(value) - most:,} more]"
            return shown
        if isinstance(value, list):
            kept = [
                self.cut(item, _below(place, str(number)))
                for number, item in enumerate(value[: self.items])
            ]
            if len(value) > self.items:
                self.places.append(place)
                kept.append(f"… [{len(value) - self.items:,} more]")
            return kept
        return value


def _below(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _size(value: Any) -> int:
    return len(orjson.dumps(value))
