"""Workers: how many orders a second, what kills do, and what a long queue costs.

``python -m benchmarks.workers speed|kills|length|submissions [--store sqlite|postgresql|dbos] …``
prints its figures and fails where an order was lost or done twice.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from benchmarks.machine import describe_machine
from benchmarks.postgres import PostgresServer
from benchmarks.provider import ANSWER
from remit.agents.queue import ORDERS, OrderQueue, Submission, TableEngine
from remit.kernel.exchange import ModelCapabilities, TextSink
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient, LedgerEntry, check_tables
from remit.providers import ProviderRequest, ProviderResponse
from remit.runtime import OrderWorker, Runtime

_FORK = multiprocessing.get_context("forkserver")
_FORK.set_forkserver_preload(
    ["remit.runtime.order_worker", "benchmarks.postgres", "benchmarks.provider"]
)
_AT_ONCE = 500  # submissions in one transaction


class CountedProvider:
    """Counts calls in a file that outlives its process, and answers after a while."""

    def __init__(self, calls: Path, takes_s: float) -> None:
        self._file = os.open(calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._takes_s = takes_s

    def capabilities(self, model_id: str) -> ModelCapabilities:
        """As models with tools of their own."""
        return ModelCapabilities(native_tools=True)

    async def asend(
        self, request: ProviderRequest, *, on_text: TextSink | None = None
    ) -> ProviderResponse:
        """Answer one request."""
        os.write(self._file, b".")
        await asyncio.sleep(self._takes_s)
        return ProviderResponse(ANSWER, request.model_id, input_tokens=500, output_tokens=80)


@contextmanager
def opened(root: Path, takes_s: float = 0.0) -> Iterator[Runtime]:
    """The root, with a provider whose calls are counted in ``calls`` beside it."""
    provider = CountedProvider(root.with_name("calls"), takes_s)
    flags = {"worker.orders.retry_base_s": 0.0, "budget.allow_unpriced": True}
    with Runtime.open(root, create=True, flags=flags, providers={"counted": provider}) as runtime:
        yield runtime


def work(root: str, environment: dict[str, str], at_once: int, takes_s: float) -> None:
    """A worker, until SIGTERM."""
    os.environ.update(environment)  # a fork has what its server had
    with opened(Path(root), takes_s) as runtime:
        worker = OrderWorker(runtime, [runtime.agent("clerk", max_retries=0)], at_once=at_once)

        async def run() -> None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.drain)
            await worker.run()

        asyncio.run(run())


def submit(queue: OrderQueue, ledger: LedgerClient, number: int) -> None:
    """Submit so many orders."""
    for first in range(0, number, _AT_ONCE):
        puts = [
            queue.prepare(Submission(agent_id="clerk", task=f"Task {one}."), by="bench")[1]
            for one in range(first, min(first + _AT_ONCE, number))
        ]
        ledger.transact(lambda tx, puts=puts: [put(tx) for put in puts])  # type: ignore[misc]


def check(ledger: LedgerClient, calls: int, orders: int) -> None:
    """No order is lost or done twice, and every call is on record."""
    ends = Counter(
        entry.submission_id
        for entry in ledger.query(event_type="ORDER_ENDED", with_content=False)
        if entry.decision == "COMPLETED"
    )
    turns = Counter(
        entry.submission_id
        for entry in ledger.query(event_type="TURN_RECORDED", with_content=False)
    )
    events = ledger.count_by_event()
    out = events.get("EXCHANGE", 0) + events.get("EXCHANGE_ORPHANED", 0)
    assert (len(ends), set(ends.values())) == (orders, {1}), "an order was lost, or done twice"
    assert (len(turns), set(turns.values())) == (orders, {1}), "a turn was made twice"
    assert calls <= events["DISPATCH"] == out, (calls, events)
    assert list(check_tables(ledger, (ORDERS,))) == []
    report = ledger.verify()
    assert report.verified, report.problems
    print(
        f"  {orders} orders done once; {calls} calls <= {events['DISPATCH']} dispatches = "
        f"{events['EXCHANGE']} exchanges + {events.get('EXCHANGE_ORPHANED', 0)} orphans; verified"
    )


def started(root: Path, at_once: int, takes_s: float) -> BaseProcess:
    """A worker in a process of its own."""
    process = _FORK.Process(
        target=work,
        args=(
            str(root),
            {name: os.environ[name] for name in os.environ if name.startswith("REMIT_")},
            at_once,
            takes_s,
        ),
    )
    process.start()
    return process


def stop(processes: list[BaseProcess]) -> None:
    """Have workers end."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def left(runtime: Runtime) -> int:
    """How many orders are not done."""
    return sum(sum(states.values()) for states in runtime.orders.stats().values())


def speed(place: Callable[[], Path], options: argparse.Namespace) -> None:
    """Orders a second by number of workers, between the tenth and the ninetieth in a hundred."""
    for workers in options.workers:
        root = place()
        with opened(root) as runtime:
            submit(runtime.orders, runtime.ledger, options.orders)
            processes = [started(root, options.at_once, options.takes_s) for _ in range(workers)]
            while left(runtime):
                assert all(process.is_alive() for process in processes), "a worker died"
                time.sleep(0.1)
            stop(processes)
            ends = sorted(
                datetime.fromisoformat(entry.timestamp).timestamp()
                for entry in runtime.ledger.query(event_type="ORDER_ENDED", with_content=False)
            )
            inner = ends[len(ends) // 10 : -len(ends) // 10]
            rate = (len(inner) - 1) / (inner[-1] - inner[0])
            print(f"{workers} workers, {options.at_once} at once each: {rate:.0f} orders/s")
            check(runtime.ledger, root.with_name("calls").stat().st_size, options.orders)


def kills(place: Callable[[], Path], options: argparse.Namespace) -> None:
    """Workers that are killed in turn under load."""
    root, rng = place(), random.Random(1)
    with opened(root) as runtime:
        submit(runtime.orders, runtime.ledger, options.orders)
        workers = options.workers[-1]
        processes = [started(root, options.at_once, options.takes_s) for _ in range(workers)]
        done, taken = 0, []
        while left(runtime):
            time.sleep(rng.uniform(0.2, options.every_s))
            if done < options.kills:
                victim = processes.pop(rng.randrange(len(processes)))
                victim.kill()
                killed = time.monotonic()
                victim.join()
                done += 1
                gone = f"%|{victim.pid}|%"
                sql = (
                    "SELECT 1 FROM orders AS o JOIN leases AS l ON l.name = o.worker "
                    "WHERE o.state = 'running' AND l.owner LIKE ?"
                )
                had = bool(runtime.ledger.select(sql, (gone,)))
                while runtime.ledger.select(sql, (gone,)):
                    time.sleep(0.01)
                if had:
                    taken.append(time.monotonic() - killed)
                processes.append(started(root, options.at_once, options.takes_s))
            elif not any(process.is_alive() for process in processes):
                raise AssertionError("no worker is left")
        stop(processes)
        runtime.gateway.recover()
        taken.sort()
        print(
            f"{done} kills of {workers} workers; orders of {len(taken)} of them were taken over "
            f"after {taken[len(taken) // 2]:.2f} s (median), {taken[-1]:.2f} s (longest)"
        )
        check(runtime.ledger, root.with_name("calls").stat().st_size, options.orders)


def length(place: Callable[[], Path], options: argparse.Namespace) -> None:
    """What a claim costs in a queue of a hundred, and of a hundred thousand."""
    root = place()
    with opened(root) as runtime:
        engine = TableEngine(runtime.ledger, runtime.loaded.settings.worker)
        before = 0
        for number in (100, options.orders):
            began = time.perf_counter()
            submit(runtime.orders, runtime.ledger, number - before)
            took = time.perf_counter() - began
            before, times = number, []
            for turn in range(50):
                seat = f"worker:{number}-{turn}/default"
                began = time.perf_counter()
                engine.has_work(["default"])
                runtime.ledger.transact(
                    lambda tx, seat=seat: engine.claim(tx, seat, ["default"], 1)  # type: ignore[misc]
                )
                times.append((time.perf_counter() - began) * 1000)
            print(
                f"{number} orders: a claim takes {statistics.median(times):.2f} ms (median), "
                f"{sorted(times)[-3]:.2f} ms (94 in 100); submitted in {took:.1f} s"
            )


def submitting(path: str, ready: Connection) -> None:
    """Submit orders, each with an entry of its own, until killed."""
    with LedgerClient(path) as ledger:
        queue = OrderQueue.of_root(ledger, default_settings())
        ready.send(True)
        for number in range(1_000_000):
            _, put = queue.prepare(Submission(agent_id="clerk", task="x"), by="bench")
            own = LedgerEntry("OWN", "S", "D", "r", metadata={"n": number})
            ledger.transact(lambda tx, put=put, own=own: (tx.append(own), put(tx)))  # type: ignore[misc]


def submissions(place: Callable[[], Path], options: argparse.Namespace) -> None:
    """Programs that submit, killed at random moments."""
    root, rng = place(), random.Random(1)
    with opened(root) as runtime:
        target = os.environ.get("REMIT_DATABASE_URL") or str(root / "ledger.db")
        for _ in range(options.kills):
            told, ready = _FORK.Pipe(duplex=False)
            process = _FORK.Process(target=submitting, args=(target, ready))
            process.start()
            told.recv()
            time.sleep(rng.uniform(0.0, 0.1))
            process.kill()
            process.join()
            told.close()
            ready.close()
        events = runtime.ledger.count_by_event()
        rows = runtime.ledger.select("SELECT count(*) FROM orders")[0][0]
        assert events["OWN"] == events["ORDER_SUBMITTED"] == rows, (events, rows)
        assert list(check_tables(runtime.ledger, (ORDERS,))) == []
        report = runtime.ledger.verify()
        assert report.verified, report.problems
        print(f"{options.kills} kills: {rows} orders, each with its entry and its row; verified")


_RUNS = {"speed": speed, "kills": kills, "length": length, "submissions": submissions}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    parser.add_argument("run", choices=_RUNS)
    parser.add_argument("--store", choices=("sqlite", "postgresql", "dbos"), default="sqlite")
    parser.add_argument("--orders", type=int, default=1000)
    parser.add_argument("--workers", type=lambda text: [*map(int, text.split(","))], default=[1])
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--takes-s", type=float, default=0.0, help="each call of a model")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--every-s", type=float, default=1.5, help="longest time between kills")
    parser.add_argument("--dir", type=Path, default=Path(), help="on the disk to measure")
    options = parser.parse_args()
    with ExitStack() as stack:
        scratch = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix=".b-", dir=options.dir))
        )
        server = None
        if options.store == "dbos":
            os.environ["REMIT_WORKER__ORDERS__ENGINE"] = "dbos"
        if options.store != "sqlite":
            server = stack.enter_context(PostgresServer(Path(tempfile.mkdtemp(prefix="b-"))))
        print(f"{describe_machine(scratch)}; {options.store}; {' '.join(sys.argv[1:])}")

        def place() -> Path:
            if server is not None:
                os.environ["REMIT_DATABASE_URL"] = stack.enter_context(server.database())
            return Path(tempfile.mkdtemp(dir=scratch)) / "root"

        _RUNS[options.run](place, options)


if __name__ == "__main__":
    main()
