"""Refused calls: counted, told now and then as a number, never written one by one (SPEC 6)."""

from __future__ import annotations

import logging
import threading
import time

__all__ = ["Refusals"]

_log = logging.getLogger("remit.auth")


class Refusals:
    """Counts in memory alone: nobody without a key can make the disk work.

    Args:
        log_s: seconds between two lines of the log.
    """

    def __init__(self, log_s: float) -> None:
        self._log_s = log_s
        self._lock = threading.Lock()
        self._total = 0
        self._told = 0
        self._told_at = float("-inf")

    @property
    def total(self) -> int:
        """How many there were since the start of this process."""
        return self._total

    def count(self) -> None:
        """One more."""
        with self._lock:
            self._total += 1

    def tell(self, *, closing: bool = False) -> None:
        """Log how many came since the last line, if there were any and it is time."""
        now = time.monotonic()
        with self._lock:
            new = self._total - self._told
            if not new or (now < self._told_at + self._log_s and not closing):
                return
            self._told, self._told_at = self._total, now
        _log.warning("%d calls without a valid key were refused", new)
