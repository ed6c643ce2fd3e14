"""Tenants: ledgers, keys and budgets of their own in one installation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from remit.kernel import lazy_names

if TYPE_CHECKING:
    from remit.runtime.tenants.export import export_tenant
    from remit.runtime.tenants.listing import ListedTenant, list_names, listed_tenant
    from remit.runtime.tenants.moving import hold_open, move_tenant, remove_old_places
    from remit.runtime.tenants.plan import old_plans
    from remit.runtime.tenants.removal import (
        recover_tenant,
        recover_tenants,
        remove_tenant,
        removed_before,
    )
    from remit.runtime.tenants.tenant import (
        Tenant,
        TenantHost,
        create_tenant,
        find_tenant,
        interrupted_tenants,
        list_tenants,
        open_log,
        place_of,
        recorded_key,
        require_recorded,
        root_of,
        take_checkpoint,
        tenant_names,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "export": "export_tenant",
            "listing": "ListedTenant list_names listed_tenant",
            "moving": "hold_open move_tenant remove_old_places",
            "plan": "old_plans",
            "removal": "recover_tenant recover_tenants remove_tenant removed_before",
            "tenant": "Tenant TenantHost create_tenant find_tenant interrupted_tenants list_tenants"
            " open_log place_of recorded_key require_recorded root_of take_checkpoint tenant_names",
        },
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
