"""Usage and reports that the console keeps between its pages say what the ledger says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from remit.ledger import LedgerClient, Transaction
from remit.ledger.usage import INSERT, ON_CONFLICT, QUARTER_S
from remit.server.console.caches import (
    KeptUsage,
    added_up,
)
from remit.views.usage import UsageRow, read_usage

NOW = int(time.time()) // QUARTER_S
DAYS = 12
KEYS = 3


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LedgerClient]:
    """Twelve days of three keys, something in every fifth quarter of an hour."""
    path: Path = tmp_path_factory.mktemp("used") / "ledger.db"
    with LedgerClient(path) as ledger:
        rows = [_row(quarter, quarter % KEYS) for quarter in range(NOW - DAYS * 96, NOW + 1, 5)]
        ledger.transact(partial(_add, rows))
        yield ledger


def _row(quarter: int, key: int, nano: int = 7_000) -> tuple[object, ...]:
    certainty = ("measured", "estimated", "upper_bound")[quarter % 3]
    names = (f"KEY-{key}", "", "", "", "chat", f"SES-{quarter}", "PRC-1", "p", "m", certainty)
    return (quarter, *names, 4, 1, 0, 3_000, 400, 20, 3, nano + quarter % 1_000, 1)


def _moment(quarter: int) -> datetime:
    return datetime.fromtimestamp(quarter * QUARTER_S, UTC)


def _add(rows: list[tuple[object, ...]], tx: Transaction) -> None:
    tx.execute_many(INSERT + ON_CONFLICT, rows)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(NOW - (DAYS + 2) * 96, NOW + 3),
    st.integers(0, (DAYS + 3) * 96),
    st.sampled_from(["", "key", "certainty"]),
    st.sampled_from(["UTC", "Asia/Kathmandu", "Australia/Lord_Howe"]),
    st.booleans(),
)
def test_windows_add_up_to_what_the_table_says(
    used: LedgerClient, first: int, length: int, by: str, zone: str, hourly: bool
) -> None:
    kept, end = KeptUsage(used), first + length
    expected = read_usage(
        used, since=_moment(first), until=_moment(end), by=[by] if by else [], order="name"
    ).rows
    for _ in range(2):  # read, and kept
        windows = kept.read((by,) if by else (), first, end, zone, hourly=hourly)
        names = sorted({row.names.get(by, "") for _, rows in windows for row in rows})
        found = [
            added_up(
                [row for _, rows in windows for row in rows if row.names.get(by, "") == name],
                {by: name} if by else {},
            )
            for name in names
        ]
        assert (found or [UsageRow()]) == (expected or [UsageRow()])
