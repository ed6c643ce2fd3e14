"""Tenants of a host in one server: each request goes to the application of the one it names.

A key names its tenant, and so does a login to the console. Each tenant's application has a runtime,
a ledger, keys, budgets, packages and a console of its own: nothing is looked up in a place that two
tenants share.
"""

from remit.server.tenants.dispatcher import Dispatcher, has_tenants

__all__ = ["Dispatcher", "has_tenants"]
