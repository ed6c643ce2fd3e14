"""A session: its start, its turns and its end in the ledger."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from remit.agents.sessions.recorded_turns import Turn, latest_of
from remit.agents.workorders import (
    NOBODY,
    Effect,
    Principal,
    Usage,
    callers_of,
    start_of,
    tools_usage,
)
from remit.kernel.errors import InvalidInputError, NotFoundError, excerpt
from remit.kernel.loops import run_blocking
from remit.ledger import Erased, LedgerEntry, LedgerPort, Transaction, Write, content, utc_now

_SESSION_ID = re.compile(r"SES-[0-9A-Z]{8,}")


class Marks(NamedTuple):
    """Sequence numbers of the latest entries on which the cached state of a session depends.

    A field is None if there is no such entry.

    Attributes:
        turn: the session's ``TURN_RECORDED``.
        plan: the session's ``WO_PLANNED``.
        erasure: the ledger's ``ERASURE``.
        opened: the ledger's ``THREAD_OPENED``.
        closed: the ledger's ``THREAD_CLOSED``.
        signal: the session's ``SIGNAL_OBSERVED``.
        ended: the session's ``SESSION_END``.
    """

    turn: int | None
    plan: int | None
    erasure: int | None
    opened: int | None
    closed: int | None
    signal: int | None = None
    ended: int | None = None


_SESSION_MAX = "SELECT max(seq) FROM entries WHERE session_id = ? AND event_type = '{}'"
_LEDGER_MAX = "SELECT max(seq) FROM entries WHERE event_type = '{}'"
_SELECT_MARKS = (
    f"SELECT ({_SESSION_MAX.format('TURN_RECORDED')}), ({_SESSION_MAX.format('WO_PLANNED')}), "
    f"({_LEDGER_MAX.format('ERASURE')}), ({_LEDGER_MAX.format('THREAD_OPENED')}), "
    f"({_LEDGER_MAX.format('THREAD_CLOSED')}), "
    f"({_SESSION_MAX.format('SIGNAL_OBSERVED')}), ({_SESSION_MAX.format('SESSION_END')})"
)


_KEY_FIELDS = ("key_id", "team_id", "organisation_id")


def new_session_id() -> str:
    """Return ``SES-`` and 16 random characters of A to Z and 2 to 7 (80 bits)."""
    return f"SES-{base64.b32encode(secrets.token_bytes(10)).decode()}"


class SessionManager:
    """The start, turns and end of one session.

    Making the object reads and writes nothing. :meth:`start`, :meth:`aadd_turn` and :meth:`end`
    write entries. The number of turns, the turns and the effects are read once and cached until
    :meth:`refresh`. The object locks nothing: the caller holds the session's lease.

    Args:
        ledger: records the session; a handle of tier ``ho2`` in a runtime.
        session_id: session to continue; by default a new one.
        agent_id: agent of the conversation.
        agent_class: class of the agent.
        principal: user, person and key of a new session.

    Attributes:
        session_id: id of the session, given or new.
        principal: user, person and key of the session; of a recorded session once :meth:`has_begun`
            has read it.
        threads_seen: sequence numbers of the ledger's latest ``THREAD_OPENED``, ``THREAD_CLOSED``
            and ``ERASURE`` at the last :meth:`refresh` with marks; None before.

    Raises:
        InvalidInputError: the id does not have the form ``SES-…``.
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
                next_step="An id looks like SES-DLO5JCZQHYIFBTG5; `remit session list` lists them.",
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
        self._began = False  # False also if the ledger was not read yet.

    def require(self) -> None:
        """Raise NotFoundError unless the session exists and belongs to this agent.

        Sets :attr:`principal` from the record.

        Raises:
            NotFoundError: the session was never started, belongs to another agent, or was archived.
            LedgerError: the ledger cannot be read.
        """
        if not self.has_begun():
            raise NotFoundError(
                f"The ledger has no session {self.session_id}.",
                next_step="`remit session list` shows what there is.",
            )

    def has_begun(self) -> bool:
        """Return True if the session is recorded; then set :attr:`principal` from the record.

        An ended session counts too. An erased person becomes an empty one. Reads the ledger at each
        call and writes nothing.

        Raises:
            NotFoundError: the session belongs to another agent, or was archived, with its
                ``SESSION_START`` still present.
            LedgerError: the ledger cannot be read.
        """
        started = start_of(self._ledger, self.session_id)
        if started is None:
            return False
        provenance = started.metadata.get("provenance") or {}
        owner, own = provenance.get("agent_id"), self._provenance["agent_id"]
        if owner != own:
            raise NotFoundError(
                f"The session {self.session_id} belongs to the agent {owner}, not to {own}.",
                next_step=f"Continue it with the program that defines the agent {owner}.",
            )
        if self._ledger.has_left(self.session_id):
            raise NotFoundError(
                f"The session {self.session_id} was archived and cannot continue.",
                next_step="Start a new session. `remit ledger query --session-id "
                f"{self.session_id} --archive DIR` reads it.",
            )
        self._began = True
        self.principal = self._recorded_principal(started)
        return True

    def _recorded_principal(self, started: LedgerEntry) -> Principal:
        """Return the recorded principal; an erased person is nobody."""
        subject = ""
        if "subject_id" in started.metadata:  # The id is erasable content.
            found = self._ledger.read(started.id).metadata["subject_id"]
            subject = "" if isinstance(found, Erased) else str(found)
        has_caller = bool(started.metadata.get("caller"))
        callers = callers_of(self._ledger, self.session_id) if has_caller else ()
        user, *key = (str(started.metadata.get(name) or "") for name in ("user_id", *_KEY_FIELDS))
        return Principal(user, subject, callers, *key)

    def start(self) -> str:
        """Write the ``SESSION_START`` of :meth:`start_entry` and return its id.

        The caller ensures that the session has not begun.

        Raises:
            LedgerError: the entry cannot be written.
            InvalidInputError: the entry cannot be recorded.
        """
        return self._written(self.start_entry())

    def start_entry(self, shape: Mapping[str, Any] | None = None) -> LedgerEntry:
        """Return the ``SESSION_START`` entry, which the caller writes with other entries.

        From now on the session counts as begun here. The entry names the user, the key with its
        team and organisation, and the first caller of the session, if there are any.

        Args:
            shape: further metadata: contract, tools and settings of the agent; None for none.
        """
        self._began = True
        further: dict[str, Any] = {}
        for name in ("user_id", *_KEY_FIELDS):
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
        """Return True if the session has a ``SESSION_END`` entry.

        A session that was continued after its end counts as ended.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        return latest_of(self._ledger, self.session_id, "SESSION_END") is not None

    def answer(self) -> tuple[str, tuple[str, ...]]:
        """Return the response of the last turn, and the reasons why the response is no answer.

        The reasons are empty if the response is an answer, possibly degraded, and the latest
        ``WO_QUALITY_GATE`` accepts it. Otherwise they are that entry's reasons; the response itself
        if there are none or they were erased.

        Raises:
            NotFoundError: no turn was recorded, or its response was erased.
            LedgerError: the ledger cannot be read.
        """
        (turn,) = self._read("TURN_RECORDED") or (None,)
        if turn is None or isinstance(turn.metadata["response"], Erased):
            raise NotFoundError(f"The session {self.session_id} has no recorded answer.")
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
        """Number of recorded turns; 0 before the first.

        Read from the ledger once, until :meth:`refresh`.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if self._turn_count is None:
            latest = latest_of(self._ledger, self.session_id, "TURN_RECORDED")
            self._turn_count = latest.metadata["turn_number"] if latest is not None else 0
        return self._turn_count

    def read_marks(self, tx: Transaction) -> Marks:
        """Return the present :class:`Marks`, the argument of :meth:`refresh`, read in the
        transaction that takes the session's lease.

        Args:
            tx: that transaction.

        Raises:
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        return Marks(*tx.execute(_SELECT_MARKS, (self.session_id,) * 4)[0])

    def refresh(self, marks: Marks | None = None) -> bool:
        """Discard cached state that another process may have changed.

        Call it while the session is locked. Sets ``threads_seen`` in any case. Reads nothing.

        Args:
            marks: result of :meth:`read_marks`; None discards everything.

        Returns:
            True if this process recorded the last turn, and no turn, plan or erasure was written
            since; nothing is discarded then. A second call without a new turn returns False.
        """
        unchanged = marks is not None and self._marks == marks[:3]
        if not unchanged:
            self._turn_count = self._turns = self._effects = None
        self._marks = None
        self.threads_seen = None if marks is None else (marks.opened, marks.closed, marks.erasure)
        return unchanged

    def add_turn(self, user_message: str, response: str) -> str:
        """Run :meth:`aadd_turn` for an answered turn without an event loop; block until durable.

        Args:
            user_message: the user's message.
            response: the delivered text.

        Raises:
            InvalidInputError: a text cannot be recorded, or the caller is the background loop.
            RemitError: another error of :meth:`aadd_turn`.
        """
        return run_blocking(self.aadd_turn(user_message, response))

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
        """Write ``TURN_RECORDED`` durably, and return the entry's id.

        The entry and the other writes form one transaction. The turn gets the next number. The
        cached number of turns, turns and effects include the new turn afterwards. Owner and archive
        are not checked again once this object has found or begun the session.

        Args:
            user_message: the user's message.
            response: the delivered text.
            outcome: why ``response`` is not a full answer of the agent: ``cancelled``,
                ``abandoned``, ``notice`` or ``degraded``; empty for an answer.
            effects: effects of tools that the next prompt must report.
            after: writes of the same transaction before the entry.
            then: writes of the same transaction after the entry.

        Raises:
            NotFoundError: the session was never started, belongs to another agent, or was archived.
            LedgerError: the ledger cannot be read, or the transaction cannot be written.
            InvalidInputError: a text cannot be recorded.
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
        """Effects of tools in the latest turn that the next prompt must report.

        Empty without a turn, and if they were erased. Read once, until :meth:`refresh`.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if self._effects is None:
            (turn,) = self._read("TURN_RECORDED") or (None,)
            found = () if turn is None else turn.metadata.get("effects", ())
            self._effects = () if isinstance(found, Erased) else tuple(map(Effect.of_dict, found))
        return self._effects

    def recent_turns(self, limit: int) -> list[Turn]:
        """Return the latest turns, at most ``limit``, oldest first.

        If at least ``limit`` turns are cached, nothing is read, until :meth:`refresh`. Erased texts
        appear as placeholders. Forgets cached turns that are older than these.

        Args:
            limit: largest number of turns.

        Raises:
            LedgerError: the ledger cannot be read.
        """
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

    def turns_to_show(self, most: int) -> list[Turn]:
        """Return the latest turns to show to the model, oldest first.

        All turns are returned if there are at most ``most``, otherwise between half of ``most`` and
        ``most``. The window advances by half its width at a time. Between two advances the shown
        conversation grows only at its end, so that prompt caches of providers and shared message
        lists in the ledger apply.

        Args:
            most: the largest number of turns.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        count = self.turn_count
        if count > most:
            step = max(1, most // 2)
            count -= -(-(count - most) // step) * step
        return self.recent_turns(count)

    def total_cost(self) -> dict[str, Any]:
        """Return the usage of the session's exchanges, tools and sub-agents.

        Of the session's own exchanges, only those since the last call are read; tools and
        sub-agents are read anew.

        Returns:
            ``llm_calls``, ``input_tokens``, ``output_tokens``, ``total_tokens`` and ``cost_usd``.
            The latter includes prices of tools, is 0 without use, and None if the price of an
            exchange with tokens is unknown.

        Raises:
            LedgerError: the ledger cannot be read.
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
        used.include(self._usage)  # The sum continues from the last call.
        used.include(tools_usage(self._ledger, self.session_id))
        return {
            "llm_calls": used.calls,
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens,
            "total_tokens": used.input_tokens + used.output_tokens,
            "cost_usd": used.cost_usd,
        }

    def end(self) -> str:
        """Write ``SESSION_END`` with number of turns and cost, and return its id.

        The session may still continue; a later turn makes it open again. Whether the session was
        started, or has ended already, is not checked: a second call writes a second entry.

        Raises:
            LedgerError: the entry cannot be written.
            InvalidInputError: the entry cannot be recorded.
        """
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
