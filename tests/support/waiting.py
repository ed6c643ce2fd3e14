"""Waiting for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

__all__ = ["Waits", "at_once", "until"]


@dataclass
class Waits:
    """A call, as far as it waits for money."""

    waited_s: float = 0.0


def at_once(work: Callable[[Any], object], items: Iterable[Any]) -> None:
    """Call ``work`` with each item, all in threads of their own; raise what one of them raised."""
    every = [*items]
    with ThreadPoolExecutor(len(every)) as pool:
        for done in [pool.submit(work, item) for item in every]:
            done.result()


def until(true: Callable[[], bool], within_s: float = 120) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it did not become true in time"
        time.sleep(0.02)
