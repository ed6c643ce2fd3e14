"""A closed loop of callers in a process of its own; every answer is checked.

    python -m benchmarks.gateways.load --url URL --concurrency N (--seconds S | --requests R)

One thread on ``epoll``, so that it takes little of the core that it shares with the upstream. Each
caller has one kept-alive connection and sends its next request when the answer to the last is
whole; with ``--rate`` not before it is due, so that all of them ask so often a second at most. No
two bodies are the same, within a run or between runs. Prints a :class:`Measured` as JSON.
"""

from __future__ import annotations

import argparse
import bisect
import json
import select
import socket
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from urllib.parse import urlsplit

from benchmarks.gateways.processes import core_busy_s, tree_cpu_s
from benchmarks.gateways.target import Bodies, Target
from benchmarks.gateways.wire import MARKER, MODEL, TICK, message_end

RECEIVE_BYTES = 1 << 18
DRAIN_S = 30.0
RETRY_CONNECT_S = 0.05


@dataclass
class Measured:
    """What one run of the load saw, from the end of the warm-up on.

    Attributes:
        seconds: the window.
        requests: good answers.
        errors: status other than 200, the answer's mark missing, or a connection cut.
        error: the first of them, cut short.
        p50_ms, p99_ms: of good answers, from sending to the last byte.
        first_p50_ms, first_p99_ms: to the first streamed text; 0 where nothing streams.
        chunks: streamed texts.
        chunk_p50_ms, chunk_p99_ms: from leaving the upstream to arriving here.
        cpu_s: processor time of the process tree in the window; 0 where none was named.
        foreign: part of the window for which others had the cores of that tree.
        sent: all requests ever sent, the warm-up's too.
    """

    seconds: float = 0.0
    requests: int = 0
    errors: int = 0
    error: str = ""
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    first_p50_ms: float = 0.0
    first_p99_ms: float = 0.0
    chunks: int = 0
    chunk_p50_ms: float = 0.0
    chunk_p99_ms: float = 0.0
    cpu_s: float = 0.0
    foreign: float = 0.0
    sent: int = 0

    @property
    def rate(self) -> float:
        """Good answers per second."""
        return self.requests / self.seconds if self.seconds else 0.0

    @property
    def cpu_us(self) -> float:
        """Processor time per good answer, in µs."""
        return 1e6 * self.cpu_s / self.requests if self.requests else 0.0


@dataclass(slots=True)
class Caller:
    """A connection, and the request on it."""

    socket: socket.socket
    buffer: bytearray = field(default_factory=bytearray)
    request: bytes = b""
    sent_at: float = 0.0
    first_at: float = 0.0
    waiting: bool = False


class Load:
    """The callers.

    Args:
        target: what to ask.
        concurrency: how many callers.
        pid: of the gateway, whose processor time is taken at both ends of the window.
        rate: most requests a second, of all callers; None for as many as are answered.
    """

    def __init__(
        self, target: Target, concurrency: int, pid: int | None = None, rate: float | None = None
    ) -> None:
        parts = urlsplit(target.url)
        self._address = (parts.hostname or "", parts.port or 80)
        self._target = target
        self._bodies = Bodies(target)
        self._concurrency = concurrency
        self._pid = pid
        self._every_s = concurrency / rate if rate else 0.0  # of one caller
        self._resting: deque[tuple[float, Caller]] = deque()
        self._epoll = select.epoll()
        self._callers: dict[int, Caller] = {}
        self._latencies: list[float] = []
        self._firsts: list[float] = []
        self._lags: list[float] = []
        self._measured = Measured()
        self._going = True

    def run(
        self, *, seconds: float | None = None, requests: int | None = None, warm_s: float = 0.0
    ) -> Measured:
        """Ask for so long, or so many times, after a warm-up; returns when all have answered."""
        for number in range(self._concurrency):
            caller, late_s = self._connect(), self._every_s * number / self._concurrency
            if late_s:  # not all at once
                self._resting.append((time.perf_counter() + late_s, caller))
            else:
                self._send(caller)
        if warm_s:
            self._until(time.perf_counter() + warm_s)
        self._forget()
        pid = self._pid
        cpu, busy = (tree_cpu_s(pid), core_busy_s(pid)) if pid else (0.0, 0.0)
        started = time.perf_counter()
        self._until(started + seconds if seconds else None, requests)
        measured = self._measured
        measured.seconds = time.perf_counter() - started
        if pid:
            measured.cpu_s = tree_cpu_s(pid) - cpu
            others = core_busy_s(pid) - busy - measured.cpu_s
            measured.foreign = max(0.0, others) / measured.seconds
        measured.p50_ms, measured.p99_ms = _middle_and_tail(self._latencies)
        measured.first_p50_ms, measured.first_p99_ms = _middle_and_tail(self._firsts)
        measured.chunk_p50_ms, measured.chunk_p99_ms = _middle_and_tail(self._lags)
        measured.chunks = len(self._lags)
        self._drain()
        return measured

    def _forget(self) -> None:
        for figures in (self._latencies, self._firsts, self._lags):
            figures.clear()
        self._measured = Measured(sent=self._measured.sent)

    def _until(self, deadline: float | None, requests: int | None = None) -> None:
        limit = float("inf") if deadline is None else deadline
        wanted = float("inf") if requests is None else requests
        measured = self._measured
        while (now := time.perf_counter()) < limit and measured.requests < wanted:
            while self._resting and self._resting[0][0] <= now:
                self._send(self._resting.popleft()[1])
            next_s = self._resting[0][0] - now if self._resting else 1.0
            self._receive_ready(max(0.0, min(1.0, limit - now, next_s)))
            measured = self._measured
            if measured.errors > wanted:
                return

    def _drain(self) -> None:
        """Let what is under way end, so that the next run finds the gateway idle."""
        counted = Measured(**asdict(self._measured))
        self._going = False
        deadline = time.perf_counter() + DRAIN_S
        while any(c.waiting for c in self._callers.values()) and time.perf_counter() < deadline:
            self._receive_ready(1.0)
        for caller in self._callers.values():
            caller.socket.close()
        self._measured.__dict__.update(counted.__dict__)

    def _connect(self) -> Caller:
        connected = socket.create_connection(self._address)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        caller = self._callers[connected.fileno()] = Caller(connected)
        self._epoll.register(connected, select.EPOLLIN)
        return caller

    def _send(self, caller: Caller) -> None:
        caller.first_at = 0.0
        caller.waiting = True
        self._measured.sent += 1
        caller.request = self._bodies.next()
        caller.sent_at = time.perf_counter()
        try:
            caller.socket.sendall(caller.request)
        except ConnectionError:
            self._replace(caller, "cut while sending")

    def _receive_ready(self, timeout_s: float) -> None:
        for descriptor, _ in self._epoll.poll(timeout_s):
            self._receive(self._callers[descriptor])

    def _receive(self, caller: Caller) -> None:
        try:
            received = caller.socket.recv(RECEIVE_BYTES)
        except ConnectionError:
            received = b""
        if not received:
            self._replace(caller, "cut" if caller.waiting else "")
            return
        buffer = caller.buffer
        buffer += received
        if self._target.stream:
            self._time_chunks(caller, received)
        if not message_end(buffer):
            return
        now = time.perf_counter()
        caller.waiting = False
        if buffer.startswith(b"HTTP/1.1 200") and (MARKER in buffer or self._streamed(buffer)):
            self._measured.requests += 1
            self._latencies.append(now - caller.sent_at)
            if caller.first_at:
                self._firsts.append(caller.first_at - caller.sent_at)
        else:
            self._note(bytes(buffer[:2000]).decode(errors="replace"))
        buffer.clear()
        if not self._going:
            return
        if self._every_s:
            due = max(now, caller.sent_at + self._every_s)
            bisect.insort(self._resting, (due, caller), key=lambda one: one[0])
        else:
            self._send(caller)

    def _time_chunks(self, caller: Caller, received: bytes) -> None:
        """Note how long each text took to arrive. (One that a read cuts in two is left out.)"""
        now = time.monotonic_ns()
        for tick in TICK.finditer(received):
            self._lags.append((now - int(tick[1])) / 1e9)
            if not caller.first_at:
                caller.first_at = time.perf_counter()

    def _streamed(self, buffer: bytearray) -> bool:
        """Whether all the texts are there, and the end."""
        stream = self._target.stream
        return stream is not None and (
            len(TICK.findall(buffer)) == stream[0] and b"data: [DONE]" in buffer
        )

    def _replace(self, caller: Caller, error: str) -> None:
        """A new connection for one that was closed, which is an error while it was waiting."""
        del self._callers[caller.socket.fileno()]
        caller.socket.close()
        self._resting = deque(one for one in self._resting if one[1] is not caller)
        if error:
            self._note(error)
            time.sleep(RETRY_CONNECT_S)
        if self._going:
            self._send(self._connect())

    def _note(self, error: str) -> None:
        self._measured.errors += 1
        self._measured.error = self._measured.error or error


def _middle_and_tail(seconds: list[float]) -> tuple[float, float]:
    """Median and 99th percentile in ms."""
    if not seconds:
        return 0.0, 0.0
    ordered = sorted(seconds)
    return 1000 * ordered[len(ordered) // 2], 1000 * ordered[int(len(ordered) * 0.99)]


def main() -> None:
    """Run a load as the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gateways.load")
    parser.add_argument("--url", required=True)
    parser.add_argument("--header", action="append", default=[], help="NAME: VALUE")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--payload", type=int, default=1024, help="bytes of a prompt")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--requests", type=int)
    parser.add_argument("--rate", type=float, help="most requests a second")
    parser.add_argument("--warm", type=float, default=0.0, help="seconds that do not count")
    parser.add_argument("--pid", type=int, help="whose tree's processor time to take")
    parser.add_argument("--stream", help="CHUNKS,DELAY_MS")
    given = parser.parse_args()
    if (given.seconds is None) == (given.requests is None):
        parser.error("give one of --seconds and --requests")
    stream = None
    if given.stream:
        chunks, delay = given.stream.split(",")
        stream = (int(chunks), int(delay))
    headers = dict(header.split(": ", 1) for header in given.header)
    target = Target(given.url, headers, given.model, given.payload, stream)
    load = Load(target, given.concurrency, given.pid, given.rate)
    measured = load.run(seconds=given.seconds, requests=given.requests, warm_s=given.warm)
    print(json.dumps(asdict(measured)))


if __name__ == "__main__":
    main()
