"""Tenants: roots of their own below a host's root, and the host's record of them.

The package owns the making, moving, removal and export of tenants, and the entries of the host's
ledger about them. Tables and records of a tenant are in its own ledger; its server is in
:mod:`remit.server.tenants`.

Invariants: a tenant's key is the one that the host recorded; at any time one ledger of a tenant is
in use; the name of a removed tenant is not used again.

Start reading in :mod:`remit.runtime.tenants.tenant`; :mod:`remit.runtime.tenants.moves` and
:mod:`remit.runtime.tenants.removals` list the steps of a move and of a removal.
"""

from remit.runtime.tenants.moves import hold_open, move_tenant, old_plans, remove_old_places
from remit.runtime.tenants.overview import ListedTenant, list_names, listed_tenant
from remit.runtime.tenants.recovery import (
    interrupted_tenants,
    recover_tenant,
    recover_tenants,
    removed_before,
)
from remit.runtime.tenants.removals import remove_tenant
from remit.runtime.tenants.tenant import (
    Tenant,
    TenantHost,
    create_tenant,
    export_tenant,
    find_tenant,
    list_tenants,
    open_log,
    place_of,
    recorded_key,
    require_recorded,
    root_of,
    take_checkpoint,
    tenant_names,
)

__all__ = [
    "ListedTenant",
    "Tenant",
    "TenantHost",
    "create_tenant",
    "export_tenant",
    "find_tenant",
    "hold_open",
    "interrupted_tenants",
    "list_names",
    "list_tenants",
    "listed_tenant",
    "move_tenant",
    "old_plans",
    "open_log",
    "place_of",
    "recorded_key",
    "recover_tenant",
    "recover_tenants",
    "remove_old_places",
    "remove_tenant",
    "removed_before",
    "require_recorded",
    "root_of",
    "take_checkpoint",
    "tenant_names",
]
