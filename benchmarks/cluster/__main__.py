"""``python -m benchmarks.cluster``: see the package."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.cluster.budget import Budget
from benchmarks.cluster.fleet import Gateways
from benchmarks.cluster.kills import Kills
from benchmarks.cluster.log import Log
from benchmarks.cluster.rolling import Rolling
from benchmarks.cluster.takeover import Takeover
from benchmarks.gateways.__main__ import Part
from benchmarks.gateways.options import numbers, parser_of, run_of
from benchmarks.gateways.progress import tell
from benchmarks.postgres import PostgresServer
from benchmarks.rounds import new_directory

PARTS: dict[str, Callable[[Path, argparse.Namespace, PostgresServer], Part]] = {
    "gateways": Gateways,
    "log": Log,
    "takeover": Takeover,
    "budget": Budget,
    "kills": Kills,
    "rolling": Rolling,
}


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = parser_of("benchmarks.cluster")
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=3.0, help="of each window")
    parser.add_argument("--rounds", type=int, default=1, help="of gateways and log")
    parser.add_argument("--callers", type=int, default=64, help="at once, of all processes")
    parser.add_argument("--gateways", type=numbers, default=[1, 2, 4])
    parser.add_argument(
        "--gateway-cores", type=float, default=0.0,
        help="share of a core that each gateway is held to, so that the rest is not what is full",
    )  # fmt: skip
    parser.add_argument("--writers", type=numbers, default=[1, 2, 4, 8])
    parser.add_argument("--round-trips-ms", type=numbers, default=[0, 1], help="added, of log")
    parser.add_argument("--rate", type=int, default=500, help="entries/s of log, beside the most")
    parser.add_argument("--kills", type=int, default=5, help="of each kind, of takeover")
    parser.add_argument("--calls", type=int, default=1000, help="of budget")
    parser.add_argument("--cap", type=float, default=5.0, help="US dollars, of budget")
    parser.add_argument("--times", type=int, default=3, help="of each role, of kills")
    parser.add_argument("--restarts", type=int, default=2, help="of each gateway, of rolling")
    parser.add_argument("--notice", type=float, default=5.0, help="server.notice_s, of rolling")
    parser.add_argument("--seed", type=int, default=7, help="of kills")
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - PARTS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return given


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print each part when it is done, and write the file that was asked for; ends with 1
    where a promise was not held."""
    problems: list[str] = []
    given = _arguments(arguments)
    with run_of(given) as (scratch, document), ExitStack() as stack:
        server = stack.enter_context(PostgresServer(scratch / "postgres"))
        print(f"PostgreSQL {server.version}", flush=True)
        for name, part in PARTS.items():
            if given.parts and name not in given.parts:
                continue
            begun = time.monotonic()
            run = part(new_directory(scratch), given, server)
            run.run()
            print(f"\n### {name.capitalize()}\n\n{run.tables()}", flush=True)
            document[name] = run.figures()
            problems += getattr(run, "problems", [])
            tell(f"{name}: {time.monotonic() - begun:.0f} s")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
