"""The renewal of the leases of calls in flight."""

from __future__ import annotations

import logging
import threading
import time
import weakref

from remit.kernel.errors import RemitError
from remit.ledger import LedgerClient, LedgerClosedError, Transaction

_log = logging.getLogger("remit.gateway")

_SHORTEST_WAIT_S = 0.02
_RENEW = "UPDATE in_flight SET lease_until_ms = ? WHERE dispatch_entry_id = ?"
_RENEW_CLAIMS = (
    "UPDATE idempotency SET until_ms = ? WHERE owner = ? AND exchange_entry_id = '' "
    "AND until_ms < ?"
)


_of_this_process: weakref.WeakValueDictionary[str, Renewal] = weakref.WeakValueDictionary()


def is_out(owner: str, dispatch_entry_id: str = "") -> bool:
    """Return True if a gateway of this process waits for a call; without an id, for any call.

    Such a lease is renewed soon, even if it has expired while the process was suspended.

    Args:
        owner: the owner of the row.
        dispatch_entry_id: the call; empty for any.
    """
    renewal = _of_this_process.get(owner)
    return renewal is not None and renewal.keeps(dispatch_entry_id)


class Renewal:
    """The renewer of the leases of one gateway's long calls, in a thread.

    The thread lives only while calls are in flight. A call that ends within a third of its lease is
    never renewed. An object is known to :func:`is_out` by its owner while it exists.

    Args:
        ledger: the ledger whose database contains the rows in flight.
        owner: the owner of the rows.
    """

    def __init__(self, ledger: LedgerClient, owner: str) -> None:
        _of_this_process[owner] = self
        self._ledger = ledger
        self._owner = owner
        self._lock = threading.Lock()
        self._running = False
        self._lease_ms = 0
        self._renewed: dict[str, float] = {}  # dispatch id -> when, by the monotonic clock

    def began(self, dispatch_entry_id: str, lease_ms: int) -> None:
        """Note a call that is about to be recorded with its first lease.

        Starts the thread if it is not running. The writing thread calls this before the commit. A
        row of this process that is not noted is therefore an abandoned one, however long the
        process was suspended.

        Args:
            dispatch_entry_id: the call.
            lease_ms: duration of the lease in milliseconds; with 0 the call is not noted.
        """
        if lease_ms <= 0:
            return
        self._renewed[dispatch_entry_id] = time.monotonic()
        self._lease_ms = lease_ms
        if not self._running:
            with self._lock:
                if not self._running:
                    self._running = True
                    threading.Thread(target=self._run, name="remit-leases", daemon=True).start()

    def ended(self, dispatch_entry_id: str) -> None:
        """Forget a call that is recorded or abandoned."""
        self._renewed.pop(dispatch_entry_id, None)

    def keeps(self, dispatch_entry_id: str) -> bool:
        """Return True if the call is in flight and not abandoned; without an id, if any is."""
        return dispatch_entry_id in self._renewed if dispatch_entry_id else bool(self._renewed)

    def renew(self) -> None:
        """Renew every lease of which a third has passed; then also all claims of this owner.

        Blocks. Does nothing if no lease is due.

        A failure is logged and retried later, not raised. Once the ledger is closed no call can be
        recorded, so all calls are forgotten.
        """
        now = time.monotonic()
        due = now - self._lease_ms / 3000
        ids = [name for name, renewed in self._renewed.copy().items() if renewed < due]
        if not ids:
            return
        try:
            self._ledger.transact(lambda tx: self._write(tx, ids))
        except LedgerClosedError:
            self._renewed.clear()
            return
        except RemitError as error:
            _log.warning("leases of calls cannot be renewed: %s", error.message)
            return
        for name in ids:
            if name in self._renewed:
                self._renewed[name] = now

    def _write(self, tx: Transaction, ids: list[str]) -> None:
        until = tx.now_ms + self._lease_ms
        tx.execute_many(_RENEW, [(until, name) for name in ids])
        tx.execute(_RENEW_CLAIMS, (until, self._owner, until))

    def _run(self) -> None:
        while True:
            time.sleep(max(_SHORTEST_WAIT_S, self._lease_ms / 3000))
            with self._lock:
                if not self._renewed:
                    self._running = False
                    return
            self.renew()
