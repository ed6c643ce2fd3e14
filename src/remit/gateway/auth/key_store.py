"""The store of virtual keys, in the ledger's database."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from remit.gateway.auth.identity import AuthenticationError, AuthUnavailableError, Identity
from remit.gateway.auth.key_cache import AuthLimits, KeyCache, mark
from remit.gateway.auth.projection import record_change
from remit.gateway.auth.virtual_key import (
    KeyRow,
    NewKey,
    VirtualKey,
    check_text,
    items_of,
    new_key_id,
    new_secret,
    time_text,
)
from remit.kernel.budget_values import BudgetScope
from remit.kernel.errors import ConflictError, InvalidInputError
from remit.kernel.loops import Closeable
from remit.kernel.tenant import tenant_of_origin
from remit.ledger import LedgerClient, Transaction

_log = logging.getLogger("remit.auth")

_MAX_REASON_CHARS = 500

_InTransaction = Callable[[Transaction, str], dict[str, Any]]
_Keys = list[VirtualKey]  # within the class, `list` is the method


class KeyStore(Closeable):
    """Virtual keys: created, rotated, revoked and checked.

    Only the SHA-256 of a secret is stored. A slow hash protects passwords; these secrets are 256
    random bits, which cannot be searched, and each call has to be checked within microseconds. The
    ledger records the hash too, so a key inserted into the table is detected.

    Each change is one transaction with its ledger entry. A change takes effect at once in this
    process and within ``limits.revocation_s`` in every other. Threads may share a store; it does
    not survive a fork if it has limits.

    Args:
        ledger: the ledger that contains and records the keys.
        limits: how fresh the cache must be. Without limits the store only manages keys: it refuses
            every token and starts no thread.

    Raises:
        LedgerError: the keys cannot be read; only with ``limits``, like the next.
        AuthUnavailableError: the row of a key is damaged.
    """

    def __init__(self, ledger: LedgerClient, limits: AuthLimits | None = None) -> None:
        self._ledger = ledger
        self._cache: KeyCache | None = None
        if limits is not None:
            self._cache = KeyCache(ledger, limits)

    def __repr__(self) -> str:
        return f"KeyStore({self._ledger.location!r})"

    def close(self) -> None:
        """Refuse every key from now on and end the thread. A second call does nothing.

        The ledger stays open; close it after the store.
        """
        if self._cache is not None:
            self._cache.close()

    def authenticate(self, token: str | None) -> Identity:
        """Return the identity of a key. Does not wait for the database and writes nothing.

        A refusal is counted in :attr:`refused`.

        Args:
            token: the secret; None if the request has none.

        Raises:
            AuthenticationError: the key is missing, unknown, expired or revoked. Only a missing key
                is told apart by the message.
            AuthUnavailableError: the database could not be read for ``limits.stale_after_s``, or
                the store is closed, or was opened before a fork or without limits.
        """
        cache = self._require_cache()
        if (identity := cache.by_secret(token)) is not None:
            return identity
        cache.count_refusal()
        if not token:
            raise AuthenticationError(
                "The request has no API key.",
                next_step="Send a key as `Authorization: Bearer …` or `x-api-key: …`.",
            )
        raise _refused()

    @property
    def lookup(self) -> Callable[[str | None], Identity | None]:
        """The function :meth:`KeyCache.by_secret`.

        Raises:
            AuthUnavailableError: the store was opened without limits.
        """
        return self._require_cache().by_secret

    def identity_of(
        self, key_id: str, mark: str | None = None, *, since_ms: int | None = None
    ) -> Identity:
        """Return the identity of a valid key by its id. Reads only memory; a refusal is counted.

        Args:
            key_id: the key.
            mark: a result of :meth:`mark_of`; that secret must still be valid. None for the
                current one.
            since_ms: milliseconds since 1970 after which the key must not have been rotated; None
                to accept any rotation.

        Raises:
            AuthenticationError: the key is unknown, expired or revoked, or ``mark`` or ``since_ms``
                does not hold.
            AuthUnavailableError: as :meth:`authenticate`.
        """
        cache = self._require_cache()
        identity = cache.by_id(key_id, mark, since_ms)
        if identity is None:
            cache.count_refusal()
            raise _refused()
        return identity

    def current(self, key_id: str) -> Identity:
        """Return the identity of a valid key, read from the database. Blocks.

        Args:
            key_id: the key's id or name.

        Raises:
            NotFoundError: no key has this id or name.
            ConflictError: the key is revoked or expired.
            AuthUnavailableError: the row of the key is damaged.
            LedgerError: the ledger cannot be read.
        """
        row = KeyRow.find(self._ledger.select, key_id)
        row.require_live(self._ledger.wall_time)
        return row.key.identity

    @property
    def now_s(self) -> float:
        """The database's time in seconds since 1970, which decides whether a key has expired.

        With limits the time is read from memory.

        Raises:
            LedgerError: the database cannot be reached; only without limits.
        """
        return self._ledger.wall_ms / 1000 if self._cache is None else self._cache.now_s

    @staticmethod
    def mark_of(token: str) -> str:
        """Return 32 hex characters that identify one secret of a key and do not reveal it."""
        return mark(hashlib.sha256(token.encode()).digest())

    @property
    def refused(self) -> int:
        """The number of authentications refused since the store was opened."""
        return 0 if self._cache is None else self._cache.refused

    def create(
        self,
        name: str,
        *,
        role: str = "agent",
        models: Sequence[str] = (),
        agents: Sequence[str] = (),
        tiers: Sequence[str] = (),
        pass_through: Sequence[str] = (),
        pass_through_unpriced: Sequence[str] = (),
        user_id: str = "",
        team_id: str = "",
        organisation_id: str = "",
        expires: str | datetime | None = None,
        requested_by: str = "operator",
        in_transaction: _InTransaction | None = None,
    ) -> NewKey:
        """Create a key; writes one ``KEY_CREATED`` entry, with the secret's hash and not the
        secret.

        The key's row is inserted in the same transaction and is valid here at once. An error of
        ``in_transaction`` undoes everything.

        Args:
            name: at most 128 printable characters, not beginning with ``KEY-``; no other unrevoked
                key may have it, expired or not.
            role: a name of :data:`remit.gateway.auth.ROLES`.
            models: as in :class:`~remit.gateway.auth.Identity`, like the seven arguments that
                follow.
            expires: an aware ``datetime``, or ISO 8601 with a zone; None for a key that does not
                expire.
            requested_by: who asked for the key; recorded.
            in_transaction: called with the transaction and the key's id, such as to set the key's
                budget. The returned mapping is added to the entry's metadata.

        Returns:
            The id, the name and the secret, which cannot be read again.

        Raises:
            InvalidInputError: a value cannot be used, the expiry is past, or ``in_transaction``
                returned a key that the entry has already.
            ConflictError: another key has the name.
            LedgerError: the ledger cannot be written.
        """
        secret, shown, hash_ = new_secret(self._tenant())
        now = time_text(self._ledger.wall_time)
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
            pass_through=items_of("pass_through", pass_through),
            pass_through_unpriced=items_of("pass_through_unpriced", pass_through_unpriced),
            created=now,
            expires=time_text(expires),
        ).checked()
        if made.expires and made.expires <= now:
            raise InvalidInputError(
                f"The expiry {made.expires} is in the past.", next_step="Give a later time."
            )
        check_text("requested_by", requested_by)

        def call(tx: Transaction) -> KeyRow:
            if tx.execute("SELECT 1 FROM virtual_keys WHERE name = ? AND revoked = ''", (name,)):
                raise ConflictError(
                    f"A key named {name!r} already exists.",
                    next_step="Choose another name, revoke that key, or rotate it.",
                )
            row = KeyRow(made, hash_).numbered(tx)
            more = in_transaction(tx, made.key_id) if in_transaction else {}
            return record_change(
                tx, "KEY_CREATED", "CREATED", "Key created", row, requested_by, more
            )

        self._change(call)
        return NewKey(made.key_id, name, secret)

    def list(
        self, include_revoked: bool = False, *, begin: str = "", limit: int | None = None
    ) -> _Keys:
        """Return the keys sorted by name. Expired keys are included.

        Args:
            include_revoked: include revoked keys too.
            begin: the first name; no earlier name is returned.
            limit: largest number of keys; all if left out.

        Raises:
            LedgerError: the ledger cannot be read.
            AuthUnavailableError: the row of a key is damaged.
        """
        condition = "" if include_revoked else "AND revoked = ''"
        most = "" if limit is None else f"LIMIT {limit}"
        rows = self._ledger.select(
            f"{KeyRow.SELECT} WHERE name >= ? {condition} ORDER BY name, created {most}", (begin,)
        )
        return [KeyRow.of(row).key for row in rows]

    def find(self, name_or_id: str) -> VirtualKey:
        """Return the key with this id or name.

        Blocks.

        Of keys with the same name, the unrevoked one is returned, otherwise the latest.

        Args:
            name_or_id: the key.

        Raises:
            NotFoundError: no key has this id or name.
            AuthUnavailableError: the row of the key is damaged.
            LedgerError: the ledger cannot be read.
        """
        return KeyRow.find(self._ledger.select, name_or_id).key

    def budget_scope(self, owner: str, name: str, *, agent: str = "") -> BudgetScope:
        """Return the budget scope of an owner.

        A key, revoked or not, is looked up in the database, except ``dev``, the key of dev mode.
        The other owners need not exist.

        Args:
            owner: ``key``, ``session``, ``user``, ``team`` or ``organisation``.
            name: the owner's id; a key may be given by name.
            agent: narrows a session's scope to one agent.

        Raises:
            NotFoundError: no such key exists.
            InvalidInputError: the kind of owner is unknown, ``agent`` is given for an owner other
                than a session, or ``name`` is empty.
            AuthUnavailableError: the row of the key is damaged.
            LedgerError: the ledger cannot be read.
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
        if owner not in ("key", "user", "team", "organisation"):
            raise InvalidInputError(f"Unknown kind of owner {owner!r}.")
        ids: dict[str, Any] = {f"{owner}_id": name}
        return BudgetScope(**ids)

    def revoke(self, name_or_id: str, reason: str = "", *, requested_by: str = "operator") -> str:
        """Revoke a key for good and return the id of its ``KEY_REVOKED`` entry.

        Also ends an old secret in its grace period. If the key is already revoked, nothing changes
        and the id of the earlier entry is returned.

        Args:
            name_or_id: the key.
            reason: one line of at most 500 characters; recorded permanently. Empty for ``Key
                revoked``.
            requested_by: who asked; recorded.

        Raises:
            NotFoundError: no key has this id or name.
            InvalidInputError: ``reason`` or ``requested_by`` cannot be recorded.
            LedgerError: the ledger cannot be written.
            AuthUnavailableError: the row of the key is damaged.
        """
        if reason:
            check_text("reason", reason, _MAX_REASON_CHARS)
        check_text("requested_by", requested_by)
        now = time_text(self._ledger.wall_time)

        def call(tx: Transaction) -> KeyRow:
            row = KeyRow.find(tx.execute, name_or_id)
            if row.key.revoked:
                return row
            row = replace(row, key=replace(row.key, revoked=now)).numbered(tx)
            reason_ = reason or "Key revoked"
            return record_change(tx, "KEY_REVOKED", "REVOKED", reason_, row, requested_by)

        return self._change(call).key.revoked_entry

    def rotate(
        self, name_or_id: str, *, grace_s: float = 0.0, requested_by: str = "operator",
        once: bool = False,
    ) -> NewKey:  # fmt: skip
        """Give a key a new secret; writes one ``KEY_CREATED`` entry with ``rotated`` set.

        Id, name, permissions, expiry, budget and history stay. The old secret ends at once, or
        after ``grace_s``. A secret that was still in an earlier grace period ends at once.

        Args:
            name_or_id: the key.
            grace_s: seconds for which the old secret stays valid; 0 for none.
            requested_by: who asked; recorded.
            once: True to refuse a key that was rotated before.

        Returns:
            The id, the name and the new secret, which cannot be read again.

        Raises:
            NotFoundError: no key has this id or name.
            ConflictError: the key is revoked or expired, or was rotated before and ``once`` is set.
            InvalidInputError: the grace period is negative or too long, or ``requested_by`` cannot
                be recorded.
            LedgerError: the ledger cannot be written.
            AuthUnavailableError: the row of the key is damaged.
        """
        if not grace_s >= 0:
            raise InvalidInputError("The grace period must be 0 seconds or more.")
        check_text("requested_by", requested_by)
        now = self._ledger.wall_time
        try:
            wait = timedelta(seconds=grace_s)
            until = time_text(now + wait) if grace_s else ""
        except OverflowError as error:
            raise InvalidInputError("The grace period is too long.") from error
        secret, shown, hash_ = new_secret(self._tenant())

        def call(tx: Transaction) -> KeyRow:
            row = KeyRow.find(tx.execute, name_or_id)
            row.require_live(now)
            if once and row.key.rotated:
                raise ConflictError(f"The key {row.key.name!r} was rotated before.")
            key = replace(row.key, prefix=shown, rotated=time_text(now))
            more = {"rotated": True, **({"old_until": until} if until else {})}
            row = KeyRow(key, hash_).numbered(tx)
            return record_change(
                tx, "KEY_CREATED", "ROTATED", "Key rotated", row, requested_by, more
            )

        key = self._change(call).key
        return NewKey(key.key_id, key.name, secret)

    def change(
        self,
        name_or_id: str,
        *,
        pass_through: Sequence[str] | None = None,
        pass_through_unpriced: Sequence[str] | None = None,
        requested_by: str = "operator",
    ) -> VirtualKey:
        """Replace lists of a key's permissions; writes one ``KEY_CREATED`` entry, ``CHANGED``.

        Everything else of the key stays, its secret too. Nothing is written if nothing changes.

        Args:
            name_or_id: the key.
            pass_through: the new list; None to leave it.
            pass_through_unpriced: the new list; None to leave it.
            requested_by: who asked; recorded.

        Returns:
            The changed key.

        Raises:
            NotFoundError: no key has this id or name.
            ConflictError: the key is revoked or expired.
            InvalidInputError: a pattern covers no path, or ``requested_by`` cannot be recorded.
            LedgerError: the ledger cannot be written.
            AuthUnavailableError: the row of the key is damaged.
        """
        check_text("requested_by", requested_by)
        given = {"pass_through": pass_through, "pass_through_unpriced": pass_through_unpriced}
        new: dict[str, Any] = {
            name: items_of(name, one) for name, one in given.items() if one is not None
        }
        now = self._ledger.wall_time

        def call(tx: Transaction) -> KeyRow:
            row = KeyRow.find(tx.execute, name_or_id)
            row.require_live(now)
            key = replace(row.key, **new).checked()
            if key == row.key:
                return row
            row = replace(row, key=key).numbered(tx)
            return record_change(tx, "KEY_CREATED", "CHANGED", "Key changed", row, requested_by)

        return self._change(call).key

    def _change(self, call: Callable[[Transaction], KeyRow]) -> KeyRow:
        row = self._ledger.transact(call)
        if self._cache is not None:
            self._cache.apply([row])
        return row

    def _tenant(self) -> str:
        """Return the tenant that owns the ledger, by the origin of its log; empty if none does."""
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


def _refused() -> AuthenticationError:
    return AuthenticationError(
        "The key is unknown, expired or revoked.", next_step="Ask the operator for a new key."
    )
