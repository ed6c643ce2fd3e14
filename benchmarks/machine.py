"""The machine, as far as the figures depend on it."""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import time
from datetime import UTC, datetime
from pathlib import Path

SYNCS = 200


def describe_machine(directory: Path) -> str:
    """Date, machine, versions, and how long the disk below ``directory`` takes to sync."""
    return "\n".join(
        (
            f"Date:    {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            f"Machine: {platform.system()} {platform.machine()}, {os.cpu_count()} CPUs, "
            f"load average {os.getloadavg()[0]:.2f} at the start",
            f"Python:  {platform.python_implementation()} {platform.python_version()}, "
            f"SQLite {sqlite3.sqlite_version}",
            f"fsync:   {sync_ms(directory / 'sync'):.2f} ms (median of {SYNCS}, 4 KiB appended)",
        )
    )


def sync_ms(path: Path) -> float:
    """Median time of appending 4 KiB to a file and syncing it, in milliseconds."""
    times = []
    with path.open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            started = time.perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            times.append(time.perf_counter() - started)
    return statistics.median(times) * 1000
