"""WebSockets on which anything comes: frames of every kind, and messages with one thing wrong.

When the server of the module ends, each DISPATCH must have its EXCHANGE, and the log no traceback.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import struct
from contextlib import ExitStack, closing

import pytest
from websockets.exceptions import ConnectionClosed, ProtocolError
from websockets.sync.client import ClientConnection, connect

from tests.server.running import Served, new_session
from tests.support.soak import SEED, sample
from tests.support.wire_corpus import CORPUS
from tests.support.wire_mutations import ODD, mutated

pytestmark = pytest.mark.soak

_CREATE = {"type": "response.create", "model": "gpt-4o-mini", "input": "hi", "store": False}
_TEXT = json.dumps(_CREATE).encode()
_HANDSHAKE = (
    "GET /v1/responses HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"
    "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nx-remit-session: {session}\r\n\r\n"
)
_LAST = ("response.completed", "response.failed", "response.incomplete", "error")
_FRAME_CASES = 5_000
_MESSAGE_CASES = 3_000


def _open(served: Served, session: str) -> socket.socket:
    """Return a connection whose handshake the server has accepted."""
    connection = socket.create_connection(served.address, timeout=60)
    connection.sendall(_HANDSHAKE.format(token=served.token, session=session).encode())
    head = b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(4096)
    assert head.startswith(b"HTTP/1.1 101"), head
    return connection


def _frame(chance: random.Random) -> bytes:
    """Return the bytes of a frame, of which at most one thing is wrong."""
    opcode = chance.choice((0, 1, 1, 1, 2, 8, 9, 10, 3, 11, 15))
    payload = chance.choice((
        _TEXT, b"", b"{", b"\xff\xfe", _TEXT[: chance.randrange(len(_TEXT))], b"x" * 126,
        b"x" * 70_000, struct.pack("!H", chance.randrange(65_536)), chance.choice(ODD),
    ))  # fmt: skip
    fin = chance.random() < 0.8
    reserved = chance.choice((0, 0, 0, 0, 0x10, 0x20, 0x40))
    masked = chance.random() < 0.9
    length = len(payload)
    if chance.random() < 0.1:  # A length that no payload follows, or in a longer form than needed
        length = chance.choice((length + 9, 2**31, 2**63, 2**64 - 1))
    first = bytes([fin << 7 | reserved | opcode])
    bit = 0x80 if masked else 0
    if length < 126:
        head = first + bytes([bit | length])
    elif length < 65_536:
        head = first + bytes([bit | 126]) + struct.pack("!H", length)
    else:
        head = first + bytes([bit | 127]) + struct.pack("!Q", length)
    mask = os.urandom(4) if masked else b""
    sent = bytes(one ^ mask[at % 4] for at, one in enumerate(payload)) if mask else payload
    return head + mask + sent


def _messages(data: bytes) -> list[bytes]:
    """Return the text messages in what the server sent; raise if a frame is not one of a server."""
    found, at = [], 0
    while at + 2 <= len(data):
        opcode, length = data[at] & 15, data[at + 1]
        assert data[at] & 0x70 == 0, "reserved bits"
        assert length < 128, "a server does not mask"
        at += 2
        if length >= 126:
            size = 2 if length == 126 else 8
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if opcode == 1 and at + length <= len(data):
            found.append(data[at : at + length])
        at += length
    return found


def test_any_frames(served: Served) -> None:
    for seed in sample(range(SEED, SEED + _FRAME_CASES), 150):
        _send_frames(served, seed)


def _send_frames(served: Served, seed: int) -> None:
    chance = random.Random(seed)
    frames = [_frame(chance) for _ in range(chance.randrange(1, 6))]
    with closing(_open(served, new_session())) as connection:
        with contextlib.suppress(OSError):  # The server may have closed the connection.
            for frame in frames:
                if chance.random() < 0.3:  # in pieces
                    cut = chance.randrange(len(frame))
                    connection.sendall(frame[:cut])
                    frame = frame[cut:]
                connection.sendall(frame)
            connection.shutdown(socket.SHUT_WR)
        came = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65_536):
                came += part
    for message in _messages(came):
        event = json.loads(message)
        assert event.get("status", 400) < 500, (seed, event)
    assert served.process.poll() is None


def _last(connection: ClientConnection) -> dict[str, object]:
    while True:
        event: dict[str, object] = json.loads(connection.recv(timeout=60))
        if event["type"] in _LAST:
            return event


def test_messages_with_one_thing_wrong(served: Served) -> None:
    bodies = [each.request for each in CORPUS if each.endpoint == "openai.responses"]
    url = served.url.replace("http", "ws") + "/v1/responses"
    headers = {"authorization": f"Bearer {served.token}"}
    cases = sample(range(SEED, SEED + _MESSAGE_CASES), 150)
    with ExitStack() as opened:
        connection: ClientConnection | None = None
        for seed in cases:
            chance = random.Random(seed)
            given = {"type": "response.create", **json.loads(chance.choice(bodies))}
            given.pop("stream", None)
            _, message = mutated(json.dumps(given).encode(), seed)
            try:
                text = message.decode()
            except UnicodeDecodeError:
                continue  # not a text message: test_any_frames sends such bytes
            if connection is None:
                connection = opened.enter_context(connect(url, additional_headers=headers))
            try:
                connection.send(text)
                event = _last(connection)
            except (ConnectionClosed, ProtocolError) as closed:
                pytest.fail(f"{seed}: {closed} after {text[:300]}")
            status = event.get("status", 200)
            own = "internal" in str(event.get("error"))
            assert not own, (seed, text[:500], event)
            assert isinstance(status, int | str), event
        if connection is not None:
            connection.send(_TEXT.decode())
            assert _last(connection)["type"] == "response.completed"
