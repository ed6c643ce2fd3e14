"""Writing, reading, querying."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.errors import InvalidInputError
from remit.ledger import (
    EntryNotFoundError,
    LedgerClient,
    LedgerEntry,
    LedgerError,
    LedgerWriteError,
    RecordTooLargeError,
    ScopedLedger,
    ScopeError,
    Transaction,
    drop_schema,
    has_schema,
    make_schema,
)
from tests.support.postgres import PostgresServer


def _entry(event: str = "EVENT", submission: str = "SUB", **metadata: Any) -> LedgerEntry:
    return LedgerEntry(event, submission, "DONE", "because", metadata=metadata)


def test_query_takes_columns_from_metadata_provenance_and_scope(ledger: LedgerClient) -> None:
    ledger.write(_entry(session_id="SES-1", tier="ho1"))
    ledger.write(_entry(provenance={"session_id": "SES-1"}, scope={"tier": "ho2"}))
    ledger.write(_entry(session_id="SES-2", provenance={"session_id": "SES-1"}))
    assert [e.id for e in ledger.query(session_id="SES-1")] == ["LED-00000000", "LED-00000001"]
    assert [e.id for e in ledger.query(session_id="SES-1", tier="ho2")] == ["LED-00000001"]
    assert [e.id for e in ledger.query(session_id="SES-2")] == ["LED-00000002"]


def test_write_many_is_all_or_nothing(ledger: LedgerClient) -> None:
    with pytest.raises(RecordTooLargeError):
        ledger.write_many([_entry(n=1, prompt="kept?"), _entry(note="x" * 70_000)])
    assert ledger.count() == 0
    assert ledger.select("SELECT count(*) FROM contents") == [(0,)]
    ledger.write(_entry(n=2))
    assert ledger.verify().verified


@pytest.mark.parametrize("fails", [False, True])
async def test_who_stops_waiting_learns_it_when_the_write_has_ended(
    ledger: LedgerClient, fails: bool
) -> None:
    go_on = threading.Event()

    def late(tx: Transaction) -> str:
        go_on.wait()
        if fails:
            raise ValueError("no")
        return tx.append(_entry(n=1))

    async def wait() -> Any:
        return await future

    future = ledger.submit(late)
    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0)
    assert not future.cancel()
    for _ in range(2):  # and again
        waiting.cancel()
        await asyncio.sleep(0.01)
    assert not future.done()
    assert not waiting.done()
    go_on.set()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    assert isinstance(future.exception(), ValueError if fails else type(None))
    assert ledger.count() == (0 if fails else 1)


async def test_content_is_shared_across_a_failing_unit(ledger: LedgerClient) -> None:
    def entry(*words: str) -> LedgerEntry:
        return _entry(session_id="SES-1", prompt=[{"role": "user", "content": w} for w in words])

    def fails(tx: Transaction) -> None:
        tx.append(entry("one", "two", "three"))
        raise ValueError("no")

    go_on = threading.Event()
    first = ledger.submit(lambda _: go_on.wait())  # what follows is one transaction
    waiting = [
        ledger.submit([entry("one")]),
        ledger.submit(fails),
        ledger.submit([_entry(session_id="SES-1", prompt="one", note="x" * 70_000)]),
        ledger.submit([entry("one", "two")]),
        ledger.submit([entry("one", "two"), entry("one", "two", "three")]),
    ]
    go_on.set()
    await first
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(item) for item in results] == [
        list, ValueError, RecordTooLargeError, list, list,
    ]  # fmt: skip
    said = [[m["content"] for m in e.metadata["prompt"]] for e in ledger.query()]
    assert said == [["one"], ["one", "two"], ["one", "two"], ["one", "two", "three"]]
    for table in ("contents", "message_steps"):
        assert ledger.select(f"SELECT count(*) FROM {table}") == [(3,)]
    assert ledger.verify().verified


# -- A tier writes its own entries and sees no higher one's --------------------------------------


def _entry_scoped(tier: str | None = None, order: str | None = None) -> LedgerEntry:
    metadata = {}
    if tier:
        metadata["scope"] = {"tier": tier}
    if order:
        metadata["provenance"] = {"work_order_id": order}
    return LedgerEntry("E", "S", "D", "r", metadata=metadata)


def test_what_each_tier_sees(ledger: LedgerClient) -> None:
    for tier, order in (("hot", None), ("ho2", "WO-1"), ("ho1", "WO-1"), ("ho1", "WO-2")):
        ledger.write(_entry_scoped(tier, order))
    ledger.write(_entry_scoped())

    def seen(tier: str, of: str | None = None, **filters: Any) -> list[str]:
        return [e.id[-1] for e in ledger.scoped(tier=tier, work_order_id=of).query(**filters)]

    assert seen("hot") == ["0", "1", "2", "3", "4"]
    assert seen("ho2") == ["1", "2", "3"]
    assert seen("ho2", limit=2, order="desc") == ["3", "2"]  # of what is visible
    assert seen("ho1", "WO-1") == ["2"]
    assert seen("ho1") == []
    worker = ledger.scoped(tier="ho1", work_order_id="WO-1")
    for filters in ({"tier": "ho2"}, {"work_order_id": "WO-2"}):  # which widen no view
        assert list(worker.query(**filters)) == []
    for entry_id in ("LED-00000001", "LED-00000003"):
        with pytest.raises(EntryNotFoundError):
            worker.read(entry_id)


def test_a_tier_writes_only_its_own(ledger: LedgerClient) -> None:
    every = ledger.scoped(tier="ho1")
    with pytest.raises(InvalidInputError):
        ledger.scoped(tier="ho3")
    with pytest.raises(InvalidInputError):
        ScopedLedger(every, tier="hot")
    worker = ScopedLedger(every, tier="ho1", work_order_id="WO-1")  # narrowed, and never widened
    assert list(ScopedLedger(worker, tier="ho1", work_order_id="WO-2").query()) == []
    entry_id = worker.write(_entry_scoped(order="WO-1"))
    assert worker.read(entry_id).metadata["scope"] == {"tier": "ho1"}
    for foreign in (_entry_scoped("ho2", "WO-1"), _entry_scoped("ho1", "WO-2"),
                    LedgerEntry("E", "S", "D", "r", metadata={"tier": ""})):  # fmt: skip
        with pytest.raises(ScopeError):
            worker.write(foreign)
    assert ledger.count() == 1
    unnamed = worker.write(LedgerEntry("E", "S", "D", "r"))
    assert worker.read(unnamed).metadata["provenance"] == {"work_order_id": "WO-1"}


# -- ``select`` only reads, whatever statement it is given, and so does every later one ----------


_WRITES = [
    "WITH one AS (SELECT 0 AS n) DELETE FROM entries WHERE seq IN (SELECT n FROM one)",
    "SELECT 1; DELETE FROM entries",
]
_NO_QUERIES = [
    "DELETE FROM entries",
    " delete from entries returning seq",
    "/* SELECT */ DELETE FROM entries",
    "-- SELECT\nDELETE FROM entries",
    "SELECTED",
    "BEGIN IMMEDIATE",
    "BEGIN READ WRITE",
    "PRAGMA query_only=OFF",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "ATTACH 'stray.db' AS other",
    "VACUUM INTO 'stray.db'",
    "VACUUM",
    "CHECKPOINT",
    "COPY entries TO PROGRAM 'cat > stray.db'",
    "SET default_transaction_read_only = off",
    "EXPLAIN ANALYZE DELETE FROM entries",
]
_OF_SQLITE = [
    "SELECT * FROM pragma_query_only('OFF')",
    "SELECT * FROM pragma_journal_mode('delete')",
    "SELECT * FROM pragma_wal_checkpoint('TRUNCATE')",
    "SELECT load_extension('stray')",
    "SELECT writefile('stray.db', 'x')",
]
_OF_POSTGRESQL = [
    "SELECT set_config('transaction_read_only', 'off', true)",
    "WITH one AS (DELETE FROM entries RETURNING seq) SELECT * FROM one",
    "SELECT * INTO stray FROM entries",
    "SELECT lo_create(0)",
    "SELECT seq FROM entries FOR UPDATE",
]
_FOR_ONE_STATEMENT = "SELECT set_config('default_transaction_read_only', 'off', false)"


def test_it_only_reads(
    ledger: LedgerClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ledger.write(LedgerEntry("E", "S", "D", "r"))
    before = {path.name for path in tmp_path.iterdir()}
    for statement in _NO_QUERIES:
        with pytest.raises(LedgerError, match="not a query"):
            ledger.select(statement)
    on_server = str(ledger.location).startswith("postgresql")
    if on_server:
        ledger.select(_FOR_ONE_STATEMENT)
    for statement in [*_WRITES, *(_OF_POSTGRESQL if on_server else _OF_SQLITE)]:
        with pytest.raises(LedgerError):
            ledger.select(statement)
    for query in (
        "\n select seq from entries",
        "WITH a AS (SELECT 0) SELECT * FROM a",
        "VALUES (0)",
    ):
        assert ledger.select(query) == [(0,)]
    ledger.write(LedgerEntry("E", "S", "D", "r"))  # nothing holds a lock
    assert ledger.count() == 2
    assert {path.name for path in tmp_path.iterdir()} == before
    assert ledger.verify().verified


# -- Steps of stages that share a transaction, and what stages remember from one to the next ------


def _saying(prompt: str) -> LedgerEntry:
    return LedgerEntry("E", "S", "D", "r", metadata={"session_id": "SES-A", "prompt": prompt})


class _Refused:
    """A stage whose rows the engine does not take."""

    def __init__(self, tx: Transaction, steps: Sequence[str]) -> None:
        self._tx = tx
        self._names: list[str] = []

    def do(self, step: str) -> str:
        self._names.append(step)
        return step

    def write(self) -> None:
        self._tx.execute_many("INSERT INTO holds VALUES (?, '')", [(name,) for name in self._names])
        self._names = []


async def test_rows_that_a_stage_cannot_write_fail_their_own_step(ledger: LedgerClient) -> None:
    go = threading.Event()
    before = ledger.submit(lambda _: go.wait(10))  # what follows waits for one transaction
    work = [
        ledger.submit([_saying("a")]),
        *[ledger.step(_Refused, name) for name in ("one", "two", "one", "three")],
        ledger.submit([_saying("a")]),
    ]
    go.set()
    await before
    done = await asyncio.gather(*work, return_exceptions=True)
    assert isinstance(done.pop(3), LedgerWriteError)
    assert done == [["LED-00000000"], "one", "two", "three", ["LED-00000001"]]
    held = ledger.select("SELECT reservation_id FROM holds ORDER BY 1")
    assert held == [("one",), ("three",), ("two",)]
    assert ledger.verify().verified


class _Counter:
    """A stage that remembers its steps from one transaction to the next."""

    def __init__(self, tx: Transaction, steps: Sequence[str]) -> None:
        self._steps: list[str] = tx.cache.setdefault("steps", [])

    def do(self, step: str) -> list[str]:
        self._steps.append(step)
        return [*self._steps]

    def write(self) -> None:
        pass


async def test_a_stage_remembers_until_others_may_have_changed_its_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")

    async def fails() -> None:
        await client.step(_Refused, "two")
        with pytest.raises(LedgerWriteError):
            await client.step(_Refused, "two")

    async def calls() -> None:
        await client.submit(lambda tx: tx.execute("SELECT 1"))

    async def others() -> None:
        with LedgerClient(path) as other:
            other.write(_saying("another client's"))

    with LedgerClient(path) as client:
        await client.step(_Counter, "before")
        for change in (fails, calls, others):
            assert len(await client.step(_Counter, "known")) > 1
            await client.submit([_saying(change.__name__)])
            assert len(await client.step(_Counter, "still known")) > 2
            await change()
            assert await client.step(_Counter, "anew") == ["anew"]
        assert client.verify().verified


# -- Schemas of a PostgreSQL database for further ledgers -----------------------------------------


def test_a_schema_is_recognised_by_its_mark(postgres: PostgresServer) -> None:
    url, mark = postgres.database(), "the o'log's \\ mark"
    for _ in range(2):
        make_schema(url, "remit_x", mark)
    with pytest.raises(LedgerError, match="already exists"):
        make_schema(url, "remit_x", "the ologs \\ mark")
    drop_schema(url, "remit_x", "the ologs \\ mark")
    assert has_schema(url, "remit_x")
    drop_schema(url, "remit_x", mark)
    assert not has_schema(url, "remit_x")
    postgres.drop(url)
