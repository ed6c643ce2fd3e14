"""Callers of tools: identity, tasks, and limits."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import orjson

from remit.gateway.auth import Identity
from remit.kernel.errors import RemitError
from remit.ledger import EntryNotFoundError, LedgerClient, Transaction
from remit.routing.trail import ThoughtRecord

LOCAL = Identity("local-operator", "operator", key_id="local", user_id="local-operator")
"""The caller over stdio, who started ``remit mcp``; the user id lets a budget be set."""

# Under ids of this form the runtime itself records thoughts, such as routing decisions.
_RESERVED = ("SES-", "WO-", "DEC-", "LED-")
_WRITER = "recorded_by"
_STARTED = ("SESSION_START", "WO_PLANNED", "DISPATCH")
_MINUTE_S = 60.0


class CallerError(RemitError):
    """The caller may not do this, or not so often. A client sees the message."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a tool.

    Attributes:
        identity: the authenticated identity.
        subject_id: the person in ``x-remit-subject``; empty if the request names nobody.
        named_session_id: the session in ``x-remit-session``; may be empty.
    """

    identity: Identity
    subject_id: str = ""
    named_session_id: str = ""

    @property
    def restricted(self) -> bool:
        """True if the caller sees only its own tasks, as agents do."""
        return self.identity.role == "agent"

    @property
    def owner(self) -> str:
        """The owner of the caller's records: one for all keys of a user.

        A token without a key has the agent and session that it was made for.
        """
        identity = self.identity
        if identity.user_id:
            return f"user:{identity.user_id}"
        if identity.key_id:
            return f"key:{identity.key_id}"
        if identity.session_id:  # JSON keeps the two texts apart; names contain any character.
            return f"token:{orjson.dumps([identity.session_id, identity.name]).decode()}"
        return f"name:{identity.name}"

    def agent_id(self, requested: str) -> str:
        """Return the agent to act as: the requested one, else the caller's own.

        A caller without agents acts under its own name.

        Args:
            requested: id of the agent; empty for the caller's own.

        Raises:
            CallerError: the key may not act as that agent.
        """
        agents = self.identity.agents
        found = requested or (agents[0] if agents else self.identity.name)
        if not self.identity.may_act_as(found):
            raise CallerError(
                f"This key may not act as the agent {found!r}.",
                next_step="Leave agent_id out, or ask the operator for a key that may.",
            )
        return found

    def session_id(self, requested: str) -> str:
        """Return the session to work in; may be empty.

        The requested session applies, else that of the request's headers, else that of the token.

        Raises:
            CallerError: the caller's token is for another session.
        """
        own, requested = self.identity.session_id, requested or self.named_session_id
        if own and requested not in ("", own):
            raise CallerError(
                "This token is for another session.", next_step="Leave session_id out."
            )
        return requested or own


current_caller: ContextVar[Caller] = ContextVar("remit_mcp_caller")
"""Set by the server around each call, for the tool's thread too; there is no default."""


class TaskOwners:
    """Ownership of tasks: a task belongs to the key that records its first thought over MCP.

    Thoughts that routing and the root's own agents recorded have no owner here. An agent's key
    cannot read them, even under a task that the key began.

    Args:
        ledger: the ledger whose database contains the owners.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger

    async def claim(self, caller: Caller, task_id: str, session_id: str) -> None:
        """Make ``caller`` the owner of a task without one, or check that it is the owner.

        A refusal changes nothing. Sessions do not change owner.

        Args:
            caller: the caller; an unrestricted caller is not checked, and becomes no owner.
            task_id: the task. Ids that begin as those of sessions, orders, decisions or entries are
                refused.
            session_id: the session of the thought; may be empty.

        Raises:
            CallerError: the task or the session belongs to another owner.
            LedgerError: the ownership cannot be read or written.
        """
        if not caller.restricted:
            return
        # The token itself says that it is for that session.
        named = "" if session_id == caller.identity.session_id else session_id
        problem = "task"
        if not task_id.startswith(_RESERVED):
            owner = caller.owner
            problem = await self._ledger.submit(lambda tx: _claim(tx, owner, task_id, named))
        if problem == "session":
            raise CallerError(
                "This session does not belong to this key.",
                next_step="Leave session_id out, or name one in which it called router_route.",
            )
        if problem:
            raise CallerError(
                "This task belongs to another key.",
                next_step="Choose a new task_id that does not begin with "
                f"{' or '.join(_RESERVED)}.",
            )

    def require(self, caller: Caller, task_id: str) -> None:
        """Raise CallerError unless ``caller`` may read a task. Blocks.

        The message does not say whether the task exists.

        Args:
            caller: the caller; an unrestricted caller may read every task.
            task_id: the task.

        Raises:
            CallerError: the caller does not own the task.
            LedgerError: the ledger cannot be read.
        """
        if not caller.restricted:
            return
        rows = self._ledger.select("SELECT owner FROM task_owners WHERE task_id = ?", (task_id,))
        if not rows or rows[0][0] != caller.owner:
            raise CallerError(
                "This key did not start a task with this id, and may not read tasks of other keys.",
                next_step="Name a task_id under which this key recorded thoughts.",
            )

    def mark(self, caller: Caller) -> dict[str, Any]:
        """Return the metadata that states the writer of a thought: its owner, and the key's id if
        there is one.

        Args:
            caller: the caller.
        """
        key_id = caller.identity.key_id
        return {_WRITER: caller.owner} | ({"key_id": key_id} if key_id else {})

    def sees(self, caller: Caller, record: ThoughtRecord) -> bool:
        """Return True if ``caller`` wrote a record or is unrestricted. Blocks.

        A restricted caller does not see a record whose entry is archived or missing.

        Args:
            caller: the caller.
            record: the record.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        if not caller.restricted:
            return True
        try:
            metadata = self._ledger.read(record.entry_id).metadata
        except EntryNotFoundError:
            return False
        return bool(metadata.get(_WRITER) == caller.owner)


def _claim(tx: Transaction, owner: str, task_id: str, session_id: str) -> str:
    """Give the task to ``owner``; return ``"session"`` or ``"task"`` if it is another's, else
    empty.
    """
    if session_id and _session_owner(tx, session_id) != owner:
        return "session"
    rows = tx.execute("SELECT owner FROM task_owners WHERE task_id = ?", (task_id,))
    if rows:
        return "" if rows[0][0] == owner else "task"
    # Routing records its decisions under the session's id, whatever that looks like.
    if _session_owner(tx, task_id) not in (None, owner):
        return "task"
    # The entries, not the trail's table: that is filled later where a ledger was imported.
    if tx.execute(
        "SELECT 1 FROM entries WHERE submission_id = ? AND event_type = 'THOUGHT_RECORD' LIMIT 1",
        (task_id,),
    ):
        return "task"
    tx.execute("INSERT INTO task_owners VALUES (?, ?)", (task_id, owner))
    return ""


def _session_owner(tx: Transaction, session_id: str) -> str | None:
    """Return a session's owner; empty for the runtime's own sessions, None if it never began."""
    rows = tx.execute("SELECT owner FROM session_owners WHERE session_id = ?", (session_id,))
    if rows:
        return str(rows[0][0])
    marks = ", ".join("?" * len(_STARTED))
    started = tx.execute(
        f"SELECT 1 FROM entries WHERE session_id = ? AND event_type IN ({marks}) LIMIT 1",
        (session_id, *_STARTED),
    )
    return "" if started else None


class CallSlots:
    """Limits on calls that run at once, in all and for each caller. For one event loop.

    Args:
        at_once: most calls of all callers.
        per_caller: most calls of one caller.
        waiting: most calls of one caller that wait for a slot.
    """

    def __init__(self, at_once: int, per_caller: int, waiting: int) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._per_caller = per_caller
        self._most = per_caller + waiting
        self._own: dict[str, asyncio.Semaphore] = {}
        self._calls: Counter[str] = Counter()

    @asynccontextmanager
    async def of(self, owner: str) -> AsyncIterator[None]:
        """Run the block in a slot of ``owner``; wait for one if needed.

        The slot is free again at the end of the block.

        Args:
            owner: name of the caller, by which calls are counted.

        Raises:
            CallerError: too many of its calls already wait.
        """
        if self._calls[owner] >= self._most:
            raise CallerError(
                f"{self._calls[owner]} calls of this caller are under way already. Nothing was "
                "done.",
                next_step="Wait for the running calls to end before you call again.",
            )
        self._calls[owner] += 1
        own = self._own.setdefault(owner, asyncio.Semaphore(self._per_caller))
        try:
            # Its own slot first: a call that waits for that takes no slot from other callers.
            async with own, self._slots:
                yield
        finally:
            self._calls[owner] -= 1
            if not self._calls[owner]:
                del self._calls[owner], self._own[owner]


class RateLimit:
    """A limit on each caller's actions a minute, with a burst of the same number after a rest.

    Args:
        per_minute: most actions a minute; 0 for any number.
        what: the name of the actions, for messages.
    """

    def __init__(self, per_minute: int, what: str = "thoughts") -> None:
        self._per_minute = per_minute
        self._what = what
        self._free_from: dict[str, float] = {}  # when the caller's full share is free again

    def take(self, owner: str) -> None:
        """Count one action of ``owner``. Nothing is counted if the limit is 0.

        Args:
            owner: name of the caller.

        Raises:
            CallerError: the limit is reached; the action was not counted.
        """
        if not self._per_minute:
            return
        now, each = time.monotonic(), _MINUTE_S / self._per_minute
        free_from = max(self._free_from.get(owner, now), now) + each
        if free_from - now > _MINUTE_S + each / 2:
            raise CallerError(
                f"This key made more than {self._per_minute} {self._what} in a minute. Nothing was "
                "done.",
                next_step="Wait a minute, and make fewer calls.",
            )
        if len(self._free_from) > self._per_minute:  # callers at rest need not be known
            self._free_from = {
                name: until for name, until in self._free_from.items() if until > now
            }
        self._free_from[owner] = free_from
