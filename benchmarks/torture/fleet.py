"""The servers under attack, and the keys that clients share."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.overspend import Installation, Server
from benchmarks.torture.interposed import Interposed
from remit.gateway.auth import KeyStore
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from remit.ledger import LedgerClient

NANO = 10**9
CAPS_USD = (0.5, 5.0, 50.0, 100_000.0)
RPM = 1_000_000  # counted by the minute, and never reached
SETTINGS = {
    "REMIT_GATEWAY__TIMEOUT_MS": "3000",
    "REMIT_GATEWAY__IDLE_TIMEOUT_MS": "3000",
    "REMIT_GATEWAY__LEASE_MARGIN_MS": "1000",
    "REMIT_GATEWAY__RECOVERY_TIMEOUT_MS": "500",
    "REMIT_BUDGET__WAIT_MS": "2000",
    "REMIT_LEASES__LASTS_S": "4",
}
LEASE_S = 4.0
_GROWTH = 1.35  # of memory after the first third of a run
_ALLOWED_MB = 60.0
_FEW = 9  # figures that say nothing yet


@dataclass
class Key:
    """A virtual key that many clients use at once."""

    key: str
    key_id: str
    cap_nano: int


def new_keys(address: str) -> list[Key]:
    """Keys with caps in dollars that are used up early, late and never."""
    made = []
    with LedgerClient(address) as ledger, KeyStore(ledger) as keys:
        for cap in CAPS_USD:
            new = keys.create(f"capped at {cap}", role="agent", models=())
            limits = BudgetLimits(None, round(cap * NANO), None, RPM, None)
            TokenBudgeter(ledger).allocate(BudgetScope(key_id=new.key_id), limits=limits)
            made.append(Key(new.key, new.key_id, round(cap * NANO)))
    return made


@dataclass
class Member:
    """A place in the fleet: the server that runs there now, and what is below it.

    Attributes:
        workers: processes that answer.
        kills: how often it was killed; clients note it before and after a call.
    """

    installation: Installation
    below: Interposed
    workers: int = 1
    kills: int = 0
    server: Server | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    rss_mb: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Of the server that runs."""
        return self.server.url if self.server else ""

    def start(self) -> None:
        """Start it; it listens when this returns."""
        arguments = ("--workers", str(self.workers)) if self.workers > 1 else ()
        environment = {**SETTINGS, **self.below.environment}
        self.server = self.installation.serve(*arguments, environment=environment)

    def pids(self) -> list[int]:
        """Its processes, the first of all before its workers."""
        assert self.server is not None
        first = self.server.process.pid
        children = Path(f"/proc/{first}/task/{first}/children")
        return [first, *map(int, children.read_text().split())]

    def kill(self) -> None:
        """``kill -9`` of all its processes."""
        assert self.server is not None
        self.kills += 1
        for pid in self.pids():
            _signal(pid, signal.SIGKILL)
        self.server.kill()

    def kill_worker(self, place: int) -> None:
        """``kill -9`` of one process that answers."""
        children = self.pids()[1:]
        if children:
            self.kills += 1
            _signal(children[place % len(children)], signal.SIGKILL)

    def pause(self, seconds: float) -> None:
        """SIGSTOP, and SIGCONT so much later."""
        pids = self.pids()
        for pid in pids:
            _signal(pid, signal.SIGSTOP)
        time.sleep(seconds)
        for pid in reversed(pids):
            _signal(pid, signal.SIGCONT)

    def stop(self) -> None:
        """SIGTERM, and wait."""
        if self.server is not None:
            self.server.end()
            self.server = None

    def is_ready(self) -> bool:
        """What ``/readyz`` says."""
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def measure(self) -> None:
        """Note memory and open files of all its processes."""
        rss, files = 0, 0
        for pid in self.pids():
            try:
                rss += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                files += len(os.listdir(f"/proc/{pid}/fd"))
            except OSError:
                continue
        self.rss_mb.append(rss * os.sysconf("SC_PAGE_SIZE") / 2**20)
        self.files.append(files)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def third(values: Sequence[float], part: int) -> float:
    """The median of the first, second or last third."""
    size = max(1, len(values) // 3)
    some = values[part * size : (part + 1) * size] if part < 2 else values[-size:]
    return statistics.median(some) if some else 0.0


def is_flat(values: Sequence[float], allowed: float = _ALLOWED_MB) -> bool:
    """Whether the last third is no more than the second allows."""
    return len(values) < _FEW or third(values, 2) <= third(values, 1) * _GROWTH + allowed
