"""Leases in the ledger's database: one holder for each name, over all processes of a root."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from remit.gateway.leases.process_identity import Owner
from remit.kernel.errors import RemitError
from remit.kernel.loops import abandon, boot_time_s, run_blocking
from remit.kernel.settings import LeaseSettings
from remit.ledger import Clock, LedgerClient, LedgerError, Select, Transaction

_TAKE = (
    "INSERT INTO leases (name, owner, until_ms, stop) VALUES (?, ?, ?, 0) "
    "ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until_ms = excluded.until_ms, "
    "stop = 0"
)
_RELEASE = "DELETE FROM leases WHERE name = ? AND owner = ?"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.01, 0.25
_POLL_S = 0.5  # how often a holder checks whether it was asked to stop


class LeaseBusyError(RemitError):
    """Another process holds the lease."""


class LeaseLostError(RemitError):
    """The lease expired: another process may have taken over the work, or settled the call."""


class Lease:
    """A lease that :meth:`remit.gateway.leases.LeaseManager.hold` took.

    The manager extends the lease in the background while its block runs; :meth:`check` says whether
    it is still held.

    Args:
        name: the leased name.
        owner: the holder, as the table stores it.
        lasts_s: duration of the lease in seconds.
        asked_at: time at which the lease was requested, by the holder's clock.
        read: the result of ``read``.

    Attributes:
        name: the leased name.
        owner: the holder, as the table stores it.
        stop_requested: whether the holder was asked to stop.
        released: whether the lease was released with the work's last write.
        read: the result of ``read`` in the transaction that took the lease.
    """

    def __init__(
        self, name: str, owner: str, lasts_s: float, asked_at: float, read: Any = None
    ) -> None:
        self.name = name
        self.owner = owner
        self.read = read
        self.stop_requested = False
        self.released = False
        self._lasts_s = lasts_s
        self._lost = False
        self.extended(asked_at)

    def check(self) -> None:
        """Check by the local clock that the lease is still held; call before irreversible work.

        Reads no database.

        Raises:
            LeaseLostError: the lease has expired or was taken.
        """
        if self._lost or boot_time_s() >= self._until:
            raise LeaseLostError(
                f"The lease on {self.name} ran out while this process was suspended.",
                next_step="Another process may have taken over the work; check before you "
                "continue.",
            )

    def release_in(self, tx: Transaction) -> None:
        """Delete the lease's row in a transaction, unless another holder has it.

        The caller sets :attr:`released` after the commit.

        Args:
            tx: the transaction.

        Raises:
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        tx.execute_many(_RELEASE, [(self.name, self.owner)])

    def require_in(self, tx: Transaction) -> None:
        """Check in a transaction that the lease's row still names this holder.

        Args:
            tx: the transaction.

        Raises:
            LeaseLostError: another process took the lease, or the row is gone.
            LedgerWriteError: a statement is refused; raised to the submitter of the transaction.
        """
        if not tx.execute(
            "SELECT 1 FROM leases WHERE name = ? AND owner = ?", (self.name, self.owner)
        ):
            raise LeaseLostError(
                f"The lease on {self.name} ran out while this process was suspended, and another "
                "process took it.",
                next_step="Wait until that process has ended, then run the command again.",
            )

    def extended(self, asked_at: float) -> None:
        """Note that the lease was extended.

        Args:
            asked_at: the time at which the extension was requested, by the holder's clock. The new
                term begins then, because the answer may come long after the commit.
        """
        self._until = asked_at + self._lasts_s

    def lost(self) -> None:
        """Note that another process took the lease."""
        self._lost = True


class LeaseManager:
    """The leases of a root: one holder for each name.

    A lease is free at once if its process is known to be dead. Another process known to live keeps
    its lease, however long it is suspended. For this process, and for one that cannot be observed
    from here, the lease's expiry decides. :meth:`hold` takes a lease, :meth:`request_stop` asks its
    holder to stop. The object holds no state of leases.

    Args:
        ledger: the ledger whose database contains the leases.
        settings: duration of leases.
    """

    def __init__(self, ledger: LedgerClient, settings: LeaseSettings) -> None:
        self._ledger = ledger
        self._settings = settings

    @contextlib.asynccontextmanager
    async def hold(
        self,
        name: str,
        *,
        wait_s: float,
        on_stop: Callable[[], None] | None = None,
        read: Callable[[Transaction], Any] | None = None,
    ) -> AsyncIterator[Lease]:
        """Hold ``name`` while the block runs.

        The lease is a row of the table ``leases``. The row is extended in the background. The end
        of the block submits its deletion, unless :attr:`Lease.released` is set. A lost lease does
        not end the block; see :meth:`Lease.check`. Another task of this process counts as another
        holder. Errors of the block are let through.

        Args:
            name: such as ``session:SES-…``.
            wait_s: longest wait for another holder in seconds; 0 to try once.
            on_stop: called once when the holder is asked to stop; None to only set
                :attr:`Lease.stop_requested`.
            read: called in the transaction that takes the lease; see :attr:`Lease.read`. Its error
                undoes that, and is raised.

        Raises:
            LeaseBusyError: another holder did not release it in time.
            LedgerError: the lease could not be written.
        """
        owner = Owner.current().encode()
        try:
            lease = await self._take(name, owner, wait_s, read)
        except asyncio.CancelledError:
            # The submitted transaction may still take the lease: release it.
            self._release(name, owner)
            raise
        keeper = asyncio.create_task(self._keep(lease, on_stop))
        try:
            yield lease
        finally:
            keeper.cancel()
            if not lease.released:
                with contextlib.suppress(LedgerError):  # An unreleased lease expires.
                    self._release(name, owner)

    @contextlib.contextmanager
    def hold_blocking(self, name: str) -> Iterator[Lease]:
        """Hold ``name`` while the block runs, in code without an event loop.

        Does not wait for another holder. The lease is extended by the background loop.

        Args:
            name: such as ``session:SES-…``.

        Raises:
            LeaseBusyError: another process holds it.
            LedgerError: the lease could not be written.
            InvalidInputError: the caller is the background loop itself.
        """
        held = self.hold(name, wait_s=0)
        lease = run_blocking(held.__aenter__())
        try:
            yield lease
        finally:
            run_blocking(held.__aexit__(None, None, None))

    def is_held(self, name: str, tx: Transaction | None = None) -> bool:
        """Return True if a process holds ``name`` now.

        Blocks.

        Args:
            name: the name.
            tx: the transaction to read in; None to read outside one.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        read = self._ledger.select if tx is None else tx.execute
        return bool(self._holder(name, read, self._ledger if tx is None else tx))

    def holders(self, prefix: str) -> dict[str, Owner | None]:
        """Return the holders of the names that begin with ``prefix``, keyed by name. Blocks.

        The names are sorted. A holder that cannot be parsed is None. Leases that are free are left
        out.

        Args:
            prefix: beginning of the names; empty for all.

        Raises:
            LedgerError: the ledger cannot be read.
        """
        rows = self._ledger.select(
            "SELECT name, owner, until_ms FROM leases WHERE name >= ? AND name < ? ORDER BY name",
            (prefix, f"{prefix}\U0010ffff"),
        )
        return {
            str(name): Owner.parse(str(owner))
            for name, owner, until_ms in rows
            if not self._is_free(str(owner), int(until_ms), self._ledger)
        }

    def request_stop(self, name: str) -> bool:
        """Ask the holder of ``name`` to stop; return False if nobody holds it. Blocks.

        Sets a mark on the lease, which the holder reads about twice a second. Does not wait for the
        holder's end.

        Args:
            name: the leased name.

        Raises:
            LedgerError: the ledger cannot be written.
        """

        def ask(tx: Transaction) -> bool:
            if not self._holder(name, tx.execute, tx):
                return False
            tx.execute("UPDATE leases SET stop = 1 WHERE name = ?", (name,))
            return True

        return self._ledger.transact(ask)

    async def _take(
        self, name: str, owner: str, wait_s: float, read: Callable[[Transaction], Any] | None
    ) -> Lease:
        deadline = time.monotonic() + wait_s
        pause = _FIRST_WAIT_S

        def take(tx: Transaction) -> tuple[str, Any]:
            if holder := self._holder(name, tx.execute, tx):
                return holder, None
            tx.execute_many(_TAKE, [(name, owner, tx.now_ms + self._lasts_ms)])
            return "", None if read is None else read(tx)

        while True:
            asked_at = boot_time_s()
            holder, found = await self._ledger.submit(take)
            if not holder:
                return Lease(name, owner, self._settings.lasts_s, asked_at, found)
            left = deadline - time.monotonic()
            if left <= 0:
                raise LeaseBusyError(
                    f"Another process is working on {name}: {Owner.parse(holder) or holder}.",
                    next_step="Retry when that process is done, or stop it.",
                )
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_WAIT_S)

    def _holder(self, name: str, read: Select, clock: Clock) -> str:
        """Return the owner of a lease that may not be taken; empty if it may be taken."""
        rows = read("SELECT owner, until_ms FROM leases WHERE name = ?", (name,))
        for owner, until_ms in rows:
            if not self._is_free(str(owner), int(until_ms), clock):
                return str(owner)
        return ""

    def _is_free(self, owner: str, until_ms: int, clock: Clock) -> bool:
        """Return True if a lease may be taken from its owner."""
        known = Owner.parse(owner)
        if known is None:
            return clock.now_ms >= until_ms
        if known.is_surely_dead(one_machine=self._ledger.is_of_one_machine):
            return True
        if clock.now_ms < until_ms:
            return False
        # It has run out. Another process that lives is only slow; our own has abandoned it.
        return known.is_current_process() or not known.is_surely_alive()

    @property
    def _lasts_ms(self) -> int:
        return int(self._settings.lasts_s * 1000)

    async def _keep(self, lease: Lease, on_stop: Callable[[], None] | None) -> None:
        """Extend the lease and watch for requests to stop until cancelled."""
        extended_at = time.monotonic()
        while True:
            await asyncio.sleep(min(_POLL_S, self._settings.lasts_s / 10))
            with contextlib.suppress(LedgerError):  # tried again; the lease's own clock decides
                if time.monotonic() - extended_at > self._settings.lasts_s / 3:
                    await self._extend(lease)
                    extended_at = time.monotonic()
                stop = await asyncio.to_thread(self._asked_to_stop, lease)
                if stop and not lease.stop_requested:
                    lease.stop_requested = True
                    if on_stop is not None:
                        on_stop()

    async def _extend(self, lease: Lease) -> None:
        def extend(tx: Transaction) -> bool:
            until = tx.now_ms + self._lasts_ms
            tx.execute(
                "UPDATE leases SET until_ms = ? WHERE name = ? AND owner = ?",
                (until, lease.name, lease.owner),
            )
            found = tx.execute("SELECT owner FROM leases WHERE name = ?", (lease.name,))
            return bool(found) and found[0][0] == lease.owner

        asked_at = boot_time_s()
        if await self._ledger.submit(extend):
            lease.extended(asked_at)
        else:
            lease.lost()

    def _asked_to_stop(self, lease: Lease) -> bool:
        rows = self._ledger.select(
            "SELECT stop FROM leases WHERE name = ? AND owner = ?", (lease.name, lease.owner)
        )
        return bool(rows) and bool(rows[0][0])

    def _release(self, name: str, owner: str) -> None:
        """Release the lease after everything that was written while it was held."""
        # After a failed release, the lease expires.
        abandon(self._ledger.submit(lambda tx: tx.execute_many(_RELEASE, [(name, owner)])))
