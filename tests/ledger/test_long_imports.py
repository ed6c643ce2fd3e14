"""A long import into PostgreSQL is no writer that stands still."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.imports import Import
from remit.ledger.postgres import store, transaction
from tests.support.postgres import PostgresServer


def test_an_import_outlasts_the_limit_for_frozen_writers(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LedgerClient(tmp_path / "ledger.db") as source:
        for number in range(10):
            source.write(LedgerEntry("E", "S", "D", "r", metadata={"n": number}))
        source.export(tmp_path / "all.jsonl")
    line = Import._line

    def slow(self: Import, value: dict[str, object]) -> None:
        time.sleep(0.07)
        line(self, value)

    monkeypatch.setattr(Import, "_line", slow)
    monkeypatch.setattr(store, "FROZEN_S", 0.4)
    monkeypatch.setattr(transaction, "_SILENT_NS", 50_000_000)
    with LedgerClient(postgres.database()) as target:
        assert target.import_jsonl(tmp_path / "all.jsonl").entries == 10
