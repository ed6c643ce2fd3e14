"""The identity of a process, from which another process can find out whether it still runs."""

from __future__ import annotations

import functools
import os
import secrets
import socket
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

_PROC = Path("/proc")
# The start time in ticks, in /proc/PID/stat, counted after the name in brackets.
_START_FIELD = 19


@dataclass(frozen=True, slots=True)
class Owner:
    """The identity of a process, distinct from every other and from later ones with the same pid.

    Immutable. A pid is reused after its process has ended, but never with the same start time, boot
    and pid namespace.

    Attributes:
        host: name of the machine.
        boot: id of the machine's boot; empty if the system has none.
        namespace: the pid namespace.
        pid: the process id.
        start: start time of the process, in ticks since the boot.
        token: seconds since 1970 when the owner was made, and a random part that distinguishes
            owners in one process.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    start: str
    token: str

    @classmethod
    def current(cls) -> Self:
        """Return a new owner for this process."""
        return cls(*_this_process(os.getpid()), f"{int(time.time())}.{secrets.token_hex(8)}")

    def __str__(self) -> str:
        """Name the process and the time since when, for people."""
        began, dot, _ = self.token.partition(".")
        since = ""
        if dot and began.isascii() and began.isdigit() and len(began) < 12:
            since = f", since {datetime.fromtimestamp(int(began), UTC):%Y-%m-%d %H:%M:%S} UTC"
        return f"process {self.pid} on {self.host}{since}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the owner that :meth:`encode` wrote; None for any other text."""
        parts = text.split("|")
        if len(parts) != 6 or not (parts[3].isascii() and parts[3].isdigit()):
            return None
        return cls(parts[0], parts[1], parts[2], int(parts[3]), parts[4], parts[5])

    def encode(self) -> str:
        """Return the owner as text for a column."""
        host = self.host.replace("|", "_")
        return f"{host}|{self.boot}|{self.namespace}|{self.pid}|{self.start}|{self.token}"

    def is_current_process(self) -> bool:
        """Return True if the owner is this process."""
        return self.pid == os.getpid() and self.is_surely_alive()

    def is_surely_dead(self, *, one_machine: bool = False) -> bool:
        """Return True if the process has ended; False if that cannot be observed from here.

        A zombie counts as ended.

        Args:
            one_machine: True if the ledger is used on this machine only, so a process of another
                boot is dead.
        """
        boot, namespace = _here()
        if not (boot and namespace and self.start):
            return False
        if self.boot != boot:
            return one_machine
        if self.namespace != namespace:
            return False  # The owner runs in another container; only its lease's expiry counts.
        start = _start_of(self.pid)
        if start is None:  # gone, or hidden from us (hidepid)
            return not _exists(self.pid)
        return start != self.start

    def is_surely_alive(self) -> bool:
        """Return True if the process runs; False if that cannot be observed from here."""
        boot, namespace = _here()
        if not (boot and namespace and self.start):
            return False
        same = (self.boot, self.namespace) == (boot, namespace)
        return same and _start_of(self.pid) == self.start


@functools.lru_cache(maxsize=1)
def _this_process(pid: int) -> tuple[str, str, str, int, str]:
    """Return the constant parts of this process's identity. A fork has another pid."""
    boot, namespace = _here()
    return socket.gethostname(), boot, namespace, pid, _start_of(pid) or ""


def _here() -> tuple[str, str]:
    """Return the boot id and the pid namespace of this process; empty if unknown."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return boot, os.readlink(_PROC / "self/ns/pid")
    except OSError:
        return "", ""


def _start_of(pid: int) -> str | None:
    """Return the start time of a process; empty for a zombie, None if it cannot be read."""
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
