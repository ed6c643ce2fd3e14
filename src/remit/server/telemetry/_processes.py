"""Several processes of one host that are measured as one, by files that they share."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from prometheus_client.multiprocess import mark_process_dead
from prometheus_client.values import ValueClass

from remit.kernel.errors import ConfigError

__all__ = ["VARIABLE", "dead_processes", "forget", "several_processes"]

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def several_processes() -> bool:
    """Whether the library writes to files that several processes share."""
    several = bool(ValueClass._multiprocess)
    directory = os.environ.get(VARIABLE, "")
    if directory and not several:
        raise ConfigError(
            f"{VARIABLE} was set after the metrics library had been loaded.",
            next_step="Set it before Python starts, or not at all.",
        )
    if several and not os.path.isdir(directory):
        raise ConfigError(
            f"{VARIABLE} does not name a directory.",
            next_step="Make it, empty, before the processes start.",
        )
    return several


def forget(pid: int) -> None:
    """Drop the gauges of a dead process; its counters stay."""
    with contextlib.suppress(FileNotFoundError):  # another process was at it too
        mark_process_dead(pid)  # type: ignore[no-untyped-call]


def dead_processes(directory: Path) -> set[int]:
    """Processes that left a gauge of what they were at, and are no more."""
    dead = set()
    for path in directory.glob("gauge_live*_*.db"):
        text = path.stem.rpartition("_")[2]
        if text.isdigit() and not _is_alive(int(text)):
            dead.add(int(text))
    return dead


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
