"""What adding up usage costs a call, and what reading it takes.

The floor is the same program writing the same exchanges with the sums left out. CPU time of the
whole process, as waiting for the disk hides it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from unittest import mock

from benchmarks.rounds import alternate, new_directory
from benchmarks.table import Comparison, Figure
from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.usage import INSERT, QUARTER_S
from remit.views import read_usage

_CALLS = 12_800
_AT_ONCE = 64
_DAYS = 30


def compare(scratch: Path) -> Iterator[Comparison | Figure]:
    """64 calls in one transaction, of one session, of 64, and each of its own; readings."""
    for sessions, name in ((1, "one session"), (64, "64 sessions"), (_CALLS, "a session each")):
        floor, ours = alternate(
            scratch, partial(_cpu_us, sessions, False), partial(_cpu_us, sessions, True)
        )
        yield Comparison(f"CPU of an exchange's append, {name}", floor, ours, unit="us")
        more = [one - other for one, other in zip(ours, floor, strict=True)]
        yield Figure(f"usage of it, {name}", more, "us", "<= 5")
    with LedgerClient(new_directory(scratch) / "ledger.db") as ledger:
        rows = _fill(ledger)
        since = datetime.now(UTC) - timedelta(days=_DAYS)
        for by in (["model"], ["day", "model"], ["user", "model"]):
            times = []
            for _ in range(5):
                started = time.process_time()
                read_usage(ledger, since=since, by=by)
                times.append(1000 * (time.process_time() - started))
            yield Figure(f"{_DAYS} days by {', '.join(by)}, {rows:,} rows", times, "ms of CPU")


def _cpu_us(sessions: int, added: bool, directory: Path) -> float:
    """Microseconds of CPU for each exchange."""
    without = mock.patch("remit.ledger.record_builder.usage_of", _nothing)
    with (
        contextlib.nullcontext() if added else without,
        LedgerClient(directory / "ledger.db") as ledger,
    ):
        batches = [
            [_exchange((first + n) % sessions) for n in range(_AT_ONCE)]
            for first in range(0, _CALLS, _AT_ONCE)
        ]
        started = time.process_time()
        for batch in batches:
            ledger.write_many(batch)
        return 1e6 * (time.process_time() - started) / _CALLS


def _nothing(*_: object) -> None:
    return None


def _exchange(session: int) -> LedgerEntry:
    return LedgerEntry(
        "EXCHANGE",
        "PRC-PASSTHROUGH-001",
        "SUCCESS",
        "Exchange completed",
        metadata={
            "agent_id": "chat", "session_id": f"SES-{session:016X}", "work_order_id": "",
            "tier": "", "contract_id": "PRC-PASSTHROUGH-001", "framework_id": "FMWK-GATEWAY",
            "outcome": "success", "input_tokens": 812, "output_tokens": 93,
            "dispatch_entry_id": "LED-00000000", "model_id": "gpt-4o-mini-2024-07-18",
            "finish_reason": "stop", "latency_ms": 812.5, "cost_certainty": "measured",
            "price_version": "2026-11-01", "cost_usd": 0.000177, "key_id": "KEY-ABCDEFGHIJKLMNOP",
            "provider_id": "openai",
        },
    )  # fmt: skip


def _fill(ledger: LedgerClient) -> int:
    """A month of 20 keys with 3 models each, in every quarter of an hour; how many rows."""
    now = int(time.time()) // QUARTER_S
    rows = [
        (quarter, f"KEY-{key:016}", f"user-{key % 7}", "", "", "chat", f"SES-{key}", "PRC-1", "p",
         f"model-{model}", "measured", 4, 0, 0, 3_000, 400, 0, 0, 700_000, 0)
        for quarter in range(now - _DAYS * 86_400 // QUARTER_S, now)
        for key in range(20)
        for model in range(3)
    ]  # fmt: skip
    ledger.transact(lambda tx: tx.execute_many(INSERT, rows))
    return len(rows)
