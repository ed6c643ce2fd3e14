"""``python -m benchmarks.agents``: see the package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.agents import peers, resume, side_by_side, turns
from benchmarks.gateways.options import parser_of, run_of

PARTS: dict[str, Callable[..., tuple[str, dict[str, Any]]]] = {
    "turns": turns.measure,
    "peers": peers.measure,
    "resume": resume.measure,
    "programs": side_by_side.measure,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, print, and write the file that was asked for."""
    parser = parser_of("benchmarks.agents")
    parser.add_argument("--only", choices=tuple(PARTS), help="this part alone")
    parser.add_argument("--rounds", type=int, default=5)
    peers.add_options(parser)
    turns.add_options(parser)
    resume.add_options(parser)
    given = parser.parse_args(arguments)
    with run_of(given) as (scratch, document):
        for name, measure in PARTS.items():
            if given.only in (None, name):
                text, figures = measure(scratch, given)
                print(f"\n{text}", flush=True)
                document[name] = figures


if __name__ == "__main__":
    main()
