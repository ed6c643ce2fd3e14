"""Owners of sessions and work orders; other callers cannot use them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from msgspec import Struct

from remit.gateway.auth import Identity
from remit.gateway.key_queries import select_in
from remit.kernel.errors import RemitError
from remit.ledger import Transaction

_SESSIONS_ORDER = "WO-SES-"
_DEFAULT_SESSION = re.compile(r"SES-([A-Z0-9]{16})20\d{6}")
ORDER_ROW = "order:"
"""Before the id of a work order, the name of its row in ``session_owners``."""
_NOT_YOUR_SESSION = (
    "this session belongs to another caller; send another one in x-remit-session, or none"
)
_NOT_YOUR_ORDER = (
    "this work order belongs to another caller; send another one in x-remit-work-order, or none"
)
_CLAIM = "INSERT INTO session_owners (session_id, owner) VALUES (?, ?)"
_FIND = "SELECT session_id, owner FROM session_owners WHERE session_id IN ({marks})"
_SESSION_START_SQL = (
    "SELECT k.column1 FROM (VALUES {rows}) AS k WHERE EXISTS (SELECT 1 FROM entries "
    "WHERE session_id = k.column1 AND event_type IN ('SESSION_START', 'WO_PLANNED', 'DISPATCH'))"
)
_PLANNED = (
    "SELECT k.column1 FROM (VALUES {rows}) AS k WHERE EXISTS (SELECT 1 FROM entries "
    "WHERE work_order_id = k.column1 AND seq > CAST(k.column2 AS bigint) "
    "AND event_type = 'WO_PLANNED')"
)
_MAX_KNOWN = 4_096  # clients name sessions: what is remembered of them has an end


class NotYoursError(RemitError):
    """A session or a work order belongs to another caller."""


class Ownership(Struct, frozen=True, gc=False):
    """The session and work order that a restricted caller works in.

    Immutable.

    Attributes:
        session: the caller's owner name, and the session's id.
        order: the work order's id; may be empty.
        is_reserved: True if the session's name is reserved for another key; it cannot be begun.
        owned: rows of ``session_owners`` that must be the caller's: owner and name of the session,
            then of the order.
    """

    session: tuple[str, str]
    order: str
    is_reserved: bool
    owned: tuple[tuple[str, str], ...]


def check_session(tx: Transaction, identity: Identity, session_id: str) -> None:
    """Check in a transaction that the caller may work in a session. Writes nothing.

    A session without an owner is allowed to all, and any session to callers who operate the root.

    Args:
        tx: the transaction.
        identity: the caller.
        session_id: the session.

    Raises:
        NotYoursError: the session belongs to another caller, its name is reserved for another key,
            or the caller's token is for another session.
        LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
    """
    if identity.session_id and identity.session_id != session_id:
        raise NotYoursError(_NOT_YOUR_SESSION)
    named = ownership_of(identity, session_id)
    if named is not None:
        Sessions(tx, set(), {}).check(named)


def ownership_of(identity: Identity | None, session_id: str, order: str = "") -> Ownership | None:
    """Return the session and order that must be the caller's own; ``None`` if none must be.

    Reads no database. Keys and tokens of the role ``agent`` are held to their own sessions: the
    record, the budgets and the erasure of a session belong together. Callers who operate the root
    are not. A token for one session was checked against it already.

    Args:
        identity: the caller; ``None`` if unauthenticated.
        session_id: the session.
        order: the work order; may be empty.

    Raises:
        NotYoursError: the work order's id names another session.
    """
    if identity is None or identity.role != "agent" or identity.session_id:
        return None  # a token for one session was checked against it
    if order.startswith(_SESSIONS_ORDER) and not order.startswith(f"WO-{session_id}-"):
        raise NotYoursError(_NOT_YOUR_ORDER)
    default = _DEFAULT_SESSION.fullmatch(session_id)
    is_reserved = default is not None and identity.key_id != f"KEY-{default[1]}"
    session = (owner_of(identity), session_id)
    owned = (session, (session[0], f"{ORDER_ROW}{order}")) if order else (session,)
    return Ownership(session, order, is_reserved, owned)


def default_session(identity: Identity, day: str) -> str:
    """Return the session id of calls that name none: one for each key and day.

    The id can be guessed, so it is reserved for its key before the session is begun.

    Args:
        identity: the caller.
        day: the day as ``YYYYMMDD``.
    """
    return f"SES-{(identity.key_id.removeprefix('KEY-') or 'LOCAL').upper()}{day}"


def owner_of(identity: Identity) -> str:
    """Return the owner of everything that a caller creates: its user, else its key, else its name.

    Args:
        identity: the caller.

    Returns:
        ``user:{id}``, ``key:{id}`` or ``name:{name}``.
    """
    if identity.user_id:
        return f"user:{identity.user_id}"
    return f"key:{identity.key_id}" if identity.key_id else f"name:{identity.name}"


def note_owned(known: set[tuple[str, str]], named: Ownership) -> None:
    """Add the rows that a caller owns to the cache.

    A cache of 4,096 rows or more is cleared first.

    Args:
        known: pairs of owner and name; changed in place.
        named: the session and order.
    """
    if len(known) >= _MAX_KNOWN:
        known.clear()
    known.update(named.owned)


class Sessions:
    """Ownership of sessions in one transaction: the first caller in a session becomes its owner.

    :meth:`ask` reads owners, :meth:`check` compares them, :meth:`begun` notes new ones, and
    :meth:`write` inserts these.

    Args:
        tx: the transaction.
        known: pairs of owner and session that need not be read, because they never change.
        unplanned: sequence numbers, keyed by work order: no entry up to that number plans the
            order. Changed in place, so that the next transaction reads newer entries only.
    """

    def __init__(
        self, tx: Transaction, known: set[tuple[str, str]], unplanned: dict[str, int]
    ) -> None:
        self._tx = tx
        self._known = known
        self._unplanned = unplanned
        self._owners: dict[str, str | None] = {}  # None: free
        self._planned: dict[str, bool] = {}
        self._claimed: list[tuple[str, str]] = []

    def ask(self, asked: Collection[Ownership]) -> Callable[[], None] | None:
        """Send the queries for owners that are not known yet.

        Args:
            asked: the sessions and orders to read.

        Returns:
            A function that reads the results, to call before :meth:`check`; ``None`` if nothing
            must be read.

        Raises:
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        missing = {own[1] for named in asked for own in named.owned if own not in self._known}
        missing -= self._owners.keys()
        orders = {named.order for named in asked if named.order} - self._planned.keys()
        if not missing and not orders:
            return None
        owners = select_in(self._tx, _FIND, missing)
        begun = select_in(self._tx, _SESSION_START_SQL, missing)
        read_to = [(one, str(self._unplanned.get(one, -1))) for one in orders]
        planned = select_in(self._tx, _PLANNED, read_to)

        def note() -> None:
            self._owners |= dict.fromkeys(missing)
            self._owners |= {name: "" for (name,) in begun}
            self._owners |= dict(owners)
            self._planned |= dict.fromkeys(orders, False)
            self._planned |= {name: True for (name,) in planned}

        return note

    def check(self, named: Ownership) -> None:
        """Check that the caller owns a session and order, or that they have no owner.

        Writes nothing. The queries are sent here unless :meth:`ask` has sent them.

        Args:
            named: the session and order that a call names, and the rows that must be the caller's.

        Raises:
            NotYoursError: another caller owns one of them, the session's name is reserved for
                another key, or the order has a ``WO_PLANNED`` entry. The message does not name the
                owner.
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        order, owned = named.order, named.owned
        known = self._known.issuperset(owned)
        if (order and order not in self._planned) or (
            not known
            and any(own not in self._known and own[1] not in self._owners for own in owned)
        ):
            note = self.ask([named])
            if note is not None:
                note()
        if not known and not self._is_free(named.session, begun=named.is_reserved):
            raise NotYoursError(_NOT_YOUR_SESSION)
        if order and (self._planned[order] or not (known or self._is_free(owned[1]))):
            raise NotYoursError(_NOT_YOUR_ORDER)

    def _is_free(self, own: tuple[str, str], *, begun: bool = False) -> bool:
        """Return True if a row is the owner's, or has no owner yet and need not be ``begun``."""
        if own in self._known:
            return True
        has = self._owners[own[1]]
        return has == own[0] or (has is None and not begun)

    def begun(self, session_id: str, named: Ownership | None) -> None:
        """Note that work in a session begins; a restricted caller becomes its owner.

        :meth:`write` inserts the rows. A session that has an owner, or was begun by an unrestricted
        caller, gets no owner.

        Args:
            session_id: the session.
            named: the session and order that must be the caller's; ``None`` for an unrestricted
                caller.
        """
        if named is None:
            if self._owners.get(session_id, "") is None:
                self._owners[session_id] = ""
            return
        for owner, name in named.owned:
            if (owner, name) not in self._known and self._owners.get(name, "") is None:
                self._owners[name] = owner
                self._claimed.append((name, owner))

    def write(self) -> None:
        """Insert the rows of new owners, and note how far the orders of calls were read."""
        if self._planned:
            if len(self._unplanned) >= _MAX_KNOWN:
                self._unplanned.clear()
            # Entries of this transaction may yet be undone, and their numbers used again.
            unplanned = [order for order, is_planned in self._planned.items() if not is_planned]
            self._unplanned.update(dict.fromkeys(unplanned, self._tx.begun_at))
        if self._claimed:
            self._tx.execute_many(_CLAIM, self._claimed)
            self._claimed = []
