"""Connections and streams on which nothing comes cost little, and hold up nobody else.

``REMIT_SOAK=1`` opens 10,000 of each kind, or as many as the server may have files for.
"""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import pytest

from tests.server.running import Served, prompt, serving
from tests.support.soak import is_soak
from tests.support.waiting import until

pytestmark = pytest.mark.soak

_KIB = 1024
_TOML = """
[gateway]
timeout_ms = 600000
idle_timeout_ms = 600000
[server]
max_connections = 12000
header_timeout_s = 600
body_timeout_s = 600
"""
_OWN_FILES = 1_000  # of the server; it leaves room for other clients too
_OF_ONE_KEY = 2_000
_MOST_EACH = {"stream": 64 * _KIB, "dripping stream": 64 * _KIB}
_MOST_OF_OTHERS = 24 * _KIB


_CLOSED = 20  # connections that the server itself held before, and closes meanwhile


def _count(files: int) -> int:
    """Return how many connections to open, if each takes so many files of the server."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = 10_000 if hard == resource.RLIM_INFINITY else (hard - _OWN_FILES) // files
    return min(10_000 if is_soak() else 300, most)


def _half(served: Served, token: str) -> bytes:
    return served.head("content-length: 1000", token=token) + b"{"


def _stream(served: Served, token: str, text: str) -> bytes:
    return served.request(prompt(text, stream=True), token=token)


_KINDS: dict[str, Callable[[Served, str], bytes]] = {
    "silent": lambda *_: b"",
    "half a head": lambda *_: b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-a: ",
    "half a body": _half,
    "half a body without a key": lambda served, _: _half(served, ""),
    "stream": partial(_stream, text="say nothing"),
    "dripping stream": partial(_stream, text="drip"),
    "WebSocket": lambda served, token: served.head(
        "connection: Upgrade",
        "upgrade: websocket",
        "sec-websocket-version: 13",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
        method="GET",
        path="/v1/responses",
        token=token,
    ),
}


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.support.idle_provider"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.kill()


@contextmanager
def _dripping(connections: list[socket.socket]) -> Iterator[None]:
    """Send a byte on each connection now and then, until the block ends."""
    over = threading.Event()

    def drip() -> None:
        while not over.is_set():
            for one in connections:
                try:
                    one.send(b"y")
                except OSError:  # The server closed it.
                    continue
            over.wait(0.5)

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _files(served: Served) -> int:
    return len(list(Path(f"/proc/{served.process.pid}/fd").iterdir()))


@pytest.mark.parametrize("kind", _KINDS)
def test_idle_clients_take_little(provider: str, tmp_path: Path, kind: str) -> None:
    is_answered = "stream" in kind or kind == "WebSocket"
    count = _count(2)  # the server keeps one for a provider too
    with (
        serving(tmp_path / "root", provider, toml=_TOML, checked=False) as served,
        ExitStack() as stack,
    ):
        tokens = [served.key().key for _ in range(1 + count // _OF_ONE_KEY)]
        assert served.call("openai", "hi")[0] == 200
        before, files = served.rss_bytes(), _files(served)
        opened = []
        for number in range(count):
            one = socket.create_connection(served.address, timeout=60)
            opened.append(stack.enter_context(closing(one)))
            one.sendall(_KINDS[kind](served, tokens[number // _OF_ONE_KEY]))
        if is_answered:
            for one in opened:
                assert one.recv(1).startswith(b"H")
        else:
            until(lambda: _files(served) >= files + len(opened) - _CLOSED)
        with _dripping(opened) if kind.startswith("half") else nullcontext():
            for _ in range(3):
                assert served.call("openai", "hi")[0] == 200
                assert served.ask("GET", "/v1/models")[0] == 200
            grown = served.rss_bytes() - before
        most = _MOST_EACH.get(kind, _MOST_OF_OTHERS)
        print(f"{count} of {kind}: {grown / count / _KIB:.1f} KiB each")
        assert grown < count * most + 8 * _KIB * _KIB
        served.kill()
