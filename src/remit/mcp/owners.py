"""Whose task it is: a key of the role ``agent`` sees and continues only what it began."""

from __future__ import annotations

from dataclasses import replace

from remit.exchange import PromptRequest
from remit.gateway.tenancy import SessionOwners
from remit.ledger import LedgerClient, Transaction
from remit.mcp.caller import Caller, NotAllowedError
from remit.trail.table import create_table

__all__ = ["TaskOwners"]

_TABLE = """CREATE TABLE IF NOT EXISTS task_owners (
    task_id TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL
)"""
# Under ids of this form the runtime itself records thoughts, such as routing decisions.
_RESERVED = ("SES-", "WO-", "DEC-", "LED-")


class TaskOwners:
    """Gives a task to the key that records its first thought over MCP.

    What routing and agents of this root recorded belongs to nobody here: an agent's key gets at
    none of it.

    Args:
        ledger: in whose database it is kept.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger
        self._sessions = SessionOwners(ledger)
        ledger.transact(_create)

    async def claim(self, caller: Caller, task_id: str, session_id: str) -> None:
        """Let ``caller`` write to a task, and give it the task when nobody wrote to it yet.

        Args:
            caller: who writes.
            task_id: the task.
            session_id: the session that is named with it; a key names its own alone.

        Raises:
            NotAllowedError: somebody else began the task or the session.
        """
        if not caller.held:
            return
        if session_id and (problem := await self._problem(caller, session_id)):
            raise NotAllowedError(f"{problem.capitalize()}.", next_step="Leave session_id out.")
        owner = caller.owner
        if (
            task_id.startswith(_RESERVED)
            # Routing records its decisions under the session's id, whatever that looks like.
            or await self._problem(caller, task_id)
            or not await self._ledger.atransact(lambda tx: _claim(tx, owner, task_id))
        ):
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

    async def _problem(self, caller: Caller, session_id: str) -> str:
        anywhere = replace(caller.identity, session_id="")
        return await self._sessions.problem(anywhere, _within(session_id))


def _create(tx: Transaction) -> None:
    tx.execute(_TABLE)
    create_table(tx)  # who claims a task looks whether it has thoughts


def _claim(tx: Transaction, owner: str, task_id: str) -> bool:
    rows = tx.execute("SELECT owner FROM task_owners WHERE task_id = ?", (task_id,))
    if rows:
        return bool(rows[0][0] == owner)
    if tx.execute("SELECT 1 FROM thoughts WHERE task_id = ? LIMIT 1", (task_id,)):
        return False
    tx.execute("INSERT INTO task_owners VALUES (?, ?)", (task_id, owner))
    return True


def _within(session_id: str) -> PromptRequest:
    """What :class:`SessionOwners` asks about: work in that session, of no order."""
    return PromptRequest(
        prompt="",
        prompt_pack_id="",
        contract_id="",
        agent_id="",
        agent_class="",
        framework_id="",
        package_id="",
        work_order_id="",
        session_id=session_id,
        tier="ho1",
    )
