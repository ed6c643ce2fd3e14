"""The valid keys in memory, never long behind the database."""

from __future__ import annotations

import hashlib
import hmac
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from remit.gateway.auth.errors import AuthUnavailableError
from remit.gateway.auth.identity import Identity
from remit.gateway.auth.virtual_key import KeyRow, now_text, seconds_of
from remit.kernel.errors import InvalidInputError
from remit.ledger import LedgerClient, LedgerClosedError

_log = logging.getLogger("remit.auth")


@dataclass(frozen=True, slots=True)
class AuthLimits:
    """Settings of ``[auth]``, all in seconds and above 0.

    Attributes:
        revocation_s: a change by another process takes effect here within this time; the
            database is read twice as often.
        stale_after_s: when the database could not be read for this long, every key is refused.
        refused_log_s: least time between two log lines that say how many calls were refused.
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


class RefusalCounter:
    """Counts refused calls in memory alone: without a key no caller makes the disk work.

    Args:
        log_s: seconds between two lines of the log.
    """

    def __init__(self, log_s: float) -> None:
        self._log_s = log_s
        self._lock = threading.Lock()
        self._total = 0
        self._logged = 0
        self._logged_at = -math.inf

    @property
    def total(self) -> int:
        """How many there were since the start of this process."""
        return self._total

    def count(self) -> None:
        """Count one more."""
        with self._lock:
            self._total += 1

    def log(self, *, closing: bool = False) -> None:
        """Log how many there were since the last line, if any and if it is time."""
        now = time.monotonic()
        with self._lock:
            new = self._total - self._logged
            if not new or (now < self._logged_at + self._log_s and not closing):
                return
            self._logged, self._logged_at = self._total, now
        _log.warning("%d calls without a valid key were refused", new)


class _Secret(NamedTuple):
    digest: bytes
    identity: Identity
    not_after: float


class _Known(NamedTuple):
    changed: int
    secrets: tuple[_Secret, ...]
    rotated_ms: int = 0


class KeyCache:
    """All keys that are neither revoked nor expired, kept up to date by a thread of its own.

    A lookup never waits for the database: the thread reads one number there, the epoch, and
    fetches what changed since. When it could not read for too long, every key is refused.

    Args:
        ledger: where the keys are.
        limits: how often to read, and how long to go without.
        on_refresh: called by the thread after each read.

    Raises:
        LedgerError: the keys cannot be read.
    """

    def __init__(
        self, ledger: LedgerClient, limits: AuthLimits, on_refresh: Callable[[], None]
    ) -> None:
        self._ledger = ledger
        self._limits = limits
        self._on_refresh = on_refresh
        self._by_digest: dict[bytes, _Secret] = {}
        self._by_id: dict[str, _Known] = {}
        self._epoch = -1  # all changes up to it were fetched
        self._newest = -1  # the greatest of any row
        self._good_until = -math.inf
        self._pid = os.getpid()
        self._changing = threading.Lock()
        self._refreshing = threading.Lock()
        self._stop = threading.Event()
        self.refresh()
        self._thread = threading.Thread(target=self._run, name="remit-auth", daemon=True)
        self._thread.start()

    def by_secret(self, digest: bytes) -> Identity | None:
        """The owner of the secret with this SHA-256 digest.

        Raises:
            AuthUnavailableError: the cache is too old, or was made before a fork.
        """
        if time.monotonic() >= self._good_until or self._pid != os.getpid():
            self._require_fresh()
        found = self._by_digest.get(digest)
        # The lookup goes by a digest, which no caller can steer towards another key's, so its time
        # reveals nothing about a secret. The match is still compared in constant time.
        if (
            found is not None
            and hmac.compare_digest(found.digest, digest)
            and time.time() < found.not_after
        ):
            return found.identity
        return None

    def by_id(
        self, key_id: str, marked: str | None = None, since_ms: int | None = None
    ) -> Identity | None:
        """The owner of a valid key, whose secret has this mark, and was not rotated since. Raises
        as :meth:`by_secret`."""
        self._require_fresh()
        known = self._by_id.get(key_id, _Known(-1, ()))
        if since_ms is not None and since_ms < known.rotated_ms:
            return None
        secrets = known.secrets[:1]
        if marked is not None:
            secrets = tuple(one for one in known.secrets if mark(one.digest) == marked)
        return next((one.identity for one in secrets if time.time() < one.not_after), None)

    def refresh(self) -> None:
        """Fetch what changed since the last refresh."""
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
                # Read before the rows: what was written in between is read once more.
                self._epoch = epoch
            elif epoch != self._epoch:
                rows = self._rows("WHERE changed > ?", self._epoch)
                self.apply(rows)
                self._epoch = max((row.changed for row in rows), default=epoch)
            self._good_until = began + self._limits.stale_after_s

    def apply(self, rows: Iterable[KeyRow]) -> None:
        """Apply rows that this process or another wrote; older ones change nothing."""
        with self._changing:
            self._put(rows)

    def close(self) -> None:
        """Refuse every key from now on, and end the thread."""
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
            # The epoch of a revoked key stays, so that no older row brings it back.
            rotated_ms = int(seconds_of(row.key.rotated) * 1000) if row.key.rotated else 0
            self._by_id[key_id] = _Known(row.changed, now, rotated_ms)

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
            self._on_refresh()


def mark(digest: bytes) -> str:
    """Of a secret, by its SHA-256 digest; 32 hex."""
    return hashlib.sha256(b"remit key mark" + digest).hexdigest()[:32]


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
