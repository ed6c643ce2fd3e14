"""Routes of tenants, for operators of their host."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Query

from remit.gateway.budget import usd_of
from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.ledger import LedgerClient
from remit.operations.results import Page
from remit.runtime.tenants import ListedTenant, Tenant, list_names, listed_tenant, open_log
from remit.server.api.routes import Routes, slice_of
from remit.server.refusals import HttpError
from remit.views import read_usage

_CONCURRENT_OPENS = 8
_WAIT_S = 2.0  # Wait this long for a tenant's database.
_NOT_READ = {"entries": None, "spent_today_usd": None}


def tenant_routes(host: Root, ledger: LedgerClient) -> Routes:
    """Return the routes that show the tenants of a host: a list, and one tenant by name.

    They change nothing. The root of a tenant has the routes too, with an empty list.

    Args:
        host: the root that is served.
        ledger: its ledger.
    """
    routes = Routes("tenants")

    @routes.add("GET", "/tenants", "List tenants", needs="read", shape="TenantPage")
    def tenants(query: Annotated[Page, Query()]) -> dict[str, Any]:
        """Return tenants sorted by name, removed ones included: size, latest head, spending
        today.
        """
        names = list_names(host, ledger)
        part, more = slice_of(names, names, query.cursor, query.limit)
        with ThreadPoolExecutor(_CONCURRENT_OPENS) as threads:
            shown = list(threads.map(lambda name: _shown(listed_tenant(host, ledger, name)), part))
        return {"tenants": shown, "next_cursor": more}

    @routes.add("GET", "/tenants/{name}", "One tenant", needs="read", shape="TenantShape")
    def tenant(name: str) -> dict[str, Any]:
        """Return one tenant."""
        if name not in list_names(host, ledger):
            raise HttpError(404, "not_found", "This tenant does not exist.")
        return _shown(listed_tenant(host, ledger, name))

    return routes


def _shown(one: ListedTenant) -> dict[str, Any]:
    head, removal = one.head, one.removal
    of_log = _of_log(one.tenant) if one.tenant and one.state == "served" else _NOT_READ
    return {
        "name": one.name,
        "state": one.state,
        "origin": one.origin,
        "place": one.place,
        "old_places": one.old_places,
        **of_log,
        "head": head and {
            "entries": head.checkpoint.size,
            "root": base64.b64encode(head.checkpoint.root).decode(),
            "entry": head.entry_id,
            "taken": head.taken,
        },
        "removed": removal and {"entry": removal.id, "at": removal.timestamp,
                                "reason": removal.reason, "by": removal.metadata["by"]},
    }  # fmt: skip


def _of_log(tenant: Tenant) -> dict[str, Any]:
    """Return size and spending from a tenant's own ledger; None for both if it does not answer."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        with open_log(tenant, lock_timeout_s=_WAIT_S) as log:
            spent = read_usage(log, since=today).rows[0].nano
            return {"entries": log.count(), "spent_today_usd": usd_of(spent)}
    except (RemitError, OSError):
        return _NOT_READ
