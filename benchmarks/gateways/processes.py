"""Processes pinned to a core, and what Linux tells of them (``/proc``, proc(5))."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

STOP_S = 20
IDLE_WITHIN_S = 60
IDLE_S = 0.05  # of processor time in a second
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_UTIME, _CUTIME_END, _PPID, _RSS = 11, 15, 1, 21
"""Places in ``/proc/PID/stat`` after the command's name."""


def cores() -> tuple[set[int], set[int]]:
    """The core for the gateway, and the one for upstream and load; the same where there is one."""
    there = sorted(os.sched_getaffinity(0))
    return {there[0]}, {there[-1]}


def spawn(
    command: Sequence[str | Path],
    *,
    core: set[int] | None = None,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
    directory: Path | None = None,
) -> subprocess.Popen[str]:
    """Start a process in a group of its own.

    Args:
        command: program and arguments.
        core: where it and its children may run; None for anywhere.
        environment: added to ours.
        log: takes what it prints; with None standard output is a pipe.
        directory: to run it in.
    """
    output = log.open("w") if log else None
    try:
        return subprocess.Popen(
            [str(part) for part in command],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output or subprocess.PIPE,
            stderr=subprocess.STDOUT if output else None,
            text=True,
            start_new_session=True,
            cwd=directory,
            preexec_fn=(lambda: os.sched_setaffinity(0, core)) if core else None,
        )
    finally:
        if output:
            output.close()


def stop(process: subprocess.Popen[str]) -> None:
    """End a process and its group; first kindly."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        pass
    except ProcessLookupError:
        process.wait()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout:
            process.stdout.close()


def tree(pid: int) -> dict[int, list[str]]:
    """The fields of ``/proc/PID/stat`` after the name, of a process and all below it."""
    found = {int(entry): _fields(int(entry)) for entry in os.listdir("/proc") if entry.isdigit()}
    stats = {number: fields for number, fields in found.items() if fields}
    members, grown = {pid}, True
    while grown:
        more = {number for number, fields in stats.items() if int(fields[_PPID]) in members}
        grown = not more <= members
        members |= more
    return {number: stats[number] for number in members if number in stats}


def tree_cpu_s(pid: int) -> float:
    """User and system time of a process, of all below it, and of those they have waited for."""
    ticks = sum(sum(map(int, stat[_UTIME:_CUTIME_END])) for stat in tree(pid).values())
    return ticks / _TICKS


def tree_rss_mb(pid: int) -> float:
    """Resident memory of a process and all below it, in MB of 2**20; shared pages count twice."""
    return sum(int(stat[_RSS]) for stat in tree(pid).values()) * _PAGE / (1 << 20)


def tree_pss_mb(pid: int) -> float:
    """The same by proportional set size: what two processes share counts half for each."""
    kilobytes = 0
    for member in tree(pid):
        with suppress(OSError):
            rollup = Path(f"/proc/{member}/smaps_rollup").read_text()
            kilobytes += int(rollup.partition("\nPss:")[2].split()[0])
    return kilobytes / 1024


def wait_until_idle(pid: int) -> None:
    """Wait, for so long and no longer, until a tree does nothing: all of it has started."""
    end, before = time.monotonic() + IDLE_WITHIN_S, -1.0
    while time.monotonic() < end and (now := tree_cpu_s(pid)) - before > IDLE_S:
        before = now
        time.sleep(1.0)


def core_busy_s(pid: int) -> float:
    """Time that the cores on which a process may run were busy, whoever kept them so."""
    names = {f"cpu{core}" for core in os.sched_getaffinity(pid)}
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name in names:
            user, nice, system, _idle, _waiting, *rest = map(int, fields[:8])
            ticks += user + nice + system + sum(rest)
    return ticks / _TICKS


def _fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def listens(url: str) -> bool:
    """Whether somebody takes connections there."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80)):
            return True
    except OSError:
        return False


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
