"""The keys that count now, in memory, never long behind the database."""

from __future__ import annotations

import hmac
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from remit.gateway.auth.errors import AuthUnavailableError
from remit.gateway.auth.identity import Identity
from remit.gateway.auth.limits import AuthLimits
from remit.gateway.auth.virtual_key import KeyRow, now_text, seconds_of
from remit.ledger import LedgerClient, LedgerClosedError

__all__ = ["LiveKeys"]

_log = logging.getLogger("remit.auth")


class _Secret(NamedTuple):
    digest: bytes
    identity: Identity
    not_after: float


class _Known(NamedTuple):
    changed: int
    secrets: tuple[_Secret, ...]


class LiveKeys:
    """A view of all keys that are neither revoked nor expired, kept up by a thread of its own.

    Who asks never waits for the database: the thread looks at one number there, the epoch, and
    fetches what changed since. When it could not look for too long, nobody is let in.

    Args:
        ledger: where the keys are.
        limits: how often to look, and how long to go without.
        also: called by the thread each time it looks.

    Raises:
        LedgerError: the keys cannot be read.
    """

    def __init__(self, ledger: LedgerClient, limits: AuthLimits, also: Callable[[], None]) -> None:
        self._ledger = ledger
        self._limits = limits
        self._also = also
        self._by_digest: dict[bytes, _Secret] = {}
        self._by_id: dict[str, _Known] = {}
        self._epoch = -1  # all up to it was fetched
        self._newest = -1  # the greatest that any row told
        self._good_until = -math.inf
        self._pid = os.getpid()
        self._changing = threading.Lock()
        self._refreshing = threading.Lock()
        self._stop = threading.Event()
        self.refresh()
        self._thread = threading.Thread(target=self._work, name="remit-auth", daemon=True)
        self._thread.start()

    def of_secret(self, digest: bytes) -> Identity | None:
        """Whose secret has this SHA-256 digest.

        Raises:
            AuthUnavailableError: what is known is too old, or belongs to a process forked from.
        """
        self._require_fresh()
        found = self._by_digest.get(digest)
        # The look-up goes by a digest that nobody can steer towards another's: how long it takes
        # tells nothing of a secret. That it is this very one is still compared in constant time.
        if (
            found is not None
            and hmac.compare_digest(found.digest, digest)
            and time.time() < found.not_after
        ):
            return found.identity
        return None

    def of_id(self, key_id: str) -> Identity | None:
        """Whose key has this id, when it counts now. Raises as :meth:`of_secret`."""
        self._require_fresh()
        known = self._by_id.get(key_id)
        if known is None or not known.secrets or time.time() >= known.secrets[0].not_after:
            return None
        return known.secrets[0].identity

    def refresh(self) -> None:
        """Fetch what changed since the last time."""
        with self._refreshing:
            began, newest = time.monotonic(), self._newest
            ((epoch,),) = self._ledger.select(KeyRow.EPOCH)
            if self._epoch < 0 or epoch < newest:  # the first time, or an older database
                rows = self._rows(
                    "WHERE revoked = '' AND (expires = '' OR expires > ?)", now_text()
                )
                with self._changing:
                    self._by_digest, self._by_id, self._newest = {}, {}, epoch
                    self._put(rows)
                # Read before the rows: what came in between is read once more.
                self._epoch = epoch
            elif epoch != self._epoch:
                rows = self._rows("WHERE changed > ?", self._epoch)
                self.apply(rows)
                self._epoch = max((row.changed for row in rows), default=epoch)
            self._good_until = began + self._limits.stale_after_s

    def apply(self, rows: Iterable[KeyRow]) -> None:
        """Take in rows that were written, by this process or another; older ones change nothing."""
        with self._changing:
            self._put(rows)

    def close(self) -> None:
        """Let nobody in any more, and end the thread."""
        self._stop.set()
        self._good_until = -math.inf
        if self._pid == os.getpid():
            self._thread.join()

    def _require_fresh(self) -> None:
        if time.monotonic() < self._good_until and self._pid == os.getpid():
            return
        if self._stop.is_set() or self._pid != os.getpid():
            raise AuthUnavailableError(
                "The key store was closed, or opened before a fork.",
                next_step="Open one in this process.",
            )
        raise AuthUnavailableError(
            "Keys cannot be checked: the database has not answered for "
            f"{self._limits.stale_after_s:g} s, so nobody is let in.",
            next_step="Check that the ledger's database can be reached; then try again.",
        )

    def _rows(self, condition: str, *parameters: object) -> list[KeyRow]:
        found = self._ledger.select(f"{KeyRow.SELECT} {condition}", parameters)
        return [KeyRow.of(row) for row in found]

    def _put(self, rows: Iterable[KeyRow]) -> None:
        for row in rows:
            key_id = row.key.key_id
            before = self._by_id.get(key_id, _Known(-1, ()))
            if row.changed <= before.changed:
                continue
            self._newest = max(self._newest, row.changed)
            now = _secrets(row)
            for secret in now:
                self._by_digest[secret.digest] = secret
            kept = {secret.digest for secret in now}
            for secret in before.secrets:
                if secret.digest not in kept:
                    self._by_digest.pop(secret.digest, None)
            # Of a revoked key the epoch stays, so that no older row brings it back.
            self._by_id[key_id] = _Known(row.changed, now)

    def _work(self) -> None:
        down = False
        while not self._stop.wait(self._limits.revocation_s / 2):
            try:
                self.refresh()
            except LedgerClosedError:
                self._good_until = -math.inf
                return
            except Exception as error:  # noqa: BLE001 - it must look again, whatever it was
                if not down:
                    _log.error("keys cannot be read (%s)", type(error).__name__)
                down = True
            else:
                if down:
                    _log.warning("keys can be read again")
                down = False
            if self._stop.is_set():
                self._good_until = -math.inf
            self._also()


def _secrets(row: KeyRow) -> tuple[_Secret, ...]:
    key = row.key
    if key.revoked:
        return ()
    identity, end = key.identity, seconds_of(key.expires)
    current = _Secret(bytes.fromhex(row.hash), identity, end)
    if not row.old_hash:
        return (current,)
    old_end = min(end, seconds_of(key.old_until))
    return current, _Secret(bytes.fromhex(row.old_hash), identity, old_end)
