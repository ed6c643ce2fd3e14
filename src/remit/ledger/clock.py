"""The clock that all writers of a ledger share, and the wall clock of timestamps.

Leases, limits per minute, idempotency keys and breakers use the shared clock, as no process's wall
clock is trusted. On PostgreSQL the clock is the server's (``clock_timestamp()``). On SQLite, whose
writers share one machine, it is ``CLOCK_MONOTONIC``, which all processes of a boot share and nobody
can set, plus the wall-clock offset that the boot's first writer stored. The clock stops while the
machine sleeps, by intention: the owner and the judge of a lease sleep together, so no lease expires
meanwhile.
"""

from __future__ import annotations

import functools
import logging
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from remit.kernel.loops import boot_time_s
from remit.ledger.entry_reader import PUT_INFO

_log = logging.getLogger("remit.ledger")

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FIND = "SELECT value FROM ledger_info WHERE name = 'clock'"
_STEP_S = 1.0  # Smaller differences are ordinary drift between two clocks.
_WARNING_INTERVAL_S = 60.0
_RECENT_ENTRIES = 10_000


@functools.lru_cache(maxsize=1)
def boot_id() -> str:
    """Return the id of the machine's boot; empty if the system has none or it cannot be read.

    The file is read once per process.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class Clock(Protocol):
    """A source of time: a transaction, or the ledger, which asks the database server.

    Outside a transaction, reading may raise LedgerError if a server cannot be reached.
    """

    @property
    def now_ms(self) -> int:
        """Milliseconds since 1970 by the clock that all writers of the ledger share.

        Leases and limits use this clock; for dates use
        :attr:`wall_ms`. On PostgreSQL the clock is the server's, and steps if that is set. On
        SQLite it is a clock of the machine's boot, which stops while the machine sleeps and can
        step at a boot.
        """

    @property
    def wall_ms(self) -> int:
        """Milliseconds since 1970 by the wall clock of the database's machine, for dates."""


class BootClock:
    """A clock in milliseconds since 1970 that all processes of a boot share.

    The boot's first writer stores its offset in the ledger. :meth:`settle` reads the offset, or
    stores it, with errors of sqlite3. Until then, and on a system without a boot id, the wall clock
    is used.

    Attributes:
        offset_ms: difference to the monotonic clock; None until :meth:`settle` has found it.
    """

    def __init__(self) -> None:
        self.offset_ms: int | None = None

    def now_ms(self) -> int:
        """Return the shared time of all writers of this machine, in milliseconds since 1970.

        The time is the monotonic clock's plus the offset. Before :meth:`settle` found an offset,
        the time is the wall clock's.
        """
        if self.offset_ms is None:
            return time.time_ns() // 1_000_000
        return time.monotonic_ns() // 1_000_000 + self.offset_ms

    def settle(self, connection: sqlite3.Connection, *, write: bool) -> None:
        """Read the clock offset of the boot's first writer; with ``write``, store a missing offset.

        Nothing is done if the system does not tell its boot's id. Without ``write``, a missing
        offset leaves the wall clock in use. A stored offset of another boot counts as missing.

        Args:
            connection: a connection of the ledger, outside a transaction.
            write: True to store the offset of this machine's clocks if none is stored, in a
                transaction of its own.

        Raises:
            sqlite3.Error: the database cannot be read, locked or written; the offset stays
                unknown. A transaction may be open, which the caller undoes.
        """
        boot = boot_id()
        if not boot:
            return
        found = _offset_of(connection.execute(_FIND).fetchone(), boot)
        if found is None and write:
            connection.execute("BEGIN IMMEDIATE")
            found = _offset_of(connection.execute(_FIND).fetchone(), boot)
            if found is None:
                found = (time.time_ns() - time.monotonic_ns()) // 1_000_000
                connection.execute(PUT_INFO, ("clock", f"{boot} {found}"))
            connection.execute("COMMIT")
        self.offset_ms = found


def _offset_of(row: tuple[str] | None, boot: str) -> int | None:
    known, _, offset = str(row[0] if row else "").partition(" ")
    try:
        return int(offset) if known == boot else None
    except ValueError:
        return None


def time_text(moment: datetime) -> str:
    """Return a time in the form of entries: ISO 8601, UTC, microseconds, ``Z``.

    Args:
        moment: the time, with a zone. An OverflowError means that UTC cannot express it.
    """
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


_second = [(0, "")]  # the last second that was written out


def utc_now() -> str:
    """Return the current time in the form of entries: ISO 8601, UTC, microseconds, ``Z``.

    The wall clock is read, so the time may go back.
    """
    second, micros = divmod(time.time_ns() // 1000, 1_000_000)
    known = _second[0]
    if known[0] != second:
        moment = datetime.fromtimestamp(second, UTC).isoformat(timespec="seconds")
        known = _second[0] = (second, moment[:19])
    return f"{known[1]}.{micros:06d}Z"


class _WallWatch:
    """A watch that logs changes of the wall clock and differences between writers."""

    def __init__(self) -> None:
        self._began = time.time() - boot_time_s()
        self._told = -_WARNING_INTERVAL_S

    def look(self) -> None:
        """Compare the wall clock with a clock that cannot be set; log a change."""
        moved = time.time() - boot_time_s() - self._began
        if abs(moved) < _STEP_S:
            return
        self._began += moved
        _log.warning(
            "this machine's clock was set %s by %.0f s: timestamps of entries jump there, their "
            "order is that of their numbers", "ahead" if moved > 0 else "back", abs(moved),
        )  # fmt: skip

    def went_back(self, before: str, now: str) -> None:
        """Log that an entry's timestamp is earlier than that of the preceding entry."""
        if boot_time_s() - self._told < _WARNING_INTERVAL_S:
            return
        behind = _behind_s(before, now)
        if behind < _STEP_S:
            return
        self._told = boot_time_s()
        _log.warning(
            "the entry before was written at %s by its writer's clock, %.0f s after this one's: "
            "check the clocks of all machines that write this ledger", before, behind,
        )  # fmt: skip


def steps_back(select: Callable[..., list[tuple[Any, ...]]], size: int) -> list[int]:
    """Return sequence numbers, ascending, of recent entries whose time is at least a second before
    that of the preceding entry.

    An entry whose predecessor was archived is left out.

    Args:
        select: runs a query; its errors are raised.
        size: number of entries in the ledger; the last 10,000 are compared.

    Raises:
        ValueError: a stored timestamp is not ISO 8601.
    """
    rows = select(
        "SELECT e.seq, e.timestamp, p.timestamp FROM entries AS e JOIN entries AS p "
        "ON p.seq = e.seq - 1 WHERE e.seq > ? AND e.timestamp < p.timestamp ORDER BY e.seq",
        (size - _RECENT_ENTRIES,),
    )
    return [seq for seq, now, before in rows if _behind_s(before, now) >= _STEP_S]


def _behind_s(before: str, now: str) -> float:
    return (datetime.fromisoformat(before) - datetime.fromisoformat(now)).total_seconds()


WALL_WATCH = _WallWatch()
"""The watch of this process."""
