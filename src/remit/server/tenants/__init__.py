"""Tenants of a host in a server.

The package owns the choice of the application that answers a request, and the number of tenants
that are open at a time. The host's :class:`~remit.server.app.App` answers requests without a
tenant; each tenant has an application of its own.

Invariants: no table, cache or file is shared by two tenants; a caller without a key of a tenant
cannot have it opened; a tenant that fails does not affect the others.

Start reading in :mod:`remit.server.tenants.dispatcher`.
"""

from remit.server.tenants.dispatcher import Dispatcher, has_tenants

__all__ = ["Dispatcher", "has_tenants"]
