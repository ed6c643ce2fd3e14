"""Whatever is changed past Remit is found, and the first bad record is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from remit.ledger import LedgerClient, LedgerEntry
from remit.routing.trail import (
    ThoughtInput,
    ThoughtRecord,
    TrailDamagedError,
    create_thought_record,
    get_thought_record,
    list_thought_records,
    verify_trail,
)
from tests.support.stores import outside

Chain = list[ThoughtRecord]
Change = Callable[[Chain], list[str]]

BAD = "f" * 64


def _seq(record: ThoughtRecord) -> int:
    return int(record.entry_id[4:], 16)


def _row(record: ThoughtRecord, change: str) -> str:
    return f"UPDATE thoughts SET {change} WHERE seq = {_seq(record)}"


def _record(record: ThoughtRecord, old: str, new: str) -> str:
    return (
        f"UPDATE entries SET record = replace(record, '{old}', '{new}') WHERE seq = {_seq(record)}"
    )


def _value(old: str, new: str) -> str:
    return f"UPDATE contents SET value = '{new}' WHERE value = '{old}'"


# Each changes one thing; 2 is where it is to be found first, unless it says otherwise.
CHANGES: dict[str, tuple[int, Change]] = {
    "content": (2, lambda c: [_value("thought number 2", "thought number 9")]),
    "type": (2, lambda c: [_record(c[2], '"type":"plan"', '"type":"decision"')]),
    "timestamp": (2, lambda c: [_record(c[2], '"thought_timestamp":"2', '"thought_timestamp":"3')]),
    "id in the entry": (2, lambda c: [_record(c[2], f'id":"{c[2].id}', 'id":"x')]),
    "task in the entry": (2, lambda c: [_record(c[2], '"task_id":"TASK-A"', '"task_id":"TASK"')]),
    "position in the entry": (2, lambda c: [_record(c[2], '"position":2', '"position":3')]),
    "hash in the entry": (2, lambda c: [_value(c[2].hash, BAD)]),
    "hash in the row": (2, lambda c: [_row(c[2], f"hash = '{BAD}'")]),
    "link in the row": (2, lambda c: [_row(c[2], f"prev_hash = '{BAD}'")]),
    "hash and next link in the rows": (
        2, lambda c: [_row(c[2], f"hash = '{BAD}'"), _row(c[3], f"prev_hash = '{BAD}'")],
    ),
    "beginning": (0, lambda c: [_row(c[0], f"prev_hash = '{BAD}'")]),
    "id in the row": (2, lambda c: [_row(c[2], "thought_id = 'x'")]),
    "row removed": (2, lambda c: [f"DELETE FROM thoughts WHERE seq = {_seq(c[2])}"]),
    "first row removed": (0, lambda c: [f"DELETE FROM thoughts WHERE seq = {_seq(c[0])}"]),
    "last row removed": (4, lambda c: [f"DELETE FROM thoughts WHERE seq = {_seq(c[4])}"]),
    "entry removed": (2, lambda c: [f"DELETE FROM entries WHERE seq = {_seq(c[2])}"]),
    "last entry removed": (4, lambda c: [f"DELETE FROM entries WHERE seq = {_seq(c[4])}"]),
    "row and entry removed": (3, lambda c: [
        f"DELETE FROM entries WHERE seq = {_seq(c[2])}",
        f"DELETE FROM thoughts WHERE seq = {_seq(c[2])}",
    ]),
    "content removed": (2, lambda c: ["DELETE FROM contents WHERE value = 'thought number 2'"]),
    "hash removed": (2, lambda c: [f"DELETE FROM contents WHERE value = '{c[2].hash}'"]),
    "another event type": (
        2, lambda c: [f"UPDATE entries SET event_type = 'NOTE' WHERE seq = {_seq(c[2])}"],
    ),
    "positions exchanged": (2, lambda c: [
        _row(c[2], "position = 99"), _row(c[3], "position = 2"), _row(c[2], "position = 3"),
    ]),
    "position skipped": (4, lambda c: [_row(c[4], "position = 5")]),
    "row of another entry": (2, lambda c: [
        _row(c[2], "seq = 999"), _row(c[3], f"seq = {_seq(c[2])}"),
        f"UPDATE thoughts SET seq = {_seq(c[3])} WHERE seq = 999",
    ]),
    "row of no thought's entry": (2, lambda c: [
        _row(c[2], "seq = 0"),
    ]),
    "row of another task": (2, lambda c: [_row(c[2], "task_id = 'TASK-C', position = 0")]),
    "record unreadable": (2, lambda c: [_record(c[2], '{"decision"', '{"xecision"')]),
    "record is no JSON": (2, lambda c: [_record(c[2], "{", "(")]),
    "entry with another's id": (2, lambda c: [
        _record(c[2], f'"id":"{c[2].entry_id}"', '"id":"LED-00000000"'),
    ]),
    "entry with a far id": (2, lambda c: [
        _record(c[2], f'"id":"{c[2].entry_id}"', '"id":"LED-00ffffff"'),
    ]),
}  # fmt: skip


@pytest.fixture
def long_chain(ledger: LedgerClient) -> Chain:
    """The entry 0 is no thought; then those of the task, with another's between."""
    ledger.write(LedgerEntry("NOTE", "S", "D", "no thought"))
    records = []
    for number in range(5):
        told = {"type": "plan", "agent_id": "agent", "content": f"thought number {number}"}
        records.append(create_thought_record(ledger, {**told, "task_id": "TASK-A"}))
        if number in (1, 3):
            create_thought_record(ledger, {**told, "task_id": "TASK-B", "content": "another"})
    return records


@pytest.mark.any_store
@pytest.mark.parametrize("change", CHANGES)
def test_any_change_is_found(
    ledger: LedgerClient, long_chain: Chain, target: str, change: str
) -> None:
    assert verify_trail(ledger).verified
    first_bad, statements = CHANGES[change]
    outside(target, *statements(long_chain))
    for task_id in (None, "TASK-A"):
        report = verify_trail(ledger, task_id)
        assert not report.verified, task_id
        at = {problem.place for problem in report.problems}
        if change == "row of no thought's entry":
            at.discard("LED-00000000")  # the row says so of itself, first
            assert report.problems[0].thought_id == long_chain[2].id
        assert min(at) == long_chain[first_bad].entry_id, [str(p) for p in report.problems]
        expected = {"x"} if change == "id in the row" else {long_chain[first_bad].id}
        if "id" in change or "record" in change:  # what names it may itself be damaged
            expected |= {"x", long_chain[first_bad].entry_id}
        if change == "row of another entry":
            expected.add(long_chain[3].id)
        assert report.first_bad in expected, [str(p) for p in report.problems]
        assert report.problem_count == len(report.problems)
    if change not in ("another event type", "entry removed", "row and entry removed"):
        assert verify_trail(ledger, "TASK-B").verified


def test_what_is_outside_the_hash_the_ledger_itself_guards(
    ledger: LedgerClient, long_chain: Chain, target: str
) -> None:
    outside(target, _record(long_chain[2], '"agent_id":"agent"', '"agent_id":"other"'))
    assert verify_trail(ledger).verified
    assert ledger.verify().first_bad_seq == _seq(long_chain[2])


def test_damage_is_not_read_as_if_it_were_sound(
    ledger: LedgerClient, chain: Chain, target: str
) -> None:
    outside(target, f"DELETE FROM entries WHERE seq = {_seq(chain[2])}")
    with pytest.raises(TrailDamagedError, match=chain[2].id):
        list_thought_records(ledger)
    with pytest.raises(TrailDamagedError, match="trail verify"):
        get_thought_record(ledger, chain[2].id)
    assert list_thought_records(ledger, limit=2) == chain[:2]
    outside(target, "DELETE FROM thoughts WHERE seq = 2", _row(chain[2], "seq = 2"))
    with pytest.raises(TrailDamagedError):
        get_thought_record(ledger, chain[2].id)


@pytest.mark.parametrize("change", ["position = 'zz'", "seq = 'zz'", "hash = x'00'"])
def test_nothing_goes_behind_a_place_that_cannot_be_read(tmp_path: Path, change: str) -> None:
    target = str(tmp_path / "ledger.db")
    with LedgerClient(target) as ledger:
        thought = ThoughtInput("plan", "TASK-A", "agent", "a thought")
        last = [create_thought_record(ledger, thought) for _ in range(2)][-1]
        outside(target, _row(last, change))
        with pytest.raises(TrailDamagedError, match="trail verify"):
            create_thought_record(ledger, thought)
        assert ledger.count() == 2
        assert create_thought_record(ledger, ThoughtInput("plan", "B", "a", "b")).entry_id
