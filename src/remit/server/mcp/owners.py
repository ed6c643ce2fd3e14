"""Owners of tasks: a key of the role ``agent`` sees and continues only what it began."""

from __future__ import annotations

from typing import Any

from remit.ledger import EntryNotFoundError, LedgerClient, Transaction
from remit.routing.trail import ThoughtRecord
from remit.server.mcp.caller import Caller, NotAllowedError

# Under ids of this form the runtime itself records thoughts, such as routing decisions.
_RESERVED = ("SES-", "WO-", "DEC-", "LED-")
_WRITER = "recorded_by"
_BEGUN = ("SESSION_START", "WO_PLANNED", "DISPATCH")


class TaskOwners:
    """Gives a task to the key that records its first thought over MCP.

    What routing and the root's own agents recorded has no owner here: an agent's key cannot read
    it, not even where it was recorded under a task that the key began.

    Args:
        ledger: in whose database it is kept.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger

    async def claim(self, caller: Caller, task_id: str, session_id: str) -> None:
        """Let ``caller`` write to a task, and give it the task if nobody has written to it.

        A refusal changes nothing; a session is given to nobody.

        Args:
            caller: who writes.
            task_id: the task.
            session_id: the session that is named with it; a key may name only its own.

        Raises:
            NotAllowedError: somebody else began the task or the session.
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
            NotAllowedError: it is not the owner; whether there is such a task is not said.
        """
        if not caller.restricted:
            return
        rows = self._ledger.select("SELECT owner FROM task_owners WHERE task_id = ?", (task_id,))
        if not rows or rows[0][0] != caller.owner:
            raise NotAllowedError(
                "This key began no task of that id, and may read no other.",
                next_step="Name a task_id that it recorded thoughts under.",
            )

    def mark(self, caller: Caller) -> dict[str, Any]:
        """Metadata of a thought that says who wrote it."""
        key_id = caller.identity.key_id
        return {_WRITER: caller.owner} | ({"key_id": key_id} if key_id else {})

    def sees(self, caller: Caller, record: ThoughtRecord) -> bool:
        """Whether ``caller`` may read a record of a task of its own: it wrote it. Blocks."""
        if not caller.restricted:
            return True
        try:
            metadata = self._ledger.read(record.entry_id).metadata
        except EntryNotFoundError:
            return False
        return bool(metadata.get(_WRITER) == caller.owner)


def _claim(tx: Transaction, owner: str, task_id: str, session_id: str) -> str:
    """Give the task to ``owner``; ``"session"`` or ``"task"`` when that is somebody else's."""
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
    """Owner of a session; empty for the runtime's own, ``None`` for one that was never begun."""
    rows = tx.execute("SELECT owner FROM session_owners WHERE session_id = ?", (session_id,))
    if rows:
        return str(rows[0][0])
    marks = ", ".join("?" * len(_BEGUN))
    begun = tx.execute(
        f"SELECT 1 FROM entries WHERE session_id = ? AND event_type IN ({marks}) LIMIT 1",
        (session_id, *_BEGUN),
    )
    return "" if begun else None
