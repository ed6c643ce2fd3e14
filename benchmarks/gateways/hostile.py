"""``python -m benchmarks.gateways.hostile [--sockets 500] [--callers 32] [--rate 100]``,
or with ``--idle 3000``.

Honest callers of ``remit serve`` alone, at a fixed rate that it has room for, and the same beside
hostile sockets of every kind in :data:`KINDS`, in turns against one server; what counts is the
median over the turns of the one p99 by the other, as both turns have the machine as it just is. A
hostile socket that the server closes comes back after :data:`PAUSE_S`. Prints the times of
the honest calls of both, how the sockets fared, and the server's memory; ends with 1 where an
honest call failed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import random
import resource
import socket
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from benchmarks.gateways import ours, processes, rig
from benchmarks.gateways.launch import running
from benchmarks.gateways.load import Measured
from benchmarks.gateways.options import parser_of, run_of
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import number, ratios, spread, table
from benchmarks.gateways.target import Target
from benchmarks.gateways.wire import CHAT_PATH, MODEL

PAUSE_S = 2.0  # before a socket that was closed comes back
DRIP_S = 1.0  # between the bytes of who is slow
_UNKNOWN = "sk-remit-" + "x" * 43
_HEALTH = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
_MANY = b'{"model":"%b","x":[' % MODEL.encode() + b"{}," * 20_000 + b"{}]}"

Pieces = AsyncIterator[bytes]


def _head(*lines: str, key: str = _UNKNOWN) -> bytes:
    """Of a call."""
    sent = [f"POST {CHAT_PATH} HTTP/1.1", "host: x", f"authorization: Bearer {key}", *lines]
    return "\r\n".join([*sent, "", ""]).encode()


def _stream(key: str, delay_ms: int = 500) -> bytes:
    asked = f"chunks=100000 delay_ms={delay_ms} {random.random()}"
    body = json.dumps(
        {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": asked}]}
    )
    return _head(f"content-length: {len(body)}", key=key) + body.encode()


async def _dripping(begin: bytes, drop: bytes) -> Pieces:
    yield begin
    while True:
        await asyncio.sleep(DRIP_S)
        yield drop


async def _once(*pieces: bytes) -> Pieces:
    for piece in pieces:
        yield piece


async def _endless(begin: bytes, more: bytes) -> Pieces:
    yield begin
    while True:
        yield more


_CHUNKED = "transfer-encoding: chunked"
_NAMED = "expect: 100-continue"
# By kind: what is sent, given a good key; and whether what comes back is read.
KINDS: dict[str, tuple[Callable[[str], Pieces], bool]] = {
    "silent": (lambda _: _once(), True),
    "slow head": (lambda _: _dripping(b"POST / HTTP/1.1\r\nx: ", b"y"), True),
    "slow body, unknown key": (lambda _: _dripping(_head("content-length: 9999"), b" "), True),
    "slow body, good key": (lambda k: _dripping(_head("content-length: 9999", key=k), b" "), True),
    "unknown key": (lambda _: _once(_head("content-length: 2") + b"{}"), True),
    "body after the answer": (lambda _: _dripping(_head("content-length: 99999999", key=""),
                                                  b" " * 4096), True),
    "trailers without end": (lambda _: _endless(_head(_CHUNKED) + b"1\r\n{\r\n0\r\n",
                                                b"x: y\r\n" * 100), True),
    "extensions of chunks": (lambda _: _endless(_head(_CHUNKED) + b"1;", b"x" * 1000), True),
    "no chunk": (lambda _: _once(_head(_CHUNKED) + b"zz\r\n"), True),
    "two lengths": (lambda _: _once(_head("content-length: 5", _CHUNKED) + b"0\r\n\r\n"), True),
    "a head of 80 KB": (lambda _: _once(_head("x: " + "y" * 80_000)), True),
    "40 MB are told of": (lambda k: _once(_head("content-length: 40000000", key=k)), True),
    "waits to be asked": (lambda k: _once(_head(_NAMED, "content-length: 99", key=k)), True),
    "many values": (lambda k: _once(_head(f"content-length: {len(_MANY)}", key=k) + _MANY), True),
    "idle after an answer": (lambda _: _once(_HEALTH), True),
    "100 requests, none read": (lambda _: _once(_HEALTH * 90), False),
    "a stream that is not read": (lambda k: _once(_stream(k)), False),
    "half closed": (lambda k: _once(_stream(k), b""), True),
}  # fmt: skip


class Hostile:
    """Hostile sockets, all kinds in turn, in a thread of their own.

    Attributes:
        seen: by kind, how often one was opened; ``closed`` and a status, what came of it.
    """

    def __init__(self, target: Target, count: int) -> None:
        parts = urlsplit(target.url)
        self._address = (parts.hostname or "", parts.port or 80)
        self._key = target.headers["authorization"].partition(" ")[2]
        self._count = count
        self._over = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self.seen: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """All of them, while the block runs."""
        thread = threading.Thread(target=self._loop.run_until_complete, args=(self._all(),))
        thread.start()
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._over.set)
            thread.join()
            self._loop.close()

    async def _all(self) -> None:
        kinds = itertools.islice(itertools.cycle(KINDS), self._count)
        tasks = [asyncio.create_task(self._again(kind)) for kind in kinds]
        await self._over.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    async def _again(self, kind: str) -> None:
        while True:
            await asyncio.sleep(random.uniform(0, PAUSE_S))
            with contextlib.suppress(OSError):
                await self._once(kind)
            self.seen[kind]["closed"] += 1
            await asyncio.sleep(PAUSE_S / 2)

    async def _once(self, kind: str) -> None:
        make, reads = KINDS[kind]
        with socket.socket() as one:
            one.setblocking(False)
            await self._loop.sock_connect(one, self._address)
            self.seen[kind]["opened"] += 1
            sending = asyncio.create_task(self._send(one, make(self._key)))
            try:
                if not reads:
                    await asyncio.Event().wait()
                first = True
                while data := await self._loop.sock_recv(one, 65_536):
                    if first and data.startswith(b"HTTP/1.1 "):
                        self.seen[kind][data[9:12].decode()] += 1
                    first = False
            finally:
                sending.cancel()
                await asyncio.wait({sending})

    async def _send(self, one: socket.socket, pieces: Pieces) -> None:
        with contextlib.suppress(OSError):
            async for piece in pieces:
                if piece:
                    await self._loop.sock_sendall(one, piece)
                else:
                    one.shutdown(socket.SHUT_WR)


def run(scratch: Path, given: argparse.Namespace, document: dict[str, object]) -> int:
    """All rounds; returns how many honest calls failed."""
    core, others = processes.cores()
    alone: list[Measured] = []
    beside: list[Measured] = []
    seen: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    memory: list[float] = []
    with rig.upstream(others) as upstream:
        launch = ours.remit(upstream.url, scratch)
        with running(launch, scratch, core) as gateway:

            def measure() -> Measured:
                measured = rig.measure(
                    launch.target,
                    given.callers,
                    core=others,
                    seconds=given.seconds,
                    rate=given.rate,
                    pid=gateway.pid,
                )
                memory.append(processes.tree_rss_mb(gateway.pid))
                tell(f"  p99 {number(measured.p99_ms)} ms, {measured.errors} errors")
                return measured

            for turn in range(given.rounds):
                tell(f"Round {turn + 1}: alone, then beside {given.sockets} hostile sockets")
                alone.append(measure())
                hostile = Hostile(launch.target, given.sockets)
                with hostile.at_work():
                    beside.append(measure())
                for kind, counts in hostile.seen.items():
                    seen[kind] += counts
    worse = ratios([run.p99_ms for run in beside], [run.p99_ms for run in alone])
    lines = [
        (name, spread([run.rate for run in runs]), spread([run.p50_ms for run in runs]),
         spread([run.p99_ms for run in runs]), str(sum(run.errors for run in runs)))
        for name, runs in (("alone", alone), (f"beside {given.sockets}", beside))
    ]  # fmt: skip
    print(
        table((f"{given.callers} honest callers", "Calls/s", "p50 ms", "p99 ms", "Errors"), lines)
    )
    middle = number(median(worse)) if worse else "unknown"
    print(f"\nMedian of p99 beside / alone: {middle} ({spread(worse)})")
    print(f"RSS MB after each turn: {spread(memory)}\n")
    names = sorted({name for counts in seen.values() for name in counts} - {"opened", "closed"})
    print(table(("Hostile", "opened", "closed", *names),
                [(kind, *(str(counts[name]) for name in ("opened", "closed", *names)))
                 for kind, counts in seen.items()]))  # fmt: skip
    errors = [run.error for run in (*alone, *beside) if run.error]
    document |= {
        "p99_ratio": median(worse) if worse else None, "seen": seen, "errors": errors,
        "rss_mb": memory, "alone": [vars(run) for run in alone],
        "beside": [vars(run) for run in beside],
    }  # fmt: skip
    for error in errors:
        tell(f"An honest call failed: {error[:300]}")
    return sum(run.errors for run in (*alone, *beside))


async def _idle(target: Target, count: int, opened: Callable[[], None]) -> int:
    """Open streams that say one thing and then nothing; how many did."""
    parts = urlsplit(target.url)
    key = target.headers["authorization"].partition(" ")[2]
    few = asyncio.Semaphore(64)

    async def one() -> asyncio.StreamWriter | None:
        async with few:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(_stream(key, delay_ms=10**8))
            said = await asyncio.wait_for(reader.readuntil(b"\n\n"), 60)
            return writer if b"data: " in said else None

    streams = [found for found in await asyncio.gather(*(one() for _ in range(count))) if found]
    await asyncio.to_thread(opened)
    for writer in streams:
        writer.close()
    return len(streams)


def idle(scratch: Path, given: argparse.Namespace, document: dict[str, object]) -> int:
    """Memory per idle stream, and what calls take beside them; returns how many went wrong."""
    core, others = processes.cores()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # and of the processes begun here
    with rig.upstream(others) as upstream:
        launch = ours.remit(upstream.url, scratch)
        with running(launch, scratch, core) as gateway:

            def measure() -> Measured:
                return rig.measure(launch.target, 8, core=others, seconds=given.seconds,
                                   pid=gateway.pid, rate=given.rate / 4)  # fmt: skip

            alone = measure()
            rss = [processes.tree_rss_mb(gateway.pid)]
            beside: list[Measured] = []

            def opened() -> None:
                rss.append(processes.tree_rss_mb(gateway.pid))
                beside.append(measure())
                rss.append(processes.tree_rss_mb(gateway.pid))

            count = asyncio.run(_idle(launch.target, given.idle, opened))
    each = (rss[1] - rss[0]) * 1024 / max(1, count)
    grown = (rss[2] - rss[1]) * 1024 / max(1, count)
    print(f"{count:,} idle streams: {each:.1f} KiB each, {grown:+.1f} KiB after "
          f"{given.seconds:g} s of calls; p99 of calls {number(alone.p99_ms)} ms alone, "
          f"{number(beside[0].p99_ms)} ms beside them")  # fmt: skip
    document |= {"idle": count, "kib_each": each, "alone": vars(alone), "beside": vars(beside[0])}
    return int(given.idle) - count + alone.errors + beside[0].errors


def main() -> None:
    """Run as the arguments say."""
    parser = parser_of("benchmarks.gateways.hostile")
    parser.add_argument("--sockets", type=int, default=500)
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=8.0, help="of one turn")
    parser.add_argument("--rate", type=float, default=100.0, help="honest calls a second")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle", type=int, help="streams of one key that fall silent, instead")
    given = parser.parse_args()
    with run_of(given) as (scratch, document):
        failed = (idle if given.idle else run)(scratch, given, document)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
