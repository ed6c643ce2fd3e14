"""Bytes and time of each page: until its last byte on this machine, and of the processor."""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from benchmarks.console.root import DAILY, GREAT, Grown
from benchmarks.console.served import Served
from benchmarks.gateways.processes import tree_cpu_s

EACH = 30
WARM_UP = 3
SLOW_MS, EACH_SLOW = 1000, 5


@dataclass(frozen=True)
class Measured:
    """One page.

    Attributes:
        size: in bytes, of the page alone.
        first_ms: of the first time since the server began.
        cpu_ms: of the server's process, in the mean.
    """

    name: str
    size: int
    first_ms: float
    median_ms: float
    p95_ms: float
    cpu_ms: float


def paths(grown: Grown) -> dict[str, str]:
    """Every view and kind of detail page, by what it is."""
    return {
        "Now": "/",
        "Sessions": "/console/sessions",
        "Sessions, older": f"/console/sessions?before={grown.great_exchange}",
        "Session of ten turns": f"/console/sessions/{grown.session}",
        "Session of 20,000 events": f"/console/sessions/{GREAT}",
        "same, older": f"/console/sessions/{GREAT}?before={grown.great_exchange}",
        "Session of all plain calls": f"/console/sessions/{DAILY}",
        "Journeys": "/console/journey",
        "Journey of a call": f"/console/journey/{grown.exchange}",
        "Journey of a call of 20,000 events": f"/console/journey/{grown.great_exchange}",
        "Journey of a plain call": f"/console/journey/{grown.daily_exchange}",
        "Why this model": "/console/why",
        "Why, a call": f"/console/why/{grown.fallback}",
        "Calls": "/console/calls",
        "Calls, failed, by cost": "/console/calls?outcome=failed&sort=cost",
        "Keys": "/console/keys",
        "Spend": "/console/spend",
        "Spend, by key and model": "/console/spend?by=key&stack=model",
        "Spend, 30 days by key": "/console/spend?since=30d&by=key",
        "Spend, 30 days by session": "/console/spend?since=30d&by=session",
        "Approvals": "/console/approvals",
        "Approval": f"/console/approvals/{grown.request}",
        "Verify": "/console/verify",
        "Verify, an entry": f"/console/verify/{grown.exchange}",
        "Proposals": "/console/proposals",
        "Proposal": f"/console/proposals/{grown.proposal}",
        "What was learned": "/console/proposals/report",
        "Proposal, realised": f"/console/proposals/{grown.proposal}?realised=1",
    }


def measure(served: Served, grown: Grown) -> Iterator[Measured]:
    """Each page many times."""
    for name, path in paths(grown).items():
        first_ms, size = _timed(served, path)
        each = EACH if first_ms < SLOW_MS else EACH_SLOW
        for _ in range(WARM_UP):
            served.get(path)
        cpu = tree_cpu_s(served.pid)
        times = [_timed(served, path)[0] for _ in range(each)]
        used = 1000 * (tree_cpu_s(served.pid) - cpu) / each
        times.sort()
        p95 = times[int(0.95 * len(times))]
        yield Measured(name, size, first_ms, statistics.median(times), p95, used)


def _timed(served: Served, path: str) -> tuple[float, int]:
    """Milliseconds to the last byte, and bytes."""
    started = time.perf_counter()
    size = len(served.get(path))
    return 1000 * (time.perf_counter() - started), size


@dataclass
class Painted:
    """A page in Chromium, each time in a context that knows nothing; times in ms.

    Attributes:
        floor: first paint of a page of one word, of a bare server, in the same rounds.
        paint: first paint of ours.
        load: end of loading, with its files.
        size: bytes of page and files.
    """

    floor: list[float] = field(default_factory=list)
    paint: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    size: int = 0


def painted(served: Served, path: str, times: int) -> Painted:
    """Open a page so many times in a browser."""
    # Imported here: only this part of the run takes it, and it is in no extra of Remit's.
    from playwright.sync_api import sync_playwright

    name, _, value = served.cookie.partition("=")
    found = Painted()
    with sync_playwright() as playwright, _bare_server() as bare:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for number in range(times + 1):
            for url in (bare, f"{served.url}{path}"):
                context = browser.new_context()
                context.add_cookies([{"name": name, "value": value, "url": served.url}])
                page = context.new_page()
                page.goto(url, wait_until="load")
                while not (timed := page.evaluate(_TIMINGS))["paint"]:
                    time.sleep(0.01)
                context.close()
                if number and url == bare:  # the first round starts the browser's own processes
                    found.floor.append(timed["paint"])
                elif number:
                    found.paint.append(timed["paint"])
                    found.load.append(timed["load"])
                    found.size = timed["size"]
        browser.close()
    return found


class _Bare(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"<!doctype html><html lang=en><title>Bare</title><link rel=icon href=data:,>Word"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def _bare_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Bare) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


_TIMINGS = """() => {
    const [page] = performance.getEntriesByType('navigation');
    const files = performance.getEntriesByType('resource');
    const paint = performance.getEntriesByType('paint').find(
        one => one.name === 'first-contentful-paint');
    return {paint: paint ? paint.startTime : 0, load: page.loadEventStart,
            size: [page, ...files].reduce((sum, one) => sum + one.encodedBodySize, 0)};
}"""
