"""Schedules: each tick one turn, over all processes, crashes and changes of the clock."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from remit import Runtime, Schedule
from remit.kernel.errors import InvalidInputError
from remit.kernel.loops import run_blocking
from remit.ledger import LedgerEntry
from remit.runtime.schedules import _Cron
from tests.agents import killed
from tests.agents.test_subagents import check, store
from tests.support.agents import Scripted
from tests.support.processes import run_forked
from tests.support.wire import message

__all__ = ["store"]

HOUR = 3600
NOON = int(datetime(2026, 11, 2, 12, tzinfo=UTC).timestamp())


def _due(schedule: Schedule[Any], now: int) -> Any:
    return run_blocking(schedule._due(now))


def _ticks(runtime: Runtime) -> list[dict[str, Any]]:
    """What the record says of each tick, without the schedule's own form."""
    found: Iterator[LedgerEntry] = runtime.ledger.query(event_type="SESSION_START")
    abouts = [entry.metadata["schedule"] for entry in found if "schedule" in entry.metadata]
    return [
        {name: about[name] for name in ("tick", "missed", "skipped") if name in about}
        for about in abouts
    ]


def test_each_tick_is_one_turn_everywhere(scripted: Scripted, tmp_path: Path, store: str) -> None:
    root = tmp_path / "root"
    with scripted(message("Counted.")) as (runtime, server):

        def hourly(of: Runtime) -> Schedule[str]:
            at = lambda tick: f"Count what came before {tick:%H:%M}."  # noqa: E731
            return Schedule(of.agent("clerk"), "hourly", at, every_s=HOUR, usd=1)

        first = hourly(runtime)
        assert _due(first, NOON + 5) is None, "a new schedule begins with its next tick"
        assert _due(first, NOON + HOUR - 1) is None
        assert _due(first, NOON + HOUR).response == "Counted."
        assert "before 13:00" in json.dumps(server.calls[0].body)
        with Runtime.open(root) as other:
            second = hourly(other)
            assert _due(second, NOON + HOUR + 10) is None
            assert _due(second, NOON + 5 * HOUR).response == "Counted."
        assert _due(first, NOON + 5 * HOUR + 1) is None
        assert len(server.calls) == 2
        assert _ticks(runtime) == [
            {"tick": "2026-11-02T12:00:00+00:00", "missed": 0, "skipped": True},
            {"tick": "2026-11-02T13:00:00+00:00", "missed": 0},
            {"tick": "2026-11-02T17:00:00+00:00", "missed": 3},
        ]
        assert runtime.ledger.count_by_event()["SESSION_END"] == 3
        check(runtime)


def test_a_tick_stays_within_its_budget(scripted: Scripted) -> None:
    with scripted(message("Counted.")) as (runtime, server):
        schedule = Schedule(runtime.agent("clerk"), "hourly", "Count.", every_s=HOUR, tokens=30)
        _due(schedule, NOON)
        for hours in (1, 2):
            assert _due(schedule, NOON + hours * HOUR).error_code == "budget_exhausted"
        assert server.calls == []
        check(runtime)


def test_a_program_without_an_event_loop_can_look_for_a_tick(scripted: Scripted) -> None:
    with scripted(message("Counted.")) as (runtime, server):
        schedule = Schedule(runtime.agent("clerk"), "yearly", "Count.", every_s=366 * 24 * HOUR)
        assert schedule.due() is None  # a new schedule begins with its next tick
        assert server.calls == []
        assert [tick["skipped"] for tick in _ticks(runtime)]


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6])
def test_a_tick_survives_a_killed_process(scripted: Scripted, tmp_path: Path, at: int) -> None:
    root = tmp_path / "root"
    with scripted(message("Counted.")) as (runtime, _):
        schedule = Schedule(runtime.agent("clerk", max_retries=0), "hourly", "Count.", every_s=HOUR)
        _due(schedule, NOON)
        done = run_forked(killed.tick, str(root), at, NOON + HOUR, environment=dict(os.environ))
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
        for later in (1, 2):
            _due(schedule, NOON + HOUR + later)
        (turn,) = runtime.ledger.query(event_type="TURN_RECORDED")
        assert turn.metadata["response"] == "Counted."
        exchanges = runtime.ledger.query(event_type="EXCHANGE")
        assert [one.metadata["outcome"] for one in exchanges].count("success") == 1
        assert len(_ticks(runtime)) == 2
        check(runtime)


@pytest.mark.parametrize(
    ("cron", "zone", "day", "expected"),
    [
        # The hour from 2 to 3 does not exist: what is due in it comes right after.
        ("30 2 * * *", "Europe/Vienna", datetime(2026, 3, 29), ["01:00"]),
        # It comes twice: what is due in it comes once.
        ("30 2 * * *", "Europe/Vienna", datetime(2026, 10, 25), ["00:30"]),
        ("0 8 * * 1-5", "America/New_York", datetime(2026, 7, 1), ["12:00"]),
        ("0 8 * * 1-5", "America/New_York", datetime(2026, 12, 1), ["13:00"]),
        ("0 8 * * 1-5", "America/New_York", datetime(2026, 12, 5), []),
        ("0 */12 * * *", "UTC", datetime(2026, 12, 5), ["00:00", "12:00"]),
        # Clocks set back by half an hour show 01:45 twice, 30 minutes apart.
        (
            "45 * 5 4 *",
            "Australia/Lord_Howe",
            datetime(2026, 4, 4, 13),
            ["13:45", "14:45", "15:15", "16:15"]
            + [f"{hour:02}:15" for hour in range(17, 24)]
            + [f"{hour:02}:15" for hour in range(13)],
        ),
        ("15 2 * * *", "Australia/Lord_Howe", datetime(2026, 10, 3, 12), ["15:30"]),
    ],
)
def test_ticks_of_a_time_zone(cron: str, zone: str, day: datetime, expected: list[str]) -> None:
    ticks = _Cron(cron, zone)
    start = int(day.replace(tzinfo=UTC).timestamp())
    found, tick = [], ticks.following(start - 1)
    while tick < start + 24 * HOUR:
        assert ticks.latest(tick) == ticks.latest(tick + 1) == tick
        found.append(f"{datetime.fromtimestamp(tick, UTC):%H:%M}")
        tick = ticks.following(tick)
    assert found == expected


def test_a_clock_ahead_for_one_tick_silences_no_schedule(scripted: Scripted, store: str) -> None:
    with scripted(message("Counted.")) as (runtime, server):
        hourly = Schedule(runtime.agent("clerk"), "hourly", "Count.", every_s=HOUR)
        assert _due(hourly, NOON) is None
        assert _due(hourly, NOON + HOUR).response == "Counted."
        assert _due(hourly, NOON + 1000 * HOUR).response == "Counted."
        for number in (2, 3):  # after the first, by what the record says
            assert _due(hourly, NOON + number * HOUR).response == "Counted."
            assert _due(hourly, NOON + number * HOUR + 1) is None
            hourly = Schedule(runtime.agent("clerk"), "hourly", "Count.", every_s=HOUR)
            assert _due(hourly, NOON + number * HOUR + 2) is None
        assert _due(hourly, NOON + 1000 * HOUR) is None, "this tick was done early"
        assert len(server.calls) == 4


def test_what_is_no_schedule_is_refused(scripted: Scripted) -> None:
    wrong: list[dict[str, Any]] = [
        {}, {"every_s": HOUR, "cron": "* * * * *"}, {"every_s": 0}, {"every_s": -5},
        {"every_s": 1.5}, {"every_s": True}, {"every_s": 10**12}, {"cron": "soon"},
        {"cron": "61 * * * *"}, {"cron": "0 0 30 2 *"},
        {"cron": "* * * * *", "timezone": "Vienna/Europe"},
        {"cron": "* * * * *", "timezone": "../../etc/passwd"},
        {"every_s": HOUR, "missed": "all"}, {"every_s": HOUR, "usd": -1},
        {"every_s": HOUR, "tokens": float("nan")}, {"every_s": HOUR, "task": "  "},
        {"every_s": HOUR, "schedule_id": "a/b"}, {"every_s": HOUR, "schedule_id": ""},
    ]  # fmt: skip
    with scripted(message("x")) as (runtime, _):
        agent = runtime.agent("clerk")
        for one in wrong:
            given = {"schedule_id": "hourly", "task": "Count.", **one}
            with pytest.raises(InvalidInputError):
                Schedule(agent, **given)
