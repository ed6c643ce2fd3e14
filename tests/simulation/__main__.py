"""``python -m tests.simulation --runs 10000``: see docs/contributing.md."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import time
from statistics import quantiles

from tests.simulation.simulation import run, scratch


def main() -> int:
    """Run, and print what was found; 1 where something was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--batch-ms", type=float, help="how long the one writer takes for a batch")
    parser.add_argument(
        "--measure-s", type=float, default=0.0,
        help="only run for so long, nothing breaking, and say how long transactions wait",
    )  # fmt: skip
    said = parser.parse_args()
    logging.disable(logging.ERROR)
    batch_s = None if said.batch_ms is None else said.batch_ms / 1000
    folder = scratch()
    began, events, failed, waits_s, commits, took_s = time.process_time(), 0, 0, [], 0, 0.0
    refusals, short = 0, 0
    try:
        for seed in range(said.seed, said.seed + said.runs):
            done = run(seed, said.processes, folder, batch_s=batch_s, measure_s=said.measure_s)
            events, commits, took_s = (
                events + done.events, commits + done.commits, took_s + done.took_s,
            )  # fmt: skip
            refusals, short = refusals + done.refusals, short + bool(done.refusals)
            waits_s += done.waits_s if said.measure_s else []
            if done.violations:
                failed += 1
                for violation in done.violations:
                    print(f"seed {seed}: {violation}", flush=True)
    finally:
        shutil.rmtree(folder)
    spent_s = time.process_time() - began
    print(
        f"{said.runs} runs of {said.processes} processes: {events} events, {commits} commits, "
        f"{failed} runs with violations; {refusals} calls refused by a budget, in {short} runs; "
        f"{took_s:.0f} s of virtual time in {spent_s:.1f} s of CPU "
        f"({events / spent_s:.0f} events/s)"
    )
    if len(waits_s) > 1:
        parts = quantiles(waits_s, n=100)
        print(
            f"wait for the writer: median {parts[49] * 1000:.1f} ms, 99 of 100 within "
            f"{parts[98] * 1000:.0f} ms; {commits / took_s:.0f} commits/s"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
