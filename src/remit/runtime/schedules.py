"""Turns of an agent at set times. Each tick runs once, over all processes and crashes.

A tick is a session of its own. Its ``SESSION_START`` names schedule and tick, so the record shows
which tick ran last. A lease lets one process look for due ticks at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, Literal

from remit.agents import OutputT
from remit.agents.supervisor import TurnCancelledError, TurnResult
from remit.agents.workorders import Principal, sub_session_id
from remit.gateway.leases import LeaseBusyError
from remit.kernel.budget_windows import zone_of
from remit.kernel.errors import InvalidInputError
from remit.kernel.loops import blocking, run_blocking
from remit.ledger import is_authentic
from remit.runtime.agent import Agent
from remit.runtime.agent_options import check_limit
from remit.runtime.agent_session import Conversation

_LONGEST_SLEEP_S = 30.0
"""Longest pause before the clock and waiting turns are checked again."""

_MISSED_AFTER_S = 60
"""Delay after which a tick is missed."""

_LONGEST_INTERVAL_S = 366 * 24 * 3600
_MAX_MISSED = 1_000  # Missed ticks that are counted.
_MAX_SESSIONS_READ = 10_000  # Sessions read for the latest tick.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class _Interval:
    """Ticks at multiples of ``seconds`` since 1970, so that all processes agree."""

    seconds: int

    def latest(self, now: int) -> int:
        """Return the last tick up to ``now``, in seconds since 1970."""
        return now // self.seconds * self.seconds

    def following(self, tick: int) -> int:
        """Return the first tick after ``tick``."""
        return self.latest(tick) + self.seconds


class _Cron:
    """Ticks of a cron expression in a time zone."""

    def __init__(self, expression: str, timezone: str) -> None:
        try:
            from cronsim import CronSim, CronSimError
        except ImportError as error:
            raise InvalidInputError(
                "A schedule with a cron expression requires the package cronsim.",
                next_step="pip install 'remit[schedules]', or give every_s=….",
            ) from error
        self._iterate = CronSim
        self._expression, self._zone = expression, zone_of(timezone)
        try:
            self.following(int(time.time()))
        except (CronSimError, StopIteration) as error:
            raise InvalidInputError(
                f"{expression!r} is not a valid cron expression: {error}".rstrip(": "),
                next_step="Write minute, hour, day of month, month and day of week: '0 8 * * 1-5'.",
            ) from error

    # CronSim steps by whole hours. If a clock change is half an hour long, it skips different
    # ticks forwards and backwards, so both methods return the union of the two.

    def latest(self, now: int) -> int:
        found = self._step(now + 1, reverse=True)
        while (after := self._step(found)) <= now:
            found = after
        return found

    def following(self, tick: int) -> int:
        found = self._step(tick)
        while (before := self._step(found, reverse=True)) > tick:
            found = before
        return found

    def _step(self, moment: int, *, reverse: bool = False) -> int:
        """Return the next tick after, or before, a moment."""
        start = datetime.fromtimestamp(moment, self._zone)
        found: datetime = next(self._iterate(self._expression, start, reverse=reverse))
        return int(found.timestamp())


class Schedule(Generic[OutputT]):
    """A schedule that runs a turn of an agent, in a new session, at each tick.

    Any number of processes may run the same schedule. Each tick runs once; an interrupted tick is
    continued by the next process that looks. :meth:`turns` waits for ticks for ever, :meth:`adue`
    runs one that is due, and ``remit worker`` calls it every second. Nothing is recorded before the
    first call of either; a new schedule then records the latest past tick as skipped.

    Args:
        agent: the agent that answers.
        schedule_id: name of the schedule in the record, unique within the agent.
        task: the message, or a function that returns it for the time of the tick.
        every_s: seconds between ticks, 1 to 366 days, counted from midnight UTC of 1970-01-01. Give
            this or ``cron``.
        cron: a cron expression of five fields, or of six that begin with seconds (extra
            ``schedules``). At changes of the clock it ticks as Debian's cron does.
        timezone: time zone of ``cron``, for example ``Europe/Vienna``; no effect on ``every_s``.
        missed: treatment of ticks that no process began in time: ``run_once`` runs the latest of
            them late, ``skip`` none that is over a minute late. The record states the number
            missed, up to 1,000. A new schedule begins with its next tick; so does one without a
            tick among the agent's latest 10,000 sessions.
        tokens: token limit of a tick; the agent's session limit if left out.
        usd: limit of a tick in US dollars; the agent's session limit if left out.
        user: see :meth:`remit.runtime.Agent.session`; a user's budget can bound all ticks.
        subject_id: see :meth:`remit.runtime.Agent.session`.

    Raises:
        InvalidInputError: the arguments do not describe a schedule, or a cron expression is given
            without the extra ``schedules``.
    """

    def __init__(
        self,
        agent: Agent[OutputT],
        schedule_id: str,
        task: str | Callable[[datetime], str],
        *,
        every_s: int | None = None,
        cron: str = "",
        timezone: str = "UTC",
        missed: Literal["run_once", "skip"] = "run_once",
        tokens: int | None = None,
        usd: float | None = None,
        user: str = "",
        subject_id: str = "",
    ) -> None:
        check_limit("tokens", tokens)
        check_limit("usd", usd)
        if not _ID.fullmatch(schedule_id):
            raise InvalidInputError(
                f"{schedule_id!r} is not a valid schedule id.",
                next_step="Use at most 100 letters, digits, '_', '-' and '.'.",
            )
        if missed not in ("run_once", "skip"):
            raise InvalidInputError(f"missed is {missed!r}; it must be 'run_once' or 'skip'.")
        if isinstance(task, str) and not task.strip():
            raise InvalidInputError("The task is empty.", next_step="Give a task.")
        if (every_s is None) == (not cron):
            raise InvalidInputError("A schedule takes either every_s or cron.")
        self._ticks: _Interval | _Cron
        if every_s is None:
            self._ticks = _Cron(cron, timezone)
            self._about: dict[str, Any] = {"id": schedule_id, "cron": cron, "timezone": timezone}
        elif type(every_s) is not int or not 1 <= every_s <= _LONGEST_INTERVAL_S:
            raise InvalidInputError(
                f"every_s is {every_s!r}; it must be an integer from 1 second to one year."
            )
        else:
            self._ticks = _Interval(every_s)
            self._about = {"id": schedule_id, "every_s": every_s}
        self._agent, self._task, self._catches_up = agent, task, missed == "run_once"
        self._limits = (tokens, usd)
        self._principal = Principal(user, subject_id)
        self._name = f"schedule:{agent.agent_id}/{schedule_id}"
        self._open: dict[str, int] = {}  # Ticks of sessions that wait for a person.
        self._looked_at: int | None = None

    async def aturns(self, *, deps: Any = None) -> AsyncIterator[TurnResult[OutputT]]:
        """Yield each turn that is run here, and wait for the next tick; the iterator does not end.

        A turn that waits for a person is yielded in that state, and again after its end here.
        Nothing is yielded for a tick that was skipped or run by another process, nor for the end of
        a turn that a person cancelled or another process ended. Each tick writes a session. The
        clock and waiting turns are looked at every 30 seconds at least. An error of a tick ends the
        iterator; a new one continues the tick. An error of the function ``task`` is raised
        unchanged.

        Args:
            deps: see :meth:`remit.runtime.Conversation.turn`.

        Raises:
            RemitError: an error of :meth:`adue`.
        """
        while True:
            yield await self._next(deps)

    def turns(self, *, deps: Any = None) -> Iterator[TurnResult[OutputT]]:
        """Yield the turns of :meth:`aturns`, for callers without an event loop.

        Blocks the thread between ticks.

        Args:
            deps: see :meth:`remit.runtime.Conversation.turn`.

        Raises:
            RemitError: an error of :meth:`aturns`.
        """
        while True:
            yield run_blocking(self._next(deps))

    async def adue(self, *, deps: Any = None) -> TurnResult[OutputT] | None:
        """Run the tick that is due and not done; return None if there is none.

        A missed tick that must not run late is recorded as skipped, and so is the latest past tick
        of a new schedule. While another process runs a tick of this schedule, the call waits
        without limit. None is also returned if a person cancelled the turn, or another process uses
        its session. An error of the function ``task`` is raised unchanged.

        Args:
            deps: see :meth:`remit.runtime.Conversation.turn`.

        Returns:
            The turn of the tick, or of an earlier tick whose turn was unfinished.

        Raises:
            RemitError: an error of :meth:`remit.runtime.Conversation.turn` or
                :meth:`remit.runtime.Conversation.end`, or of beginning the session.
        """
        # A person cancelled the turn, or another process runs it.
        with contextlib.suppress(TurnCancelledError, LeaseBusyError):
            return await self._due(int(time.time()), deps)
        return None

    due = blocking(adue)

    async def _next(self, deps: Any) -> TurnResult[OutputT]:
        while True:
            now = time.time()
            if (result := await self.adue(deps=deps)) is not None:
                return result
            left = self._ticks.following(int(now)) - time.time()
            await asyncio.sleep(min(max(left, 0.0), _LONGEST_SLEEP_S))

    async def _due(self, now: int, deps: Any = None) -> TurnResult[OutputT] | None:
        """Run the tick that is due at ``now`` and not done; return None if there is none."""
        due = self._ticks.latest(now)
        if self._looked_at == due and not self._open:
            return None
        async with self._agent.runtime.leases.hold(self._name, wait_s=math.inf):
            last = self._last(due)
            for session_id, tick in [*self._open.items()]:
                result = await self._go_on(self._agent.session(session_id), tick, deps)
                if result is not None and not result.waiting:
                    return result
            if last == due:
                self._looked_at = due
                return None
            missed = 0 if last is None else self._ticks_between(last, due)
            is_missed = now - due > _MISSED_AFTER_S and not self._catches_up
            if last is None or is_missed:
                await self._skip(due, missed + (last is not None))
                self._looked_at = due
                return None
            session = self._session(due, missed=missed)
            return await self._go_on(session, due, deps)

    async def _go_on(
        self, session: Conversation[OutputT], tick: int, deps: Any
    ) -> TurnResult[OutputT] | None:
        """Begin or resume the turn of a tick; return None if the tick ended before."""
        result: TurnResult[OutputT] | None = None
        self._open.pop(session.session_id, None)
        if (before := session.unfinished()) is not None and before.erased:
            await session.acancel()
        elif before is not None:
            result = await session.aresume(deps=deps)
        elif not session.turn_count:
            task = self._task if isinstance(self._task, str) else self._task(self._at(tick))
            result = await session.aturn(task, deps=deps)
        if result is not None and result.waiting:
            self._open[session.session_id] = tick
        elif result is not None:
            await asyncio.to_thread(session.end)
        return result

    async def _skip(self, tick: int, missed: int) -> None:
        """Record that a tick and the missed ticks before will not run."""
        await asyncio.to_thread(self._session(tick, missed=missed, skipped=True).end)

    def _session(self, tick: int, **about: Any) -> Conversation[OutputT]:
        key = f"{self._name}/{tick}"
        schedule = {**self._about, "tick": self._at(tick).isoformat(), **about}
        tokens, usd = self._limits
        return self._agent.keyed_session(
            sub_session_id(key), self._principal, tokens, usd, {"schedule": schedule}
        )

    def _last(self, due: int) -> int | None:
        """Return the latest recorded tick up to ``due``; remember sessions that may be unfinished.

        A tick after ``due`` was recorded while a clock was fast, and says nothing about ``due``.
        """
        is_newest = True
        for entry in self._agent.runtime.ledger.query(
            agent_id=self._agent.agent_id, event_type="SESSION_START", order="desc",
            limit=_MAX_SESSIONS_READ, with_content=False,
        ):  # fmt: skip
            about = entry.metadata.get("schedule") or {}
            if about.get("id") == self._about["id"] and is_authentic(entry):
                tick = int(datetime.fromisoformat(about["tick"]).timestamp())
                if is_newest and not about.get("skipped"):
                    self._open.setdefault(entry.submission_id, tick)
                if tick <= due:
                    return tick
                is_newest = False
        return None

    def _ticks_between(self, first: int, last: int) -> int:
        """Return the number of ticks between two; counting stops at a thousand."""
        count, tick = 0, self._ticks.latest(last - 1)
        while tick > first and count < _MAX_MISSED:
            count, tick = count + 1, self._ticks.latest(tick - 1)
        return count

    def _at(self, tick: int) -> datetime:
        zone = zone_of(self._about["timezone"]) if "timezone" in self._about else UTC
        return datetime.fromtimestamp(tick, zone)
