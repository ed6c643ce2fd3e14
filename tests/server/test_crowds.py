"""A server that is full: who has shown no good key goes first, and who comes with one gets in."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from remit.server.listening import listen
from remit.server.strangers import Strangers
from tests.server.running import Served, serving
from tests.support.upstream import Upstream
from tests.support.waiting import until

_MOST = 20
_LIMITS = f"\n[server]\nmax_connections = {_MOST}\n[auth]\nrevocation_s = 2.0\n"


@pytest.fixture(scope="module")
def full(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that takes twenty connections and gives all the time that it gives by itself."""
    with serving(tmp_path_factory.mktemp("full") / "root", upstream.url, toml=_LIMITS) as served:
        yield served


def _post(served: Served, body: bytes, *lines: str, token: str | None = None) -> bytes:
    head = ["POST /v1/chat/completions HTTP/1.1", "host: x", *lines]
    head.append(f"authorization: Bearer {served.token if token is None else token}")
    return "\r\n".join([*head, f"content-length: {len(body)}", "", ""]).encode() + body


_UNKNOWN = "sk-remit-" + "x" * 43
_HOSTILE: dict[str, Callable[[Served], bytes]] = {
    "silent": lambda _: b"",
    "half a head": lambda _: b"POST /v1/chat/completions HTTP/1.1\r\nx-a: ",
    "an unknown key": lambda served: _post(served, b"{}", token=_UNKNOWN),
    "no key, and half a body": lambda served: _post(served, b"{}", token="")[:-1],
    "idle after health": lambda _: b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n",
    "idle after a call": lambda served: _post(
        served,
        json.dumps(
            {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "a"}]}
        ).encode(),
    ),
}


@pytest.mark.parametrize("kind", _HOSTILE)
def test_an_honest_client_gets_in(full: Served, kind: str) -> None:
    with ExitStack() as stack:
        for _ in range(2 * _MOST):
            one = stack.enter_context(closing(socket.create_connection(full.address, timeout=30)))
            one.sendall(_HOSTILE[kind](full))
            if kind.startswith("idle"):
                one.recv(65536)
        for dialect in ("openai", "anthropic"):
            assert full.call(dialect, "hi")[0] == 200
        assert full.ask("GET", "/v1/models")[0] == 200
        assert full.ask("GET", "/api/openapi.json")[0] == 200


def test_calls_under_way_are_not_closed_for_strangers(full: Served) -> None:
    body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi [[delay=2]]"}]}
    with ExitStack() as stack:
        calls = [
            stack.enter_context(closing(socket.create_connection(full.address, timeout=30)))
            for _ in range(_MOST - 1)
        ]
        for one in calls:
            one.sendall(_post(full, json.dumps(body).encode()))
        until(lambda: len(full.ledger.select("SELECT 1 FROM in_flight")) == len(calls))
        for _ in range(3 * _MOST):
            stack.enter_context(closing(socket.create_connection(full.address, timeout=30)))
        for one in calls:
            assert one.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_of_the_address_with_the_most_the_oldest_goes() -> None:
    class One:
        def close_now(self) -> None:
            raise NotImplementedError

    strangers, few, many = Strangers(), One(), [One() for _ in range(3)]
    assert strangers.oldest() is None
    strangers.add("192.0.2.1", few)
    for one in many:
        strangers.add("192.0.2.2", one)
    assert strangers.oldest() is many[0]
    for one in many:
        strangers.remove("192.0.2.2", one)
    assert strangers.oldest() is few
    strangers.remove("192.0.2.1", few)
    strangers.remove("192.0.2.1", few)
    assert strangers.oldest() is None


def test_a_client_that_vanished_is_asked_for() -> None:
    """Without a FIN nobody says that it is gone: TCP itself asks after half a minute."""
    with (
        listen("127.0.0.1", 0, 5) as listening,
        socket.create_connection(listening.getsockname()),
    ):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            asked = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
            assert [accepted.getsockopt(socket.IPPROTO_TCP, one) for one in asked] == [30, 10, 3]


def test_as_many_files_as_may_be_open(full: Served) -> None:
    limits = Path(f"/proc/{full.process.pid}/limits").read_text().splitlines()
    (files,) = (line.split()[3:5] for line in limits if line.startswith("Max open files"))
    assert files[0] == files[1]
