"""A ledger that was exported and imported with erased thoughts, and its trail's own export."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from remit.ledger import LedgerClient
from remit.routing.trail import (
    ThoughtInput,
    ThoughtLineError,
    ThoughtRecord,
    TrailDamagedError,
    create_thought_record,
    export_thought_records,
    get_thought_record,
    import_thought_records,
    list_thought_records,
    verify_trail,
)
from tests.support.stores import outside


def _think(ledger: LedgerClient, task_id: str, text: str) -> ThoughtRecord:
    return create_thought_record(ledger, ThoughtInput("plan", task_id, "agent", text, "SES-1"))


def _lines(ledger: LedgerClient) -> bytes:
    out = io.BytesIO()
    export_thought_records(ledger, out)
    return out.getvalue()


class Moved:
    """Five thoughts of task A, one of B between, some of A erased; exported both ways.

    Attributes:
        before: lines of the trail, before the erasure.
        after: and after it.
    """

    def __init__(self, directory: Path, *erased: int) -> None:
        self.path = directory / "moved.jsonl"
        with LedgerClient(directory / "source.db") as source:
            made = [_think(source, "A", f"thought number {n}") for n in range(3)]
            _think(source, "B", "another")
            made += [_think(source, "A", f"thought number {n}") for n in range(3, 5)]
            self.before = _lines(source)
            for number in erased:
                source.erase(made[number].entry_id, reason="asked")
            self.after = _lines(source)
            self.records = list_thought_records(source)
            source.export(self.path)
        self.erased = len(erased)
        self.last = made[-1]

    def check(self, ledger: LedgerClient) -> None:
        """That ``ledger`` is whole, and goes on."""
        report = verify_trail(ledger)
        assert (report.verified, report.erased) == (True, self.erased), report.problems
        assert list_thought_records(ledger) == self.records
        assert get_thought_record(ledger, self.last.id).hash == self.last.hash
        assert _think(ledger, "A", "it goes on").prev_hash == self.last.hash
        assert verify_trail(ledger).verified
        assert ledger.verify().verified


@pytest.mark.any_store
@pytest.mark.parametrize("erased", [(0,), (2,), (4,), (1, 3), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_restored_ledger_and_its_trail_are_whole_again(
    ledger: LedgerClient, target: str, tmp_path: Path, erased: tuple[int, ...], when: str
) -> None:
    moved = Moved(tmp_path, *erased)
    ledger.import_jsonl(moved.path)
    count = ledger.count()
    if when == "before":  # else the import is the first that sees the table
        with pytest.raises(TrailDamagedError, match=r"trail import"):
            _think(ledger, "A", "this would fork")
        assert ledger.count() == count
        assert not verify_trail(ledger).verified
    lines = moved.before if when == "before" else moved.after
    assert import_thought_records(ledger, io.BytesIO(lines)) >= 1
    assert ledger.count() == count
    content = str(outside(target, "SELECT value FROM contents"))
    assert not any(f"thought number {n}" in content for n in erased)
    moved.check(ledger)
    with pytest.raises(ThoughtLineError, match="already exists"):  # nothing is missing any more
        import_thought_records(ledger, io.BytesIO(lines))


def test_without_an_erasure_everything_comes_back_by_itself(
    ledger: LedgerClient, tmp_path: Path
) -> None:
    moved = Moved(tmp_path)
    ledger.import_jsonl(moved.path)
    assert import_thought_records(ledger, io.BytesIO(moved.after)) == 6
    moved.check(ledger)
