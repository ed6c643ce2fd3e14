"""One session: begun, continued and ended, in the ledger."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from remit.agents.workorders import (
    NOBODY,
    Effect,
    Principal,
    Usage,
    callers_of,
    tools_usage,
)
from remit.kernel.errors import InvalidInputError, NotFoundError, excerpt
from remit.ledger import Erased, LedgerEntry, LedgerPort, Transaction, Write, content, utc_now

_SESSION_ID = re.compile(r"SES-[0-9A-Z]{8,}")


class Marks(NamedTuple):
    """Sequence numbers of the latest entries that what is known of a session depends on."""

    turn: int | None
    plan: int | None
    erasure: int | None
    opened: int | None
    closed: int | None
    signal: int | None = None
    ended: int | None = None


_OF_SESSION = "SELECT max(seq) FROM entries WHERE session_id = ? AND event_type = '{}'"
_OF_ALL = "SELECT max(seq) FROM entries WHERE event_type = '{}'"
_MARKS = (
    f"SELECT ({_OF_SESSION.format('TURN_RECORDED')}), ({_OF_SESSION.format('WO_PLANNED')}), "
    f"({_OF_ALL.format('ERASURE')}), ({_OF_ALL.format('THREAD_OPENED')}), "
    f"({_OF_ALL.format('THREAD_CLOSED')}), "
    f"({_OF_SESSION.format('SIGNAL_OBSERVED')}), ({_OF_SESSION.format('SESSION_END')})"
)


@dataclass(frozen=True, slots=True)
class Turn:
    """Both sides of one turn."""

    turn_number: int
    user_message: str
    response: str
    timestamp: str
    entry_id: str

    @property
    def said(self) -> dict[str, str]:
        """Both sides, as a template is given them."""
        return {"user_message": self.user_message, "response": self.response}


_OF_KEY = ("key_id", "team_id", "organisation_id")


def new_session_id() -> str:
    """``SES-`` and 16 random upper-case letters and digits (80 bits)."""
    return f"SES-{base64.b32encode(secrets.token_bytes(10)).decode()}"


class SessionManager:
    """Starts, continues and ends a session.

    Args:
        ledger: where it is recorded; a handle of tier ``ho2`` in a wired runtime.
        session_id: the session to continue; a new one when left out.
        agent_id: whose conversation it is.
        agent_class: of what class.
        principal: for whom a session works that is about to begin.

    Attributes:
        principal: for whom it works.

    Raises:
        InvalidInputError: the id is not of the form ``SES-…``.
    """

    def __init__(
        self,
        ledger: LedgerPort,
        session_id: str | None = None,
        *,
        agent_id: str = "admin-001",
        agent_class: str = "ADMIN",
        principal: Principal = NOBODY,
    ) -> None:
        if session_id is not None and not (
            isinstance(session_id, str) and _SESSION_ID.fullmatch(session_id)
        ):
            raise InvalidInputError(
                f"{excerpt(repr(session_id))} is not a session id.",
                next_step="They look like SES-7K2M4QX9; `remit session list` shows them.",
            )
        self._ledger = ledger
        self._provenance = {"agent_id": agent_id, "agent_class": agent_class}
        self.session_id = session_id or new_session_id()
        self.principal = principal
        self._turn_count: int | None = None if session_id else 0
        self._turns: list[Turn] | None = None if session_id else []
        self._effects: tuple[Effect, ...] | None = None if session_id else ()
        self._marks: tuple[int | None, ...] | None = None
        self.threads_seen: tuple[int | None, ...] | None = None
        self._usage, self._usage_until = Usage(), ""
        self._began = False  # or not looked up

    def require(self) -> None:
        """Raise :class:`NotFoundError` unless the session exists and is this agent's."""
        if not self.has_begun():
            raise NotFoundError(
                f"The ledger has no session {self.session_id}.",
                next_step="`remit session list` shows what there is.",
            )

    def has_begun(self) -> bool:
        """Whether the session is on record; for whom it works is known then.

        Raises:
            NotFoundError: it is another agent's, or was archived.
        """
        started = next(
            self._ledger.query(
                session_id=self.session_id, event_type="SESSION_START", limit=1, with_content=False
            ),
            None,
        )
        if started is None:
            return False
        provenance = started.metadata.get("provenance") or {}
        owner, own = provenance.get("agent_id"), self._provenance["agent_id"]
        if owner != own:
            raise NotFoundError(
                f"The session {self.session_id} is one of the agent {owner}, not of {own}.",
                next_step=f"Go on with it by the program that makes the agent {owner}.",
            )
        if self._ledger.has_left(self.session_id):
            raise NotFoundError(
                f"The session {self.session_id} was archived, and cannot go on.",
                next_step="Begin another. `remit ledger query --session-id "
                f"{self.session_id} --archive DIR` reads it.",
            )
        self._began = True
        self.principal = self._recorded_principal(started)
        return True

    def _recorded_principal(self, started: LedgerEntry) -> Principal:
        """For whom the session was begun; a person who was erased is nobody."""
        subject = ""
        if "subject_id" in started.metadata:  # content: the record names nobody
            found = self._ledger.read(started.id).metadata["subject_id"]
            subject = "" if isinstance(found, Erased) else str(found)
        has_caller = bool(started.metadata.get("caller"))
        callers = callers_of(self._ledger, self.session_id) if has_caller else ()
        user, *key = (str(started.metadata.get(name) or "") for name in ("user_id", *_OF_KEY))
        return Principal(user, subject, callers, *key)

    def start(self) -> str:
        """Write ``SESSION_START``; returns its id."""
        return self._written(self.start_entry())

    def start_entry(self, shape: Mapping[str, Any] | None = None) -> LedgerEntry:
        """The ``SESSION_START``, for a caller that writes it together with other entries.

        Args:
            shape: what shapes the agent: more metadata.
        """
        self._began = True
        further: dict[str, Any] = {}
        for name in ("user_id", *_OF_KEY):
            if value := getattr(self.principal, name):
                further[name] = value
        if self.principal.callers:
            further["caller"] = self.principal.callers[0].to_dict()
        return self._entry(
            "SESSION_START", "STARTED", "Session started", **further, **(shape or {})
        )

    def _written(self, entry: LedgerEntry) -> str:
        return self._ledger.write(entry, subject_id=self.principal.subject_id or None)

    def has_ended(self) -> bool:
        """Whether a ``SESSION_END`` is on record."""
        return latest_of(self._ledger, self.session_id, "SESSION_END") is not None

    def answer(self) -> tuple[str, tuple[str, ...]]:
        """What the last turn delivered, and why it is no answer; nothing where it is one.

        Raises:
            NotFoundError: no turn was recorded, or it was erased.
        """
        (turn,) = self._read("TURN_RECORDED") or (None,)
        if turn is None or isinstance(turn.metadata["response"], Erased):
            raise NotFoundError(f"The session {self.session_id} holds no answer.")
        (gate,) = self._read("WO_QUALITY_GATE") or (None,)
        answered = turn.metadata.get("outcome", "") in ("", "degraded")
        if answered and gate is not None and gate.metadata["verdict"] == "accept":
            return turn.metadata["response"], ()
        reasons = gate.metadata["reasons"] if gate is not None else ()
        known = () if isinstance(reasons, Erased) else tuple(map(str, reasons))
        return turn.metadata["response"], known or (turn.metadata["response"],)

    def _read(self, event_type: str) -> list[LedgerEntry]:
        found = self._ledger.query(
            session_id=self.session_id, event_type=event_type, order="desc", limit=1
        )
        return list(found)

    @property
    def turn_count(self) -> int:
        """Turns recorded so far."""
        if self._turn_count is None:
            latest = latest_of(self._ledger, self.session_id, "TURN_RECORDED")
            self._turn_count = latest.metadata["turn_number"] if latest is not None else 0
        return self._turn_count

    def read_marks(self, tx: Transaction) -> Marks:
        """What :meth:`refresh` takes, in the transaction with which the session is held."""
        return Marks(*tx.execute(_MARKS, (self.session_id,) * 4)[0])

    def refresh(self, marks: Marks | None = None) -> bool:
        """Read again what another process may have changed; call it while the session is held.

        Returns:
            Whether nothing has changed since the last turn, which this process has recorded.
        """
        unchanged = marks is not None and self._marks == marks[:3]
        if not unchanged:
            self._turn_count = self._turns = self._effects = None
        self._marks = None
        self.threads_seen = None if marks is None else (marks.opened, marks.closed, marks.erasure)
        return unchanged

    def add_turn(self, user_message: str, response: str) -> str:
        """Write ``TURN_RECORDED`` of an answered turn; return its id.

        Args:
            user_message: what the user said.
            response: what was delivered.

        Raises:
            NotFoundError: the session never began.
        """
        entry_id = self._written(self._turn_entry(user_message, response, "", ()))
        self._turn_count = self.turn_count + 1
        return entry_id

    async def aadd_turn(
        self,
        user_message: str,
        response: str,
        *,
        outcome: str = "",
        effects: Sequence[Effect] = (),
        after: Sequence[Write] = (),
        then: Sequence[Write] = (),
    ) -> str:
        """Write ``TURN_RECORDED`` with both sides; return its id.

        Args:
            user_message: what the user said.
            response: what was delivered.
            outcome: why ``response`` is no answer of the agent's, or not a full one:
                ``cancelled``, ``abandoned``, ``notice`` or ``degraded``; empty for an answer.
            effects: effects of tools that the next prompt must report.
            after: what is written in the same transaction, before it.
            then: what is written after it.

        Raises:
            NotFoundError: the session never began.
        """
        entry = self._ledger.prepare(
            self._turn_entry(user_message, response, outcome, effects),
            subject_id=self.principal.subject_id or None,
        )
        done = await self._ledger.submit([*after, entry, self.read_marks, *then])
        entry_id, marks = done[len(after) : len(after) + 2]
        self._turn_count = number = self.turn_count + 1
        self._marks, self._effects = marks[:3], tuple(effects)
        if self._turns is not None:
            self._turns.append(Turn(number, user_message, response, utc_now(), entry_id))
        return str(entry_id)

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Effects of tools that the latest turn left for the next prompt to report."""
        if self._effects is None:
            (turn,) = self._read("TURN_RECORDED") or (None,)
            found = () if turn is None else turn.metadata.get("effects", ())
            self._effects = () if isinstance(found, Erased) else tuple(map(Effect.of_dict, found))
        return self._effects

    def recent_turns(self, limit: int) -> list[Turn]:
        """The latest turns, oldest of them first."""
        if self._turns is not None and len(self._turns) >= limit:
            del self._turns[: len(self._turns) - limit]
            return list(self._turns)
        found = self._ledger.query(
            session_id=self.session_id, event_type="TURN_RECORDED", order="desc", limit=limit
        )
        turns = [
            Turn(
                entry.metadata["turn_number"],
                str(entry.metadata["user_message"]),
                str(entry.metadata["response"]),
                entry.timestamp,
                entry.id,
            )
            for entry in found
        ]
        self._turns = turns[::-1]
        return list(self._turns)

    def total_cost(self) -> dict[str, Any]:
        """What the session's exchanges used, with its tools and sub-agents.

        Returns:
            ``llm_calls``, ``input_tokens``, ``output_tokens``, ``total_tokens`` and ``cost_usd``,
            which is ``None`` as soon as the price of an exchange that used tokens is unknown.
        """
        for entry in self._ledger.query(
            session_id=self.session_id,
            event_type="EXCHANGE",
            after=self._usage_until or None,
            with_content=False,
        ):
            self._usage_until = entry.id
            self._usage.add(entry)
        used = Usage()
        used.include(self._usage)  # read on from where the last call stopped
        used.include(tools_usage(self._ledger, self.session_id))
        return {
            "llm_calls": used.calls,
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens,
            "total_tokens": used.input_tokens + used.output_tokens,
            "cost_usd": used.cost_usd,
        }

    def end(self) -> str:
        """Write ``SESSION_END`` with turn count and cost; returns its id."""
        entry = self._entry(
            "SESSION_END",
            "ENDED",
            "Session ended",
            turn_count=self.turn_count,
            total_cost=self.total_cost(),
        )
        return self._written(entry)

    def _turn_entry(
        self, user_message: str, response: str, outcome: str, effects: Sequence[Effect]
    ) -> LedgerEntry:
        if not self._began:
            self.require()
        number = self.turn_count + 1
        further: dict[str, Any] = {"outcome": outcome} if outcome else {}
        if effects:
            further["effects"] = content([effect.to_dict() for effect in effects])
        return self._entry(
            "TURN_RECORDED",
            "RECORDED",
            f"Turn {number} recorded",
            turn_number=number,
            user_message=user_message,
            response=response,
            **further,
        )

    def _entry(self, event_type: str, decision: str, reason: str, **metadata: Any) -> LedgerEntry:
        return LedgerEntry(
            event_type=event_type,
            submission_id=self.session_id,
            decision=decision,
            reason=reason,
            metadata={
                "provenance": {**self._provenance, "session_id": self.session_id},
                "scope": {"tier": "ho2"},
                **metadata,
            },
        )


def response_of(ledger: LedgerPort, turn_entry_id: str) -> dict[str, Any]:
    """Return what a turn delivered, and its ``outcome``: empty if that is the agent's answer."""
    if not turn_entry_id:
        return {"response": None, "outcome": ""}
    turn = ledger.read(turn_entry_id).metadata
    return {"response": turn["response"], "outcome": str(turn.get("outcome", ""))}


def latest_of(ledger: LedgerPort, session_id: str, event_type: str) -> LedgerEntry | None:
    """The session's latest entry of a type, without its content."""
    found = ledger.query(
        session_id=session_id, event_type=event_type, order="desc", limit=1, with_content=False
    )
    return next(found, None)
