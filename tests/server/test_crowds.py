"""Full and attacked servers: strangers go first, whoever has a good key gets in."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from benchmarks.torture.events import SCENARIOS
from benchmarks.torture.run import Torture

from tests.server.running import Served, prompt
from tests.support.soak import is_soak
from tests.support.waiting import until

_MOST = 20
TOML = f"\n[server]\nmax_connections = {_MOST}\n[auth]\nrevocation_s = 2.0\n"


_SLOW = prompt("hi [[delay=2]]")
_UNKNOWN = "sk-remit-" + "x" * 43
_HOSTILE: dict[str, Callable[[Served], bytes]] = {
    "silent": lambda _: b"",
    "half a head": lambda _: b"POST /v1/chat/completions HTTP/1.1\r\nx-a: ",
    "an unknown key": lambda served: served.request({}, token=_UNKNOWN),
    "no key, and half a body": lambda served: served.request({}, token="")[:-1],
    "idle after health": lambda _: b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n",
    "idle after a call": lambda served: served.request(prompt("a")),
}


@pytest.mark.parametrize("kind", _HOSTILE)
def test_an_honest_client_gets_in(served: Served, kind: str) -> None:
    with ExitStack() as stack:
        for _ in range(2 * _MOST):
            one = stack.enter_context(served.connected(_HOSTILE[kind](served)))
            if kind.startswith("idle"):
                one.recv(65536)
        for dialect in ("openai", "anthropic"):
            assert served.call(dialect, "hi")[0] == 200
        assert served.ask("GET", "/v1/models")[0] == 200
        assert served.ask("GET", "/api/openapi.json")[0] == 200


def test_calls_under_way_are_not_closed_for_strangers(served: Served) -> None:
    other = served.key().key
    with ExitStack() as stack:
        calls = [stack.enter_context(served.connected()) for _ in range(_MOST - 1)]
        for number, one in enumerate(calls):
            one.sendall(served.request(_SLOW, token=other if number % 2 else None))
        until(lambda: len(served.ledger.select("SELECT 1 FROM in_flight")) == len(calls))
        for _ in range(3 * _MOST):
            stack.enter_context(served.connected())
        for one in calls:
            assert one.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_one_key_does_not_take_all_places(served: Served) -> None:
    other, most = served.key().key, _MOST * 3 // 4
    with ExitStack() as stack:
        calls = [stack.enter_context(served.connected()) for _ in range(most)]
        for one in calls:
            one.sendall(served.request(_SLOW))
        until(lambda: len(served.ledger.select("SELECT 1 FROM in_flight")) == most)
        for dialect, kind in (("openai", "rate_limit"), ("anthropic", "rate_limit_error")):
            status, raw, headers = served.call(dialect, "hi")
            assert (status, headers["retry-after"]) == (429, "1"), raw
            assert kind in json.loads(raw)["error"]["type"]
        assert served.ask("GET", "/v1/models")[0] == 429
        assert served.ask("GET", "/api/sessions")[0] == 429
        assert served.call("openai", "hi", token=other)[0] == 200
        for one in calls:
            assert one.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert served.call("openai", "hi")[0] == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/batches", "/v1/conversations"])
def test_bodies_that_come_are_bounded_together(served: Served, path: str) -> None:
    """A key's slow bodies leave room for another's, and all of them for small ones."""
    large, other, third = 24 * 1024 * 1024, served.key().key, served.key().key  # 4 fill the account

    with ExitStack() as stack:

        def send(token: str, *lines: str) -> socket.socket:
            head = served.head(*lines, "expect: 100-continue", path=path, token=token)
            return stack.enter_context(served.connected(head))

        for _ in range(3):
            took = send(served.token, f"content-length: {large}").recv(65536)
            assert took.startswith(b"HTTP/1.1 100 ")
        told = send(served.token, f"content-length: {large}").recv(65536).lower()
        assert told.startswith(b"http/1.1 429 ")
        assert b"retry-after: 1\r\n" in told
        unsaid = send(served.token, "transfer-encoding: chunked")
        assert unsaid.recv(65536).startswith(b"HTTP/1.1 100 ")
        for _ in range(2):
            unsaid.sendall(b"1\r\n \r\n")
            time.sleep(0.05)
        assert unsaid.recv(65536).startswith(b"HTTP/1.1 429 ")
        took = send(other, f"content-length: {large}").recv(65536)
        assert took.startswith(b"HTTP/1.1 100 ")
        told = send(third, f"content-length: {large}").recv(65536).lower()
        assert told.startswith(b"http/1.1 503 ")
        assert b"retry-after: 1\r\n" in told
        assert served.call("openai", "hi")[0] == served.call("openai", "hi", token=third)[0] == 200
    last = served.head(f"content-length: {large}", path=path, token=third)
    until(lambda: send_again(served, last))


def send_again(served: Served, head: bytes) -> bool:
    """Whether there is room for a body again."""
    with served.connected(head, wait_s=0.2) as made:
        try:
            return not made.recv(65536)
        except TimeoutError:
            return True


@pytest.mark.parametrize("name", ["authorization", "x-api-key"])
def test_two_keys_in_one_request_are_refused(served: Served, name: str) -> None:
    other = served.key().key
    for method, path in (("POST", "/v1/chat/completions"), ("POST", "/v1/files"),
                         ("GET", "/v1/models"), ("GET", "/v1/responses/a"), ("GET", "/metrics"),
                         ("GET", "/api/sessions"), ("POST", "/v1/conversations")):  # fmt: skip
        for key, status in ((other, b" 400 "), (served.token, b"")):
            bearer = "Bearer " if name == "authorization" else ""
            told = served.raw(
                f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
                f"{name}: {bearer}{served.token}\r\n{name}: {bearer}{key}\r\n"
                "content-length: 0\r\n\r\n".encode()
            )
            assert status in told[:20], (path, told)
            if status:
                assert b"was sent twice" in told, (path, told)
            else:
                assert b"was sent twice" not in told, (path, told)


@pytest.mark.soak
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_servers_under_attack(store: str, tmp_path: Path) -> None:
    events, clients = (12, 8) if is_soak() else (3, 4)
    torture = Torture(tmp_path, store, events, SCENARIOS, seed=5, clients=clients)
    with ExitStack() as stack:
        verdict = torture.run(stack)
    assert verdict.held, f"{torture.done}\n{verdict}"
