"""One budget of 5 US dollars under four gateways: never more is spent."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.cluster.fleet import DATABASE_VARIABLE
from benchmarks.gateways import ours
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import table
from benchmarks.overspend import Report, overspend
from benchmarks.postgres import PostgresServer

GATEWAYS = 4


class Budget:
    """A run as it is, and one in which a gateway is killed halfway.

    Args:
        scratch: a directory for the roots.
        given: the command line.
        server: holds the ledgers.
    """

    def __init__(self, scratch: Path, given: argparse.Namespace, server: PostgresServer) -> None:
        self._scratch = scratch
        self._given = given
        self._server = server
        self._reports: dict[str, Report] = {}

    @property
    def problems(self) -> list[str]:
        """What did not hold."""
        return [problem for report in self._reports.values() for problem in report.problems]

    def run(self) -> None:
        """Both."""
        for kill in (False, True):
            name = f"{GATEWAYS} gateways" + (", one killed" if kill else "")
            root = self._scratch / ("killed" if kill else "root")
            with self._server.database() as url:
                report = overspend(
                    root, calls=self._given.calls,
                    cap_usd=self._given.cap, database=url, kill=kill, gateways=GATEWAYS,
                    apart=True,
                )  # fmt: skip
                verify = [sys.executable, "-m", "remit", "ledger", "verify", "--root", str(root)]
                said = ours.ask(verify, {DATABASE_VARIABLE: url})  # raises where anything is wrong
                report.figures["remit ledger verify"] = said.splitlines()[0]
            self._reports[name] = report
            tell(f"Budget: {name}: {report.problems or 'all holds'}")

    def tables(self) -> str:
        """What is printed."""
        names = list(dict.fromkeys(n for one in self._reports.values() for n in one.figures))
        lines = [
            (name, *(str(one.figures.get(name, "")) for one in self._reports.values()))
            for name in names
        ]
        wrong = [
            (f"{len(one.problems)}" + "".join(f"; {problem}" for problem in one.problems))
            for one in self._reports.values()
        ]
        return table(("What", *self._reports), [*lines, ("wrong", *wrong)])

    def figures(self) -> dict[str, object]:
        """All, for a file."""
        return {name: asdict(report) for name, report in self._reports.items()}
