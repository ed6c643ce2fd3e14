"""Waiting for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["until"]


def until(true: Callable[[], bool], within_s: float = 120) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it did not become true in time"
        time.sleep(0.02)
