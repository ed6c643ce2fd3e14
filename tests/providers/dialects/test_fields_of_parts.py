"""Fields of parts of a request that another API lacks are named as dropped."""

from __future__ import annotations

from typing import Any

import pytest

from remit.providers.dialects import read_request, write_request

_FORMAT = {"name": "n", "description": "A word.", "schema": {"type": "object"}}
_WANTED = {"type": "json_schema", "json_schema": _FORMAT}
_TOOL = {"type": "function", "odd": 1, "function": {"name": "f"}}
_CHAT = {"model": "m", "messages": [{"role": "user", "content": "a"}]}


@pytest.mark.parametrize(
    ("source", "body", "dropped"),
    [
        ("openai.chat", _CHAT | {"tools": [_TOOL]},
         "tools[].odd"),
        ("openai.chat", _CHAT | {"response_format": _WANTED},
         "response_format.description"),
        ("openai.responses",
         {"model": "m", "input": "a", "text": {"format": {"type": "json_schema", **_FORMAT}}},
         "response_format.description"),
    ],
)  # fmt: skip
def test_a_field_that_messages_lack_is_named(
    source: str, body: dict[str, Any], dropped: str
) -> None:
    call = read_request(source, body)
    write_request("anthropic.messages", call, model="m", max_output_tokens=100)
    assert dropped in call.dropped
