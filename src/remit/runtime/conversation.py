"""A session as a program talks to it."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from remit.sessions import SessionManager
from remit.supervisor import HO2Supervisor, TurnResult
from remit.workorders import EventSink

__all__ = ["Conversation"]


class Conversation:
    """One session: say something, get a turn."""

    def __init__(self, session: SessionManager, supervisor: HO2Supervisor) -> None:
        self._session = session
        self._supervisor = supervisor
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    @property
    def session_id(self) -> str:
        """The session's id: resume with it."""
        return self._session.session_id

    @property
    def turn_count(self) -> int:
        """Turns recorded so far."""
        return self._session.turn_count

    def turn(self, message: str, *, on_event: EventSink | None = None) -> TurnResult:
        """Answer one message; see :meth:`remit.supervisor.HO2Supervisor.ahandle_turn`."""
        return self._supervisor.handle_turn(message, on_event=on_event)

    async def aturn(self, message: str, *, on_event: EventSink | None = None) -> TurnResult:
        """:meth:`turn` for callers with an event loop."""
        return await self._supervisor.ahandle_turn(message, on_event=on_event)

    def cost(self) -> dict[str, Any]:
        """What the session has used, from the ledger."""
        return self._session.total_cost()

    def end(self) -> None:
        """Write ``SESSION_END``. Ending twice is harmless."""
        if not self._ended:
            self._ended = True
            self._session.end()
