"""Steps of stages that share a transaction, and what stages remember from one to the next."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from remit.ledger import LedgerClient, LedgerEntry, LedgerWriteError, Transaction


def _entry(prompt: str) -> LedgerEntry:
    return LedgerEntry("E", "S", "D", "r", metadata={"session_id": "SES-A", "prompt": prompt})


class _Refused:
    """A stage whose rows the engine does not take."""

    def __init__(self, tx: Transaction, steps: Sequence[str]) -> None:
        self._tx = tx
        self._names: list[str] = []

    def do(self, step: str) -> str:
        self._names.append(step)
        return step

    def write(self) -> None:
        self._tx.execute_many("INSERT INTO holds VALUES (?, '')", [(name,) for name in self._names])
        self._names = []


async def test_rows_that_a_stage_cannot_write_fail_their_own_step(ledger: LedgerClient) -> None:
    go = threading.Event()
    before = ledger.submit(lambda _: go.wait(10))  # what follows waits for one transaction
    work = [
        ledger.submit([_entry("a")]),
        *[ledger.step(_Refused, name) for name in ("one", "two", "one", "three")],
        ledger.submit([_entry("a")]),
    ]
    go.set()
    await before
    done = await asyncio.gather(*work, return_exceptions=True)
    assert isinstance(done.pop(3), LedgerWriteError)
    assert done == [["LED-00000000"], "one", "two", "three", ["LED-00000001"]]
    held = ledger.select("SELECT reservation_id FROM holds ORDER BY 1")
    assert held == [("one",), ("three",), ("two",)]
    assert ledger.verify().verified


class _Counter:
    """A stage that remembers its steps from one transaction to the next."""

    def __init__(self, tx: Transaction, steps: Sequence[str]) -> None:
        self._steps: list[str] = tx.cache.setdefault("steps", [])

    def do(self, step: str) -> list[str]:
        self._steps.append(step)
        return [*self._steps]

    def write(self) -> None:
        pass


async def test_a_stage_remembers_until_others_may_have_changed_its_rows(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")

    async def fails() -> None:
        await client.step(_Refused, "two")
        with pytest.raises(LedgerWriteError):
            await client.step(_Refused, "two")

    async def calls() -> None:
        await client.submit(lambda tx: tx.execute("SELECT 1"))

    async def others() -> None:
        with LedgerClient(path) as other:
            other.write(_entry("another client's"))

    with LedgerClient(path) as client:
        await client.step(_Counter, "before")
        for change in (fails, calls, others):
            assert len(await client.step(_Counter, "known")) > 1
            await client.submit([_entry(change.__name__)])
            assert len(await client.step(_Counter, "still known")) > 2
            await change()
            assert await client.step(_Counter, "anew") == ["anew"]
        assert client.verify().verified
