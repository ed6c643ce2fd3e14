"""``python -m benchmarks [NAME ...] [--dir DIRECTORY]``."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks import (
    appends,
    blocking,
    deciding,
    governing,
    ledger,
    routing,
    size,
    trail,
    turns,
    usage,
)
from benchmarks.machine import describe_machine
from benchmarks.table import HEADING, row

BENCHMARKS = {
    "appends": appends.compare,
    "routing": routing.compare,
    "turns": turns.compare,
    "ledger": ledger.compare,
    "bytes": size.compare,
    "deciding": deciding.compare,
    "trail": trail.compare,
    "governing": governing.compare,
    "usage": usage.compare,
    "blocking": blocking.compare,
}


def main() -> None:
    """Run the benchmarks that were named, or all, and print each line as it is known."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument(
        "--dir", type=Path, default=Path(), help="on the disk to measure; the working directory"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(BENCHMARKS):
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix=".benchmarks-", dir=arguments.dir) as scratch:
        print(describe_machine(Path(scratch)))
        print(f"\n{HEADING}", flush=True)
        for name, compare in BENCHMARKS.items():
            if not arguments.names or name in arguments.names:
                for comparison in compare(Path(scratch)):
                    print(row(comparison), flush=True)


if __name__ == "__main__":
    main()
