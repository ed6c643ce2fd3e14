"""Tenants: roots of their own below a host's root, and the host's record of them.

The package owns the making, moving, removal and export of tenants, and the entries of the host's
ledger about them. Tables and records of a tenant are in its own ledger; its server is in
:mod:`remit.server.tenants`.

Invariants: a tenant's key is the one that the host recorded; at any time one ledger of a tenant is
in use; the name of a removed tenant is not used again.

Start reading in :mod:`remit.runtime.tenants.tenant`; :mod:`remit.runtime.tenants.moves` and
:mod:`remit.runtime.tenants.removals` list the steps of a move and of a removal.
"""

from remit.runtime.tenants.moves import (
    hold_open as hold_open,
    move_tenant as move_tenant,
    old_plans as old_plans,
    remove_old_places as remove_old_places,
)
from remit.runtime.tenants.overview import (
    ListedTenant as ListedTenant,
    list_names as list_names,
    listed_tenant as listed_tenant,
)
from remit.runtime.tenants.recovery import (
    interrupted_tenants as interrupted_tenants,
    recover_tenant as recover_tenant,
    recover_tenants as recover_tenants,
    removed_before as removed_before,
)
from remit.runtime.tenants.removals import remove_tenant as remove_tenant
from remit.runtime.tenants.tenant import (
    Tenant as Tenant,
    TenantHost as TenantHost,
    create_tenant as create_tenant,
    export_tenant as export_tenant,
    find_tenant as find_tenant,
    list_tenants as list_tenants,
    open_log as open_log,
    place_of as place_of,
    recorded_key as recorded_key,
    require_recorded as require_recorded,
    root_of as root_of,
    take_checkpoint as take_checkpoint,
    tenant_names as tenant_names,
)
