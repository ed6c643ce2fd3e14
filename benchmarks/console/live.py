"""Live events: how late they are, and what open pages cost the calls beside them.

python -m benchmarks.console.live --root ROOT --seconds S --rate N   (writes)
python -m benchmarks.console.live --watch URL --cookie C --viewers N (keeps pages open)
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.console.served import Served
from benchmarks.gateways import processes, rig
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.ledger import LedgerEntry, open_root_ledger

TOP = Path(__file__).parents[2]
MODULE = "benchmarks.console.live"
WRITERS = 4
CALLERS = 8


def lags_ms(served: Served, root: Path, rate: int, seconds: float) -> tuple[list[float], int]:
    """From each entry's commit to its arrival at a reader, sorted; and how many never came."""
    arrived: dict[str, float] = {}
    stream = open_stream(served.url, served.cookie)
    reader = threading.Thread(target=_read, args=(stream, arrived), daemon=True)
    reader.start()
    time.sleep(1)
    command = [sys.executable, "-m", MODULE, "--root", str(root)]
    command += ["--seconds", str(seconds), "--rate", str(rate)]
    process = processes.spawn(command, directory=TOP)
    output, _ = process.communicate()
    time.sleep(2)
    stream.shutdown(socket.SHUT_RDWR)
    committed: dict[str, float] = json.loads(output.splitlines()[-1])
    late = [1000 * (arrived[one] - at) for one, at in committed.items() if one in arrived]
    return sorted(late), len(committed) - len(late)


def open_stream(url: str, cookie: str) -> socket.socket:
    """A connection on which live events come."""
    parts = urlsplit(url)
    stream = socket.create_connection((parts.hostname or "", parts.port or 80))
    head = f"GET /console/live HTTP/1.1\r\nhost: {parts.netloc}\r\ncookie: {cookie}\r\n\r\n"
    stream.sendall(head.encode())
    return stream


def _read(stream: socket.socket, arrived: dict[str, float]) -> None:
    with stream.makefile("rb") as lines:
        for line in lines:
            if line.startswith(b"data: "):
                now = time.monotonic()
                for row in json.loads(line[6:]).get("rows", ()):
                    arrived.setdefault(row["id"], now)


def tail_of(sorted_ms: list[float]) -> tuple[float, float]:
    """Median and 99th percentile."""
    return statistics.median(sorted_ms), sorted_ms[int(0.99 * len(sorted_ms))]


@contextmanager
def viewers(served: Served, number: int) -> Iterator[None]:
    """So many open pages, in a process of their own."""
    command = [sys.executable, "-m", MODULE, "--watch", served.url]
    command += ["--cookie", served.cookie, "--viewers", str(number)]
    process = processes.spawn(command, core=processes.cores()[1], directory=TOP)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    try:
        yield
    finally:
        processes.stop(process)


def calls(served: Served, rate: float, seconds: float) -> tuple[float, float, float, int]:
    """Of model calls at a fixed rate median and 99th percentile in ms, the server's processor time
    for each in ms, and how many failed."""
    others = processes.cores()[1]
    found = rig.measure(
        served.target, CALLERS, core=others, seconds=seconds, rate=rate, pid=served.pid
    )
    return found.p50_ms, found.p99_ms, found.cpu_us / 1000, found.errors


def _write(place: Path, rate: int, seconds: float) -> None:
    """Exchanges at a steady rate, by several threads; prints when each was committed."""
    committed: dict[str, float] = {}
    root = Root(place)
    with open_root_ledger(root, load_settings(root.config).settings.ledger) as ledger:

        def work(first: float) -> None:
            due = first
            while due < first + seconds:
                time.sleep(max(0.0, due - time.monotonic()))
                entry = LedgerEntry(
                    "EXCHANGE", "PRC-PASSTHROUGH-001", "SUCCESS", "Exchange completed",
                    metadata={"agent_id": "app", "session_id": "SES-LIVELIVELIVELIVE",
                              "outcome": "success", "model_id": "gpt-4o-mini",
                              "input_tokens": 812, "output_tokens": 93, "latency_ms": 812.5,
                              "cost_usd": 0.000177, "cost_certainty": "measured"},
                )  # fmt: skip
                ledger.write(entry)
                committed[entry.id] = time.monotonic()
                due += WRITERS / rate

        begin = time.monotonic() + 0.2
        threads = [
            threading.Thread(target=work, args=(begin + number / rate,))
            for number in range(WRITERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(json.dumps(committed), flush=True)


def _watch(url: str, cookie: str, number: int) -> None:
    streams = [open_stream(url, cookie) for _ in range(number)]
    for stream in streams:
        assert stream.recv(12) == b"HTTP/1.1 200"
    for stream in streams[1:]:
        threading.Thread(target=_drain, args=(stream,), daemon=True).start()
    print("open", flush=True)
    _drain(streams[0])


def _drain(stream: socket.socket) -> None:
    while stream.recv(1 << 16):
        pass


def main() -> None:
    """Write, or watch."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--watch")
    parser.add_argument("--cookie", default="")
    parser.add_argument("--viewers", type=int, default=1)
    given = parser.parse_args()
    if given.watch:
        _watch(given.watch, given.cookie, given.viewers)
    else:
        _write(given.root, given.rate, given.seconds)


if __name__ == "__main__":
    main()
