"""Whose task it is: a key of the role ``agent`` sees and continues only what it began."""

from __future__ import annotations

from typing import Any

from remit.ledger import EntryNotFoundError, LedgerClient, Transaction
from remit.routing.trail import ThoughtRecord
from remit.server.mcp.caller import Caller, NotAllowedError

__all__ = ["TaskOwners"]

# Under ids of this form the runtime itself records thoughts, such as routing decisions.
_RESERVED = ("SES-", "WO-", "DEC-", "LED-")
_WRITER = "recorded_by"
_BEGUN = ("SESSION_START", "WO_PLANNED", "DISPATCH")


class TaskOwners:
    """Gives a task to the key that records its first thought over MCP.

    What routing and agents of this root recorded belongs to nobody here: an agent's key gets at
    none of it, not even where it came to lie in a task that the key began.

    Args:
        ledger: in whose database it is kept.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger

    async def claim(self, caller: Caller, task_id: str, session_id: str) -> None:
        """Let ``caller`` write to a task, and give it the task when nobody wrote to it yet.

        A refusal leaves nothing behind, and no session is given to anybody.

        Args:
            caller: who writes.
            task_id: the task.
            session_id: the session that is named with it; a key names its own alone.

        Raises:
            NotAllowedError: somebody else began the task or the session.
        """
        if not caller.held:
            return
        # The token itself says that it is for that session.
        named = "" if session_id == caller.identity.session_id else session_id
        problem = "task"
        if not task_id.startswith(_RESERVED):
            owner = caller.owner
            problem = await self._ledger.submit(lambda tx: _claim(tx, owner, task_id, named))
        if problem == "session":
            raise NotAllowedError(
                "This session is none of this key's own.",
                next_step="Leave session_id out, or name one in which it called router_route.",
            )
        if problem:
            raise NotAllowedError(
                "This task is somebody else's.",
                next_step="Choose another task_id; it may be any text that is new and begins "
                f"with none of {', '.join(_RESERVED)}.",
            )

    def require(self, caller: Caller, task_id: str) -> None:
        """Let ``caller`` read a task. Blocks.

        Raises:
            NotAllowedError: it is none of its own; whether there is such a task is not told.
        """
        if not caller.held:
            return
        rows = self._ledger.select("SELECT owner FROM task_owners WHERE task_id = ?", (task_id,))
        if not rows or rows[0][0] != caller.owner:
            raise NotAllowedError(
                "This key began no task of that id, and may read no other.",
                next_step="Name a task_id that it recorded thoughts under.",
            )

    def mark(self, caller: Caller) -> dict[str, Any]:
        """Metadata that a thought of ``caller`` brings, so that it is known again."""
        key_id = caller.identity.key_id
        return {_WRITER: caller.owner} | ({"key_id": key_id} if key_id else {})

    def sees(self, caller: Caller, record: ThoughtRecord) -> bool:
        """Whether ``caller`` may read a record of a task of its own: it wrote it. Blocks."""
        if not caller.held:
            return True
        try:
            told = self._ledger.read(record.entry_id).metadata
        except EntryNotFoundError:
            return False
        return bool(told.get(_WRITER) == caller.owner)


def _claim(tx: Transaction, owner: str, task_id: str, session_id: str) -> str:
    """Which of the two is somebody else's; empty when none is, and the task is the owner's."""
    if session_id and _of_session(tx, session_id) != owner:
        return "session"
    rows = tx.execute("SELECT owner FROM task_owners WHERE task_id = ?", (task_id,))
    if rows:
        return "" if rows[0][0] == owner else "task"
    # Routing records its decisions under the session's id, whatever that looks like.
    if _of_session(tx, task_id) not in (None, owner):
        return "task"
    # The entries, not the trail's table: that is filled later where a ledger was imported.
    if tx.execute(
        "SELECT 1 FROM entries WHERE submission_id = ? AND event_type = 'THOUGHT_RECORD' LIMIT 1",
        (task_id,),
    ):
        return "task"
    tx.execute("INSERT INTO task_owners VALUES (?, ?)", (task_id, owner))
    return ""


def _of_session(tx: Transaction, session_id: str) -> str | None:
    """Whose session it is; empty for the runtime's own, ``None`` for one that nobody began."""
    rows = tx.execute("SELECT owner FROM session_owners WHERE session_id = ?", (session_id,))
    if rows:
        return str(rows[0][0])
    marks = ", ".join("?" * len(_BEGUN))
    begun = tx.execute(
        f"SELECT 1 FROM entries WHERE session_id = ? AND event_type IN ({marks}) LIMIT 1",
        (session_id, *_BEGUN),
    )
    return "" if begun else None
