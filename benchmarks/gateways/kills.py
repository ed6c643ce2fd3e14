"""``python -m benchmarks.gateways.kills [--kills 50] [--store sqlite] [--workers 1]``.

``kill -9`` of ``remit serve`` under the load of the benchmark, 64 callers, half of them reading
streams; started again, and again killed, at moments that chance chooses. At the end every answer
that a caller had whole must be on record with the caller's own prompt, the upstream must have been
asked at most as often as was dispatched, every dispatch must have one exchange or be one orphan,
nothing may be held, and the ledger must verify. Ends with 1 where anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.gateways import ours, processes, rig
from benchmarks.gateways.launch import POLL_S, START_S, Launch
from benchmarks.gateways.load import Caller, Load
from benchmarks.gateways.options import parser_of, run_of
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import table
from benchmarks.gateways.target import Target
from benchmarks.gateways.workers import DATABASE_VARIABLE, STORES
from benchmarks.overspend import Report, wait_until_settled
from benchmarks.postgres import PostgresServer
from remit.ledger import LedgerClient

PAUSE_S = (0.0, 1.0)  # from the first answer to the next kill
STREAM = (10, 5)  # chunks, and ms between them
SETTINGS = {"REMIT_GATEWAY__RECOVER_EVERY_S": "0.5"}
_EXCHANGE = re.compile(rb"x-remit-exchange[:=] ?(LED-[0-9a-f]+)")
_QUESTION = re.compile(rb"[0-9a-f]{10,}-\d{9}")


class Witness(Load):
    """Callers that go on when the server is back, and know what they were answered.

    Attributes:
        answered: of each whole answer the id of its exchange, and what was asked.
        cut: connections that broke while a call was out.
    """

    def __init__(self, target: Target, concurrency: int, over: threading.Event) -> None:
        super().__init__(target, concurrency)
        self.answered: list[tuple[str, str]] = []
        self.cut = 0
        self._over = over
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def join(self) -> None:
        """Wait for the last answers."""
        self._thread.join()

    def _work(self) -> None:
        for _ in range(self._concurrency):
            self._send(self._connect())
        while not self._over.is_set():
            self._receive_ready(0.2)
        self._drain()

    def _connect(self) -> Caller:
        while True:
            try:
                return super()._connect()
            except ConnectionError:
                time.sleep(POLL_S)

    def _on_answer(self, caller: Caller) -> None:
        exchange, question = _EXCHANGE.search(caller.buffer), _QUESTION.search(caller.request)
        assert question
        self.answered.append((exchange[1].decode() if exchange else "", question[0].decode()))

    def _on_cut(self) -> None:
        self.cut += 1


class Server:
    """``remit serve``, which is killed again and again.

    Args:
        launch: how it is started.
        directory: gets what it prints.
    """

    def __init__(self, launch: Launch, directory: Path) -> None:
        self._launch = launch
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it; it listens when this returns."""
        log = self._directory / "gateway.log"
        self._process = processes.spawn(
            self._launch.command, environment=self._launch.environment, log=log
        )
        end = time.monotonic() + START_S
        while not processes.listens(self._launch.target.url):
            assert self._process.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < end, "it does not listen"
            time.sleep(POLL_S)

    def kill(self) -> None:
        """``kill -9`` of all its processes."""
        assert self._process
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End it as one does."""
        if self._process:
            processes.stop(self._process)


def run(scratch: Path, given: argparse.Namespace, database: str) -> Report:
    """All kills, and what is found afterwards."""
    source, over = random.Random(given.seed), threading.Event()
    with rig.upstream(None) as upstream, _server(scratch, upstream, given, database) as server:
        launch, process = server
        begun = time.monotonic()
        half = given.callers // 2
        streaming = replace(launch.target, stream=STREAM)
        loads = [Witness(launch.target, given.callers - half, over), Witness(streaming, half, over)]
        try:
            for number in range(given.kills):
                _wait_for_more(loads)
                time.sleep(source.uniform(*PAUSE_S))
                process.kill()
                tell(f"Kill {number + 1}: {_answered(loads):,} answered before")
                process.start()
            _wait_for_more(loads)
        finally:
            over.set()
            for load in loads:
                load.join()
        seconds = time.monotonic() - begun
        address = database or str(scratch / "root" / "ledger.db")
        settled = wait_until_settled(address)
        process.stop()
        report = examine(address, upstream.requests(), [x for load in loads for x in load.answered])
        check = [sys.executable, "-m", "remit", "budget", "check", "--json"]
        check += ["--root", str(scratch / "root")]
        report.figures["budget check equal"] = json.loads(ours.ask(check, launch.environment))[
            "equal"
        ]
    report.hold(report.figures["budget check equal"], "the budget and the ledger differ")
    report.hold(all(load.cut for load in loads), "no kill met a call, or none a stream")
    report.figures = {
        "kills": given.kills,
        "callers": given.callers,
        "seconds": round(seconds, 1),
        "seconds until nothing was held": round(settled, 1),
        "calls that a kill cut": sum(load.cut for load in loads),
        **report.figures,
    }
    return report


def _answered(loads: Sequence[Witness]) -> int:
    return sum(len(load.answered) for load in loads)


def _wait_for_more(loads: Sequence[Witness]) -> None:
    """Until the server that was just started answers, or long enough."""
    before, end = _answered(loads), time.monotonic() + START_S
    while _answered(loads) == before and time.monotonic() < end:
        time.sleep(POLL_S)


@contextmanager
def _server(
    scratch: Path, upstream: rig.FakeUpstream, given: argparse.Namespace, database: str
) -> Iterator[tuple[Launch, Server]]:
    variables = SETTINGS | ({DATABASE_VARIABLE: database} if database else {})
    launch = ours.remit(upstream.url, scratch, workers=given.workers, environment=variables)
    server = Server(launch, scratch)
    server.start()
    try:
        yield launch, server
    finally:
        server.stop()


def examine(address: str, asked: int, answered: Sequence[tuple[str, str]]) -> Report:
    """Hold the upstream, the callers and the ledger against one another.

    Args:
        address: of the ledger.
        asked: how often the upstream was.
        answered: exchange and question of each answer that a caller had.
    """
    told, ended = Counter[str](), Counter[str]()
    missing = dict(answered)
    with LedgerClient(address, create=False) as ledger:
        for entry in ledger.query():
            told[entry.event_type] += 1
            if entry.event_type in ("EXCHANGE", "EXCHANGE_ORPHANED"):
                ended[entry.metadata["dispatch_entry_id"]] += 1
            question = missing.get(entry.id)
            if question and question in str(entry.metadata.get("prompt")):
                del missing[entry.id]
        held = ledger.select("SELECT count(*) FROM in_flight")[0][0]
        held += ledger.select("SELECT count(*) FROM holds")[0][0]
        verified = ledger.verify()
    report = Report()
    report.figures = {
        "answers that callers had whole": len(answered),
        "of these not on record": len(missing),
        "calls at the upstream": asked,
        "dispatches": told["DISPATCH"],
        "exchanges": told["EXCHANGE"],
        "orphans": told["EXCHANGE_ORPHANED"],
        "calls still held": held,
        "entries verified": verified.entries if verified.verified else False,
    }
    report.hold(bool(answered), "nothing was answered")
    report.hold(len(dict(answered)) == len(answered), "two answers name one exchange, or none")
    report.hold(not missing, f"answered and not on record: {list(missing.items())[:5]}")
    report.hold(asked <= told["DISPATCH"], "a call without a dispatch")
    report.hold(
        told["DISPATCH"] == told["EXCHANGE"] + told["EXCHANGE_ORPHANED"] == len(ended),
        "dispatches are not exchanges and orphans, each once",
    )
    report.hold(held == 0, "something is held")
    report.hold(verified.verified, f"the ledger: {verified.problems[:5]}")
    return report


def main() -> None:
    """Run and print."""
    parser = parser_of("benchmarks.gateways.kills")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--store", choices=STORES, default=STORES[0])
    parser.add_argument("--workers", type=int)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    with run_of(given) as (scratch, document), ExitStack() as stack:
        database = ""
        if given.store != STORES[0]:
            server = stack.enter_context(PostgresServer(scratch / "postgres"))
            database = stack.enter_context(server.database())
        report = run(scratch, given, database)
        document.update(report.figures, store=given.store, seed=given.seed)
        figures = [(name, str(value)) for name, value in report.figures.items()]
        print(f"\n{table((f'{given.store}, seed {given.seed}', ''), figures)}")
        for problem in report.problems:
            print(f"\nWRONG: {problem}")
    sys.exit(1 if report.problems else 0)


if __name__ == "__main__":
    main()
