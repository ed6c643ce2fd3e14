"""A proxy before PostgreSQL that is so many milliseconds away, in a process of its own.

    python -m benchmarks.cluster.latency SOCKET MS      prints its port

``tc netem`` wants a kernel module that is often not there. One thread on ``select``, whose timeout
is exact to the microsecond, where those of ``epoll`` and of asyncio are whole milliseconds.
"""

from __future__ import annotations

import heapq
import itertools
import select
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit, urlunsplit

from benchmarks.gateways import processes

_MOST = 1 << 20
_TOP = Path(__file__).parents[2]


def serve(server: str, round_trip_s: float) -> None:
    """Pass on what comes, half a round trip later each way, until the process ends."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)
    others: dict[socket.socket, socket.socket] = {}
    due: list[tuple[float, int, socket.socket, bytes]] = []
    numbers = itertools.count()
    while True:
        wait = max(0.0, due[0][0] - time.perf_counter()) if due else None
        ready, _, _ = select.select([listener, *others], [], [], wait)
        now = time.perf_counter()
        while due and due[0][0] <= now:
            _, _, to, data = heapq.heappop(due)
            if to in others:
                _send(others, to, data)
        for one in ready:
            if one is listener:
                client, _ = listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                upstream = socket.socket(socket.AF_UNIX)
                upstream.connect(server)
                others[client], others[upstream] = upstream, client
            elif one in others:
                with suppress(OSError):
                    if data := one.recv(_MOST):
                        later = now + round_trip_s / 2
                        heapq.heappush(due, (later, next(numbers), others[one], data))
                        continue
                _drop(others, one)


def _send(others: dict[socket.socket, socket.socket], to: socket.socket, data: bytes) -> None:
    try:
        to.sendall(data)
    except OSError:
        _drop(others, to)


def _drop(others: dict[socket.socket, socket.socket], one: socket.socket) -> None:
    """Close both ends at once."""
    other = others.pop(one)
    others.pop(other, None)
    one.close()
    other.close()


@contextmanager
def away(url: str, round_trip_ms: float) -> Iterator[tuple[str, int | None]]:
    """The URL of the same database, so far away, and the pid of what is between; at 0 the server
    itself."""
    if not round_trip_ms:
        yield url, None
        return
    parts = urlsplit(url)
    server = f"{parse_qs(parts.query)['host'][0]}/.s.PGSQL.5432"
    command = [sys.executable, "-m", "benchmarks.cluster.latency", server, str(round_trip_ms)]
    process = processes.spawn(command, directory=_TOP)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        user = parts.netloc.rpartition("@")[0]
        place = parts._replace(netloc=f"{user}@127.0.0.1:{port}", query="sslmode=disable")
        yield urlunsplit(place), process.pid
    finally:
        processes.stop(process)


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]) / 1000)
