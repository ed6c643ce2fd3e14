"""``remit learn signals``: compares recorded results with a baseline and shows declines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from remit.cli.shared import emit, limited, note, open_ledger, open_settings, reads, say_list, table

if TYPE_CHECKING:
    from remit.learning import Estimate, Signal

__all__ = ["signals"]

_LATEST = 20_000


@click.command()
@click.option("--since", help="Compare samples since this time (ISO 8601) with earlier ones.")
@click.option(
    "--latest",
    type=click.IntRange(min=1),
    default=_LATEST,
    show_default=True,
    help="Read only this many of the latest exchanges.",
)
@click.option(
    "--crossed", "only_crossed", is_flag=True, help="Show only signals past their threshold."
)
@click.option(
    "--observe",
    "writes",
    is_flag=True,
    help="Read every exchange, and record signals past their threshold (SIGNAL_OBSERVED).",
)
@limited
@reads
def signals(
    root: Path | None,
    as_json: bool,
    since: str | None,
    latest: int,
    only_crossed: bool,
    writes: bool,
    limit: int | None,
) -> None:
    """Compare models, contracts, tools, routes and agents with a baseline.

    Without --since, the baseline is the time before the current policy epoch; before the first
    epoch, it is the first samples of each. The intervals stay valid under repeated checks.
    """
    from remit.kernel.installation import InstalledFiles
    from remit.learning import SignalPolicy, current_signals, observe

    place, _ = open_settings(root)
    policy = SignalPolicy.installed(InstalledFiles(place.path))
    with open_ledger(root, signing=writes) as ledger:
        signals, window, exchanges, is_complete = current_signals(
            ledger, policy, since=since, latest=None if writes else latest
        )
        written = observe(ledger, signals, window=window) if writes else []
    shown = [one for one in signals if one.crossed or not only_crossed]
    if as_json:
        value = {
            "signals": [one.to_dict() for one in shown[:limit]],
            "window": window,
            "exchanges": exchanges,
            "complete": is_complete,
            "written": written,
        }
        emit(True, value, ())
        return
    heads = ("of", "name", "metric", "baseline", "live", "95 % interval", "samples", "")
    rows = [
        (
            one.dimension, one.name, one.metric, _value(one.metric, one.baseline.value),
            _value(one.metric, one.live.value), _interval(one.metric, one.live),
            f"{one.baseline.samples}, {one.live.samples}", _said(one),
        )
        for one in sorted(shown, key=lambda one: not one.crossed)
        if one.live.samples
    ]  # fmt: skip
    say_list(table(heads, rows) if rows else ["No signals."], limit)
    read = "all" if is_complete else "the latest"
    note(f"Based on {read} {exchanges:,} exchanges; live window: {window}.")
    for entry_id in written:
        note(f"{entry_id} SIGNAL_OBSERVED")


def _said(signal: Signal) -> str:
    judged = "UNCALIBRATED judge" if signal.uncalibrated else ""
    return ", ".join(filter(None, ("WORSE" if signal.crossed else "", judged)))


def _value(metric: str, value: float) -> str:
    if metric == "cost":
        return f"${value / 1e9:.6f}"
    if metric == "latency":
        return f"{value:,.0f} ms"
    return f"{value:.3f}"


def _interval(metric: str, estimate: Estimate) -> str:
    return f"{_value(metric, estimate.low)} to {_value(metric, estimate.high)}"
