"""The cache of valid keys in memory, refreshed from the database."""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from remit.gateway.auth.identity import AuthUnavailableError, Identity
from remit.gateway.auth.virtual_key import MAX_KEY_CHARS, KeyRow, seconds_of, time_text
from remit.kernel.errors import InvalidInputError
from remit.kernel.message_text import count
from remit.ledger import LedgerClient, LedgerClosedError

_log = logging.getLogger("remit.auth")


@dataclass(frozen=True, slots=True)
class AuthLimits:
    """Settings of ``[auth]``, in seconds and above 0.

    Immutable.

    Attributes:
        revocation_s: a change by another process takes effect here within this time; the database
            is read twice as often.
        stale_after_s: every key is refused after the database could not be read for this long.
        refused_log_s: least time between two log lines that state the number of refused calls.

    Raises:
        InvalidInputError: a value is not a finite number above 0, or ``stale_after_s`` is below
            ``revocation_s``.
    """

    revocation_s: float
    stale_after_s: float
    refused_log_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("revocation_s", "stale_after_s", "refused_log_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidInputError(f"[auth] {name} must be a number of seconds above 0.")
        if self.stale_after_s < self.revocation_s:
            raise InvalidInputError(
                "[auth] stale_after_s is below revocation_s, so keys would be refused between "
                "two reads of the database."
            )


_Secret = tuple[bytes, Identity, float]
"""The SHA-256 digest of a secret, the owner of its key, and the end of its validity."""

_Known = tuple[int, tuple[_Secret, ...], int]
"""The epoch of a key's latest change, its valid secrets, and when it was rotated (milliseconds)."""
_UNKNOWN: _Known = -1, (), 0
_COMPARE_S = 60.0
"""Interval at which the process's clock is compared with the database's."""


class KeyCache:
    """The valid keys: neither revoked nor expired, refreshed by a thread until :meth:`close`.

    A lookup never waits for the database. The thread reads one number there, the epoch, and fetches
    the keys that changed since, twice within ``revocation_s``. If the database cannot be read for
    ``stale_after_s``, every key is refused. Making the object reads all keys and starts the thread;
    it does not survive a fork.

    Args:
        ledger: the ledger whose database contains the keys.
        limits: how often to read, how long to trust the cache without a read, and how often to log
            the number of refusals.

    Attributes:
        refused: number of refusals that were counted.

    Raises:
        LedgerError: the keys cannot be read.
        AuthUnavailableError: the row of a key is damaged.
    """

    def __init__(self, ledger: LedgerClient, limits: AuthLimits) -> None:
        self._ledger = ledger
        self._limits = limits
        # Refusals are counted in memory only: a caller without a key causes no disk write.
        self.refused = self._logged = 0
        self._logged_at = -math.inf
        self._counting = threading.Lock()
        self._by_digest: dict[bytes, _Secret] = {}
        self._by_id: dict[str, _Known] = {}
        self._epoch = -1  # all changes up to it were fetched
        self._newest = -1  # the greatest of any row
        self._good_until = -math.inf
        self._behind_s, self._compared = 0.0, -math.inf
        self._pid = os.getpid()
        self._changing = threading.Lock()
        self._refreshing = threading.Lock()
        self._stop = threading.Event()
        self.refresh()
        self._thread = threading.Thread(target=self._run, name="remit-auth", daemon=True)
        self._thread.start()

    def by_secret(self, token: str | None) -> Identity | None:
        """Return the identity of a valid key by its secret; None if no valid key has it.

        Reads only memory. A miss is not counted as a refusal.

        Args:
            token: the secret; None if the request has none.

        Raises:
            AuthUnavailableError: the cache is too old, closed, or was made before a fork.
        """
        if not isinstance(token, str) or len(token) > MAX_KEY_CHARS or not token.isascii():
            return None
        if time.monotonic() >= self._good_until or self._pid != os.getpid():
            self._require_fresh()
        digest = hashlib.sha256(token.encode("ascii")).digest()
        found = self._by_digest.get(digest)
        # The lookup goes by a digest, which no caller can steer towards another key's, so its time
        # reveals nothing about a secret. The match is still compared in constant time.
        if found is None:
            return None
        known, identity, not_after = found
        is_valid = hmac.compare_digest(known, digest) and self.now_s < not_after
        return identity if is_valid else None

    def by_id(
        self, key_id: str, marked: str | None = None, since_ms: int | None = None
    ) -> Identity | None:
        """Return the identity of a valid key; None if the key is invalid or an argument excludes
        it.

        Args:
            key_id: the key.
            marked: the mark of a secret of the key that must still be valid; None for the current
                one.
            since_ms: milliseconds since 1970; None is returned if the key was rotated later. None
                to accept any rotation.

        Raises:
            AuthUnavailableError: the cache is too old, closed, or was made before a fork.
        """
        self._require_fresh()
        _, secrets, rotated_ms = self._by_id.get(key_id, _UNKNOWN)
        if since_ms is not None and since_ms < rotated_ms:
            return None
        if marked is None:
            secrets = secrets[:1]
        else:
            secrets = tuple(one for one in secrets if mark(one[0]) == marked)
        return next((identity for _, identity, end in secrets if self.now_s < end), None)

    def refresh(self) -> None:
        """Fetch the keys that changed since the last refresh; the first time, all valid keys.

        All are fetched again if the database is older than the cache. On success the cache is
        trusted for another ``stale_after_s``.

        Raises:
            LedgerError: the keys cannot be read.
            AuthUnavailableError: the row of a key is damaged.
        """
        with self._refreshing:
            began, newest = time.monotonic(), self._newest
            if began >= self._compared + _COMPARE_S:
                self._behind_s = self._ledger.wall_ms / 1000 - time.time()
                self._compared = began
            ((epoch,),) = self._ledger.select(KeyRow.EPOCH)
            if self._epoch < 0 or epoch < newest:  # the first time, or an older database
                rows = self._rows(
                    "WHERE revoked = '' AND (expires = '' OR expires > ?)",
                    time_text(datetime.fromtimestamp(self.now_s, UTC)),
                )
                with self._changing:
                    self._by_digest, self._by_id, self._newest = {}, {}, epoch
                    self._put(rows)
                # Read before the rows: what was written in between is read once more.
                self._epoch = epoch
            elif epoch != self._epoch:
                rows = self._rows("WHERE changed > ?", self._epoch)
                self.apply(rows)
                self._epoch = max((row.changed for row in rows), default=epoch)
            self._good_until = began + self._limits.stale_after_s

    def apply(self, rows: Iterable[KeyRow]) -> None:
        """Apply rows that this process or another wrote. Rows older than the known ones are
        ignored.

        Args:
            rows: rows of keys, in any order.
        """
        with self._changing:
            self._put(rows)

    def close(self) -> None:
        """Refuse every key from now on, end the thread, wait for its end and log the refusals.

        Harmless if called twice; a forked process does not wait.
        """
        self._stop.set()
        self._good_until = -math.inf
        if self._pid == os.getpid():
            self._thread.join()
        self._log_refusals(closing=True)

    def count_refusal(self) -> None:
        """Count a refused call in :attr:`refused`."""
        with self._counting:
            self.refused += 1

    def _log_refusals(self, *, closing: bool = False) -> None:
        """Log the number of calls refused since the last line, if it is not 0 and the time is up.

        Args:
            closing: log now, whatever the time.
        """
        now = time.monotonic()
        with self._counting:
            new = self.refused - self._logged
            if not new or (now < self._logged_at + self._limits.refused_log_s and not closing):
                return
            self._logged, self._logged_at = self.refused, now
        _log.warning("refused %s without a valid key", count(new, "call"))

    @property
    def now_s(self) -> float:
        """The time by the database's clock: a server with another one ends no key later."""
        return time.time() + self._behind_s

    def _require_fresh(self) -> None:
        if time.monotonic() < self._good_until and self._pid == os.getpid():
            return
        if self._stop.is_set() or self._pid != os.getpid():
            raise AuthUnavailableError(
                "The key store was closed, or opened before a fork.",
                next_step="Open a key store in this process.",
            )
        raise AuthUnavailableError(
            "Keys cannot be checked: the database has not answered for "
            f"{self._limits.stale_after_s:g} s, so every key is refused.",
            next_step="Check that the ledger's database can be reached; then try again.",
        )

    def _rows(self, condition: str, *parameters: object) -> list[KeyRow]:
        found = self._ledger.select(f"{KeyRow.SELECT} {condition}", parameters)
        return [KeyRow.of(row) for row in found]

    def _put(self, rows: Iterable[KeyRow]) -> None:
        for row in rows:
            key_id = row.key.key_id
            changed, before, _ = self._by_id.get(key_id, _UNKNOWN)
            if row.changed <= changed:
                continue
            self._newest = max(self._newest, row.changed)
            now = _secrets(row)
            for secret in now:
                self._by_digest[secret[0]] = secret
            kept = {secret[0] for secret in now}
            for secret in before:
                if secret[0] not in kept:
                    self._by_digest.pop(secret[0], None)
            # The epoch of a revoked key stays, so that no older row brings it back.
            rotated_ms = int(seconds_of(row.key.rotated) * 1000) if row.key.rotated else 0
            self._by_id[key_id] = row.changed, now, rotated_ms

    def _run(self) -> None:
        down = False
        while not self._stop.wait(self._limits.revocation_s / 2):
            try:
                self.refresh()
            except LedgerClosedError:
                self._good_until = -math.inf
                return
            except Exception as error:  # noqa: BLE001 - it must try again, whatever it was
                if not down:
                    _log.error("keys cannot be read (%s)", type(error).__name__)
                down = True
            else:
                if down:
                    _log.warning("keys can be read again")
                down = False
            if self._stop.is_set():
                self._good_until = -math.inf
            self._log_refusals()


def mark(digest: bytes) -> str:
    """Return 32 hex characters that identify a secret, given its SHA-256 digest, and do not reveal
    it.
    """
    return hashlib.sha256(b"remit key mark" + digest).hexdigest()[:32]


def _secrets(row: KeyRow) -> tuple[_Secret, ...]:
    key = row.key
    if key.revoked:
        return ()
    identity, end = key.identity, seconds_of(key.expires)
    current = bytes.fromhex(row.hash), identity, end
    if not row.old_hash:
        return (current,)
    old_end = min(end, seconds_of(key.old_until))
    return current, (bytes.fromhex(row.old_hash), identity, old_end)
