"""Many processes think at once, and some are killed: no chain forks, nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import time

from remit.ledger import LedgerClient
from remit.routing.trail import create_thought_record, list_thought_records, verify_trail
from tests.support.processes import Program

TASKS = 4
THINKER = """
import asyncio, sys
from remit.ledger import LedgerClient
from remit.routing.trail import acreate_thought_record
target, name, count, tasks, lanes = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])

async def lane(ledger, number):
    for turn in range(count):
        record = await acreate_thought_record(ledger, {
            "type": "analysis", "task_id": f"TASK-{(number + turn) % tasks}", "agent_id": name,
            "content": f"{name} {number} {turn}", "session_id": name * (turn % 2)})
        print(record.id, record.task_id, flush=True)

async def main():
    with LedgerClient(target) as ledger:
        await asyncio.gather(*(lane(ledger, number) for number in range(lanes)))

asyncio.run(main())
"""


def _start(target: str, name: str, count: int, lanes: int) -> Program:
    numbers = map(str, (count, TASKS, lanes))
    return Program("-c", THINKER, target, name, *numbers, environment=os.environ)


def _check(ledger: LedgerClient, told: set[str]) -> list[str]:
    """Chains unbroken, everything that was acknowledged there; all contents."""
    report = verify_trail(ledger)
    assert report.verified, report.problems
    assert report.tasks == TASKS
    contents = []
    ids = []
    for number in range(TASKS):
        records = list_thought_records(ledger, f"TASK-{number}")
        links = [record.prev_hash for record in records]
        assert links == ["0" * 64, *(record.hash for record in records[:-1])]
        contents += [str(record.content) for record in records]
        ids += [record.id for record in records]
    assert len(ids) == len(set(ids)) == report.records
    assert told <= set(ids)
    return contents


def test_killed_while_they_think(target: str) -> None:
    with LedgerClient(target):
        pass
    chance = random.Random(20261122)
    told: set[str] = set()
    for round_number in range(3):
        thinkers = [_start(target, f"R{round_number}P{n}", 100_000, 4) for n in range(4)]
        first = []
        for thinker in thinkers:
            first.append(thinker.stdout.readline())
        for thinker in thinkers:
            time.sleep(chance.uniform(0.0, 0.1))
            thinker.send_signal(signal.SIGKILL)
        for thinker, line in zip(thinkers, first, strict=True):
            with thinker:
                lines = (line + thinker.stdout.read()).split("\n")[:-1]  # the last may be cut
            told.update(one.split()[0] for one in lines)
        with LedgerClient(target) as ledger:
            last = list_thought_records(ledger, "TASK-0")[-1]
            after = create_thought_record(
                ledger, {"type": "plan", "task_id": "TASK-0", "agent_id": "a", "content": "on"}
            )
            told.add(after.id)
            assert after.prev_hash == last.hash
            _check(ledger, told)
    assert len(told) > 12
    with LedgerClient(target) as ledger:
        assert ledger.verify().verified
