"""Thoughts put on record and read back."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import threading
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import pytest

from remit.kernel.errors import InvalidInputError, NotFoundError, RemitError
from remit.kernel.loops import run_blocking
from remit.ledger import EVENTS, LedgerClient, LedgerEntry
from remit.routing.trail import (
    DuplicateThoughtError,
    ThoughtInput,
    ThoughtNotFoundError,
    ThoughtRecord,
    acreate_thought_record,
    create_thought_record,
    get_thought_record,
    iter_thought_records,
    list_thought_records,
    verify_trail,
)
from tests.support.stores import outside

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


def test_what_is_given_in_many_forms(ledger: LedgerClient) -> None:
    class Kind(StrEnum):
        PLAN = "plan"

    moment = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
    record = create_thought_record(
        ledger,
        MappingProxyType(_thought(type=Kind.PLAN, session_id="S")),
        id_fn=lambda: "my-id",
        now_fn=lambda: moment,
    )
    assert (record.id, record.timestamp) == ("my-id", "2026-01-31T12:30:00.000000Z")
    assert (type(record.type), record.type, record.session_id) == (str, "plan", "S")
    odd = create_thought_record(ledger, _thought(), now_fn=lambda: "Tuesday")
    assert get_thought_record(ledger, odd.id).timestamp == "Tuesday"
    assert verify_trail(ledger).verified


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


BAD_ARGUMENTS: list[dict[str, Any]] = [
    {"id_fn": lambda: ""}, {"id_fn": lambda: 7}, {"id_fn": lambda: "i" * 513},
    {"id_fn": lambda: "\x00"}, {"now_fn": lambda: ""}, {"now_fn": lambda: 1.5},
    {"now_fn": lambda: datetime(2026, 1, 1)}, {"metadata": {"hash": "x"}},
    {"metadata": {"scope": {}}}, {"metadata": {"prev_hash": 1}}, {"metadata": {"$x": 1}},
    {"metadata": {"x": float("nan")}}, {"metadata": {"x": "y" * 70_000}},
    {"tier": ""}, {"subject_id": "\x00"},
]  # fmt: skip


def test_bad_arguments_are_refused_and_change_nothing(ledger: LedgerClient) -> None:
    made = [create_thought_record(ledger, _thought())]
    for arguments in BAD_ARGUMENTS:
        with pytest.raises(InvalidInputError):
            create_thought_record(ledger, _thought(), **arguments)
        assert list_thought_records(ledger) == made
        assert ledger.count() == len(made)
        made.append(create_thought_record(ledger, _thought()))
        assert made[-1].prev_hash == made[-2].hash
    assert verify_trail(ledger).verified


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


@pytest.mark.parametrize("limit", [0, -1, 1.0, "3", True])
def test_a_limit_is_a_positive_whole_number(ledger: LedgerClient, limit: Any) -> None:
    create_thought_record(ledger, _thought())
    for function in (list_thought_records, iter_thought_records):
        with pytest.raises(InvalidInputError, match="limit"):
            function(ledger, None, limit)
    for function in (list_thought_records, verify_trail):
        with pytest.raises(InvalidInputError):
            function(ledger, "\x00")


def test_an_id_that_is_not_there(ledger: LedgerClient) -> None:
    for wanted in ("nope", "", "\x00", "LED-00000000"):
        with pytest.raises(ThoughtNotFoundError) as raised:
            get_thought_record(ledger, wanted)
        assert isinstance(raised.value, KeyError)
        assert isinstance(raised.value, NotFoundError)
        assert "remit trail" in str(raised.value)


def test_a_ledger_without_the_table_has_an_empty_trail(target: str) -> None:
    with LedgerClient(target) as ledger:
        assert list_thought_records(ledger) == []
        assert verify_trail(ledger).verified
        ledger.write(LedgerEntry("NOTE", "S", "D", "noted"))
    with LedgerClient(target, create=False) as ledger:
        assert list_thought_records(ledger) == [] == list(iter_thought_records(ledger, "T"))
        report = verify_trail(ledger, "T")
        assert (report.verified, report.records, report.tasks) == (True, 0, 0)
        with pytest.raises(ThoughtNotFoundError):
            get_thought_record(ledger, "x")
        ledger.write(LedgerEntry("THOUGHT_RECORD", "T", "plan", "by hand"))
        report = verify_trail(ledger)
        assert (report.verified, report.first_bad, report.records) == (False, "LED-00000001", 1)
        assert not verify_trail(ledger, "T").verified
        assert verify_trail(ledger, "U").verified
        record = create_thought_record(ledger, _thought(task_id="V"))
        assert list_thought_records(ledger) == [record]
        assert verify_trail(ledger, "V").verified
        assert not verify_trail(ledger).verified


def test_a_ledger_that_was_moved_goes_on_with_its_chains(target: str, tmp_path: Any) -> None:
    with LedgerClient(tmp_path / "old.db") as old:
        made = [
            create_thought_record(old, _thought(task_id=f"T{n % 2}", content=f"c{n}"))
            for n in range(6)
        ]
        old.export(tmp_path / "export.jsonl")
    with LedgerClient(target) as ledger:
        ledger.import_jsonl(tmp_path / "export.jsonl")
        report = verify_trail(ledger)
        assert (report.verified, report.first_bad, report.problem_count) == (False, made[0].id, 6)
        record = create_thought_record(ledger, _thought(task_id="T1"))
        assert record.prev_hash == made[5].hash
        assert list_thought_records(ledger) == [*made, record]
        assert verify_trail(ledger).verified


def test_threads_and_event_loops_share_chains(ledger: LedgerClient) -> None:
    async def think(name: str) -> None:
        await asyncio.gather(
            *(
                acreate_thought_record(ledger, _thought(task_id=f"T{n % 2}", content=f"{name} {n}"))
                for n in range(40)
            )
        )

    def in_thread(name: str) -> None:
        for number in range(20):
            create_thought_record(ledger, _thought(task_id=f"T{number % 2}", content=name))

    threads = [
        threading.Thread(target=asyncio.run, args=(think(f"loop {n}"),)) for n in range(2)
    ] + [threading.Thread(target=in_thread, args=(f"thread {n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for number in range(20):  # what else is written between them
        ledger.transact(lambda tx: tx.append(LedgerEntry("NOTE", "S", "D", "noted")))
        ledger.write(LedgerEntry("NOTE", "S", "D", f"noted {number}"))
    for thread in threads:
        thread.join()
    report = verify_trail(ledger)
    assert (report.verified, report.records, report.tasks) == (True, 140, 2), report.problems
    for task_id in ("T0", "T1"):
        records = list_thought_records(ledger, task_id)
        assert [r.prev_hash for r in records] == [ZEROS, *(r.hash for r in records[:-1])]
    assert ledger.verify().verified


async def test_both_doors_are_one(tmp_path: Any) -> None:
    with LedgerClient(tmp_path / "ledger.db") as ledger:
        record = await acreate_thought_record(ledger, _thought(), tier="hot", metadata={"x": 1})
        assert ledger.read(record.entry_id).metadata["x"] == 1
        assert create_thought_record(ledger, _thought()).prev_hash == record.hash

        async def inside() -> None:
            create_thought_record(ledger, _thought())

        with pytest.raises(InvalidInputError, match="async"):
            run_blocking(inside())
        assert len(list_thought_records(ledger)) == 2


def test_long_trails_are_read_in_pages(tmp_path: Any) -> None:
    with LedgerClient(tmp_path / "ledger.db") as ledger:

        async def think() -> list[ThoughtRecord]:
            return await asyncio.gather(
                *(
                    acreate_thought_record(ledger, _thought(task_id=f"T{n % 2}", content=str(n)))
                    for n in range(2400)
                )
            )

        made = asyncio.run(think())
        assert list_thought_records(ledger) == made
        assert list_thought_records(ledger, "T1") == made[1::2]
        told: list[tuple[int, int]] = []
        assert verify_trail(ledger, progress=lambda *step: told.append(step)).records == 2400
        assert told == [(1000, 2400), (2000, 2400), (2400, 2400)]
        assert verify_trail(ledger, "T0").records == 1200
        outside(str(tmp_path / "ledger.db"), "DELETE FROM thoughts WHERE seq = 2399")
        assert verify_trail(ledger).first_bad == made[-1].id


def test_what_is_verified_while_others_think(ledger: LedgerClient) -> None:
    create_thought_record(ledger, _thought())
    done = threading.Event()

    def think() -> None:
        for number in range(150):
            create_thought_record(ledger, _thought(task_id=f"T{number % 3}"))
            if number % 3 == 0:
                ledger.write(LedgerEntry("NOTE", "T1", "D", "noted"))
        done.set()

    thread = threading.Thread(target=think)
    thread.start()
    counts = []
    while not done.is_set():
        for task_id in (None, "T1"):
            report = verify_trail(ledger, task_id)
            assert report.verified, report.problems
            assert len(list_thought_records(ledger, task_id)) >= report.records
        counts.append(report.records)
    thread.join()
    assert counts == sorted(counts)
    assert verify_trail(ledger).records == 151
