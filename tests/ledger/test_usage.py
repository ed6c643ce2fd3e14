"""The table ``usage``: one row by quarter of an hour and dimensions, equal to what entries say."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from remit.kernel.errors import InvalidInputError
from remit.ledger import (
    USAGE_TABLES,
    Difference,
    LedgerClient,
    LedgerEntry,
    LedgerKey,
    Marks,
    audit_tables,
    content,
)
from remit.ledger.usage import DIMENSIONS, SUMS, quarter_of
from tests.support.processes import Program
from tests.support.stores import outside

_FIELDS = ("quarter", *DIMENSIONS, *SUMS)


def _exchange(**metadata: Any) -> LedgerEntry:
    given = {
        "agent_id": "a", "session_id": "SES-1", "contract_id": "PRC-1", "outcome": "success",
        "input_tokens": 10, "output_tokens": 5, "model_id": "m", "cost_usd": 0.001,
        "cost_certainty": "measured", "key_id": "KEY-1", **metadata,
    }  # fmt: skip
    return LedgerEntry("EXCHANGE", "PRC-1", "SUCCESS", "Exchange completed", metadata=given)


def _differences(ledger: LedgerClient, **given: Any) -> list[Difference]:
    return audit_tables(ledger, USAGE_TABLES, mark="usage", **given).differences


def _made(key_id: str, **metadata: Any) -> LedgerEntry:
    given = {"key_id": key_id, "name": "chat", "user_id": "ann", "team_id": "search", **metadata}
    return LedgerEntry("KEY_CREATED", key_id, "CREATED", "Key created", metadata=given)


def _rows(ledger: LedgerClient) -> list[dict[str, Any]]:
    found = ledger.select(f"SELECT {', '.join(_FIELDS)} FROM usage ORDER BY quarter, session_id")
    return [dict(zip(_FIELDS, row, strict=True)) for row in found]


def test_each_exchange_is_in_a_row_as_it_is_written(ledger: LedgerClient) -> None:
    first = ledger.read(ledger.write(_exchange()))
    ledger.write_many([
        _exchange(outcome="error", input_tokens=0, output_tokens=0, cost_usd=0),
        _exchange(fallback_from=[{"model_id": "x", "error_code": "TIMEOUT"}],
                  cached_input_tokens=4, reasoning_tokens=3),
        _exchange(cost_certainty="upper_bound", cost_usd=0.5),
    ])  # fmt: skip
    ledger.write(LedgerEntry("DISPATCH", "PRC-1", "DISPATCHED", "r", metadata={"agent_id": "a"}))
    sure, most = sorted(_rows(ledger), key=lambda row: row["nano"])
    assert sure["quarter"] in (quarter_of(first.timestamp), most["quarter"])
    assert {name: sure[name] for name in SUMS} == {
        "calls": 3, "failed": 1, "fallbacks": 1, "input_tokens": 20, "output_tokens": 10,
        "cached_input_tokens": 4, "reasoning_tokens": 3, "nano": 2_000_000, "unpriced_calls": 0,
    }  # fmt: skip
    assert (most["certainty"], most["nano"], most["key_id"]) == ("upper_bound", 5 * 10**8, "KEY-1")
    assert _differences(ledger) == []


def test_orphans_and_debits_count_and_what_has_no_price_is_apart(ledger: LedgerClient) -> None:
    orphan = {"session_id": "SES-1", "settled_tokens": 70, "cost_certainty": "upper_bound"}
    ledger.write(LedgerEntry("EXCHANGE_ORPHANED", "s", "ORPHANED", "r", metadata=orphan))
    debit = {"session_id": "SES-2", "scope": "session:SES-2", "input_tokens": 0,
             "output_tokens": 0, "model_id": "", "cost_usd": 0.02}  # fmt: skip
    ledger.write(LedgerEntry("BUDGET_DEBIT", "s", "DEBITED", "r", metadata=debit))
    of_a_worker = {**debit, "scope": {"tier": "ho1"}}
    ledger.write(LedgerEntry("BUDGET_DEBIT", "s", "DEBITED", "r", metadata=of_a_worker))
    one, two = _rows(ledger)
    assert (one["calls"], one["failed"], one["input_tokens"]) == (1, 1, 70)
    assert (one["unpriced_calls"], one["certainty"]) == (1, "upper_bound")
    assert (two["calls"], two["nano"], two["certainty"]) == (0, 20_000_000, "measured")
    assert _differences(ledger) == []


def test_a_transaction_that_is_undone_adds_nothing(ledger: LedgerClient) -> None:
    def failing(tx: Any) -> None:
        tx.append(_exchange())
        tx.execute("SELECT 1")  # what was collected is written
        tx.append(_exchange())
        raise ValueError("no")

    ledger.write(_exchange(session_id="SES-0"))
    with pytest.raises(ValueError, match="no"):
        ledger.transact(failing)
    ledger.write(_exchange(session_id="SES-2"))
    assert [row["session_id"] for row in _rows(ledger)] == ["SES-0", "SES-2"]
    assert _differences(ledger) == []


_NUMBERS = st.one_of(
    st.integers(0, 2**53), st.integers(-5, 5), st.none(), st.booleans(), st.just("7"),
    st.floats(0, 10), st.sampled_from([5.0, 0.0001, 1e-9, 0.25, [1], {"a": 1}]),
)  # fmt: skip
_TEXTS = st.one_of(
    st.text(max_size=5), st.sampled_from(["k" * 300, "é" * 150, "\x00", "a", "b"]), st.none(),
    st.just(3), st.builds(content, st.just("hidden")), st.just(["x"]),
)  # fmt: skip
_ENTRIES = st.builds(
    lambda event, texts, numbers, rest: LedgerEntry(
        event, "s", "d", "r", metadata={**texts, **numbers, **rest}
    ),
    st.sampled_from(["EXCHANGE", "EXCHANGE_ORPHANED", "BUDGET_DEBIT", "DISPATCH"]),
    st.dictionaries(st.sampled_from([*DIMENSIONS, "cost_certainty"]), _TEXTS, max_size=4),
    st.dictionaries(
        st.sampled_from(["input_tokens", "output_tokens", "settled_tokens", "cost_usd",
                         "cached_input_tokens", "reasoning_tokens"]),
        _NUMBERS,
        max_size=4,
    ),
    st.fixed_dictionaries({}, optional={"outcome": st.sampled_from(["success", "error"]),
                                        "fallback_from": st.just([{"model_id": "m"}])}),
)  # fmt: skip


@settings(max_examples=60)
@given(entries=st.lists(_ENTRIES, min_size=1, max_size=12))
def test_whatever_an_entry_holds_its_record_says_the_same(
    tmp_path_factory: pytest.TempPathFactory, entries: list[LedgerEntry]
) -> None:
    with LedgerClient(tmp_path_factory.mktemp("usage") / "ledger.db") as ledger:
        for entry in entries:
            with contextlib.suppress(InvalidInputError):  # what no record may hold
                ledger.write(entry)
        before = _rows(ledger)
        assert _differences(ledger) == []
        outside(ledger.location, "DELETE FROM usage")
        _differences(ledger, repair=True)
        assert sorted(map(str, _rows(ledger))) == sorted(map(str, before))


def test_names_that_no_database_indexes_stop_no_write(ledger: LedgerClient) -> None:
    long = {name: f"{name}{'é' * 500}" for name in DIMENSIONS if name != "certainty"}
    ledger.write(_exchange(**long))
    ledger.write(_exchange(key_id="null\x00null"))
    ledger.write_many([_exchange(input_tokens=2**53 - 1, cost_usd=9e6) for _ in range(3)])
    for _ in range(10):
        ledger.write_many([_exchange(input_tokens=2**53 - 1) for _ in range(200)])
    assert max(row["input_tokens"] for row in _rows(ledger)) == 1 << 62  # counts stop there
    assert _differences(ledger) == []


def test_a_row_that_differs_is_named_and_mended(ledger: LedgerClient, target: str) -> None:
    ledger.write_many([_exchange(), _exchange(session_id="SES-2")])
    before = _rows(ledger)
    of = "WHERE session_id = 'SES-1'"
    for statement, field in (
        (f"UPDATE usage SET nano = nano + 1 {of}", "nano"),
        (f"DELETE FROM usage {of}", "row"),
        (f"UPDATE usage SET key_id = 'KEY-2' {of}", "row"),
        (f"UPDATE usage SET quarter = 5000000000000000 {of}", "row"),
        (f"UPDATE usage SET quarter = -5000000000000000 {of}", "row"),
    ):
        outside(target, statement)
        found = _differences(ledger)
        assert {one.column for one in found} == {field}
        assert all("SES-2" not in one.name for one in found)
        assert _differences(ledger, repair=True) == found
        assert _differences(ledger) == []
        assert _rows(ledger) == before


def test_whose_a_key_is_follows_from_the_entry_that_made_it(
    ledger: LedgerClient, target: str
) -> None:
    ledger.write_many([_made("KEY-1"), _made("KEY-2"), _made("KEY-1", rotated=True)])
    ledger.write(_made("KEY-3", scope={"tier": "ho1"}))  # what a worker says makes none
    keys = ledger.select("SELECT * FROM usage_keys ORDER BY key_id")
    assert [row[0] for row in keys] == ["KEY-1", "KEY-2"]
    for change in ("UPDATE usage_keys SET user_id = 'bob'", "DELETE FROM usage_keys",
                   "UPDATE usage_keys SET key_id = 'KEY-9'"):  # fmt: skip
        outside(target, f"{change} WHERE key_id = 'KEY-1'")
        found = _differences(ledger)
        assert found
        assert all("KEY-2" not in one.name for one in found)
        assert _differences(ledger, repair=True) == found
        assert ledger.select("SELECT * FROM usage_keys ORDER BY key_id") == keys
        assert _differences(ledger) == []


def test_what_is_written_meanwhile_is_no_difference(ledger: LedgerClient) -> None:
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            ledger.write_many([_exchange(session_id=f"SES-{n}") for n in range(5)])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for repair in (False, True) * 5:
            assert _differences(ledger, repair=repair) == []
    finally:
        stop.set()
        writer.join()


def test_a_later_audit_continues_from_the_rows_of_the_one_before(tmp_path: Path) -> None:
    key = LedgerKey(tmp_path / "keys")
    key.create()
    marks = Marks(tmp_path / "marks", key, "ledger.db")
    with LedgerClient(tmp_path / "ledger.db", signer=key.signer(), marks=marks) as ledger:
        ledger.write(_exchange())
        assert _differences(ledger) == []
        # An entry that was changed since: only who reads it again sees that.
        outside(ledger.location, "UPDATE entries SET event_type = 'DISPATCH'")
        assert _differences(ledger, since_mark=True) == []
        outside(ledger.location, "UPDATE usage SET calls = 7")
        [one] = _differences(ledger, since_mark=True)
        assert (one.column, one.live, one.ledger) == ("calls", 7, 1)
        outside(ledger.location, "UPDATE entries SET event_type = 'EXCHANGE'")
        assert _differences(ledger, repair=True) == [one]
        assert _differences(ledger, since_mark=True) == []
        ledger.write(_exchange(session_id="SES-2"))
        outside(ledger.location, "DELETE FROM usage WHERE session_id = 'SES-2'")
        assert [one.column for one in _differences(ledger, since_mark=True)] == ["row"]


def test_a_process_killed_at_any_moment_leaves_them_equal(target: str) -> None:
    script = (
        "import sys, itertools; from remit.ledger import LedgerClient, LedgerEntry\n"
        "ledger = LedgerClient(sys.argv[1]); print('up', flush=True)\n"
        "for n in itertools.count():\n"
        "    ledger.write_many([LedgerEntry('EXCHANGE', 's', 'd', 'r', metadata={'session_id':"
        " f'SES-{n % 7}', 'input_tokens': n, 'cost_usd': n / 1e6}) for _ in range(3)])\n"
    )
    with Program("-c", script, target, environment=os.environ) as process:
        process.stdout.readline()
        time.sleep(0.3)
        process.kill()
    with LedgerClient(target) as ledger:
        assert ledger.count() > 0
        assert sum(row["calls"] for row in _rows(ledger)) == ledger.count()
        assert _differences(ledger) == []
