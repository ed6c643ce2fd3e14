"""JSON lines: out, and in again."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient, LedgerEntry
from remit.routing.trail import (
    ThoughtInput,
    ThoughtLineError,
    ThoughtRecord,
    TrailDamagedError,
    create_thought_record,
    export_thought_records,
    get_thought_record,
    hash_thought,
    import_thought_records,
    list_thought_records,
    verify_trail,
)
from tests.support.stores import outside

Told = list[dict[str, Any]]
BAD = "f" * 64


def _lines(ledger: LedgerClient, task_id: str | None = None) -> Told:
    out = io.StringIO()
    export_thought_records(ledger, out, task_id)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def _stream(told: Told) -> io.BytesIO:
    return io.BytesIO("".join(json.dumps(item) + "\n" for item in told).encode())


def test_what_goes_on_behind_what_is_there(
    ledger: LedgerClient, chain: list[ThoughtRecord], tmp_path: Path
) -> None:
    told = _lines(ledger)
    with LedgerClient(tmp_path / "other.db") as other:
        assert import_thought_records(other, _stream(told[:4])) == 4
        for start in (3, 5):  # one again; one left out
            with pytest.raises(ThoughtLineError):
                import_thought_records(other, _stream(told[start:]))
        assert import_thought_records(other, _stream(told[4:])) == 3
        assert verify_trail(other).verified
        assert _lines(other) == told


def _changed(index: int, **changes: Any) -> Callable[[Told], Any]:
    return lambda told: told[index].update(changes)


def _without(name: str) -> Callable[[Told], Any]:
    return lambda told: told[3].pop(name)


def _rehashed(told: Told, index: int, **changes: Any) -> None:
    """A change by who knows the rule, of one line."""
    item = told[index]
    item.update(changes)
    item["hash"] = hash_thought(
        item["id"], item["type"], item["task_id"], item["content"], item["timestamp"],
        item["prev_hash"],
    )  # fmt: skip


def _alone(told: Told, **changes: Any) -> None:
    """Only the first line, changed by who knows the rule."""
    del told[1:]
    _rehashed(told, 0, **changes)


# By name: the line where it shows, and the change. Lines 1, 2, 4, 5, 7 are the task's.
DAMAGE: dict[str, tuple[int, Callable[[Told], Any]]] = {
    "content": (4, _changed(3, content="other")),
    "link": (4, _changed(3, prev_hash=BAD)),
    "hash": (4, _changed(3, hash=BAD)),
    "first link": (1, lambda told: _alone(told, prev_hash=BAD)),
    "rehashed": (5, lambda told: _rehashed(told, 3, content="other")),
    "removed": (4, lambda told: told.pop(3)),
    "doubled": (5, lambda told: told.insert(4, dict(told[3]))),
    "same id": (5, lambda told: _rehashed(told, 4, id=told[3]["id"])),
    "unknown type": (4, _changed(3, type="thought")),
    "no hash": (4, _without("hash")),
    "more": (4, _changed(3, more=1)),
    "erased and not": (4, _changed(3, erased="LED-00000001")),
    "erased by whom": (4, _changed(3, content=None, erased="me")),
    "long task": (4, _changed(3, task_id="t" * 513)),
    "surrogate": (4, _changed(3, content="\ud800")),
    "no object": (4, lambda told: told.__setitem__(3, [1])),
}


@pytest.fixture(scope="module")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Seven lines of two tasks."""
    with LedgerClient(tmp_path_factory.mktemp("seven") / "ledger.db") as ledger:
        for number, task_id in enumerate("AABAABA"):
            told = ThoughtInput("plan", f"TASK-{task_id}", "agent", f"thought number {number}")
            create_thought_record(ledger, told)
        return _lines(ledger)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_line_is_named_and_nothing_is_written(
    seven: Told, tmp_path: Path, damage: str
) -> None:
    line, change = DAMAGE[damage]
    told = [dict(item) for item in seven]
    change(told)
    with LedgerClient(tmp_path / "other.db") as other:
        with pytest.raises(ThoughtLineError, match=f"^Line {line}: ") as raised:
            import_thought_records(other, _stream(told))
        assert raised.value.line == line
        assert isinstance(raised.value, InvalidInputError)
        assert other.count() == 0
        assert list_thought_records(other) == []


@pytest.mark.parametrize(
    "more",
    ['"content":"other"', '"agent_id":"other"', '"hash":null', '"content":[[7]]'],
)
def test_a_key_that_is_given_twice(seven: Told, tmp_path: Path, more: str) -> None:
    lines = [json.dumps(item) for item in seven]
    lines[3] = lines[3].replace("{", f"{{{more},", 1)
    with LedgerClient(tmp_path / "other.db") as other:
        with pytest.raises(ThoughtLineError, match=r"^Line 4: .*twice"):
            import_thought_records(other, lines)
        assert other.count() == 0


def test_an_import_that_does_not_fit_is_refused_whole(
    ledger: LedgerClient, chain: list[ThoughtRecord], tmp_path: Path
) -> None:
    told = _lines(ledger, "TASK-A")
    with LedgerClient(tmp_path / "other.db") as other:
        ours = create_thought_record(
            other, ThoughtInput("plan", "OTHER", "a", "b"), id_fn=lambda: chain[4].id
        )
        with pytest.raises(ThoughtLineError, match=r"^Line 5: .* already"):
            import_thought_records(other, _stream(told))
        assert list_thought_records(other) == [ours]
        create_thought_record(other, ThoughtInput("plan", "TASK-A", "a", "b"))
        with pytest.raises(ThoughtLineError, match=r"^Line 1: the task 'TASK-A' already exists"):
            import_thought_records(other, _stream(told))
        with pytest.raises(ThoughtLineError, match=r"^Line 1: it does not follow the last"):
            import_thought_records(other, _stream(told[1:]))
        assert other.count() == 2
        assert verify_trail(other).verified
    with pytest.raises(ThoughtLineError, match=r"^Line 1: .* already exists"):
        import_thought_records(ledger, _stream(told))
    assert verify_trail(ledger).records == 7


@pytest.mark.parametrize("stream", ["a text", None, Path("trail.jsonl"), [{"id": 1}]])
def test_what_is_no_stream_of_lines_is_refused(ledger: LedgerClient, stream: Any) -> None:
    with pytest.raises(InvalidInputError):
        import_thought_records(ledger, stream)


# -- A ledger that was exported and imported with erased thoughts, and its trail's own export -----


def _think(ledger: LedgerClient, task_id: str, text: str) -> ThoughtRecord:
    return create_thought_record(ledger, ThoughtInput("plan", task_id, "agent", text, "SES-1"))


def _raw_lines(ledger: LedgerClient) -> bytes:
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
            self.before = _raw_lines(source)
            for number in erased:
                source.erase(made[number].entry_id, reason="asked")
            self.after = _raw_lines(source)
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


# What is not the export of this ledger's trail: the line where it shows, and the change. The
# thought of line 3 is erased; the line 4 is of the task B.
FOREIGN: dict[str, tuple[int, Callable[[Told], Any]]] = {
    "another agent": (3, _changed(2, agent_id="other")),
    "another session": (3, _changed(2, session_id="other")),
    "another time": (3, _changed(2, timestamp="2020-01-01T00:00:00Z")),
    "another type": (3, _changed(2, type="analysis")),
    "another id": (3, _changed(2, id="other")),
    "another hash": (5, _changed(2, hash="f" * 64)),
    "left out": (4, lambda told: told.pop(2)),
    "another hash of what is erased there": (6, lambda told: told[5].update(
        content=None, erased="LED-00000001", hash="e" * 64,
    )),
    "another thought of B": (4, _changed(3, content=None, erased="LED-00000001", hash="e" * 64)),
}  # fmt: skip


@pytest.mark.any_store
@pytest.mark.parametrize("change", FOREIGN)
def test_a_foreign_export_is_refused(ledger: LedgerClient, tmp_path: Path, change: str) -> None:
    moved = Moved(tmp_path, 2)
    ledger.import_jsonl(moved.path)
    told = [json.loads(line) for line in moved.after.splitlines()]
    line, do = FOREIGN[change]
    do(told)
    with pytest.raises(ThoughtLineError, match=f"^Line {line}: "):
        import_thought_records(ledger, _stream(told))
    assert not verify_trail(ledger, "A").verified
    with pytest.raises(TrailDamagedError):
        _think(ledger, "A", "still held")
    assert import_thought_records(ledger, io.BytesIO(moved.after)) >= 1
    moved.check(ledger)


def test_a_row_that_was_taken_away_comes_back(
    ledger: LedgerClient, chain: list[ThoughtRecord], target: str
) -> None:
    lines = _raw_lines(ledger)
    outside(target, f"DELETE FROM thoughts WHERE thought_id = '{chain[4].id}'")
    with pytest.raises(TrailDamagedError, match=chain[4].entry_id):
        _think(ledger, "TASK-A", "this would fork")
    assert import_thought_records(ledger, io.BytesIO(lines)) == 1
    assert _think(ledger, "TASK-A", "it goes on").prev_hash == chain[4].hash
    assert verify_trail(ledger).verified


def test_an_entry_that_is_no_thought_s_holds_its_task(
    ledger: LedgerClient, chain: list[ThoughtRecord]
) -> None:
    told = json.loads(_raw_lines(ledger).splitlines()[-1])
    ledger.write(LedgerEntry("THOUGHT_RECORD", "TASK-A", "plan", "by hand"))
    count = ledger.count()
    with pytest.raises(TrailDamagedError):
        _think(ledger, "TASK-A", "behind what?")
    thought = ("x", "plan", "TASK-A", "more", "now", chain[4].hash)
    told.update(id="x", content="more", timestamp="now", prev_hash=chain[4].hash)
    told.update(hash=hash_thought(*thought))
    with pytest.raises(ThoughtLineError, match=r"^Line 1: .* no place of its own"):
        import_thought_records(ledger, _stream([told]))
    assert ledger.count() == count
    assert not verify_trail(ledger, "TASK-A").verified
