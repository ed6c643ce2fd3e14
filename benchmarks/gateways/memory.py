"""Whether Remit's memory grows under load."""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from benchmarks.gateways import ours, processes, rig
from benchmarks.gateways.launch import running
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import number, table

STEPS = 20
SETTLED = 0.25
"""The first part of the run, in which caches and pools fill, is left out of the slope."""


class Memory:
    """So many calls in steps, and the memory after each.

    Args:
        scratch: a directory for the root.
        given: the command line.
    """

    def __init__(self, scratch: Path, given: argparse.Namespace) -> None:
        self._scratch = scratch
        self._given = given
        self._errors = 0
        self._asked = [0]
        self._rss_mb: list[float] = []
        self._start_s = 0.0

    def run(self) -> None:
        """Ask."""
        core, others = processes.cores()
        calls = self._given.calls
        with rig.upstream(others) as upstream:
            launch = ours.remit(upstream.url, self._scratch)
            with running(launch, self._scratch, core) as gateway:
                self._start_s = gateway.start_s
                self._rss_mb.append(processes.tree_rss_mb(gateway.pid))
                while self._asked[-1] < calls:
                    measured = rig.measure(
                        launch.target, 64, core=others, requests=-(-calls // STEPS), warm_s=0.0
                    )
                    self._asked.append(self._asked[-1] + measured.sent)
                    self._rss_mb.append(processes.tree_rss_mb(gateway.pid))
                    self._errors += measured.errors
                    tell(
                        f"Memory: {self._rss_mb[-1]:.1f} MB after {self._asked[-1]:,} calls, "
                        f"{number(measured.rate)}/s, {measured.errors} errors"
                    )

    def tables(self) -> str:
        """What is printed."""
        grown = slope(self._asked, self._rss_mb)
        quarters = [round(part * (len(self._asked) - 1) / 4) for part in range(5)]
        return table(
            ("Start s", *(f"RSS MB after {self._asked[place]:,}" for place in quarters),
             f"Bytes a call after the first {SETTLED:.0%}", "Errors"),
            [(number(self._start_s), *(f"{self._rss_mb[place]:.1f}" for place in quarters),
              f"{grown:.1f}", str(self._errors))],
        )  # fmt: skip

    def figures(self) -> dict[str, object]:
        """All, for a file."""
        return {"start_s": self._start_s, "calls": self._asked, "rss_mb": self._rss_mb}


def slope(calls: list[int], rss_mb: list[float]) -> float:
    """Bytes per call: least squares over what comes after the first part."""
    first = min(int(len(calls) * SETTLED), len(calls) - 2)
    return statistics.linear_regression(calls[first:], rss_mb[first:]).slope * (1 << 20)
