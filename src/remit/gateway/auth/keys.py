"""Virtual keys, kept in the ledger's own database."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from remit.gateway.auth.errors import AuthenticationError, AuthUnavailableError
from remit.gateway.auth.identity import Identity
from remit.gateway.auth.key_cache import AuthLimits, KeyCache, RefusalCounter, mark
from remit.gateway.auth.virtual_key import (
    MOST_KEY_CHARS,
    KeyRow,
    NewKey,
    VirtualKey,
    check_text,
    items_of,
    new_key_id,
    new_secret,
    now_text,
    time_text,
)
from remit.kernel.budget import BudgetScope
from remit.kernel.errors import ConflictError, InvalidInputError
from remit.kernel.loops import Closeable
from remit.kernel.tenant import tenant_of_origin
from remit.ledger import LedgerClient, LedgerEntry, Transaction

_MAX_REASON_CHARS = 500
_OWNERS = ("user_id", "team_id", "organisation_id")

_InTransaction = Callable[[Transaction, str], dict[str, Any]]
_Keys = list[VirtualKey]  # within the class, `list` is the method


class KeyStore(Closeable):
    """Makes, revokes and checks virtual keys.

    Only a key's SHA-256 is stored. A slow hash (Argon2, bcrypt) protects passwords; these secrets
    are 256 random bits, which cannot be searched, and every call has to be checked within
    microseconds. It stands on record too: another in the table would be a key without a record.

    Every change is one transaction with its ledger entry. A change takes effect at once in the
    process that makes it, and within ``limits.revocation_s`` in every other.

    Args:
        ledger: where keys are kept and their making is recorded.
        limits: how fresh the cache of the keys must be. Left out, the store only manages keys:
            it refuses every token, and no thread watches the database.

    Raises:
        LedgerError: the database cannot be used.
    """

    def __init__(self, ledger: LedgerClient, limits: AuthLimits | None = None) -> None:
        self._ledger = ledger
        self._cache: KeyCache | None = None
        self._refusals = RefusalCounter(limits.refused_log_s if limits else math.inf)
        if limits is not None:
            self._cache = KeyCache(ledger, limits, self._refusals.log)

    def __repr__(self) -> str:
        return f"KeyStore({self._ledger.location!r})"

    def close(self) -> None:
        """Refuse every key from now on and end the thread. Closing twice is harmless.

        The ledger stays open; close it after the store.
        """
        if self._cache is not None:
            self._cache.close()
            self._refusals.log(closing=True)

    def authenticate(self, token: str | None) -> Identity:
        """The owner of this key. Waits for nothing and writes nothing.

        Raises:
            AuthenticationError: the key is unknown, expired or revoked; which is not said.
            AuthUnavailableError: the database could not be read for ``limits.stale_after_s``.
        """
        if (identity := self.lookup(token)) is not None:
            return identity
        self._refusals.count()
        if not token:
            raise AuthenticationError(
                "The request has no API key.",
                next_step="Send it as `Authorization: Bearer …` or `x-api-key: …`.",
            )
        raise _refused()

    def lookup(self, token: str | None) -> Identity | None:
        """The owner of this key; ``None`` where :meth:`authenticate` would refuse and count it.

        Raises:
            AuthUnavailableError: as :meth:`authenticate`.
        """
        cache = self._require_cache()
        if isinstance(token, str) and len(token) <= MOST_KEY_CHARS and token.isascii():
            return cache.by_secret(hashlib.sha256(token.encode("ascii")).digest())
        return None

    def identity_of(
        self, key_id: str, mark: str | None = None, *, since_ms: int | None = None
    ) -> Identity:
        """The owner of the valid key with this id. Raises as :meth:`authenticate`.

        Args:
            key_id: of the key.
            mark: only while the secret counts that :meth:`mark_of` gave it for.
            since_ms: only where it was not rotated since then, milliseconds since 1970.
        """
        identity = self._require_cache().by_id(key_id, mark, since_ms)
        if identity is None:
            self._refusals.count()
            raise _refused()
        return identity

    def current(self, key_id: str) -> Identity:
        """The identity of a valid key with this id, read from the database.

        Raises:
            NotFoundError: there is none.
            ConflictError: it is revoked or expired.
        """
        row = KeyRow.find(self._ledger.select, key_id)
        row.require_live()
        return row.key.identity

    @staticmethod
    def mark_of(token: str) -> str:
        """What tells one secret of a key from its others, and gives nothing of it away; 32 hex."""
        return mark(hashlib.sha256(token.encode()).digest())

    @property
    def refused(self) -> int:
        """How many calls were refused since the store was opened."""
        return self._refusals.total

    def create(
        self,
        name: str,
        *,
        role: str = "agent",
        models: Sequence[str] = (),
        agents: Sequence[str] = (),
        tiers: Sequence[str] = (),
        user_id: str = "",
        team_id: str = "",
        organisation_id: str = "",
        expires: str | datetime | None = None,
        requested_by: str = "operator",
        in_transaction: _InTransaction | None = None,
    ) -> NewKey:
        """Make a key; writes one ``KEY_CREATED`` entry, with its hash and without the secret.

        Args:
            name: at most 128 printable characters; no other key that is not revoked has it.
            role: a name of :data:`remit.gateway.auth.ROLES`.
            models: see :class:`~remit.gateway.auth.Identity`, as for the five that follow.
            expires: an aware ``datetime`` or ISO 8601 with its zone; never when left out.
            requested_by: who asked, on record.
            in_transaction: called with the transaction and the key's id, to do what belongs to
                the key in the same transaction, such as to set its budget. What it returns goes
                into the entry's metadata.

        Raises:
            InvalidInputError: a value cannot be used.
            ConflictError: the name is taken.
        """
        secret, shown, hash_ = new_secret(self._tenant())
        made = VirtualKey(
            key_id=new_key_id(),
            name=name,
            role=role,
            prefix=shown,
            user_id=user_id,
            team_id=team_id,
            organisation_id=organisation_id,
            models=items_of("models", models),
            agents=items_of("agents", agents),
            tiers=items_of("tiers", tiers),
            created=now_text(),
            expires=time_text(expires),
        ).checked()
        check_text("requested_by", requested_by)

        def call(tx: Transaction) -> KeyRow:
            if tx.execute("SELECT 1 FROM virtual_keys WHERE name = ? AND revoked = ''", (name,)):
                raise ConflictError(
                    f"A key named {name!r} already exists.",
                    next_step="Choose another name, revoke that key, or rotate it.",
                )
            row = KeyRow(made, hash_).numbered(tx)
            more = in_transaction(tx, made.key_id) if in_transaction else {}
            _record(tx, "KEY_CREATED", "CREATED", "Key created", row, requested_by, more)
            return row.saved(tx)

        self._change(call)
        return NewKey(made.key_id, name, secret)

    def list(self, include_revoked: bool = False) -> _Keys:
        """Keys by name, expired ones included; revoked ones with ``include_revoked``."""
        condition = "" if include_revoked else "WHERE revoked = ''"
        rows = self._ledger.select(f"{KeyRow.SELECT} {condition} ORDER BY name, created")
        return [KeyRow.of(row).key for row in rows]

    def find(self, name_or_id: str) -> VirtualKey:
        """The key of that id or name; of a name used again, the one that is not revoked.

        Raises:
            NotFoundError: there is none.
        """
        return KeyRow.find(self._ledger.select, name_or_id).key

    def budget_scope(self, owner: str, name: str, *, agent: str = "") -> BudgetScope:
        """The scope of a ``key`` (by name or id), ``session``, ``user``, ``team`` or
        ``organisation``; with ``agent``, of that agent in the session.

        Raises:
            NotFoundError: there is no such key.
            InvalidInputError: an agent of something else than a session.
        """
        if owner == "session":
            return BudgetScope(name, agent_id=agent or None)
        if agent:
            raise InvalidInputError(
                f"The budget of an agent belongs to a session, not to a {owner}.",
                next_step="Give the session.",
            )
        if owner == "key" and name != "dev":  # dev mode's own is no virtual key
            name = self.find(name).key_id
        ids: dict[str, Any] = {f"{owner}_id": name}
        return BudgetScope(**ids)

    def revoke(self, name_or_id: str, reason: str = "", *, requested_by: str = "operator") -> str:
        """End a key for good; returns the id of its ``KEY_REVOKED`` entry.

        A key that is revoked already stays as it is, and the id of that entry is returned, so a
        caller that is not sure can revoke twice.

        Args:
            name_or_id: which key.
            reason: why, in a line of at most 500 characters; stays on record.
            requested_by: who asked, on record.

        Raises:
            NotFoundError: there is none.
            InvalidInputError: the reason cannot be recorded.
        """
        if reason:
            check_text("reason", reason, _MAX_REASON_CHARS)
        check_text("requested_by", requested_by)

        def call(tx: Transaction) -> KeyRow:
            row = KeyRow.find(tx.execute, name_or_id)
            if row.key.revoked:
                return row
            key = replace(row.key, revoked=now_text(), old_until="")
            row = replace(row, key=key, old_hash="").numbered(tx)
            entry_id = _record(
                tx, "KEY_REVOKED", "REVOKED", reason or "Key revoked", row, requested_by
            )
            return replace(row, key=replace(key, revoked_entry=entry_id)).saved(tx)

        return self._change(call).key.revoked_entry

    def rotate(
        self, name_or_id: str, *, grace_s: float = 0.0, requested_by: str = "operator"
    ) -> NewKey:
        """Give a key a new secret; writes one ``KEY_CREATED`` entry with ``rotated``: true.

        The key stays the same one: id, name, scopes, expiry, budget and history go on. The old
        secret ends at once, or after ``grace_s``; one that was still in its grace ends at once.

        Args:
            name_or_id: which key.
            grace_s: seconds for which the old secret counts besides the new one.
            requested_by: who asked, on record.

        Raises:
            NotFoundError: there is none.
            ConflictError: it is revoked or expired.
            InvalidInputError: the grace is negative or beyond all calendars.
        """
        if not grace_s >= 0:
            raise InvalidInputError("The grace period must be 0 seconds or more.")
        check_text("requested_by", requested_by)
        try:
            until = time_text(datetime.now(UTC) + timedelta(seconds=grace_s)) if grace_s else ""
        except OverflowError as error:
            raise InvalidInputError("The grace period is too long.") from error
        secret, shown, hash_ = new_secret(self._tenant())

        def call(tx: Transaction) -> KeyRow:
            row = KeyRow.find(tx.execute, name_or_id)
            row.require_live()
            key = replace(row.key, prefix=shown, rotated=now_text(), old_until=until)
            more = {"rotated": True, **({"old_until": until} if until else {})}
            row = KeyRow(key, hash_, row.hash if until else "").numbered(tx)
            _record(tx, "KEY_CREATED", "ROTATED", "Key rotated", row, requested_by, more)
            return row.saved(tx)

        key = self._change(call).key
        return NewKey(key.key_id, key.name, secret)

    def _change(self, call: Callable[[Transaction], KeyRow]) -> KeyRow:
        row = self._ledger.transact(call)
        if self._cache is not None:
            self._cache.apply([row])
        return row

    def _tenant(self) -> str:
        """Whose log this is, as its origin says."""
        key = self._ledger.verifier_key
        owner = str(key) if key is not None else self._ledger.checkpoints.owner()
        return tenant_of_origin(owner.partition("+")[0])

    def _require_cache(self) -> KeyCache:
        if self._cache is None:
            raise AuthUnavailableError(
                "This key store was opened without limits, so it cannot authenticate.",
                next_step="Open it as KeyStore(ledger, AuthLimits(…)).",
            )
        return self._cache


def _record(
    tx: Transaction,
    event: str,
    decision: str,
    reason: str,
    row: KeyRow,
    requested_by: str,
    more: dict[str, Any] | None = None,
) -> str:
    """Append what happened to a key: all that its row says, so that it can be held against it."""
    key = row.key
    metadata: dict[str, Any] = {
        "key_id": key.key_id,
        "name": key.name,
        "prefix": key.prefix,
        "requested_by": requested_by,
        "at": key.revoked or key.rotated or key.created,
        "changed": row.changed,
    }
    if event == "KEY_CREATED":
        metadata["hash"] = row.hash
        metadata |= {name: getattr(key, name) for name in ("role", "expires", *_OWNERS)}
        metadata |= {name: [*getattr(key, name)] for name in ("models", "agents", "tiers")}
    if both := metadata.keys() & (more or {}).keys():
        raise InvalidInputError(f"The entry of a key has {', '.join(sorted(both))} already.")
    metadata |= more or {}
    return tx.append(
        LedgerEntry(
            event_type=event,
            submission_id=key.key_id,
            decision=decision,
            reason=reason,
            metadata=metadata,
        )
    )


def _refused() -> AuthenticationError:
    return AuthenticationError(
        "The key is unknown, expired or revoked.", next_step="Ask the operator for a new key."
    )
