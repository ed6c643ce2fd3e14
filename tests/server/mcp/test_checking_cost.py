"""Checking arguments and results behind MCP costs as much as they are long."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from remit.kernel.identity import OPERATOR
from remit.kernel.schemas import first_problem
from remit.kernel.settings import McpServerSettings
from remit.server.mcp.gateway.rules import Rules

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
