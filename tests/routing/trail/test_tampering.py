"""Whatever is changed past Remit is found, and the first bad record is named."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from remit.ledger import Erased, LedgerClient, LedgerEntry
from remit.routing.trail import (
    ThoughtInput,
    ThoughtRecord,
    TrailDamagedError,
    create_thought_record,
    export_thought_records,
    get_thought_record,
    import_thought_records,
    list_thought_records,
    verify_trail,
)
from tests.support.stores import files_hold, outside

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


# -- Erased thoughts leave their place; nothing of them is in the ledger's content any more -------


SECRET = "Ms Example lives at 7 Hidden Lane"


def _think(
    ledger: LedgerClient, number: int, session_id: str = "", subject_id: str | None = None
) -> ThoughtRecord:
    text = SECRET if number == 2 else f"thought number {number}"
    thought = ThoughtInput("analysis", "T", "agent", text, session_id)
    return create_thought_record(ledger, thought, subject_id=subject_id)


def _content(target: str) -> str:
    rows = outside(target, "SELECT value FROM contents ORDER BY content_id")
    return "\n".join(str(row[0]) for row in rows)


@pytest.mark.parametrize("session_id", ["", "SES-1"])
@pytest.mark.parametrize("followed", [True, False])
def test_by_entry(ledger: LedgerClient, target: str, session_id: str, followed: bool) -> None:
    made = [_think(ledger, number, session_id) for number in range(5 if followed else 3)]
    erased = made[2]
    before = _content(target)
    assert SECRET in before
    assert erased.hash in before
    report = ledger.erase(erased.entry_id, reason="asked")
    assert SECRET not in _content(target)
    assert erased.hash not in _content(target)

    gone = get_thought_record(ledger, erased.id)
    assert gone.content == Erased(report.erasure_id)
    assert (gone.prev_hash, gone.hash, gone.timestamp) == (
        erased.prev_hash, erased.hash, erased.timestamp,
    )  # fmt: skip
    assert gone.to_dict()["content"] is None
    assert gone.to_dict()["erased"] == report.erasure_id
    assert [r for r in list_thought_records(ledger) if r.id != erased.id] == [
        r for r in made if r.id != erased.id
    ]
    found = verify_trail(ledger)
    assert (found.verified, found.erased, found.records) == (True, 1, len(made)), found.problems

    after = _think(ledger, 9, session_id)  # the chain goes on
    assert after.prev_hash == made[-1].hash
    assert SECRET not in _content(target)
    assert erased.hash not in _content(target)
    assert verify_trail(ledger, "T").verified
    assert ledger.verify().verified

    # The place is still checked: a link to an erased thought cannot be changed unseen.
    outside(target, f"UPDATE thoughts SET hash = '{'e' * 64}' WHERE thought_id = '{erased.id}'")
    follower = made[3] if followed else after
    assert verify_trail(ledger).first_bad == follower.id
    outside(target, f"DELETE FROM thoughts WHERE thought_id = '{erased.id}'")
    assert verify_trail(ledger).first_bad == erased.id


def test_by_session_and_by_subject(ledger: LedgerClient, target: str) -> None:
    made = [
        _think(ledger, number, f"SES-{number % 2}", "person" if number in (2, 4) else None)
        for number in range(6)
    ]
    ledger.erase(subject_id="person", reason="asked")
    assert [isinstance(r.content, Erased) for r in list_thought_records(ledger)] == [
        False, False, True, False, True, False,
    ]  # fmt: skip
    assert verify_trail(ledger).erased == 2
    ledger.erase(session_id="SES-1", reason="asked")
    report = verify_trail(ledger)
    assert (report.verified, report.erased) == (True, 5), report.problems
    content = _content(target)
    for record in made[1:]:
        assert str(record.content) not in content
        assert record.hash not in content
    assert get_thought_record(ledger, made[0].id) == made[0]
    assert _think(ledger, 6).prev_hash == made[5].hash
    assert verify_trail(ledger).verified
    assert ledger.verify().verified


def test_equal_thoughts_of_a_session_go_together(ledger: LedgerClient) -> None:
    thought = ThoughtInput("plan", "T", "agent", "the very same thought", "SES-1")
    first, _ = (create_thought_record(ledger, thought) for _ in range(2))
    ledger.erase(first.entry_id, reason="asked")
    assert all(isinstance(record.content, Erased) for record in list_thought_records(ledger))
    third = create_thought_record(ledger, thought)
    assert get_thought_record(ledger, third.id) == third
    report = verify_trail(ledger)
    assert (report.verified, report.erased, report.records) == (True, 2, 3)


def test_the_bytes_leave_the_file(tmp_path: object) -> None:
    from pathlib import Path

    directory = Path(str(tmp_path))
    with LedgerClient(directory / "ledger.db") as ledger:
        made = [_think(ledger, number) for number in range(4)]
        assert files_hold(directory, SECRET)
        ledger.erase(made[2].entry_id, reason="asked")
        assert files_hold(directory, SECRET) == []


def test_exported_and_imported_without_its_content(ledger: LedgerClient, tmp_path: object) -> None:
    made = [_think(ledger, number, "SES-1") for number in range(5)]
    erasure_id = ledger.erase(made[2].entry_id, reason="asked").erasure_id
    out = io.BytesIO()
    export_thought_records(ledger, out)
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert told[2]["content"] is None
    assert told[2]["erased"] == erasure_id
    assert "erased" not in told[1]
    with LedgerClient(f"{tmp_path}/other.db") as other:
        assert import_thought_records(other, io.BytesIO(out.getvalue())) == 5
        gone = list_thought_records(other)[2]
        assert (gone.content, gone.hash) == (Erased(erasure_id), made[2].hash)
        report = verify_trail(other)
        assert (report.verified, report.erased) == (True, 1), report.problems
        again = io.BytesIO()
        export_thought_records(other, again)
        assert again.getvalue() == out.getvalue()
        assert made[2].hash not in _content(f"{tmp_path}/other.db")
        assert other.verify().verified
