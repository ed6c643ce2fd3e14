"""Erased thoughts leave their place; nothing of them is in the ledger's content any more."""

from __future__ import annotations

import io
import json

import pytest

from remit.ledger import Erased, LedgerClient
from remit.routing.trail import (
    ThoughtInput,
    ThoughtRecord,
    create_thought_record,
    export_thought_records,
    get_thought_record,
    import_thought_records,
    list_thought_records,
    verify_trail,
)
from tests.support.stores import files_hold, outside

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
