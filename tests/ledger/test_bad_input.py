"""What cannot be recorded is refused, clearly, and the next write is unharmed."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections import OrderedDict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from remit.kernel.errors import InvalidInputError
from remit.ledger import (
    LedgerClient,
    LedgerEntry,
    LedgerError,
    LedgerFormatError,
    LedgerWriteError,
    Transaction,
    content,
)

REFUSED: dict[str, dict[str, Any]] = {
    "nan": {"n": math.nan},
    "infinity": {"deep": [{"n": -math.inf}]},
    "lone surrogate": {"text": "\ud800"},
    "non-string key": {"map": {1: "one"}},
    "non-string key in content": {"arguments": {None: 1}},
    "integer too large": {"n": 2**60},
    "bytes": {"blob": b"raw"},
    "object": {"thing": object()},
    "set": {"things": {1, 2}},
    "oversized record": {"note": "x" * 70_000},
    "reserved key": {"$content": "forged"},
    "reserved key below": {"map": {"$messages": "forged"}},
    "NUL in a column": {"session_id": "SES-\x00"},
    "reserved key in a subclass": {"map": OrderedDict({"$content": "forged"})},
    "a mapping that is no dict": {"map": MappingProxyType({"prompt": "secret"})},
}


@pytest.mark.parametrize("metadata", REFUSED.values(), ids=REFUSED.keys())
def test_refused(ledger: LedgerClient, metadata: dict[str, Any]) -> None:
    ledger.write(LedgerEntry("BEFORE", "S", "D", "r"))
    with pytest.raises(InvalidInputError):
        ledger.write(LedgerEntry("BAD", "S", "D", "r", metadata=metadata))
    ledger.write(LedgerEntry("AFTER", "S", "D", "r"))
    assert [e.event_type for e in ledger.read_all()] == ["BEFORE", "AFTER"]
    assert ledger.verify().verified


@pytest.mark.parametrize(
    "entry",
    [
        LedgerEntry("", "S", "D", "r"),
        LedgerEntry(7, "S", "D", "r"),  # type: ignore[arg-type]
        LedgerEntry("E", None, "D", "r"),  # type: ignore[arg-type]
        LedgerEntry("E", "S", "D", "\ud800"),
        LedgerEntry("E\x00", "S", "D", "r"),
        LedgerEntry("E", "S", "D", "r", [1]),  # type: ignore[list-item]
        LedgerEntry("E", "S", "D", "r", "PRM-X-001"),  # type: ignore[arg-type]
        LedgerEntry("E", "S", content("secret"), "r"),
        LedgerEntry("E", content("secret"), "D", "r"),
        LedgerEntry("E", "S", "D", "r", metadata=[1]),  # type: ignore[arg-type]
    ],
)
def test_fields_of_wrong_kinds_are_refused(ledger: LedgerClient, entry: LedgerEntry) -> None:
    with pytest.raises(InvalidInputError):
        ledger.write(entry)
    assert ledger.count() == 0


def test_schemas_with_dollar_keys_are_fine_as_content(ledger: LedgerClient) -> None:
    tools = [{"name": "t", "input_schema": {"$ref": "#/$defs/x", "$defs": {"x": {}}}}]
    entry_id = ledger.write(LedgerEntry("E", "S", "D", "r", metadata={"tools": tools}))
    assert ledger.read(entry_id).metadata["tools"] == tools


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary, " * 200)
    with pytest.raises(LedgerFormatError, match="not a ledger"):
        LedgerClient(path)
    assert path.read_text() == "dear diary, " * 200


def test_a_database_that_is_no_ledger(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(LedgerFormatError, match="not a ledger"):
        LedgerClient(path)
    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.touch()
    with LedgerClient(path) as client:
        client.write(LedgerEntry("E", "S", "D", "r"))
        assert client.verify().verified


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(LedgerError, match="cannot be opened"):
        LedgerClient(tmp_path / "file" / "ledger.db")
    with pytest.raises(LedgerError):
        LedgerClient(tmp_path)


def test_a_place_that_no_store_is_for() -> None:
    with pytest.raises(LedgerError, match="cannot be stored at mysql"):
        LedgerClient("mysql://localhost/ledger")


def test_a_full_disk_loses_only_what_was_refused(tmp_path: Path) -> None:
    with LedgerClient(tmp_path / "ledger.db") as client:
        client.write(LedgerEntry("E", "S", "D", "r", metadata={"n": 1}))
        writer = client._store._writer  # type: ignore[attr-defined]
        ((pages,),) = client.select("SELECT * FROM pragma_page_count")
        client.transact(lambda tx: tx.execute(f"PRAGMA max_page_count={pages + 2}"))
        written = 1
        with pytest.raises(LedgerWriteError, match="full"):
            for _ in range(200):
                client.write(LedgerEntry("E", "S", "D", "r", metadata={"prompt": "x" * 3_000}))
                written += 1
        assert client.count() == written
        assert client.verify().verified
        writer.execute("PRAGMA max_page_count=1000000")
        client.write(LedgerEntry("E", "S", "D", "r", metadata={"n": 2}))
        assert client.count() == written + 1
        assert client.verify().verified


def test_secure_delete_and_incremental_vacuum_are_on_from_the_first_write(tmp_path: Path) -> None:
    with LedgerClient(tmp_path / "ledger.db") as client:
        assert client.select("SELECT * FROM pragma_auto_vacuum") == [(2,)]
        assert client.select("SELECT * FROM pragma_journal_mode") == [("wal",)]
        assert client.select("SELECT * FROM pragma_secure_delete") == [(1,)]
        assert client.transact(lambda tx: tx.execute("PRAGMA secure_delete")) == [(1,)]
        assert client.transact(lambda tx: tx.execute("PRAGMA synchronous")) == [(2,)]
    assert (tmp_path / "ledger.db").stat().st_mode & 0o777 == 0o600


def test_content_inside_subclasses_is_content_too(ledger: LedgerClient) -> None:
    import enum
    from collections import namedtuple

    class Ratio(float):
        pass

    class Kind(enum.StrEnum):
        ONE = "one"

    pair = namedtuple("pair", "a b")
    metadata = {
        "map": OrderedDict(prompt="secret"), "pair": pair(1, {"response": "secret"}),
        "ratio": Ratio(0.5), "kind": Kind.ONE,
    }  # fmt: skip
    entry_id = ledger.write(LedgerEntry("E", "S", "D", "r", metadata=metadata))
    assert b"secret" not in ledger.read_record(entry_id)
    read = ledger.read(entry_id).metadata
    assert read["map"] == {"prompt": "secret"}
    assert (read["ratio"], read["kind"]) == (0.5, "one")
    assert ledger.verify().verified


def test_a_bad_statement_harms_only_its_own_caller(ledger: LedgerClient) -> None:
    import threading

    failures: list[BaseException] = []

    def bad() -> None:
        for _ in range(20):
            try:
                ledger.transact(lambda tx: tx.execute("SELECT nonsense FROM nowhere"))
            except LedgerWriteError as error:
                failures.append(error)

    def stop(_: Transaction) -> None:
        raise StopIteration

    thread = threading.Thread(target=bad)
    thread.start()
    for number in range(50):
        ledger.write(LedgerEntry("E", "S", "D", "r", metadata={"n": number}))
    thread.join()
    assert len(failures) == 20
    with pytest.raises(RuntimeError, match="StopIteration"):
        ledger.transact(stop)
    assert ledger.count() == 50


async def test_closing_twice_at_once_loses_nothing(tmp_path: Path) -> None:
    import threading

    client = LedgerClient(tmp_path / "ledger.db")
    together = threading.Barrier(2)
    close = client._store.close

    def slowly() -> None:
        with pytest.raises(threading.BrokenBarrierError):  # nobody else is here
            together.wait(0.05)
        together.reset()
        close()

    client._store.close = slowly  # type: ignore[method-assign]
    entries = [LedgerEntry("E", "S", "D", "r", metadata={"n": n}) for n in range(200)]
    waiting = [client.submit([entry]) for entry in entries]
    closers = [threading.Thread(target=client.close) for _ in range(3)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join()
    assert await asyncio.gather(*waiting) == [[entry.id] for entry in entries]
    with LedgerClient(tmp_path / "ledger.db") as again:
        assert again.count() == 200
