"""A provider that answers with exactly the bytes it is told, one thread per connection."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["CASE_HEADER", "RawProvider", "pieces", "raw_provider", "replying", "says", "whole"]

CASE_HEADER = "openai-beta"
"""Remit passes it on within a dialect: by it the provider knows which answer is wanted.

Between dialects the case stands in the model's name.
"""
_CASE = re.compile(rb"SES-[0-9A-F]{16}")

Answer = Callable[[socket.socket, str, bytes], bool]
"""Writes an answer to a request's path and body; whether the connection stays open."""


def whole(
    body: bytes, kind: str = "application/json", status: str = "200 OK", more: str = ""
) -> bytes:
    length = f"content-length: {len(body)}\r\n"
    return f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{length}{more}\r\n".encode() + body


def says(data: bytes, *, stays_open: bool = True) -> Answer:
    """Answers with these bytes, head and body."""

    def answer(connection: socket.socket, path: str, body: bytes) -> bool:
        connection.sendall(data)
        return stays_open

    return answer


def replying(make: Callable[[str, bytes], bytes]) -> Answer:
    """Answers with the bytes, head and body, that are made of a request's path and body."""

    def answer(connection: socket.socket, path: str, body: bytes) -> bool:
        connection.sendall(make(path, body))
        return True

    return answer


def pieces(head: bytes, parts: list[bytes]) -> Answer:
    """Answers with a chunked body, each part a packet of its own."""

    def answer(connection: socket.socket, path: str, body: bytes) -> bool:
        connection.sendall(head)
        for part in parts:
            connection.sendall(b"%x\r\n%s\r\n" % (len(part), part))
        connection.sendall(b"0\r\n\r\n")
        return True

    return answer


class RawProvider:
    """See the module.

    Attributes:
        answers: by the case that a request names.
        answer: of all other requests.
        got: path and body of each request, by case; those of no case under ``""``.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.answer: Answer = lambda *_: False
        self.got: dict[str, list[tuple[str, bytes]]] = {}
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    @property
    def seen(self) -> list[tuple[str, bytes]]:
        """Path and body of each request of no case that had a body."""
        return [one for one in self.got.get("", ()) if one[1]]

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader, contextlib.suppress(OSError):
            while line := reader.readline():
                path, length, case = line.split()[1].decode("latin-1"), 0, ""
                while (header := reader.readline().strip()) != b"":
                    name, _, value = header.partition(b":")
                    if name.lower() == b"content-length":
                        length = int(value)
                    elif name.lower() == CASE_HEADER.encode():
                        case = value.strip().decode("latin-1")
                body = reader.read(length)
                named = path.encode() + b" " + body
                if not case and (found := _CASE.search(named)) is not None:
                    case = found[0].decode()
                self.got.setdefault(case, []).append((path, body))
                if not self.answers.get(case, self.answer)(connection, path, body):
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
                    return


@contextmanager
def raw_provider() -> Iterator[RawProvider]:
    provider = RawProvider()
    thread = threading.Thread(target=provider.run, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.close()
        thread.join(10)
