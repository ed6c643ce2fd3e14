"""The writer's inbox: what is handed over is taken, however short the waits are."""

from __future__ import annotations

import queue
import threading
import time

import pytest

from remit.ledger.committer import _Inbox


def test_short_waits_end_and_lose_nothing() -> None:
    lock = threading.Lock()
    inbox = _Inbox(lock)
    taken: list[int] = []
    empty = 0

    def take() -> None:
        nonlocal empty
        while len(taken) < 5_000:
            try:
                taken.append(inbox.get(1e-6))  # type: ignore[arg-type]
            except queue.Empty:
                empty += 1

    taker = threading.Thread(target=take, daemon=True)
    taker.start()
    for number in range(5_000):
        if number % 50 == 0:
            time.sleep(0.001)
        with lock:
            inbox.put(number)  # type: ignore[arg-type]
    taker.join(60)
    assert taken == list(range(5_000))
    assert empty


def test_a_wait_without_end_ends_with_the_next_item() -> None:
    lock = threading.Lock()
    inbox = _Inbox(lock)
    with pytest.raises(queue.Empty):
        inbox.get(0)
    timer = threading.Timer(0.05, lambda: _put_none(lock, inbox))
    timer.start()
    assert inbox.get(None) is None
    assert len(inbox) == 0


def _put_none(lock: threading.Lock, inbox: _Inbox) -> None:
    with lock:
        inbox.put(None)
