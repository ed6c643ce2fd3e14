"""The state of a store, as far as its writer knows: writable or not."""

from __future__ import annotations

import time

from remit.ledger.errors import LedgerUnavailableError

_BLIP_S = 1.0  # a store that is back by then has refused no call
_RETRY_S = 1.0
_DISTANT_PAST = -1e9


class Outage:
    """The outcome of the latest transaction. Any thread may read it.

    The writer's thread sets it; a reader of a server that is reachable again sets ``ended``.

    Attributes:
        reason: the reason for which it failed; empty if it was committed.
        ended: time of the monotonic clock, in seconds, at which the store last became reachable
            again; -10⁹ before the first outage ended.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.ended = _DISTANT_PAST
        self._began = self._failed = 0.0
        self._is_retrying = False

    def failed(self, reason: str, *, is_retrying: bool = False) -> None:
        """Note that the store refused a transaction, or that its writer is retrying.

        An outage begins with the first failure; a later one replaces its ``reason`` and
        ``is_retrying``.

        Args:
            reason: cause of the failure, for messages; not empty.
            is_retrying: True if the writer itself is retrying.
        """
        self._failed = time.monotonic()
        if not self.reason:
            self._began = self._failed
        self.reason, self._is_retrying = reason, is_retrying

    def over(self) -> None:
        """Note that the store committed a transaction; an outage ends now."""
        if self.reason:
            self.ended = time.monotonic()
        self.reason, self._is_retrying = "", False

    @property
    def is_long(self) -> bool:
        """True if an outage has lasted over a second; readers then do not wait either."""
        return bool(self.reason) and time.monotonic() - self._began > _BLIP_S

    def check(self) -> None:
        """Raise LedgerUnavailableError during an outage, except to a caller that may try the store.

        A second after the last failure or try, a single caller passes. While the writer itself is
        retrying, all callers pass during the first second of the outage, and none after it. Without
        an outage nothing happens.
        """
        if not self.reason:
            return
        now = time.monotonic()
        if self._is_retrying:
            refused = self.is_long
        else:
            refused = now - self._failed < _RETRY_S
            if not refused:
                self._failed = now
        if refused:
            raise LedgerUnavailableError(
                f"The ledger cannot be written now: {self.reason}.",
                next_step="Nothing was sent. Free disk space, or start the database; calls resume "
                "automatically.",
            )
