"""What a commit writes to a SQLite file."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.ledger import LedgerClient, LedgerEntry

IO = Path("/proc/self/io")


def _written() -> int:
    return int(IO.read_text().partition("wchar: ")[2].split()[0])


@pytest.mark.skipif(not IO.exists(), reason="needs Linux's count of bytes written")
def test_a_commit_writes_each_page_that_it_changes_once(tmp_path: Path) -> None:
    entries = [
        LedgerEntry("NOTE", "S", "D", "r", [], {"session_id": "SES-A", "prompt": f"{number:200}"})
        for number in range(200)
    ]
    with LedgerClient(tmp_path / "ledger.db") as ledger:
        ledger.write_many(entries[:100])
        log = tmp_path / "ledger.db-wal"
        before, size = _written(), log.stat().st_size
        ledger.write_many(entries[100:])
        assert 0 < _written() - before < 1.1 * (log.stat().st_size - size)
