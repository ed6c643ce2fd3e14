"""How long an order that was killed takes to go on: from ``resume()`` to its first new step.

A process works on one order of many steps (a model call and a tool each) until the upstream holds
a call back; there it is killed with SIGKILL. Another process opens the root and resumes the
session. The upstream tells when the first new model call reached it, by the clock that all
processes of the machine share. Told apart: opening the root, which recovers the call that the dead
process had out, and ``resume()``; starting Python is in neither. What was done is not done again:
the second process runs one tool, and the upstream gets the held call once more and the last one.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.agents.peers import counts, upstream
from benchmarks.gateways import processes
from benchmarks.gateways.progress import tell
from benchmarks.gateways.report import number, spread, table
from benchmarks.rounds import new_directory

AIM_MS = 100.0
POLL_S = 0.05
LONGEST_S = 300.0
MS = 1e6
_TOP = Path(__file__).parents[2]
Figures = dict[int, dict[str, list[float]]]
"""By steps that were done: a figure of each round."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What of the command line is of this benchmark."""
    parser.add_argument(
        "--steps",
        type=lambda text: [int(part) for part in text.split(",")],
        default=[2, 50, 200],
        help="steps done before the kill",
    )


def measure(scratch: Path, given: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Run all; the table and every figure."""
    figures: Figures = defaultdict(lambda: defaultdict(list))
    for index in range(given.rounds):
        for steps in given.steps:
            for name, value in _round(new_directory(scratch), steps).items():
                figures[steps][name].append(value)
            tell(f"Round {index + 1}: resumed after {steps} steps")
    titles = (
        "Steps done", "resume() to the first new model call, ms", "Opening the root, ms",
        "resume() to the answer, ms", f"Aim: < {number(AIM_MS)} ms",
    )  # fmt: skip
    lines = []
    for steps, found in figures.items():
        columns = [found["first_ms"], found["open_ms"], found["whole_ms"]]
        said = "met" if statistics.median(columns[0]) < AIM_MS else "MISSED"
        lines.append((f"{steps:,}", *map(spread, columns), said))
    return table(titles, lines), {"by_steps": figures}


def _round(directory: Path, steps: int) -> dict[str, float]:
    """Interrupt one order and resume it."""
    root = directory / "root"
    with upstream(None) as url:
        first = _child("work", root, url, str(steps))
        try:
            _wait_for_hold(url, first)
            # Not by processes.stop(): that asks kindly first, and the order would end.
            os.killpg(first.pid, signal.SIGKILL)
        finally:
            output, _ = first.communicate()
        session_id = output.split()[0]
        second = _child("resume", root, url, session_id)
        output, _ = second.communicate()
        if second.returncode:
            raise SystemExit(f"The order was not resumed: the process ended {second.returncode}.")
        told: dict[str, float] = json.loads(output.splitlines()[-1])
        counted = counts(url)
    came = (counted["calls"], counted["held"], counted["finished"], counted["wrong"])
    if came != (steps + 3, 1, 1, 0) or told["tools"] != 1:
        raise SystemExit(f"Steps were done twice or left out: {told} {counted}")
    return {
        "first_ms": (counted["after_hold_ns"] - told["began_ns"]) / MS,
        "open_ms": told["open_ms"],
        "whole_ms": told["whole_ms"],
    }


def _child(part: str, root: Path, url: str, argument: str) -> subprocess.Popen[str]:
    module = "benchmarks.agents.interrupted"
    command: list[str | Path] = [sys.executable, "-m", module, part, root, f"{url}/v1", argument]
    return processes.spawn(command, directory=_TOP)


def _wait_for_hold(url: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not counts(url)["held"]:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"The order to interrupt did not come so far: {counts(url)}")
        time.sleep(POLL_S)
