"""Which process holds something, so that another can tell whether it is still there."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Self

__all__ = ["Owner"]

_PROC = Path("/proc")
_START_FIELD = 19  # of /proc/PID/stat, counted behind the name in brackets: start time in ticks


@dataclass(frozen=True, slots=True)
class Owner:
    """One process, told apart from every other, also from a later one with its number.

    A number comes back when processes end; the time of the start, the boot of the machine and
    the namespace that numbers are counted in do not come back together.

    Attributes:
        boot: id of the machine's boot; empty where the system tells none.
        namespace: what the number is counted in.
        start: when the process began, in ticks of that boot.
        token: random, for two owners in one process.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    start: str
    token: str

    @classmethod
    def current(cls) -> Self:
        """This process."""
        pid = os.getpid()
        boot, namespace = _here()
        start = _start_of(pid) or ""
        return cls(socket.gethostname(), boot, namespace, pid, start, secrets.token_hex(8))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """From :meth:`encode`; ``None`` of anything else."""
        parts = text.split("|")
        if len(parts) != 6 or not (parts[3].isascii() and parts[3].isdigit()):
            return None
        return cls(parts[0], parts[1], parts[2], int(parts[3]), parts[4], parts[5])

    def encode(self) -> str:
        """As a column keeps it."""
        host = self.host.replace("|", "_")
        return f"{host}|{self.boot}|{self.namespace}|{self.pid}|{self.start}|{self.token}"

    def is_current_process(self) -> bool:
        """Whether it is the process that asks."""
        return self.pid == os.getpid() and self.is_surely_alive()

    def is_surely_dead(self) -> bool:
        """Whether the process has ended, as far as this one can see: what it cannot, lives."""
        boot, namespace = _here()
        if not (boot and namespace and self.start):
            return False
        if (self.boot, self.namespace) != (boot, namespace):
            return False  # another machine, another container, or an earlier boot: leases tell
        start = _start_of(self.pid)
        if start is None:  # gone, or hidden from us (hidepid)
            return not _exists(self.pid)
        return start != self.start

    def is_surely_alive(self) -> bool:
        """Whether the process runs, as far as this one can see: what it cannot, may be dead."""
        boot, namespace = _here()
        if not (boot and namespace and self.start):
            return False
        same = (self.boot, self.namespace) == (boot, namespace)
        return same and _start_of(self.pid) == self.start


def _here() -> tuple[str, str]:
    """The boot and the namespace of process numbers that this process lives in."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return boot, os.readlink(_PROC / "self/ns/pid")
    except OSError:
        return "", ""


def _start_of(pid: int) -> str | None:
    """When a process began; empty of what is left of one, ``None`` where nothing is told."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[_START_FIELD]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
