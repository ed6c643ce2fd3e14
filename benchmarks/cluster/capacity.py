"""What the processor time of each role, and the lock of a log, allow on more cores than these."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.cluster.inside import Serial
from benchmarks.gateways.report import number, table

ONE_LOG, OWN_LOGS, MORE_CALLERS = "one log", "a log each", "one log, as many callers each"
LARGE = 256  # entries of a batch under load


@dataclass(frozen=True, slots=True)
class Cell:
    """So many gateways for so long.

    Attributes:
        gateway_s, server_s, rest_s: processor seconds of 1,000 calls: of the gateways, of
            PostgreSQL, of load and upstream.
        p50_ms, p99_ms: of the gateway in the middle, of the slowest.
        serial: of one log; of all together where each has its own.
    """

    rate: float
    p50_ms: float
    p99_ms: float
    gateway_s: float
    server_s: float
    rest_s: float
    errors: int
    error: str
    entries_of_a_call: float
    serial: Serial | None


def said(cells: Mapping[tuple[str, int], Sequence[Cell]]) -> str:
    """The model: calls/s of a core of each role, and of one log, from the medians of all rounds."""
    cores = len(os.sched_getaffinity(0))
    lines, bounds = [], []
    for (logs, gateways), many in cells.items():
        gateway, server, rest, rate = (
            statistics.median(getattr(cell, name) for cell in many)
            for name in ("gateway_s", "server_s", "rest_s", "rate")
        )
        lines.append(
            (
                logs, f"{gateways}", number(1000 / gateway), number(1000 / server),
                number(gateway / server), number(1000 * cores / (gateway + server + rest)),
                number(rate),
            )
        )  # fmt: skip
        for cell in many[:1] if logs != OWN_LOGS else ():
            bounds += _bounds(f"{gateways}, {logs}", cell)
    titles = (
        "Logs",
        "Gateways",
        "Calls/s of a core of gateways",
        "Of a core of PostgreSQL",
        "Gateway cores to one of PostgreSQL",
        f"All on these {cores} cores",
        "Measured",
    )
    log = ("Gateways", "Batches", "Calls/s at most", "With 1 ms more to PostgreSQL")
    return (
        "Capacity is cores of a role divided by its processor time a call, and in one log no more "
        "than the lock allows, however many gateways there are:\n\n"
        f"{table(titles, lines)}\n\n{table(log, bounds)}"
    )  # fmt: skip


def _bounds(name: str, cell: Cell) -> list[tuple[str, ...]]:
    """Calls/s that one lock allows: in batches as they were, and in large ones by the line."""
    serial = cell.serial
    if serial is None or not cell.entries_of_a_call:
        return []

    def line(what: str, entries: float, held_ms: float) -> tuple[str, ...]:
        most = [1000 * entries / (held_ms + more) / cell.entries_of_a_call for more in (0, 1)]
        return (name, what, *(number(value) for value in most))

    found = [line(f"as measured, {number(serial.entries)} entries", serial.entries, serial.held_ms)]
    server_us = 1e6 * cell.server_s / 1000 / cell.entries_of_a_call
    own_ms = serial.entries * (serial.cpu_us + server_us) / 1000
    found.append(line("the same, by processor time alone", serial.entries, own_ms))
    large_ms = serial.fixed_ms + LARGE * serial.entry_us / 1000
    if large_ms > serial.held_ms and serial.fixed_ms > 0:
        found.append(line(f"{LARGE} entries, by the line", LARGE, large_ms))
    return found
