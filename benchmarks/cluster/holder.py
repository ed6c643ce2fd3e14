"""Holds something until it is killed; started by :mod:`benchmarks.cluster.takeover`.

    python -m benchmarks.cluster.holder batch|here|elsewhere URL SECONDS

``batch`` stays in the middle of a transaction, the lock taken and an entry appended; SECONDS is
its ``lock_timeout_s``. ``here`` holds a lease of SECONDS; ``elsewhere`` too, as a process that says
that it runs on another machine.
"""

from __future__ import annotations

import asyncio
import sys
import time

from benchmarks.appends import entry
from benchmarks.cluster.takeover import NAME
from remit.gateway.leases import LeaseManager, process_identity
from remit.kernel.settings import default_settings
from remit.ledger import LedgerClient, Transaction

_FOR_EVER_S = 3600.0


def _stay(tx: Transaction) -> None:
    tx.append(entry(time.time_ns() % 1_000_000_000))
    tx.execute("SELECT 1")  # what was appended is on its way to the server
    print("ready", flush=True)
    time.sleep(_FOR_EVER_S)


async def _hold(ledger: LedgerClient, lasts_s: float) -> None:
    settings = default_settings().leases.model_copy(update={"lasts_s": lasts_s})
    async with LeaseManager(ledger, settings).hold(NAME, wait_s=60.0):
        print("ready", flush=True)
        await asyncio.sleep(_FOR_EVER_S)


def main() -> None:
    """Until it is killed."""
    what, url, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    settings = default_settings().ledger
    if what == "batch":
        settings = settings.model_copy(update={"lock_timeout_s": seconds})
    ledger = LedgerClient(url, settings=settings, create=False)
    if what == "batch":
        ledger.transact(_stay)
        return
    if what == "elsewhere":
        process_identity._here = lambda: ("another-boot", "pid:[1]")
    asyncio.run(_hold(ledger, seconds))


if __name__ == "__main__":
    main()
