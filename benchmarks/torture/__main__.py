"""``python -m benchmarks.torture --store sqlite|postgresql --events 400``: see the package."""

from __future__ import annotations

import argparse
import json
import logging
import random
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.machine import describe_machine
from benchmarks.torture.events import SCENARIOS
from benchmarks.torture.run import Torture


def main() -> None:
    """Run, print what was done and what was held; ends with 1 where anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torture", description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgresql"], default="sqlite")
    parser.add_argument("--events", type=int, default=400)
    parser.add_argument("--only", default=",".join(SCENARIOS), help=", ".join(SCENARIOS))
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", action="store_true", help="the directory, to look at")
    given = parser.parse_args()
    only = given.only.split(",")
    if unknown := set(only) - set(SCENARIOS):
        parser.error(f"no scenario is called {', '.join(sorted(unknown))}")
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # hostile sockets are meant to break
    scratch = Path(tempfile.mkdtemp(prefix="torture-"))
    try:
        torture = Torture(scratch, given.store, given.events, only, given.seed, given.clients)
        begun = time.monotonic()
        with ExitStack() as stack:
            verdict = torture.run(stack)
        done = dict(sorted(torture.done.items()))
        if given.json:
            rows = [{"promise": a, "held": b, "seen": c} for a, b, c in verdict.rows]
            print(json.dumps({"seed": given.seed, "store": given.store, "done": done,
                              "promises": rows, "held": verdict.held}))  # fmt: skip
        else:
            print(describe_machine(scratch))
            print(f"\n{given.store}, seed {given.seed}, {time.monotonic() - begun:.0f} s\n")
            width = max(map(len, done), default=1)
            print("\n".join(f"{name:<{width}}  {times}" for name, times in done.items()))
            print(f"\n{torture.notes}\n{verdict}")
        sys.exit(0 if verdict.held else 1)
    finally:
        if given.keep:
            print(scratch, file=sys.stderr)
        else:
            shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
