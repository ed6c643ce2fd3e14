"""Clients that hang up at any point, do not read, or do not wait."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

from tests.server.running import Served, new_session, prompt
from tests.support.raw_provider import CASE_HEADER, RawProvider, whole
from tests.support.waiting import until
from tests.support.wire_corpus import CORPUS

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PLAIN = next(exchange for exchange in CORPUS if exchange.name == "chat: plain")
_EVENTS = 30


def _event(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"model": "gpt-4o-mini", "choices": [choice]}).encode() + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _slowly(connection: socket.socket, path: str, body: bytes) -> bool:
    """A stream of :data:`_EVENTS` pieces, 2 ms apart; or a whole answer after as long."""
    if b'"stream": true' not in body:
        time.sleep(0.002 * _EVENTS)
        connection.sendall(whole(PLAIN.answer))
        return True
    connection.sendall(STREAM)
    for _ in range(_EVENTS):
        connection.sendall(_chunk(_event("x")))
        time.sleep(0.002)
    connection.sendall(_chunk(_event("", "stop") + b"data: [DONE]\n\n") + b"0\r\n\r\n")
    return True


def _request(served: Served, session: str, *, stream: bool) -> bytes:
    named = (f"x-remit-session: {session}", f"{CASE_HEADER}: {session}")
    return served.request(prompt(stream=stream), *named)


def _hang_up(served: Served, request: bytes, sent: int, read: int, *, reset: bool) -> None:
    """Send so much of a request, read so much of its answer, and go."""
    with served.connected(request[:sent]) as connection:
        connection.settimeout(0.5)  # an answer may be shorter than what is wanted of it
        with contextlib.suppress(TimeoutError):
            while read > 0 and (part := connection.recv(min(read, 4096))):
                read -= len(part)
        if reset:
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def test_who_hangs_up_leaves_a_pair(served: Served, provider: RawProvider) -> None:
    left: list[tuple[str, bytes, int, int, bool]] = []
    for number in range(160):
        session = new_session()
        provider.answers[session] = _slowly
        request = _request(served, session, stream=number % 4 != 0)
        at = number // 4
        sent = len(request) if at > 8 else len(request) * at // 9
        left.append((session, request, sent, max(0, at - 10) * 160, number % 3 == 0))
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(_hang_up, served, r, sent, read, reset=reset)
                     for _, r, sent, read, reset in left]:  # fmt: skip
            done.result()
    until(lambda: not served.ledger.orphans())
    ends = set()
    for session, *_ in left:
        exchanges = served.entries("EXCHANGE", session)
        assert len(exchanges) == len(served.entries("DISPATCH", session)) <= 1
        for exchange in exchanges:
            ends.add(exchange.metadata.get("error_code", "success"))
            # Some are cancelled before they are sent: those cost nothing.
            if exchange.metadata["outcome"] != "success" and provider.got.get(session):
                assert exchange.metadata["input_tokens"] > 0
    assert ends == {"CANCELLED", "success"}
