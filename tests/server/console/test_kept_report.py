"""The learning report that is kept: late by a minute at most, and never wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.kernel.root import Root
from remit.ledger import LedgerClient, LedgerEntry
from remit.server.console.kept_report import KeptReport
from tests.support.roots import new_root


def test_a_report_is_read_again_once_something_was_decided_or_time_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 1000.0
    monkeypatch.setattr("remit.server.console.kept_report.time.monotonic", lambda: clock)
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
