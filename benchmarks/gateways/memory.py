"""``python -m benchmarks.gateways.memory --requests 200000``: whether memory grows under load."""

from __future__ import annotations

import statistics

from benchmarks.gateways import peers, processes, rig
from benchmarks.gateways.options import numbers, parser_of, run_of
from benchmarks.gateways.report import number

SETTLED = 0.25
"""The first part of the run, in which caches and pools fill, is left out of the slope."""


def slope(requests: list[int], rss_mb: list[float]) -> float:
    """Bytes per request: least squares over what comes after the first part."""
    first = min(int(len(requests) * SETTLED), len(requests) - 2)
    return statistics.linear_regression(requests[first:], rss_mb[first:]).slope * (1 << 20)


def main() -> None:
    """Ask in steps, print the memory after each, and the slope at the end."""
    parser = parser_of("benchmarks.gateways.memory")
    parser.add_argument("--peer", choices=sorted(peers.PEERS), default="remit")
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--step", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--stream", type=numbers, help="CHUNKS,DELAY_MS: streams for answers")
    given = parser.parse_args()
    if given.requests < 2 * given.step:
        parser.error("--requests must be two steps at least")
    ours, others = processes.cores()
    with run_of(given) as (scratch, document), rig.upstream(others) as upstream:
        launch = peers.PEERS[given.peer](upstream.url, scratch)
        with peers.running(launch, scratch, ours) as gateway:
            rss_mb, asked, errors = [processes.tree_rss_mb(gateway.pid)], [0], 0
            print(f"\n{'Requests':>10} {'RSS MB':>9} {'per s':>8} {'errors':>7}", flush=True)
            print(f"{0:>10,} {rss_mb[0]:>9.1f}", flush=True)
            while asked[-1] < given.requests:
                measured = rig.measure(
                    launch.target.streaming(given.stream),
                    given.concurrency,
                    core=others,
                    requests=given.step,
                    warm_s=0.0,
                )
                asked.append(asked[-1] + measured.sent)
                rss_mb.append(processes.tree_rss_mb(gateway.pid))
                errors += measured.errors
                rate = number(measured.rate)
                print(f"{asked[-1]:>10,} {rss_mb[-1]:>9.1f} {rate:>8} {measured.errors:>7}")
        grown = slope(asked, rss_mb)
        print(
            f"\nSlope after the first {SETTLED:.0%}: {grown:.1f} bytes a request "
            f"({grown * 1e6 / (1 << 20):.1f} MB in a million); {errors} errors."
        )
        document.update(requests=asked, rss_mb=rss_mb, slope_bytes=grown, errors=errors)


if __name__ == "__main__":
    main()
