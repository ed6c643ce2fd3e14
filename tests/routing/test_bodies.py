"""The prompt of a routed body: what is scored and recorded is what was sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remit.gateway import in_neutral_form
from remit.kernel.canonical import canonical_json
from remit.providers import Body
from remit.providers.wire import CHAT
from remit.routing import new_request
from remit.routing.request import asked_plainly

PLAIN: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Good morning"}],
    [
        {"role": "system", "content": "Be \"brief\"."},
        {"role": "user", "content": "Ünïcode, \u0000 and /slashes/"},
        {"role": "assistant", "content": ""},
        {"content": "in another order", "role": "user"},
    ],
]  # fmt: skip
TRANSLATED = [
    [{"role": "developer", "content": "a"}, {"role": "user", "content": "b"}],
    [{"role": "user", "content": "a", "name": "Ann"}],
    [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
    [{"role": "user", "content": "a lone \ud800"}],
]


def _request(messages: list[dict[str, Any]], **members: Any) -> Any:
    raw = json.dumps({"model": "auto", "messages": messages, **members}).encode()
    return new_request(body=Body.read(CHAT, raw))


@pytest.mark.parametrize("messages", PLAIN)
def test_plain_messages_are_their_own_neutral_form(messages: list[dict[str, Any]]) -> None:
    request = _request(messages, tools=[])

    asked = asked_plainly(request)

    assert asked is not None
    assert asked.request is request
    assert asked.prompt == in_neutral_form(request).messages == messages
    assert asked.encoded == canonical_json(messages)
    assert asked.is_plain


def test_tools_that_are_offered_are_needed() -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}

    asked = asked_plainly(_request(PLAIN[0], tools=[tool]))

    assert asked is not None
    assert list(asked.needs) == ["tools"]


@pytest.mark.parametrize("messages", TRANSLATED)
def test_all_others_are_translated(messages: list[dict[str, Any]]) -> None:
    assert asked_plainly(_request(messages)) is None
