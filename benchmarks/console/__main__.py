"""The console on a great ledger.

    python -m benchmarks.console [--entries N] [pages] [paint] [live] [calls]

The first run builds a root of so many entries below ``/tmp/bench_console``, and the next ones use
it again. Times depend on the machine; the processor's time and the ratio hardly do.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.console import live, pages
from benchmarks.console.root import GREAT, Grown, grown
from benchmarks.console.served import Served, serving
from benchmarks.gateways.report import table
from benchmarks.machine import describe_machine

_ENTRIES = 1_000_000
_TIMES = 7
_ROUNDS = 7
_VIEWERS = 50
_CALLS_PER_S, _CALLS_S = 50, 8.0
_RATE, _LIVE_S = 200, 20.0


def _pages(served: Served, built: Grown) -> None:
    rows = [
        (one.name, f"{one.size:,}", f"{one.median_ms:.1f}", f"{one.p95_ms:.1f}",
         f"{one.cpu_ms:.1f}", f"{one.first_ms:.1f}")
        for one in pages.measure(served, built)
    ]  # fmt: skip
    print(table(("Page", "Bytes", "ms", "p95 ms", "CPU ms", "First ms"), rows), flush=True)


def _paint(served: Served, built: Grown) -> None:
    for name, path in (
        ("Now", "/"),
        ("Session of 20,000 events", f"/console/sessions/{GREAT}"),
        ("Journey of a call of it", f"/console/journey/{built.great_exchange}"),
    ):
        found = pages.painted(served, path, _TIMES)
        print(
            f"{name}: first paint {_spread(found.paint)} ms, a bare page {_spread(found.floor)} "
            f"ms; loaded {_spread(found.load)} ms, {found.size:,} bytes with files",
            flush=True,
        )


def _live(served: Served, built: Grown) -> None:
    late, missing = live.lags_ms(served, built.root, _RATE, _LIVE_S)
    middle, tail = live.tail_of(late)
    print(
        f"Live lag at {_RATE} entries/s: p50 {middle:.0f} ms, p99 {tail:.0f} ms (aim <= 250) "
        f"of {len(late):,}; {missing} did not come",
        flush=True,
    )


def _calls(served: Served, built: Grown) -> None:
    without, beside = [], []
    take = partial(live.calls, served, _CALLS_PER_S, _CALLS_S)
    take()
    for number in range(_ROUNDS):
        for viewed in (False, True) if number % 2 else (True, False):
            if viewed:
                with live.viewers(served, _VIEWERS):
                    beside.append(take())
            else:
                without.append(take())
    for place, name in ((0, "p50"), (1, "p99"), (2, "CPU")):
        bare, ours = ([one[place] for one in found] for found in (without, beside))
        ratios = [two / one for one, two in zip(bare, ours, strict=True)]
        aim = " (aim <= 1.05)" if place == 1 else ""
        print(
            f"Calls at {_CALLS_PER_S}/s, {name}: {_spread(bare)} ms without, {_spread(ours)} ms "
            f"with {_VIEWERS} pages open, ratio {_spread(ratios, 2)}{aim}",
            flush=True,
        )
    print(f"{sum(one[3] for one in without + beside)} calls failed", flush=True)


def _spread(values: list[float], digits: int = 1) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f} - {high:.{digits}f})"


_PARTS: dict[str, Callable[[Served, Grown], None]] = {
    "pages": _pages, "paint": _paint, "live": _live, "calls": _calls,
}  # fmt: skip


def main() -> None:
    """Build what is not there, and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.console", description=__doc__)
    parser.add_argument("parts", nargs="*", help=", ".join(_PARTS))
    parser.add_argument("--entries", type=int, default=_ENTRIES)
    given = parser.parse_args()
    if unknown := set(given.parts) - _PARTS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    built = grown(given.entries)
    with tempfile.TemporaryDirectory(dir=built.root.parent) as scratch:
        print(describe_machine(Path(scratch)))
        print(f"Ledger:  {built.entries:,} entries, SQLite", flush=True)
        with serving(built.root, Path(scratch)) as served:
            for name, part in _PARTS.items():
                if not given.parts or name in given.parts:
                    part(served, built)


if __name__ == "__main__":
    main()
