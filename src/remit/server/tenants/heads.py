"""Has the host's log take the heads of tenants' logs as these grow."""

from __future__ import annotations

import asyncio
import logging

from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.ledger import LedgerClient
from remit.ledger.log_of_logs import latest_head
from remit.runtime.tenants import find_tenant, open_log, root_of, take_checkpoint, tenant_names
from remit.server.tenants.open_tenants import OpenTenants

__all__ = ["Heads"]

_log = logging.getLogger("remit.server.tenants")

_EVERY_S = 10.0


class Heads:
    """Takes heads, one tenant after the other.

    A tenant that did not sign anything costs a look at one file: the head beside its key.

    Args:
        host: the host's root.
        ledger: of the host.
        tenants: whose threads do the work.
    """

    def __init__(self, host: Root, ledger: LedgerClient, tenants: OpenTenants) -> None:
        self._host = host
        self._ledger = ledger
        self._tenants = tenants
        self._seen: dict[str, bytes] = {}  # by tenant: the head that was looked at last

    async def take(self) -> None:
        """Take what is new; what cannot be taken is logged, and tried again when it changes."""
        await self._tenants.run(self.take_now)

    def take_now(self) -> None:
        """:meth:`take`, in this thread."""
        try:
            self._take_all()
        except RemitError as error:
            _log.warning("the heads of tenants cannot be taken: %s", error.message)

    async def go_on(self) -> None:
        """Take heads again and again, until cancelled."""
        while True:
            await self.take()
            await asyncio.sleep(_EVERY_S)

    def _take_all(self) -> None:
        for name in tenant_names(self._host):
            try:
                head = (root_of(self._host, name).keys / "ledger.head").read_bytes()
            except OSError:
                continue  # nothing was signed yet
            if self._seen.get(name) != head:
                self._take(name, head)

    def _take(self, name: str, head: bytes) -> None:
        try:
            known = latest_head(self._ledger, name)
            if known is None or str(known.signed).encode() != head:
                tenant = find_tenant(self._host, name)
                with open_log(tenant) as log:
                    take_checkpoint(self._ledger, tenant, log)
        except RemitError as error:
            _log.error("the head of the tenant %s was not taken: %s", name, error)
        self._seen[name] = head
