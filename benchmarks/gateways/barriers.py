"""The floor of a durable gateway: two group-committed barriers and a call, and nothing else.

So many tasks of one loop, and each, over and over: append 1 KB and wait until it is on the disk,
ask the upstream through aiohttp, append 2 KB and wait until that is. One file, one thread that
syncs, one ``fdatasync`` for all that wait. No server, no keys, no encoding, no index. Run by the
floor's environment, which has uvloop:

    python barriers.py URL FILE CONCURRENCY SECONDS
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import aiohttp

INTENT_BYTES, RESULT_BYTES = 1024, 2048
WARM_S = 1.0


class GroupCommitter:
    """Appends to a file; those that wait at the same time share a write and a sync."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._committing: asyncio.Task[None] | None = None

    async def append(self, record: bytes) -> None:
        """Returns when the record is durable."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((record, future))
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit())
        await future

    async def _commit(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting, []
            content = b"".join(record for record, _ in batch)
            await loop.run_in_executor(None, self._write, content)
            for _, future in batch:
                future.set_result(None)
        self._committing = None

    def _write(self, content: bytes) -> None:
        os.write(self._descriptor, content)
        os.fdatasync(self._descriptor)


async def rate(url: str, path: Path, concurrency: int, seconds: float) -> float:
    """Calls per second, after a warm-up."""
    committer = GroupCommitter(path)
    done = 0
    start = time.perf_counter() + WARM_S
    end = start + seconds
    headers = {"content-type": "application/json", "authorization": "Bearer x"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:

        async def work(number: int) -> None:
            nonlocal done
            question = {"role": "user", "content": f"{number:<{INTENT_BYTES}}"}
            body = json.dumps({"model": "gpt-4o-mini", "messages": [question]}).encode()
            while (now := time.perf_counter()) < end:
                await committer.append(os.urandom(INTENT_BYTES))
                async with session.post(url, data=body) as response:
                    answer = await response.read()
                    assert response.status == 200, answer
                await committer.append(os.urandom(RESULT_BYTES))
                done += now >= start

        await asyncio.gather(*(work(number) for number in range(concurrency)))
    return done / seconds


def main() -> None:
    """Print the rate."""
    url, path, concurrency, seconds = sys.argv[1:]
    run = rate(url, Path(path), int(concurrency), float(seconds))
    try:
        import uvloop  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        print(asyncio.run(run))
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(runner.run(run))


if __name__ == "__main__":
    main()
