"""Thoughts put on record and read back."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
from typing import Any

import pytest

from remit.kernel.errors import InvalidInputError, RemitError
from remit.ledger import EVENTS, LedgerClient
from remit.routing.trail import (
    DuplicateThoughtError,
    ThoughtInput,
    ThoughtRecord,
    acreate_thought_record,
    create_thought_record,
    get_thought_record,
    list_thought_records,
    verify_trail,
)

ZEROS = "0" * 64


def _hash(record: ThoughtRecord) -> str:
    """By the contract's words, and none of our code."""
    told = {
        name: getattr(record, name)
        for name in ("id", "type", "task_id", "content", "timestamp", "prev_hash")
    }
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _thought(**changes: Any) -> dict[str, Any]:
    return {"type": "plan", "task_id": "T", "agent_id": "A", "content": "hm", **changes}


def test_a_chain_begins_with_zeros_and_each_follows_the_one_before(ledger: LedgerClient) -> None:
    texts = ["first", "zweiter: größer ✓", 'with "quotes"\nand \\ lines', "", "\x00 and \u2028"]
    records = [create_thought_record(ledger, _thought(content=text)) for text in texts]
    assert [record.content for record in records] == texts
    assert [record.prev_hash for record in records] == [ZEROS, *(r.hash for r in records[:-1])]
    assert [record.hash for record in records] == [_hash(record) for record in records]
    assert len({record.id for record in records}) == 5
    assert all(record.id.startswith("THT-") and len(record.id) == 36 for record in records)
    assert list_thought_records(ledger) == records
    assert [get_thought_record(ledger, record.id) for record in records] == records
    report = verify_trail(ledger)
    assert (report.verified, report.records, report.tasks, report.erased) == (True, 5, 1, 0)
    assert (report.first_bad, report.problems) == (None, [])
    assert ledger.verify().verified


def test_each_thought_is_one_entry_of_the_ledger(ledger: LedgerClient) -> None:
    record = create_thought_record(
        ledger,
        ThoughtInput("decision", "T-1", "agent-7", "take the second road", "SES-1"),
        metadata={"decision_id": "DEC-1", "skipped": ["a"], "prompt": "which road?"},
        tier="ho2",
        subject_id="person-1",
    )
    (entry,) = ledger.read_all()
    assert entry.id == record.entry_id
    assert (entry.event_type, entry.submission_id, entry.decision, entry.reason) == (
        "THOUGHT_RECORD", "T-1", "decision", "Thought recorded",
    )  # fmt: skip
    assert entry.metadata == {
        "thought_id": record.id, "type": "decision", "task_id": "T-1", "agent_id": "agent-7",
        "session_id": "SES-1", "position": 0, "content": "take the second road",
        "subject_id": "person-1",
        "thought_timestamp": record.timestamp, "hash": record.hash, "scope": {"tier": "ho2"},
        "decision_id": "DEC-1", "skipped": ["a"], "prompt": "which road?",
    }  # fmt: skip
    event = EVENTS["THOUGHT_RECORD"]
    assert event.writer == "trail"
    allowed = {*event.keys, *event.optional, "subject_id"}
    assert set(event.keys) <= entry.metadata.keys() <= allowed
    found = ledger.query(event_type="THOUGHT_RECORD", session_id="SES-1", tier="ho2")
    assert [one.id for one in found] == [entry.id]
    stored = ledger.read_record(entry.id).decode()
    for text in (record.hash, "second road", "which road"):
        assert text not in stored
    assert ledger.erase(subject_id="person-1", reason="asked").values == 4


def test_a_list_is_of_a_task_and_as_long_as_its_limit(ledger: LedgerClient) -> None:
    made = [create_thought_record(ledger, _thought(task_id=f"T{n % 3}")) for n in range(9)]
    assert list_thought_records(ledger, "T1", 2) == [made[1], made[4]]
    assert list_thought_records(ledger, limit=4) == made[:4]
    assert list_thought_records(ledger, limit=100) == made
    assert list_thought_records(ledger, "T9") == []
    assert verify_trail(ledger, "T1").records == 3


BAD_INPUT: list[Any] = [
    None, "a text", 7, ["plan"], {}, {"type": "plan", "task_id": "T", "agent_id": "A"},
    _thought(more=1), _thought(type="thought"), _thought(type=None), _thought(type=["plan"]),
    _thought(task_id=""), _thought(task_id=7), _thought(task_id="a\x00b"),
    _thought(task_id="\ud800"), _thought(task_id="t" * 513), _thought(agent_id=""),
    _thought(agent_id=None), _thought(agent_id="a" * 513), _thought(session_id=None),
    _thought(session_id="s\x00"), _thought(session_id="s" * 513), _thought(content=None),
    _thought(content=b"bytes"), _thought(content={"a": 1}), _thought(content="\udfff alone"),
]  # fmt: skip


@pytest.mark.any_store
def test_bad_input_is_refused_and_changes_nothing(ledger: LedgerClient) -> None:
    for bad in BAD_INPUT:
        with pytest.raises(InvalidInputError) as raised:
            create_thought_record(ledger, bad)
        assert isinstance(raised.value, ValueError)
        assert isinstance(raised.value, RemitError)
        if isinstance(bad, dict) and {"type", "content"} <= bad.keys() - {"more"} == bad.keys():
            with pytest.raises(InvalidInputError):
                create_thought_record(ledger, ThoughtInput(**bad))
        assert ledger.count() == 0, bad


def test_an_id_is_given_once(ledger: LedgerClient) -> None:
    first = create_thought_record(ledger, _thought(), id_fn=lambda: "same")
    for task_id in ("T", "another"):
        with pytest.raises(DuplicateThoughtError, match="same"):
            create_thought_record(ledger, _thought(task_id=task_id), id_fn=lambda: "same")
    assert issubclass(DuplicateThoughtError, InvalidInputError)
    assert list_thought_records(ledger) == [first]

    async def at_once() -> list[Any]:
        ids = itertools.cycle(["x", "y"])
        return await asyncio.gather(
            *(
                acreate_thought_record(ledger, _thought(), id_fn=lambda: next(ids))
                for _ in range(10)
            ),
            return_exceptions=True,
        )

    results = asyncio.run(at_once())
    assert [type(result).__name__ for result in results] == [
        "ThoughtRecord", "ThoughtRecord", *["InvalidThoughtError"] * 8,
    ]  # fmt: skip
    assert [r.id for r in list_thought_records(ledger)] == ["same", "x", "y"]
    assert verify_trail(ledger).verified
