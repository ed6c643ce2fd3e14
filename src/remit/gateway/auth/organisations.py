"""Users, teams and organisations: names that are declared in the ledger and read from it."""

from __future__ import annotations

import builtins
import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from remit.gateway.auth.virtual_key import KeyRow, VirtualKey, check_text
from remit.kernel.budget_values import BudgetScope, BudgetStatus, owners_of, usd_of
from remit.kernel.errors import ConflictError, InvalidInputError, NotFoundError
from remit.ledger import LedgerClient, LedgerEntry, Transaction, content, is_authentic

if TYPE_CHECKING:
    from remit.gateway.budget import TokenBudgeter

OwnerKind = Literal["user", "team", "organisation"]
"""Whose budgets a key's calls also count in."""

_LATEST = "SELECT max(seq) FROM entries WHERE event_type = 'OWNER_NAMED'"
_SCOPES = (
    "SELECT scope FROM budgets WHERE scope LIKE 'user:%' OR scope LIKE 'team:%' "
    "OR scope LIKE 'organisation:%'"
)


@dataclass(frozen=True, slots=True)
class Owner:
    """A user, team or organisation. Unknown values are empty.

    Immutable. ``scope`` is the name of its budget account, such as ``team:payments``.

    Attributes:
        kind: ``user``, ``team`` or ``organisation``.
        id: the id that keys and budgets use.
        name: the name for people; empty if it was not declared or has been erased.
        entry: id of the ``OWNER_NAMED`` entry that declares the name.
        at: timestamp of that entry.
        by: who declared the name.
    """

    kind: OwnerKind
    id: str
    name: str = ""
    entry: str = ""
    at: str = ""
    by: str = ""

    @property
    def scope(self) -> str:
        """The name of its account: ``team:payments``."""
        return scope_of(self.kind, self.id)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON: empty ones are None, ``at`` is ``declared``, and ``scope`` is
        added.
        """
        return {
            "kind": self.kind, "id": self.id, "name": self.name or None, "scope": self.scope,
            "entry": self.entry or None, "declared": self.at or None, "by": self.by or None,
        }  # fmt: skip


class Directory:
    """Declared users, teams and organisations, and those that keys and budgets name.

    An id works without a declaration and then has no name. A name is content: erasing its entry
    removes the name and leaves the id usable. :meth:`declare` and :meth:`rename` write; the other
    methods read, and block. Threads may share an object; the declared names are cached.

    Args:
        ledger: the ledger that contains the names, keys and budgets.
    """

    def __init__(self, ledger: LedgerClient) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._read: tuple[int | None, int, Mapping[str, Owner]] = (-1, -1, {})

    @property
    def now(self) -> datetime:
        """The database's time, which decides whether a key has expired.

        Raises:
            LedgerError: the database cannot be reached.
        """
        return self._ledger.wall_time

    def declare(
        self,
        kind: OwnerKind,
        id_: str,
        name: str,
        *,
        by: str,
        in_transaction: Callable[[Transaction, BudgetScope], object] | None = None,
    ) -> Owner:
        """Give a user, team or organisation its first name; writes one ``OWNER_NAMED`` entry.

        If another process declares a name at the same time, the check is repeated. Errors of
        ``in_transaction`` undo everything.

        Args:
            kind: the kind of owner.
            id_: at most 128 printable characters; keys and budgets name the owner by this id.
            name: the name for people, at most 128 printable characters.
            by: who declares it; recorded.
            in_transaction: called in the same transaction with the budget scope of the owner, such
                as to set its budget.

        Returns:
            The declared owner.

        Raises:
            InvalidInputError: a value cannot be used.
            ConflictError: the owner is already declared.
            LedgerError: the ledger cannot be read or written.
        """

        def check(known: Owner | None) -> None:
            if known is not None:
                raise ConflictError(
                    f"The {kind} {id_!r} already exists: {known.name or '(name erased)'}.",
                    next_step=f"`remit {kind} rename` renames it.",
                )

        _require_texts(kind, id_, name, by)
        return self._named(kind, id_, name, by, "CREATED", check, in_transaction)

    def rename(self, kind: OwnerKind, id_: str, name: str, *, by: str) -> tuple[Owner, Owner]:
        """Change the name of a declared owner; writes one ``OWNER_NAMED`` entry.

        Nothing is written if the name is the same.

        Args:
            kind: the kind of owner.
            id_: the owner's id.
            name: the new name, at most 128 printable characters.
            by: who renames it; recorded.

        Returns:
            The owner before and after the change.

        Raises:
            InvalidInputError: the kind, the id, the name or ``by`` cannot be used.
            NotFoundError: the owner is not declared.
            LedgerError: the ledger cannot be read or written.
        """
        _require_texts(kind, id_, name, by)
        before: list[Owner] = []

        def check(known: Owner | None) -> None:
            if known is None:
                raise _missing(kind, id_, self.declared())
            before[:] = [known]

        known = self.declared().get(scope_of(kind, id_))
        if known is not None and known.name == name:
            return known, known
        after = self._named(kind, id_, name, by, "RENAMED", check)
        return before[0], after

    def declared(self) -> Mapping[str, Owner]:
        """Return the declared owners, keyed by scope such as ``team:payments``. Blocks.

        The result is cached until a name is declared or content is erased.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        ((latest,),) = self._ledger.select(_LATEST, ())
        ((erased,),) = self._ledger.select(
            "SELECT coalesce(max(seq), -1) FROM entries WHERE event_type = 'ERASURE'", ()
        )
        with self._lock:
            if self._read[:2] == (latest, erased):
                return self._read[2]
        found: dict[str, Owner] = {}
        for entry in self._ledger.query(event_type="OWNER_NAMED"):
            said = entry.metadata
            if is_authentic(entry) and said.get("kind") in get_args(OwnerKind):
                name = said.get("name")
                owner = Owner(
                    said["kind"], str(said.get("owner_id")), name if type(name) is str else "",
                    entry.id, entry.timestamp, str(said.get("by", "")),
                )  # fmt: skip
                found[owner.scope] = owner
        with self._lock:
            self._read = (latest, erased, found)
        return found

    def list(self, kind: OwnerKind) -> list[Owner]:
        """Return the owners of a kind, sorted by id. Blocks.

        Owners that are declared, or named by an unrevoked key or a budget, are included.

        Args:
            kind: ``user``, ``team`` or ``organisation``.

        Raises:
            InvalidInputError: the kind is unknown.
            LedgerError: the ledger cannot be read.
            AuthUnavailableError: the row of a key is damaged.
        """
        _require_kind(kind)
        found = {owner.id: owner for owner in self.declared().values() if owner.kind == kind}
        ids = {getattr(key, f"{kind}_id") for key in self._keys()}
        scopes = (str(scope) for (scope,) in self._ledger.select(_SCOPES, ()))
        ids |= {owners_of([scope]).get(f"{kind}_id", "") for scope in scopes}
        for id_ in ids - found.keys() - {""}:
            found[id_] = Owner(kind, id_)
        return [found[id_] for id_ in sorted(found)]

    def find(self, kind: OwnerKind, id_: str) -> Owner:
        """Return one owner, declared or not.

        Blocks.

        Args:
            kind: the kind of owner.
            id_: the owner's id.

        Raises:
            InvalidInputError: the kind is unknown.
            NotFoundError: the owner is not declared, and no unrevoked key or budget names it.
            AuthUnavailableError: the row of a key is damaged.
            LedgerError: the ledger cannot be read.
        """
        known = {owner.id: owner for owner in self.list(kind)}
        if id_ not in known:
            raise _missing(kind, id_, {owner.scope: owner for owner in known.values()})
        return known[id_]

    def described(
        self, owners: Iterable[Owner], states: Iterable[BudgetStatus]
    ) -> builtins.list[dict[str, Any]]:
        """Return owners with their members, unrevoked keys, budget and spending.

        Args:
            owners: the owners to describe.
            states: the existing budgets.

        Returns:
            For each owner the fields of :meth:`Owner.to_dict`, ``keys``, ``users`` and ``teams``
            (ids that its keys name), ``budget`` (None without one), ``spent_usd``, ``spent_tokens``
            and ``limit_usd``. Without a budget the spending is the sum of its keys' budgets.

        Raises:
            LedgerError: the ledger cannot be read.
            AuthUnavailableError: the row of a key is damaged.
        """
        budgets, keys = {state.scope: state for state in states}, self._keys()
        now = self._ledger.wall_time
        found = []
        for owner in owners:
            own = [key for key in keys if getattr(key, f"{owner.kind}_id") == owner.id]
            budget = budgets.get(owner.scope)
            scopes = [BudgetScope(key_id=key.key_id).key for key in own]
            spent = [budget] if budget else [budgets[one] for one in scopes if one in budgets]
            limit = budget.nano_limit if budget else None
            found.append(
                owner.to_dict()
                | {
                    "keys": [
                        {
                            "id": key.key_id,
                            "name": key.name,
                            "role": key.role,
                            "state": key.state_at(now),
                        }
                        for key in own
                    ],
                    "users": sorted({key.user_id for key in own} - {""}),
                    "teams": sorted({key.team_id for key in own} - {""}),
                    "budget": budget.to_dict() if budget else None,
                    "spent_usd": usd_of(sum(state.spent_nano for state in spent)),
                    "spent_tokens": sum(state.spent_tokens for state in spent),
                    "limit_usd": None if limit is None else usd_of(limit),
                }
            )
        return found

    def names(self, key: VirtualKey) -> dict[str, str]:
        """Return ``user_name``, ``team_name`` and ``organisation_name`` of a key.

        Blocks.

        A name is empty if the key has no such owner, the owner is not declared or its name is
        erased.

        Args:
            key: the key.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        declared, found = self.declared(), {}
        for kind in get_args(OwnerKind):
            id_ = getattr(key, f"{kind}_id")
            known = declared.get(scope_of(kind, id_)) if id_ else None
            found[f"{kind}_name"] = known.name if known else ""
        return found

    def scope_names(self) -> dict[str, str]:
        """Return the names of keys and declared owners, keyed by budget scope.

        Blocks.

        Revoked keys are included; owners without a name are left out.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        rows = self._ledger.select("SELECT key_id, name FROM virtual_keys", ())
        named = {BudgetScope(key_id=key_id).key: str(name) for key_id, name in rows}
        declared = self.declared().items()
        return named | {scope: owner.name for scope, owner in declared if owner.name}

    def _keys(self) -> builtins.list[VirtualKey]:
        rows = self._ledger.select(f"{KeyRow.SELECT} WHERE revoked = '' ORDER BY name", ())
        return [KeyRow.of(row).key for row in rows]

    def _named(
        self,
        kind: OwnerKind,
        id_: str,
        name: str,
        by: str,
        decision: str,
        check: Callable[[Owner | None], None],
        in_transaction: Callable[[Transaction, BudgetScope], object] | None = None,
    ) -> Owner:
        ids: dict[str, Any] = {f"{kind}_id": id_}
        scope = scope_of(kind, id_)
        entry = LedgerEntry(
            "OWNER_NAMED", scope, decision, f"{kind.capitalize()} named",
            metadata={"kind": kind, "owner_id": id_, "name": content(name), "by": by},
        )  # fmt: skip

        def call(tx: Transaction, seen: int | None) -> str:
            ((latest,),) = tx.execute(_LATEST, ())
            if latest != seen:
                return ""  # somebody else was faster: look again
            made = tx.append(entry)
            if in_transaction is not None:
                in_transaction(tx, BudgetScope(**ids))
            return made

        while True:
            ((seen,),) = self._ledger.select(_LATEST, ())
            check(self.declared().get(scope))
            if self._ledger.transact(lambda tx, seen=seen: call(tx, seen)):  # type: ignore[misc]
                return self.declared()[scope]


def shown_keys(
    keys: Iterable[VirtualKey], directory: Directory, budgeter: TokenBudgeter
) -> Iterator[dict[str, Any]]:
    """Yield the description of each key for people, in the given order.

    Each is :meth:`VirtualKey.to_dict` with ``user_name``, ``team_name``, ``organisation_name``,
    ``limits`` (the limits that are set) and ``budget`` (None without one). Budgets are read once,
    at the first iteration.

    Args:
        keys: the keys.
        directory: gives the names of owners.
        budgeter: gives the budgets.

    Raises:
        LedgerError: the ledger cannot be read.
    """
    states, now = {state.scope: state for state in budgeter.list("key:")}, directory.now
    for key in keys:
        state = states.get(BudgetScope(key_id=key.key_id).key)
        yield {
            **key.to_dict(now),
            **directory.names(key),
            "limits": state.limits.to_dict() if state else {},
            "budget": state.to_dict() if state else None,
        }


def _require_texts(kind: OwnerKind, id_: str, name: str, by: str) -> None:
    _require_kind(kind)
    for what, value in (("id", id_), ("name", name), ("requested_by", by)):
        check_text(what, value, of=kind)


def scope_of(kind: str, id_: str) -> str:
    """Return the budget scope of an owner, such as ``team:payments``.

    Nothing is looked up.

    Args:
        kind: ``user``, ``team`` or ``organisation``.
        id_: the owner's id.

    Raises:
        InvalidInputError: the kind is unknown, or ``id_`` is empty.
    """
    _require_kind(kind)
    ids: dict[str, Any] = {f"{kind}_id": id_}
    return BudgetScope(**ids).key


def id_of(name: str) -> str:
    """Return an id made from a name: ``Payments & Billing`` becomes ``payments-billing``.

    The id is empty if the name contains no letter or digit that ASCII can express. Different names
    may give the same id.
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")


def _require_kind(kind: str) -> None:
    if kind not in get_args(OwnerKind):
        raise InvalidInputError(f"Unknown kind of owner {kind!r}.")


def _missing(kind: str, id_: str, known: Mapping[str, Owner]) -> NotFoundError:
    ids = sorted(owner.id for owner in known.values() if owner.kind == kind)
    return NotFoundError(
        f"The {kind} {id_!r} does not exist.",
        next_step=f"`remit {kind} list` lists existing ids"
        + (f": {', '.join(ids[:5])}" if ids else "")
        + f"; `remit {kind} create` declares one.",
    )
