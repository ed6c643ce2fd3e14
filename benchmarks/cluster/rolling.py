"""Two gateways behind nginx, and behind Caddy, are restarted in turn: no call fails."""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp
from tests.deploy.places import free_port, running
from tests.deploy.proxies import caddy, nginx
from tests.support.upstream import upstream

from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import number, table
from benchmarks.overspend import MODELS, Installation, Server
from benchmarks.postgres import PostgresServer
from remit.ledger import LedgerClient

PROXIES: dict[str, Callable[[Path, Sequence[str], int, int], list[str]]] = {
    "nginx": nginx,
    "caddy": partial(caddy, every="2s"),
}
CALLERS = 12
_SEEN_S = 0.5  # between one that is ready again and the end of the other
_GRACE_S = 60.0  # what systemd and Kubernetes give


@dataclass
class Run:
    """Of one proxy.

    Attributes:
        streams, calls: that ended well.
        failed: what clients were told instead.
        ended_s: from SIGTERM to the end of each gateway.
        statuses: of the gateways' ends.
        record: `verified`, or what is wrong with the ledger.
    """

    calls: int = 0
    streams: int = 0
    longest_s: float = 0.0
    failed: Counter[str] = field(default_factory=Counter)
    ended_s: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    record: str = ""


class Rolling:
    """A run.

    Args:
        scratch: a directory for the roots.
        given: the command line.
        server: holds the ledgers.
    """

    def __init__(self, scratch: Path, given: argparse.Namespace, server: PostgresServer) -> None:
        self._scratch = scratch
        self._restarts = given.restarts
        self._notice_s = given.notice
        self._server = server
        self._runs: dict[str, Run] = {}

    @property
    def problems(self) -> list[str]:
        """Calls that failed, gateways that did not end by themselves in time."""
        found = []
        for name, run in self._runs.items():
            found += [f"{name}: {times} times {what}" for what, times in run.failed.items()]
            found += [f"{name}: {s:.0f} s until the end" for s in run.ended_s if s > _GRACE_S]
            found += [f"{name}: status {status}" for status in run.statuses if status]
            found += [f"{name}: {run.record}"] if run.record != "verified" else []
        return found

    def run(self) -> None:
        """Behind each proxy that is installed."""
        for name, command in PROXIES.items():
            if shutil.which(name) is None:
                tell(f"Rolling: {name} is not installed")
                continue
            with ExitStack() as stack:
                provider = stack.enter_context(upstream())
                url = stack.enter_context(self._server.database())
                first = Installation(self._scratch / name, provider.url, 1e6, url)
                roots = [first, first.copied(self._scratch / f"{name}-2")]
                self._runs[name] = self._behind(name, command, roots)
            tell(f"Rolling, {name}: {self.problems or 'all holds'}")

    def _behind(
        self, name: str, command: Callable[[Path, Sequence[str], int, int], list[str]],
        roots: list[Installation],
    ) -> Run:  # fmt: skip
        run, place = Run(), self._scratch / f"{name}-proxy"
        place.mkdir()
        ports = [free_port() for _ in roots]
        front, plain = free_port(), free_port()
        servers = [self._serve(root, port) for root, port in zip(roots, ports, strict=True)]
        line = command(place, [f"127.0.0.1:{port}" for port in ports], front, plain)
        with ExitStack() as stack:
            stack.callback(_end, servers)
            stack.enter_context(running(line, place / "log", place))
            asyncio.run(self._load(run, front, roots, ports, servers))
        with LedgerClient(roots[0].address, create=False) as ledger:
            told = ledger.count_by_event()
            well = told["DISPATCH"] == told["EXCHANGE"] == run.calls + run.streams
            report = ledger.verify()
            run.record = "verified" if report.verified and well else f"{told} {report.problems}"
        return run

    def _serve(self, root: Installation, port: int) -> Server:
        environment = {"REMIT_SERVER__NOTICE_S": str(self._notice_s)}
        return root.serve("--port", str(port), environment=environment)

    async def _load(
        self, run: Run, front: int, roots: list[Installation], ports: list[int],
        servers: list[Server],
    ) -> None:  # fmt: skip
        over = asyncio.Event()
        connector = aiohttp.TCPConnector(limit=0, ssl=False)
        async with aiohttp.ClientSession(connector=connector) as session:
            url = f"https://127.0.0.1:{front}"
            await _until_ready(session, url)
            tasks = [
                asyncio.create_task(_call_on(session, url, roots[0].key, number, run, over))
                for number in range(CALLERS)
            ]
            for turn in range(self._restarts):
                for at, server in enumerate(servers):
                    await asyncio.sleep(_SEEN_S)
                    begun = time.monotonic()
                    server.process.send_signal(signal.SIGTERM)
                    run.statuses[await asyncio.to_thread(server.process.wait)] += 1
                    run.ended_s.append(time.monotonic() - begun)
                    servers[at] = await asyncio.to_thread(self._serve, roots[at], ports[at])
                tell(f"Rolling: {turn + 1} of each, {run.calls + run.streams} calls, failed "
                     f"{dict(run.failed)}")  # fmt: skip
            over.set()
            await asyncio.gather(*tasks)

    def tables(self) -> str:
        """What is printed."""
        lines = [
            (
                name, f"{len(run.ended_s)}", f"{run.calls}", f"{run.streams}",
                number(run.longest_s), f"{run.failed.total()}"
                + "".join(f"; {times} {what}" for what, times in run.failed.items()),
                f"{number(statistics.median(run.ended_s))}, {number(max(run.ended_s))}",
                run.record,
            )
            for name, run in self._runs.items()
        ]  # fmt: skip
        titles = ("Behind", "Restarts", "Whole calls", "Streams", "Longest s", "Failed",
                  "SIGTERM to end s: median, most", "Record")  # fmt: skip
        return table(titles, lines)

    def figures(self) -> dict[str, object]:
        """All, for a file."""
        return {
            name: {"calls": run.calls, "streams": run.streams, "failed": dict(run.failed),
                   "ended_s": run.ended_s, "record": run.record}
            for name, run in self._runs.items()
        }  # fmt: skip


def _end(servers: list[Server]) -> None:
    for server in servers:
        server.end()


async def _until_ready(session: aiohttp.ClientSession, url: str) -> None:
    while True:
        try:
            headers = {"host": "remit.example.org"}
            async with session.get(f"{url}/readyz", headers=headers) as answer:
                if answer.status == 200:
                    return
        except aiohttp.ClientError:
            pass
        await asyncio.sleep(0.1)


async def _call_on(
    session: aiohttp.ClientSession, url: str, key: str, number: int, run: Run, over: asyncio.Event
) -> None:
    """Calls of a client that tries nothing twice."""
    source = random.Random(number)
    headers = {"authorization": f"Bearer {key}", "host": "remit.example.org"}
    while not over.is_set():
        stream, words = source.random() < 0.5, source.randint(5, 60)
        slow = f" slow={source.choice([0.001, 0.01, 0.05]):.3f}" if stream else ""
        text = f"[[tokens={words} delay={source.uniform(0, 0.3):.2f}{slow}]] Write so much."
        body = {"model": MODELS["openai"], "max_tokens": words, "stream": stream,
                "messages": [{"role": "user", "content": text}]}  # fmt: skip
        begun = time.monotonic()
        try:
            async with session.post(
                f"{url}/v1/chat/completions", json=body, headers=headers
            ) as answer:
                said = (await answer.read()).decode()
                problem = "" if answer.status == 200 else f"{answer.status}: {said[:80]}"
                if stream and not problem and "[DONE]" not in said:
                    problem = "a stream was cut"
        except (aiohttp.ClientError, OSError) as error:
            problem = type(error).__name__
        run.longest_s = max(run.longest_s, time.monotonic() - begun)
        if problem:
            run.failed[problem] += 1
        elif stream:
            run.streams += 1
        else:
            run.calls += 1
        await asyncio.sleep(source.uniform(0, 0.05))
