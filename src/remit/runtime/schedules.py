"""Turns of an agent at set times: each tick once, over all processes and crashes.

A tick is a session of its own. Its ``SESSION_START`` names schedule and tick, so the record says
what ran last; a lease sees to it that one process looks at a time.
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
from typing import Any, Generic, Literal, Protocol

from remit.agents import OutputT
from remit.agents.supervisor import TurnCancelledError, TurnResult
from remit.agents.workorders import Principal, sub_session_id
from remit.gateway.leases import LeaseBusyError
from remit.kernel.errors import InvalidInputError
from remit.kernel.loops import run_blocking
from remit.kernel.windows import zone_of
from remit.ledger import is_authentic
from remit.runtime.agent import Agent
from remit.runtime.agent_shape import check_limit
from remit.runtime.conversation import Conversation

_LONGEST_SLEEP_S = 30.0
"""How long at most until the clock and what waits for a person are looked at again."""

_LATE_S = 60
"""How long after its time a tick counts as missed."""

_LONGEST_INTERVAL_S = 366 * 24 * 3600
_MOST_COUNTED = 1_000  # missed ticks
_SESSIONS_LOOKED_AT = 10_000  # of the agent, for the latest tick
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class _Ticks(Protocol):
    """When something is due, in seconds since 1970."""

    def latest(self, now: int) -> int:
        """The last tick that is not after ``now``."""
        ...

    def following(self, tick: int) -> int:
        """The first one after ``tick``."""
        ...


@dataclass(frozen=True)
class _Interval:
    """Ticks at multiples of ``seconds`` since 1970, so that all processes have the same."""

    seconds: int

    def latest(self, now: int) -> int:
        return now // self.seconds * self.seconds

    def following(self, tick: int) -> int:
        return self.latest(tick) + self.seconds


class _Cron:
    """Ticks of a cron expression by the clock of a time zone."""

    def __init__(self, expression: str, timezone: str) -> None:
        try:
            from cronsim import CronSim, CronSimError
        except ImportError as error:
            raise InvalidInputError(
                "A schedule by cron expression needs the package cronsim.",
                next_step="pip install 'remit[schedules]', or give every_s=….",
            ) from error
        self._iterate = CronSim
        self._expression, self._zone = expression, zone_of(timezone)
        try:
            self.following(int(time.time()))
        except (CronSimError, StopIteration) as error:
            raise InvalidInputError(
                f"{expression!r} is no cron expression that is ever due: {error}".rstrip(": "),
                next_step="Write minute, hour, day of month, month and day of week: '0 8 * * 1-5'.",
            ) from error

    # CronSim steps by whole hours, so that forwards and backwards it passes over different ticks
    # where clocks are set by half an hour. Both methods return the union of the two.

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
    """One turn of an agent at each tick, in a session of its own.

    Any number of processes may run the same schedule: each tick is worked on once, and one that
    was interrupted is gone on with by the next process that looks.

    Args:
        agent: who answers.
        schedule_id: names it on the record, within the agent.
        task: what is to be done; or a function that gives it for the time of the tick.
        every_s: seconds from tick to tick, counted from midnight UTC of 1970-01-01.
        cron: instead, a cron expression of five fields, or six that begin with seconds (extra
            ``schedules``). Where clocks change, it ticks as Debian's cron does.
        timezone: whose clock ``cron`` means, such as ``Europe/Vienna``.
        missed: what becomes of ticks that no process began in time: ``run_once`` does the latest
            of them late, ``skip`` none that is more than a minute late. The record says how many
            were missed. A new schedule begins with its next tick.
        tokens: most tokens of one tick; the agent's limit of a session when left out.
        usd: most US dollars of one tick.
        user: see :meth:`remit.runtime.Agent.session`; a user's budget can bound all ticks.
        subject_id: see there.

    Raises:
        InvalidInputError: what is given is no schedule.
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
                f"{schedule_id!r} cannot name a schedule.",
                next_step="Use letters, digits, '_', '-' and '.', at most 100.",
            )
        if missed not in ("run_once", "skip"):
            raise InvalidInputError(f"missed is {missed!r}; it takes 'run_once' or 'skip'.")
        if isinstance(task, str) and not task.strip():
            raise InvalidInputError("The task is blank.", next_step="Say what is to be done.")
        if (every_s is None) == (not cron):
            raise InvalidInputError("A schedule takes either every_s or cron.")
        self._ticks: _Ticks
        if every_s is None:
            self._ticks = _Cron(cron, timezone)
            self._about: dict[str, Any] = {"id": schedule_id, "cron": cron, "timezone": timezone}
        elif type(every_s) is not int or not 1 <= every_s <= _LONGEST_INTERVAL_S:
            raise InvalidInputError(
                f"every_s is {every_s!r}; it takes whole seconds, from 1 to a year's."
            )
        else:
            self._ticks = _Interval(every_s)
            self._about = {"id": schedule_id, "every_s": every_s}
        self._agent, self._task, self._catches_up = agent, task, missed == "run_once"
        self._limits = (tokens, usd)
        self._principal = Principal(user, subject_id)
        self._name = f"schedule:{agent.agent_id}/{schedule_id}"
        self._open: dict[str, int] = {}  # sessions that wait for a person, and their ticks
        self._looked_at: int | None = None

    async def aturns(self, *, deps: Any = None) -> AsyncIterator[TurnResult[OutputT]]:
        """Wait for ticks, for ever, and give each one's turn.

        A turn that waits for a person is given as such, and again when it has ended.

        Args:
            deps: as of :meth:`remit.runtime.Conversation.turn`.

        Raises:
            RemitError: what :meth:`remit.runtime.Conversation.turn` raises.
        """
        while True:
            yield await self._next(deps)

    def turns(self, *, deps: Any = None) -> Iterator[TurnResult[OutputT]]:
        """:meth:`aturns` for callers without an event loop."""
        while True:
            yield run_blocking(self._next(deps))

    async def adue(self, *, deps: Any = None) -> TurnResult[OutputT] | None:
        """Do what is due now and not done; ``None`` where there is nothing.

        Raises:
            RemitError: what :meth:`remit.runtime.Conversation.turn` raises.
        """
        with contextlib.suppress(TurnCancelledError, LeaseBusyError):  # a person's doing
            return await self._due(int(time.time()), deps)
        return None

    async def _next(self, deps: Any) -> TurnResult[OutputT]:
        while True:
            now = time.time()
            if (result := await self.adue(deps=deps)) is not None:
                return result
            left = self._ticks.following(int(now)) - time.time()
            await asyncio.sleep(min(max(left, 0.0), _LONGEST_SLEEP_S))

    async def _due(self, now: int, deps: Any = None) -> TurnResult[OutputT] | None:
        """Do what is due at ``now`` and not done; ``None`` where there is nothing."""
        due = self._ticks.latest(now)
        if self._looked_at == due and not self._open:
            return None
        async with self._agent.shared.leases.hold(self._name, wait_s=math.inf):
            last = self._last(due)
            for session_id, tick in [*self._open.items()]:
                result = await self._go_on(self._agent.session(session_id), tick, deps)
                if result is not None and not result.waiting:
                    return result
            if last == due:
                self._looked_at = due
                return None
            missed = 0 if last is None else self._ticks_between(last, due)
            is_missed = now - due > _LATE_S and not self._catches_up
            if last is None or is_missed:
                await self._skip(due, missed + (last is not None))
                self._looked_at = due
                return None
            session = self._session(due, missed=missed)
            return await self._go_on(session, due, deps)

    async def _go_on(
        self, session: Conversation[OutputT], tick: int, deps: Any
    ) -> TurnResult[OutputT] | None:
        """The turn of a tick, begun or resumed; ``None`` where it has ended before."""
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
        """Put on record that a tick, and those before it, are not done."""
        await asyncio.to_thread(self._session(tick, missed=missed, skipped=True).end)

    def _session(self, tick: int, **about: Any) -> Conversation[OutputT]:
        key = f"{self._name}/{tick}"
        schedule = {**self._about, "tick": self._at(tick).isoformat(), **about}
        tokens, usd = self._limits
        return self._agent.keyed_session(
            sub_session_id(key), self._principal, tokens, usd, {"schedule": schedule}
        )

    def _last(self, due: int) -> int | None:
        """Return the latest recorded tick up to `due`; note sessions that may be unfinished.

        A tick after `due` was recorded while a clock was ahead, and says nothing about `due`.
        """
        is_newest = True
        for entry in self._agent.shared.ledger.query(
            agent_id=self._agent.agent_id, event_type="SESSION_START", order="desc",
            limit=_SESSIONS_LOOKED_AT, with_content=False,
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
        """How many ticks there are between two; counted up to a thousand."""
        count, tick = 0, self._ticks.latest(last - 1)
        while tick > first and count < _MOST_COUNTED:
            count, tick = count + 1, self._ticks.latest(tick - 1)
        return count

    def _at(self, tick: int) -> datetime:
        zone = zone_of(self._about["timezone"]) if "timezone" in self._about else UTC
        return datetime.fromtimestamp(tick, zone)
