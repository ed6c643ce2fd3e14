"""Writing, reading, querying."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from remit.kernel.errors import InvalidInputError
from remit.ledger import (
    EntryNotFoundError,
    LedgerClient,
    LedgerEntry,
    RecordTooLargeError,
    Transaction,
)


def _entry(event: str = "EVENT", submission: str = "SUB", **metadata: Any) -> LedgerEntry:
    return LedgerEntry(event, submission, "DONE", "because", metadata=metadata)


def test_query_takes_columns_from_metadata_provenance_and_scope(ledger: LedgerClient) -> None:
    ledger.write(_entry(session_id="SES-1", tier="ho1"))
    ledger.write(_entry(provenance={"session_id": "SES-1"}, scope={"tier": "ho2"}))
    ledger.write(_entry(session_id="SES-2", provenance={"session_id": "SES-1"}))
    assert [e.id for e in ledger.query(session_id="SES-1")] == ["LED-00000000", "LED-00000001"]
    assert [e.id for e in ledger.query(session_id="SES-1", tier="ho2")] == ["LED-00000001"]
    assert [e.id for e in ledger.query(session_id="SES-2")] == ["LED-00000002"]


@pytest.mark.parametrize(
    "arguments",
    [{"after": "nonsense"}, {"since": "yesterday"}, {"order": "up"}, {"limit": -1}],
)
def test_query_refuses_nonsense_at_once(ledger: LedgerClient, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        ledger.query(**arguments)


def test_an_unknown_id_is_an_error(ledger: LedgerClient) -> None:
    for entry_id in ("LED-00000007", "LED-7", "nonsense", "LED-0000000G"):
        with pytest.raises(EntryNotFoundError):
            ledger.read(entry_id)


def test_write_many_is_all_or_nothing(ledger: LedgerClient) -> None:
    with pytest.raises(RecordTooLargeError):
        ledger.write_many([_entry(n=1, prompt="kept?"), _entry(note="x" * 70_000)])
    assert ledger.count() == 0
    assert ledger.select("SELECT count(*) FROM contents") == [(0,)]
    ledger.write(_entry(n=2))
    assert ledger.verify().verified


def test_one_failing_unit_does_not_harm_its_neighbours_in_the_group(ledger: LedgerClient) -> None:
    def write(number: int) -> None:
        if number % 5 == 0:
            with pytest.raises(RecordTooLargeError):
                ledger.write(_entry(note="x" * 70_000))
        else:
            ledger.write(_entry(n=number))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(e.metadata["n"] for e in ledger.query()) == [n for n in range(100) if n % 5]
    assert ledger.verify().verified


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("fails", [False, True])
def test_who_stops_waiting_learns_it_when_the_write_has_ended(
    ledger: LedgerClient, new_loop: Callable[[], asyncio.AbstractEventLoop], fails: bool
) -> None:
    go_on = threading.Event()

    def late(tx: Transaction) -> str:
        go_on.wait()
        if fails:
            raise ValueError("no")
        return tx.append(_entry(n=1))

    async def main() -> None:
        future = ledger.submit(late)
        waiting: list[asyncio.Task[Any]] = [
            asyncio.create_task(wait)
            for wait in (_wait(future), _wait(asyncio.gather(future, return_exceptions=True)))
        ]
        await asyncio.sleep(0)
        assert not future.cancel()
        for _ in range(2):  # and again
            for task in waiting:
                task.cancel()
            await asyncio.sleep(0.01)
        assert not any(item.done() for item in (future, *waiting))
        go_on.set()
        await asyncio.wait(waiting)
        assert all(task.cancelled() for task in waiting)
        assert future.done()
        assert isinstance(future.exception(), ValueError if fails else type(None))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    assert ledger.count() == (0 if fails else 1)


async def test_content_is_shared_across_a_unit_that_fails_in_the_same_transaction(
    ledger: LedgerClient,
) -> None:
    def entry(*words: str) -> LedgerEntry:
        return _entry(session_id="SES-1", prompt=[{"role": "user", "content": w} for w in words])

    def fails(tx: Transaction) -> None:
        tx.append(entry("one", "two", "three"))
        raise ValueError("no")

    go_on = threading.Event()
    first = ledger.submit(lambda _: go_on.wait())  # what follows is one transaction
    waiting = [
        ledger.submit([entry("one")]),
        ledger.submit(fails),
        ledger.submit([_entry(session_id="SES-1", prompt="one", note="x" * 70_000)]),
        ledger.submit([entry("one", "two")]),
        ledger.submit([entry("one", "two"), entry("one", "two", "three")]),
    ]
    go_on.set()
    await first
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(item) for item in results] == [
        list, ValueError, RecordTooLargeError, list, list,
    ]  # fmt: skip
    said = [[m["content"] for m in e.metadata["prompt"]] for e in ledger.query()]
    assert said == [["one"], ["one", "two"], ["one", "two"], ["one", "two", "three"]]
    for table in ("contents", "message_steps"):
        assert ledger.select(f"SELECT count(*) FROM {table}") == [(3,)]
    assert ledger.verify().verified


async def _wait(future: asyncio.Future[Any]) -> Any:
    return await future


def test_subjects_are_beside_the_content_and_never_in_the_record(ledger: LedgerClient) -> None:
    entry_id = ledger.write(_entry(prompt="about her"), subject_id="person-17")
    assert b"person-17" not in ledger.read_record(entry_id)
    assert ledger.select("SELECT subject_id FROM content_subjects") == [("person-17",)]


def test_orphans_are_dispatches_without_an_end(ledger: LedgerClient) -> None:
    first, second = (ledger.write(_entry("DISPATCH", contract_id="PRC-A-001")) for _ in range(2))
    ledger.write(_entry("EXCHANGE", dispatch_entry_id=first))
    assert [e.id for e in ledger.orphans()] == [second]


def test_stats_count_by_event(ledger: LedgerClient) -> None:
    ledger.write_many([_entry("A"), _entry("B"), _entry("A")])
    assert ledger.count_by_event() == {"A": 2, "B": 1}
