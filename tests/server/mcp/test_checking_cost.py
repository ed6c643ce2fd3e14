"""The rules of the gateway check arguments at a cost that grows as their length does."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from remit.kernel.settings import McpServerSettings
from remit.server.mcp.callers import LOCAL
from remit.server.mcp.gateway.rules import Rules

_UNION = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"op": {"const": name}, "n": {"type": "integer"}},
            "required": ["op", "n"],
        }
        for name in ("add", "drop")
    ]
}
_KEYED = {"oneOf": [{"type": "string"}, {"type": "integer"}]}


@pytest.mark.parametrize(
    ("schema", "last"),
    [
        ({"type": "array", "items": _UNION}, {"op": "drop", "n": 1}),
        ({"type": "array", "items": _UNION}, {"op": "none"}),
        ({"type": "array", "uniqueItems": True}, 1),
        ({"type": "array", "items": {"type": "object", "additionalProperties": _KEYED}}, {"a": []}),
    ],
)
def test_a_call_twice_as_long_costs_at_most_two_and_a_half_times_as_much(
    schema: dict[str, Any], last: Any
) -> None:
    allow = {"effect": "allow", "tools": ["t"], "arguments": {"properties": {"ops": schema}}}
    rules = Rules("s", McpServerSettings.model_validate({"command": "x", "rules": [allow]}))
    least = dict.fromkeys((2_000, 4_000), math.inf)
    for number in range(25):  # five, and more while another process disturbs them
        for size in least:
            ops = [*({"op": "drop", "n": n} for n in range(size)), last]
            started = time.process_time()
            rules.decide(LOCAL, "t", {"ops": ops})
            least[size] = min(least[size], time.process_time() - started)
        if number >= 4 and least[4_000] <= 2.5 * least[2_000]:
            return
    assert least[4_000] <= 2.5 * least[2_000] + 0.001
