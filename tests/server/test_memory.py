"""The memory of bodies and answers is bounded in sum, whatever providers and clients do."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from remit.gateway.budget import TokenBudgeter
from tests.server.conftest import QUICK
from tests.server.running import Served, new_session, prompt, serving
from tests.support.raw_provider import RawProvider, says, whole
from tests.support.soak import soak_only
from tests.support.waiting import until
from tests.support.wire import completion

MIB = 1 << 20
_LIMIT = 16 * MIB
_TOML = f"{QUICK}\n[server]\nmemory_bytes = {_LIMIT}\nmax_body_bytes = {MIB}\n"
_MOST = 48 * MIB  # of a process, above what it had before; four streams of 8 MiB took 150 MiB
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
_STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
_USUAL = json.dumps(completion("hi")).encode()


def _event(size: int) -> bytes:
    delta = {"choices": [{"index": 0, "delta": {"content": "x" * size}, "finish_reason": None}]}
    return b"data: %b\n\n" % json.dumps({"id": "x", "model": "gpt-4o-mini", **delta}).encode()


class _Streams:
    """Answers each call with a stream of so many bytes; all begin before one may go on."""

    def __init__(self, streams: int, size: int, unit: bytes) -> None:
        self._begun = threading.Barrier(streams)
        self._size = size
        self._unit = unit

    def __call__(self, connection: socket.socket, path: str, body: bytes) -> bool:
        connection.sendall(_HEAD + _event(1))
        self._begun.wait(60)
        for _ in range(self._size // len(self._unit)):
            connection.sendall(self._unit)
        connection.sendall(_STOP)
        return False


@pytest.fixture
def served(provider: RawProvider, tmp_path: Path) -> Iterator[Served]:
    provider.answer = says(whole(_USUAL))
    with serving(tmp_path / "root", provider.url, toml=_TOML) as running:
        running.grown()
        yield running
        provider.answer = says(whole(_USUAL))
        assert running.call("openai", "hi")[0] == 200  # all is released


def _stream(served: Served, token: str) -> tuple[str, bytes]:
    session = new_session()
    return session, served.call("openai", "hi", session=session, token=token, stream=True)[1]


def _check_ended(served: Served, session: str, came: bytes) -> int:
    """Check the record of a stream that the account ended; return how much of it was recorded."""
    exchange = served.exchange(session).metadata
    assert exchange["error_code"] == "SERVER_ERROR"
    assert "this answer was the largest and was cut off" in exchange["error_message"]
    assert b"this answer was the largest and was cut off" in came
    received = exchange["response"]
    assert received == "x" * len(received)
    assert came.count(b"x" * 100) <= len(received)
    assert exchange["output_tokens"] > 0
    return len(received)


@pytest.mark.parametrize("event_bytes", [16_000, 1_000_000])
def test_the_largest_stream_is_ended(
    served: Served, provider: RawProvider, event_bytes: int
) -> None:
    key = served.key(tokens=1_000_000)
    provider.answer = _Streams(4, 8 * MIB, _event(event_bytes))
    with ThreadPoolExecutor(4) as pool:
        came = list(pool.map(lambda _: _stream(served, key.key), range(4)))
    sizes = [_check_ended(served, session, raw) for session, raw in came]
    assert max(sizes) <= _LIMIT // 4
    assert served.grown() < _MOST
    spent = sum(served.exchange(session).metadata["output_tokens"] for session, _ in came)
    (account,) = [
        one for one in TokenBudgeter(served.ledger).list() if key.key_id in one.scope
    ]  # fmt: skip
    assert account.reserved_tokens == 0
    assert account.spent_tokens >= spent


def test_an_event_or_a_whole_answer_that_does_not_fit(
    served: Served, provider: RawProvider
) -> None:
    provider.answer = _Streams(1, 40 * MIB, _event(40_000_000))
    session, came = _stream(served, served.token)
    assert _check_ended(served, session, came) <= 1
    assert served.grown() < _MOST
    provider.answer = says(whole(_USUAL.replace(b"hi", b"x" * 20 * MIB)))
    session = new_session()
    assert served.call("openai", "hi", session=session)[0] == 502
    assert "the largest" in served.exchange(session).metadata["error_message"]
    assert served.grown() < _MOST


def test_clients_that_do_not_read_cost_little(served: Served, provider: RawProvider) -> None:
    sent: list[int] = []

    def endless(connection: socket.socket, path: str, body: bytes) -> bool:
        connection.settimeout(2)
        connection.sendall(_HEAD)
        size, unit = 0, _event(16_000)
        try:
            while size < 64 * MIB:
                connection.sendall(unit)
                size += len(unit)
        except OSError:
            pass  # it is not read any more
        sent.append(size)
        return False

    provider.answer = endless
    call = served.request(prompt(stream=True), "content-type: application/json")
    silent = [socket.create_connection(served.address) for _ in range(8)]
    for connection in silent:
        connection.sendall(call)
    until(lambda: len(sent) == len(silent))
    assert served.ask("GET", "/v1/models")[0] == 200  # others are answered meanwhile
    assert max(sent) < 64 * MIB
    assert served.grown() < _MOST
    for connection in silent:
        connection.close()
    until(lambda: served.ledger.select("SELECT count(*) FROM in_flight")[0][0] == 0)


def test_bodies_that_do_not_fit_are_refused_before_they_are_read(served: Served) -> None:
    waiting, lines = [], ("content-type: application/json", f"content-length: {MIB}")
    keys = [served.key().key for _ in range(2)]
    for number in range(6):  # six of a MiB, each twice in memory, are the part for bodies
        connection = socket.create_connection(served.address, timeout=60)
        connection.sendall(served.head(*lines, token=keys[number % 2]) + b"{")
        waiting.append(connection)
    refused = b""
    while b"503" not in refused:  # the six may not have come yet
        with served.connected(served.head(*lines) + b"{") as one_more:
            one_more.settimeout(1)
            try:
                refused = one_more.recv(65_536)
            except TimeoutError:
                continue
    assert b"overloaded" in refused
    assert b"retry-after: 1" in refused
    for connection in waiting:
        connection.close()


@soak_only
@pytest.mark.soak
@pytest.mark.parametrize("event_bytes", [16_000, 1_000_000, 60_000_000])
def test_four_streams_of_64_mib_stay_under_250_mb(
    provider: RawProvider, tmp_path: Path, event_bytes: int
) -> None:
    file = tmp_path / "callbacks"
    provider.answer = says(whole(_USUAL))
    program = ("-m", "tests.support.watched_loop", str(file))
    with serving(tmp_path / "root", provider.url, toml=QUICK, program=program) as served:
        served.call("openai", "hi")
        before = len(file.read_text().splitlines())
        provider.answer = _Streams(4, 64 * MIB, _event(event_bytes))
        with ThreadPoolExecutor(4) as pool:
            came = list(pool.map(lambda _: _stream(served, served.token), range(4)))
        for session, raw in came:
            _check_ended(served, session, raw)
        assert served.rss_bytes("VmHWM") < 250_000_000
        long = [line for line in file.read_text().splitlines()[before:] if line >= "0.100"]
        assert long == []
