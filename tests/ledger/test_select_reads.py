"""``select`` only reads, whatever statement it is given, and so does every later one."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.ledger import LedgerClient, LedgerEntry, LedgerError

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
