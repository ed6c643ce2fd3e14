"""Leases in the ledger's database: one holder for each name, over all processes of a root."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from remit.gateway.leases.lease import Lease, LeaseBusyError
from remit.gateway.leases.owner import Owner
from remit.kernel.settings import LeaseSettings
from remit.ledger import LedgerClient, LedgerError, Transaction

__all__ = ["LeaseManager"]

_TAKE = (
    "INSERT INTO leases (name, owner, until_ms, stop) VALUES (?, ?, ?, 0) "
    "ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until_ms = excluded.until_ms, "
    "stop = 0"
)
_SERVER_CLOCK = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.01, 0.25
_POLL_S = 0.5  # how often a holder checks whether it was asked to stop


class LeaseManager:
    """Hands out leases.

    Who holds one is told apart as calls in flight are: a holder whose process has surely ended
    is passed over at once; one that surely lives keeps what it holds, however long it stands
    still; of one that cannot be seen from here the time decides.

    Args:
        ledger: in whose database they are kept.
        settings: how long they last.
    """

    def __init__(self, ledger: LedgerClient, settings: LeaseSettings) -> None:
        self._ledger = ledger
        self._settings = settings

    @contextlib.asynccontextmanager
    async def hold(
        self, name: str, *, wait_s: float, on_stop: Callable[[], None] | None = None
    ) -> AsyncIterator[Lease]:
        """Hold ``name`` while the block runs.

        Args:
            name: such as ``session:SES-…``.
            wait_s: how long to wait for another holder.
            on_stop: called once when somebody asks the holder to end.

        Raises:
            LeaseBusyError: another holder did not let go in time.
        """
        owner = Owner.current().encode()
        try:
            lease = await self._take(name, owner, wait_s)
        except asyncio.CancelledError:
            # What was handed over is done, whoever waits: let go of what may have been taken.
            self._let_go(name, owner)
            raise
        keeper = asyncio.create_task(self._keep(lease, on_stop))
        try:
            yield lease
        finally:
            keeper.cancel()
            with contextlib.suppress(LedgerError):  # it runs out by itself
                self._let_go(name, owner)

    def is_held(self, name: str) -> bool:
        """Whether somebody works on ``name`` just now."""
        rows = self._ledger.select("SELECT owner, until_ms FROM leases WHERE name = ?", (name,))
        now = self._now(self._ledger.select)
        return bool(rows) and not _is_free(str(rows[0][0]), int(rows[0][1]), now)

    def request_stop(self, name: str) -> bool:
        """Ask whoever holds ``name`` to end; whether there was anybody to ask."""

        def ask(tx: Transaction) -> bool:
            rows = tx.execute("SELECT owner, until_ms FROM leases WHERE name = ?", (name,))
            if not rows or _is_free(str(rows[0][0]), int(rows[0][1]), self._now(tx.execute)):
                return False
            tx.execute("UPDATE leases SET stop = 1 WHERE name = ?", (name,))
            return True

        return self._ledger.transact(ask)

    async def _take(self, name: str, owner: str, wait_s: float) -> Lease:
        deadline = time.monotonic() + wait_s
        pause = _FIRST_WAIT_S

        def take(tx: Transaction) -> bool:
            rows = tx.execute("SELECT owner, until_ms FROM leases WHERE name = ?", (name,))
            now = self._now(tx.execute)
            if rows and not _is_free(str(rows[0][0]), int(rows[0][1]), now):
                return False
            tx.execute(_TAKE, (name, owner, now + self._lasts_ms))
            return True

        while not await self._ledger.submit(take):
            left = deadline - time.monotonic()
            if left <= 0:
                raise LeaseBusyError(
                    f"Somebody else works on {name} just now.",
                    next_step="Try again when they are done, or ask them to stop.",
                )
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 2, _LONGEST_WAIT_S)
        return Lease(name, owner, self._settings.lasts_s)

    def _now(self, execute: Callable[..., list[tuple[Any, ...]]]) -> int:
        """Milliseconds since 1970 by one clock for all: the database server's if there is one."""
        if not self._ledger.location.startswith("postgresql"):
            return time.time_ns() // 1_000_000
        ((now,),) = execute(_SERVER_CLOCK)
        return int(now)

    @property
    def _lasts_ms(self) -> int:
        return int(self._settings.lasts_s * 1000)

    async def _keep(self, lease: Lease, on_stop: Callable[[], None] | None) -> None:
        """Prolong the lease, and hear of requests to stop, until cancelled."""
        prolonged = time.monotonic()
        while True:
            await asyncio.sleep(min(_POLL_S, self._settings.lasts_s / 10))
            with contextlib.suppress(LedgerError):  # tried again; the lease's own clock decides
                if time.monotonic() - prolonged > self._settings.lasts_s / 3:
                    await self._prolong(lease)
                    prolonged = time.monotonic()
                stop = await asyncio.to_thread(self._asked_to_stop, lease)
                if stop and not lease.stop_requested:
                    lease.stop_requested = True
                    if on_stop is not None:
                        on_stop()

    async def _prolong(self, lease: Lease) -> None:
        def prolong(tx: Transaction) -> bool:
            until = self._now(tx.execute) + self._lasts_ms
            tx.execute(
                "UPDATE leases SET until_ms = ? WHERE name = ? AND owner = ?",
                (until, lease.name, lease.owner),
            )
            found = tx.execute("SELECT owner FROM leases WHERE name = ?", (lease.name,))
            return bool(found) and found[0][0] == lease.owner

        if await self._ledger.submit(prolong):
            lease.prolonged()
        else:
            lease.lost()

    def _asked_to_stop(self, lease: Lease) -> bool:
        rows = self._ledger.select(
            "SELECT stop FROM leases WHERE name = ? AND owner = ?", (lease.name, lease.owner)
        )
        return bool(rows) and bool(rows[0][0])

    def _let_go(self, name: str, owner: str) -> None:
        """Give the lease back, behind all that was written while it was held."""
        self._ledger.submit(
            lambda tx: tx.execute("DELETE FROM leases WHERE name = ? AND owner = ?", (name, owner))
        ).add_done_callback(_heard)


def _heard(future: asyncio.Future[Any]) -> None:
    """A lease that could not be given back runs out by itself."""
    if not future.cancelled():
        future.exception()


def _is_free(owner: str, until_ms: int, now_ms: int) -> bool:
    """Whether a lease may be taken from its owner."""
    known = Owner.parse(owner)
    if known is None:
        return now_ms >= until_ms
    if known.is_surely_dead():
        return True
    if now_ms < until_ms:
        return False
    # It has run out. Another process that lives is only slow; our own has left it behind.
    return known.is_current_process() or not known.is_surely_alive()
