"""``python -m benchmarks.kills --kills 50 --store sqlite``: is anything lost at ``kill -9``?

Two ``remit serve`` processes on one root under a mixed load of both dialects, whole answers and
streams. Again and again one of them, by chance, is killed (``SIGKILL``) at a moment that chance
chooses, and started again; the load goes on. At the end no call may be held, what the provider
counted is at most what was dispatched, every dispatch has one exchange or is one orphan, every
answer that a client had whole is on record, and the budget says what the ledger says.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
from tests.support.upstream import upstream

from benchmarks.machine import describe_machine
from benchmarks.overspend import (
    Answer,
    Installation,
    Order,
    Report,
    Server,
    ask,
    examine,
    wait_until_settled,
)
from benchmarks.postgres import PostgresServer

__all__ = ["kills"]

CLIENTS = 24
PAUSE_S = (0.1, 0.9)  # between a server's start and the next kill
CAP_USD = 100_000.0  # never reached: nothing is to be refused


async def _load(
    installation: Installation, servers: list[Server], number: int, source: random.Random
) -> tuple[list[Order], list[Answer]]:
    orders: list[Order] = []
    answers: list[Answer] = []
    over = asyncio.Event()

    async def client(session: aiohttp.ClientSession) -> None:
        while not over.is_set():
            order = Order.draw(source, f"c{len(orders)}", slow=True)
            orders.append(order)
            url = source.choice(servers).url
            answer = await ask(session, url, installation.key, order)
            answers.append(answer)
            if answer.status == 0:
                await asyncio.sleep(0.05)

    async def killer() -> None:
        try:
            for _ in range(number):
                await asyncio.sleep(source.uniform(*PAUSE_S))
                place = source.randrange(len(servers))
                await asyncio.to_thread(servers[place].kill)
                servers[place] = await asyncio.to_thread(installation.serve)
            await asyncio.sleep(PAUSE_S[1])
        finally:
            over.set()

    timeout = aiohttp.ClientTimeout(total=120)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(killer())
        for _ in range(CLIENTS):
            group.create_task(client(session))
    return orders, answers


def kills(directory: Path, *, number: int, database: str = "", seed: int = 11) -> Report:
    """One run.

    Args:
        directory: for the root; it must not be there.
        number: of kills.
        database: a new PostgreSQL database; SQLite when left out.
    """
    source = random.Random(seed)
    with upstream() as provider:
        installation = Installation(directory, provider.url, CAP_USD, database)
        with installation.servers(2) as servers:
            begun = time.monotonic()
            orders, answers = asyncio.run(_load(installation, servers, number, source))
            took = time.monotonic() - begun
            settled = wait_until_settled(installation.address)
        report = examine(installation, provider, orders, answers)
    report.figures = {
        "kills": number,
        "seconds": round(took, 1),
        "seconds until nothing was held": round(settled, 1),
        "calls": len(orders),
        **report.figures,
    }
    report.hold(report.figures["orphans"] > 0, "no kill met a call that was out")
    report.hold(any(answer.status == 0 for answer in answers), "no kill broke a connection")
    report.hold(
        any(answer.status == 200 and not answer.whole for answer in answers),
        "no kill broke a stream",
    )
    report.hold(not any(answer.status == 402 for answer in answers), "something was refused")
    return report


def main() -> None:
    """Run, print the figures, end with 1 where anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="kills-"))
    try:
        print(describe_machine(scratch), flush=True)
        with contextlib.ExitStack() as stack:
            database = ""
            if given.store == "postgresql":
                server = stack.enter_context(PostgresServer(scratch / "postgres"))
                database = stack.enter_context(server.database())
            report = kills(scratch / "root", number=given.kills, database=database, seed=given.seed)
        print(f"{given.store}, seed {given.seed}\n{report}")
        sys.exit(1 if report.problems else 0)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
