"""Work that is repeated survives its own errors, and its log shows no foreign text."""

import asyncio
import logging

import pytest

from remit.kernel.errors import RemitError
from remit.kernel.loops import repeat


async def test_work_goes_on_after_each_kind_of_error(caplog: pytest.LogCaptureFixture) -> None:
    errors = [RemitError("The store is away."), KeyError("sk-secret"), None]
    done = asyncio.Event()

    async def work() -> None:
        if (error := errors.pop(0)) is not None:
            raise error
        done.set()

    with caplog.at_level(logging.WARNING, "remit.kernel"):
        task = asyncio.create_task(repeat(work, 0.001, "things cannot be done"))
        await asyncio.wait_for(done.wait(), 60)
    task.cancel()
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "things cannot be done: The store is away."
    assert second.startswith("things cannot be done: KeyError in ")
    assert "test_periodic.py:" in second
    assert "sk-secret" not in caplog.text
