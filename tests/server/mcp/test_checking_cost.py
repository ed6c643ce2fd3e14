"""Checking arguments and results behind MCP costs as much as they are long."""

from __future__ import annotations

from typing import Any

_ITEM = {
    "anyOf": [
        {"type": "object", "properties": {"op": {"const": name}, "n": {"type": "integer"}},
         "required": ["op", "n"]}
        for name in ("add", "drop")
    ]
}  # fmt: skip
_SCHEMA = {"type": "object", "properties": {"ops": {"type": "array", "items": _ITEM}}}


def _value(count: int, last: Any) -> dict[str, Any]:
    ops: list[Any] = [{"op": "drop", "n": n} for n in range(count)]
    return {"ops": [*ops, last]}
