"""Gateways on one log, and on a log each: rates, and the processor time of each role."""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from benchmarks.cluster import inside
from benchmarks.cluster.capacity import MORE_CALLERS, ONE_LOG, OWN_LOGS, Cell, said
from benchmarks.cluster.share import held_to
from benchmarks.gateways import ours, rig
from benchmarks.gateways.launch import Launch, bearer, chat_url, running
from benchmarks.gateways.load import Measured
from benchmarks.gateways.processes import free_port, tree_cpu_s
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import number, spread, table
from benchmarks.gateways.target import Target
from benchmarks.postgres import PostgresServer

DATABASE_VARIABLE = "REMIT_DATABASE_URL"
TOP = Path(__file__).parents[2]


class Gateways:
    """A run over several rounds.

    Args:
        scratch: a directory for the roots.
        given: the command line.
        server: holds the ledgers.
    """

    def __init__(self, scratch: Path, given: argparse.Namespace, server: PostgresServer) -> None:
        self._scratch = scratch
        self._given = given
        self._server = server
        self._cells: dict[tuple[str, int], list[Cell]] = defaultdict(list)

    def run(self) -> None:
        """All rounds."""
        with ExitStack() as stack:
            variables = {DATABASE_VARIABLE: stack.enter_context(self._server.database())}
            upstream = stack.enter_context(rig.upstream(None))
            variables |= {"OPENAI_BASE_URL": f"{upstream.url}/v1", "OPENAI_API_KEY": "x"}
            tell("Gateways: roots and keys")
            keys = self._roots(variables)
            for index in range(self._given.rounds):
                for gateways in self._given.gateways:
                    for logs in (ONE_LOG, OWN_LOGS, MORE_CALLERS):
                        if logs == MORE_CALLERS and gateways == 1:
                            continue  # is the first one
                        cell = self._measure(logs, keys[logs][:gateways], variables, upstream)
                        self._cells[logs, gateways].append(cell)
                        tell(
                            f"Gateways, round {index + 1}: {gateways} on {logs}: "
                            f"{number(cell.rate)}/s, {cell.errors} errors {cell.error[:200]}"
                        )

    def _roots(self, variables: dict[str, str]) -> dict[str, list[str]]:
        """A host, copied before and after its tenants are made; a key for each gateway."""
        remit = [sys.executable, "-m", "remit"]
        most, host = max(self._given.gateways), self._scratch / "host"

        def key(root: Path) -> str:
            create = [*remit, "key", "create", "--name", "bench", "--json", "--root", str(root),
                      "--budget-usd", ours.BUDGET_USD]  # fmt: skip
            return str(json.loads(ours.ask(create, variables))["key"])

        ours.ask([*remit, "init", host], variables)
        shared, own = key(host), []
        for place in range(most):
            shutil.copytree(host, self._copy(ONE_LOG, place), symlinks=True)
        for place in range(most):
            ours.ask([*remit, "tenant", "create", f"t{place}", "--root", host], variables)
            own.append(key(host / "tenants" / f"t{place}"))
        for place in range(most):
            shutil.copytree(host, self._copy(OWN_LOGS, place), symlinks=True)
        return {ONE_LOG: [shared] * most, MORE_CALLERS: [shared] * most, OWN_LOGS: own}

    def _copy(self, logs: str, place: int) -> Path:
        return self._scratch / f"{'own' if logs == OWN_LOGS else 'shared'}-{place}"

    def _measure(
        self, logs: str, keys: list[str], variables: dict[str, str], upstream: rig.FakeUpstream
    ) -> Cell:
        with ExitStack() as stack:
            gateways, files = [], []
            for place, key in enumerate(keys):
                root, port = self._copy(logs, place), free_port()
                files.append(root / "batches.json")
                command: list[str | Path] = [
                    sys.executable, "-m", "benchmarks.cluster.inside", "serve", "--host",
                    "127.0.0.1", "--port", str(port), "--root", root,
                ]  # fmt: skip
                environment = {**variables, inside.VARIABLE: str(files[-1]), "PYTHONPATH": str(TOP)}
                launch = Launch(command, Target(chat_url(port), bearer(key)), environment)
                gateways.append(stack.enter_context(running(launch, root, None)))
                stack.enter_context(held_to(gateways[-1].pid, self._given.gateway_cores))
            share = 1 if logs == MORE_CALLERS else len(keys)
            callers = max(1, self._given.callers // share)
            trees = [*(gateway.pid for gateway in gateways), self._server.pid, upstream.pid]
            before = [tree_cpu_s(pid) for pid in trees]
            loads, asked = _children_cpu_s(), upstream.requests()

            def load(target: Target) -> Measured:
                return rig.measure(target, callers, core=None, seconds=self._given.seconds)

            with ThreadPoolExecutor(len(keys)) as pool:
                measured = list(pool.map(load, [gateway.target for gateway in gateways]))
            ended = time.time()
            used = [tree_cpu_s(pid) - cpu for pid, cpu in zip(trees, before, strict=True)]
            rest, calls = used[-1] + _children_cpu_s() - loads, upstream.requests() - asked
        window = self._given.seconds
        held = [one for file in files for one in inside.read(file)]
        held = [one for one in held if ended - window <= one.at <= ended]
        rate = sum(one.rate for one in measured)
        return Cell(
            rate, sorted(one.p50_ms for one in measured)[len(keys) // 2],
            max(one.p99_ms for one in measured), 1000 * sum(used[:-2]) / calls,
            1000 * used[-2] / calls, 1000 * rest / calls, sum(one.errors for one in measured),
            next((one.error for one in measured if one.error), ""),
            sum(one.entries for one in held) / window / rate if rate else 0.0,
            inside.Serial.of(held, window * (len(keys) if logs == OWN_LOGS else 1)),
        )  # fmt: skip

    def tables(self) -> str:
        """What is printed."""
        rates, locks = [], []
        for (logs, gateways), cells in self._cells.items():
            serial = [cell.serial for cell in cells if cell.serial]
            rates.append([
                logs, f"{gateways}", *(spread([getattr(cell, name) for cell in cells]) for name in (
                    "rate", "p50_ms", "p99_ms", "gateway_s", "server_s", "rest_s")),
                f"{sum(cell.errors for cell in cells)}",
            ])  # fmt: skip
            locks.append([
                logs, f"{gateways}", *(spread([getattr(one, name) for one in serial]) for name in (
                    "entries", "wait_ms", "wait_p99_ms", "held_p50_ms", "each_us", "cpu_us",
                    "fixed_ms", "entry_us")),
                spread([100 * one.busy for one in serial]),
                spread([cell.entries_of_a_call for cell in cells]),
            ])  # fmt: skip
        share = self._given.gateway_cores
        held = f" Each gateway has {share:g} of a core." if share else ""
        return "\n\n".join((
            f"{self._given.callers} callers in all, or each.{held}",
            table(("Logs", "Gateways", "Calls/s", "p50 ms", "p99 ms", "CPU s/1,000: gateways",
                   "PostgreSQL", "Load, upstream", "Errors"), rates),
            table(("Logs", "Gateways", "Entries a batch", "Lock wait p50 ms", "p99 ms",
                   "Held p50 ms", "Held µs/entry", "Thread CPU µs/entry", "Fixed ms", "+ µs/entry",
                   "Lock busy %", "Entries a call"), locks),
            said(self._cells),
        ))  # fmt: skip

    def figures(self) -> dict[str, object]:
        """Every figure of every round, for a file."""
        return {
            f"{gateways} on {logs}": [asdict(cell) for cell in cells]
            for (logs, gateways), cells in self._cells.items()
        }


def _children_cpu_s() -> float:
    """Of processes that ended and were waited for: the loads."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
