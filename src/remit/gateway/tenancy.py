"""The owner of a session: others cannot use it (SPEC 6)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Struct

from remit.gateway.auth import Identity
from remit.gateway.lookup import select_in
from remit.kernel.errors import RemitError
from remit.kernel.exchange import PromptRequest
from remit.ledger import Transaction

__all__ = ["KnownOwners", "Named", "NotYoursError", "Sessions", "named_by", "owner_of"]

_SESSIONS_ORDER = "WO-SES-"
_CLAIM = "INSERT INTO session_owners (session_id, owner) VALUES (?, ?)"
_FIND = "SELECT session_id, owner FROM session_owners WHERE session_id IN ({marks})"
_BEGUN = (
    "SELECT k.column1 FROM (VALUES {rows}) AS k WHERE EXISTS (SELECT 1 FROM entries "
    "WHERE session_id = k.column1 AND event_type IN ('SESSION_START', 'WO_PLANNED', 'DISPATCH'))"
)
_PLANNED = (
    "SELECT k.column1 FROM (VALUES {rows}) AS k WHERE EXISTS (SELECT 1 FROM entries "
    "WHERE work_order_id = k.column1 AND event_type = 'WO_PLANNED')"
)
_MAX_KNOWN = 16_384  # clients name sessions: what is remembered of them has an end


class NotYoursError(RemitError):
    """A session or a work order is another's."""


class Named(Struct, frozen=True, gc=False):
    """What a caller who is held to its own sessions works in.

    Attributes:
        session: its owner, and the session's id.
        order: may be empty.
    """

    session: tuple[str, str]
    order: str


def named_by(identity: Identity | None, request: PromptRequest) -> Named | None:
    """What of a call must be its caller's own; ``None`` where nothing must.

    Keys and tokens of the role ``agent`` are held to their own sessions: the record, the budgets
    and the erasure of a session belong together. Those that operate the root are not.

    Raises:
        NotYoursError: the work order is one of another session.
    """
    if identity is None or identity.role != "agent" or identity.session_id:
        return None  # a token for one session was checked against it
    order = request.work_order_id or ""
    if order.startswith(_SESSIONS_ORDER) and not order.startswith(f"WO-{request.session_id}-"):
        raise NotYoursError("this work order is one of another session")
    return Named((owner_of(identity), request.session_id), order)


def owner_of(identity: Identity) -> str:
    """Who owns what a caller makes: the user, where the key was given to one, else the key."""
    if identity.user_id:
        return f"user:{identity.user_id}"
    return f"key:{identity.key_id}" if identity.key_id else f"name:{identity.name}"


class KnownOwners(set[tuple[str, str]]):
    """Owners and sessions of theirs that this process saw on record: they never change."""

    def note(self, named: Named) -> None:
        """A session was found, or made durable, as its owner's."""
        if len(self) >= _MAX_KNOWN:
            self.clear()
        self.add(named.session)


class Sessions:
    """Gives sessions to those who first work in them, in one transaction.

    Args:
        tx: of which.
        known: what need not be read.
    """

    def __init__(self, tx: Transaction, known: KnownOwners) -> None:
        self._tx = tx
        self._known = known
        self._owners: dict[str, str | None] = {}  # None: free
        self._planned: dict[str, bool] = {}
        self._claimed: list[tuple[str, str]] = []

    def ask(self, asked: Collection[Named]) -> Callable[[], None]:
        """Ask for what is not known yet of that which calls name; what is returned notes it."""
        missing = {named.session[1] for named in asked if named.session not in self._known}
        missing -= self._owners.keys()
        orders = {named.order for named in asked if named.order} - self._planned.keys()
        owners = select_in(self._tx, _FIND, missing)
        begun = select_in(self._tx, _BEGUN, missing)
        planned = select_in(self._tx, _PLANNED, orders)

        def note() -> None:
            self._owners |= dict.fromkeys(missing)
            self._owners |= {name: "" for (name,) in begun}
            self._owners |= dict(owners)
            self._planned |= dict.fromkeys(orders, False)
            self._planned |= {name: True for (name,) in planned}

        return note

    def check(self, named: Named) -> None:
        """Whether a caller may work in what it names.

        Raises:
            NotYoursError: it may not.
        """
        (owner, session_id), order = named.session, named.order
        is_known = named.session in self._known
        if (not is_known and session_id not in self._owners) or (
            order and order not in self._planned
        ):
            self.ask([named])()
        has = owner if is_known else self._owners[session_id]
        if has and has != owner:
            raise NotYoursError("this session belongs to another key")
        if order and self._planned[order]:
            raise NotYoursError("this work order was planned for somebody else")
        if has == "":
            raise NotYoursError("this session was begun by somebody else")

    def begun(self, session_id: str, named: Named | None) -> None:
        """Somebody works in a session now; who is held to its own sessions has it from here on."""
        if named is None:
            if self._owners.get(session_id, "") is None:
                self._owners[session_id] = ""
        elif named.session not in self._known and self._owners.get(session_id, "") is None:
            owner = self._owners[session_id] = named.session[0]
            self._claimed.append((session_id, owner))

    def write(self) -> None:
        """Write whose they have become."""
        if self._claimed:
            self._tx.execute_many(_CLAIM, self._claimed)
            self._claimed = []
