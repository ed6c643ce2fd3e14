"""A proxy before a PostgreSQL server that cuts a connection at a message that a test names."""

from __future__ import annotations

import contextlib
import socket
import threading
from pathlib import Path
from typing import Literal, Self
from urllib.parse import parse_qs, urlsplit, urlunsplit

__all__ = ["CuttingProxy"]

_SOCKET = ".s.PGSQL.5432"

Side = Literal["client", "server"]


class CuttingProxy:
    """Passes messages on between clients and a server, both on Unix sockets.

    Args:
        url: of a database of the server.
        directory: for the socket that clients connect to.
    """

    def __init__(self, url: str, directory: Path) -> None:
        parts = urlsplit(url)
        self._server = str(Path(parse_qs(parts.query)["host"][0]) / _SOCKET)
        directory.mkdir()
        self.url = urlunsplit(parts._replace(query=f"host={directory}"))
        self._left: dict[Side, int] = {}
        self._stalled = threading.Event()
        self._away = threading.Event()
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(directory / _SOCKET))
        self._listener.listen()
        self.cuts = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def cut(self, sender: Side, after: int) -> None:
        """Let so many of the sender's messages pass, then cut that connection, once."""
        with self._lock:
            self._left = {sender: after}

    def stall(self, stalled: bool) -> None:
        """Swallow what the server says, or no more."""
        self._stalled.set() if stalled else self._stalled.clear()

    def sever(self, away_s: float) -> None:
        """Cut every connection, and refuse new ones for so long."""
        self._away.set()
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        timer = threading.Timer(away_s, self._away.clear)
        timer.daemon = True
        timer.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._away.is_set():
                    client.close()
                    continue
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                ends = (client, server)
                self._open += ends
                for sender, source, target in (("client", *ends), ("server", *reversed(ends))):
                    threading.Thread(
                        target=self._pass_on, args=(sender, source, target), daemon=True
                    ).start()

    def _pass_on(self, sender: Side, source: socket.socket, target: socket.socket) -> None:
        stream = source.makefile("rb")
        kind = 0 if sender == "client" else 1  # a client's first message has no kind
        with contextlib.suppress(OSError, ValueError):
            while head := stream.read(kind + 4):
                body = stream.read(int.from_bytes(head[kind:], "big") - 4)
                if self._is_due(sender):
                    break
                if sender == "client" or not self._stalled.is_set():
                    target.sendall(head + body)
                kind = 1
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        stream.close()
        source.close()

    def _is_due(self, sender: Side) -> bool:
        with self._lock:
            left = self._left.get(sender)
            if left is None:
                return False
            if left == 0:
                self._left = {}
                self.cuts += 1
                return True
            self._left[sender] = left - 1
            return False
