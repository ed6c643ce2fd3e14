"""The owner of a session: others cannot use it (SPEC 6)."""

from __future__ import annotations

from remit.gateway.auth import Identity
from remit.kernel.exchange import PromptRequest
from remit.ledger import LedgerClient, Transaction

__all__ = ["SessionOwners", "owner_of"]

_SESSIONS_ORDER = "WO-SES-"
_BEGUN = ("SESSION_START", "WO_PLANNED", "DISPATCH")
_MAX_KNOWN = 16_384  # clients name sessions: what is remembered of them has an end


class SessionOwners:
    """Gives a session to the key that first works in it.

    Keys and tokens of the role ``agent`` are held to their own sessions: the record, the budgets
    and the erasure of a session belong together. Those that operate the root are not.

    Args:
        ledger: in whose database it is kept.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger
        self._known: set[tuple[str, str, str]] = set()

    async def problem(self, identity: Identity | None, request: PromptRequest) -> str:
        """Why a caller may not work in the session or order that it names; empty when it may."""
        if identity is None or identity.role != "agent" or identity.session_id:
            return ""  # a token for one session was checked against it
        order = request.work_order_id or ""
        if order.startswith(_SESSIONS_ORDER) and not order.startswith(f"WO-{request.session_id}-"):
            return "this work order is one of another session"
        named = (owner_of(identity), request.session_id, order)
        if named in self._known and not order:  # an order may have been planned since
            return ""
        problem = await self._ledger.submit(lambda tx: _claim(tx, *named))
        if not problem:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known.add(named)
        return problem


def owner_of(identity: Identity) -> str:
    """Who owns what a caller makes: the user, where the key was given to one, else the key."""
    if identity.user_id:
        return f"user:{identity.user_id}"
    return f"key:{identity.key_id}" if identity.key_id else f"name:{identity.name}"


def _claim(tx: Transaction, owner: str, session_id: str, order: str) -> str:
    rows = tx.execute("SELECT owner FROM session_owners WHERE session_id = ?", (session_id,))
    if rows and rows[0][0] != owner:
        return "this session belongs to another key"
    if order:
        planned = tx.execute(
            "SELECT 1 FROM entries WHERE work_order_id = ? AND event_type = 'WO_PLANNED' LIMIT 1",
            (order,),
        )
        if planned:
            return "this work order was planned for somebody else"
    if not rows:
        marks = ", ".join("?" * len(_BEGUN))
        if tx.execute(
            f"SELECT 1 FROM entries WHERE session_id = ? AND event_type IN ({marks}) LIMIT 1",
            (session_id, *_BEGUN),
        ):
            return "this session was begun by somebody else"
        tx.execute("INSERT INTO session_owners VALUES (?, ?)", (session_id, owner))
    return ""
