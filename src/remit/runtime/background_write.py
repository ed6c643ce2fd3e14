"""Transactions that a running event loop does not wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from remit.ledger import LedgerClient, Transaction


def write_soon(
    ledger: LedgerClient, write: Callable[[Transaction], None], check: Callable[[], None]
) -> Callable[[], Awaitable[None]] | None:
    """Run a transaction; in a running event loop, in the background.

    Args:
        ledger: the ledger.
        write: the function of the transaction.
        check: raises unless the transaction was committed; called if the event loop that began the
            write has ended.

    Returns:
        None if the write is complete, else a function that waits for it, in any event loop, and
        raises its error, or that of ``check``.

    Raises:
        LedgerError: there is no running event loop, and the ledger cannot be written.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        ledger.transact(write)
        return None
    writing = ledger.submit(write)

    async def written() -> None:
        if writing.done() or writing.get_loop() is asyncio.get_running_loop():
            await writing
            return
        # The loop that began the write may have ended.
        await asyncio.to_thread(ledger.flush)
        check()

    return written
