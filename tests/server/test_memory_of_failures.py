"""A call that failed leaves nothing in memory: no error holds what it was about.

The collector runs seldom in a server, so what only it would free stays for hours.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from contextlib import closing, suppress

import pytest

from tests.server.running import Served, new_session
from tests.support.waiting import until

_SIZE = 8_000_000
_TIMES = 5
_KEPT = 2.5 * _SIZE  # what the C library has not given back, and one body in tables of its own


def _body(order: str, model: str = "gpt-4o-mini", **more: object) -> bytes:
    text = "x" * _SIZE + order
    return json.dumps(
        {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": text}], **more}
    ).encode()


def _hung_up(served: Served, body: bytes) -> None:
    """Ask, wait until it is at the upstream, and go."""
    session = new_session()
    head = {"authorization": f"Bearer {served.token}", "x-remit-session": session}
    with closing(http.client.HTTPConnection(*served.address, timeout=60)) as connection:
        connection.request("POST", "/v1/chat/completions", body, head)
        until(lambda: len(served.entries("DISPATCH", session)) == 1)
    until(lambda: len(served.entries("EXCHANGE", session)) == 1)


def _asked(order: str, model: str = "gpt-4o-mini", **more: object) -> Callable[[Served], None]:
    body = _body(order, model, **more)

    def ask(served: Served) -> None:
        with suppress(http.client.IncompleteRead):
            assert served.ask("POST", "/v1/chat/completions", body)[0] != 401

    return ask


_FAILURES: dict[str, Callable[[], Callable[[Served], None]]] = {
    "refused by the provider": lambda: _asked("[[status=400]]"),
    "no JSON": lambda: (
        lambda served: (
            served.ask("POST", "/v1/chat/completions", _body("")[:-1]),
            None,
        )[1]
    ),
    "no such provider": lambda: _asked("", "nobody/x"),
    "another dialect's field": lambda: _asked("", "claude-sonnet-4-5", logit_bias={"1": 1}),
    "an answer that cannot be read": lambda: _asked("[[garbage=html]]", "claude-sonnet-4-5"),
    "a stream that breaks off": lambda: _asked("[[tokens=9 cut=3]]", stream=True),
    "a stream that breaks off, translated": lambda: _asked(
        "[[tokens=9 cut=3]]", "claude-sonnet-4-5", stream=True
    ),
    "a client that goes": lambda: lambda served: _hung_up(served, _body("[[delay=30]]")),
    "a client that goes from a stream": lambda: (
        lambda served: _hung_up(served, _body("[[delay=30]]", stream=True))
    ),
    "failed thrice, then its circuit is open": lambda: _asked("[[status=500]]"),
}


@pytest.mark.parametrize("kind", _FAILURES)
def test_nothing_is_left(served: Served, kind: str) -> None:
    fail = _FAILURES[kind]()
    served.call("openai", "hi")
    fail(served)  # what is made once
    before = served.rss_bytes()
    for _ in range(_TIMES):
        fail(served)
    assert served.rss_bytes() - before < _KEPT
