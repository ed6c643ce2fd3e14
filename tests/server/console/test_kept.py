"""Usage and reports that the console keeps between its pages say what the ledger says."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.kernel.root import Root
from remit.ledger import LedgerClient, LedgerEntry, Transaction, entry_reader
from remit.ledger.usage import INSERT, ON_CONFLICT, QUARTER_S
from remit.server.console.caches import (
    KeptReport,
    KeptUsage,
    KnownEntries,
    UntilNextEntry,
    added_up,
)
from remit.views.usage import UsageRow, latest_quarters, read_usage
from tests.support.roots import new_root

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


def test_what_goes_on_is_read_again(used: LedgerClient) -> None:
    kept, now = KeptUsage(used), int(time.time()) // QUARTER_S  # The module's may be long past.

    def spent() -> int:
        windows = kept.read((), now - 3 * 96, now + 2, "UTC", hourly=False)
        return added_up([row for _, rows in windows for row in rows]).nano

    before = spent()
    for quarter in (now, now - 1):
        used.transact(partial(_add, [_row(quarter, 9, nano=0)]))
    assert spent() == before + now % 1_000 + (now - 1) % 1_000


def test_no_more_is_kept_than_there_is_room_for(
    used: LedgerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remit.server.console.caches._MAX_ROWS", 10)
    kept = KeptUsage(used)
    whole = added_up(
        [
            row
            for _, rows in kept.read(("key",), NOW - 96 * 5, NOW, "UTC", hourly=True)
            for row in rows
        ]
    )
    assert (
        whole.calls
        == read_usage(used, since=_moment(NOW - 96 * 5), until=_moment(NOW)).rows[0].calls
    )
    assert sum(map(len, kept._kept.values())) <= 10


def test_the_latest_quarters_are_those_that_have_so_many_rows(used: LedgerClient) -> None:
    first, end = NOW - 300, NOW - 100
    there = sorted(one for (one,) in used.select("SELECT quarter FROM usage"))
    inside = [one for one in there if first <= one < end]
    for most in (1, 7, len(inside)):
        assert latest_quarters(used, first, end, most) == inside[-most]
    assert latest_quarters(used, first, end, len(inside) + 1) == first


def test_a_report_is_read_again_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 1000.0
    monkeypatch.setattr("remit.server.console.caches.time.monotonic", lambda: clock)
    root = new_root(tmp_path / "root")

    with LedgerClient(root / "ledger.db") as ledger:

        def write(event: str) -> None:
            ledger.write(LedgerEntry(event, "X", "X", "because", metadata={"outcome": "success"}))

        kept = KeptReport(Root(root), ledger)
        read = [kept.read()]
        write("EXCHANGE")
        clock += 59
        assert kept.read() is read[-1]
        clock += 2
        read.append(kept.read())  # time has passed, and there is more
        clock += 1000
        assert kept.read() is read[-1]  # there is no more
        write("ERASURE")
        read.append(kept.read())
        assert len({id(one) for one in read}) == 3
        assert kept.read() is read[-1]


def test_known_entries_are_parsed_once_and_changed_ones_again(tmp_path: Path) -> None:
    known = KnownEntries()
    with LedgerClient(tmp_path / "ledger.db") as ledger:
        for number in range(30):
            ledger.write(LedgerEntry("EXCHANGE", "P", "SUCCESS", "x", metadata={"n": number}))
        ledger.write(LedgerEntry("EXCHANGE", "P", "SUCCESS", "x", metadata={"n": "y" * 9_000}))
        parse = entry_reader.decode_record
        with mock.patch.object(entry_reader, "decode_record", side_effect=parse) as parsed:
            plain = list(ledger.query(order="desc", with_content=False))
            assert parsed.call_count == 31
            for times in (62, 63):  # A large record is not remembered.
                assert list(ledger.query(order="desc", known=known)) == plain
                assert parsed.call_count == times
        assert len(known) == 30


def test_a_result_lasts_until_the_next_entry(tmp_path: Path) -> None:
    with LedgerClient(tmp_path / "ledger.db") as ledger:
        made, results = UntilNextEntry(ledger), iter(range(9))
        assert [made.read("a", results.__next__) for _ in range(3)] == [0, 0, 0]
        assert made.read("b", results.__next__) == 1
        ledger.write(LedgerEntry("EXCHANGE", "P", "SUCCESS", "x"))
        assert [made.read("a", results.__next__) for _ in range(2)] == [2, 2]
