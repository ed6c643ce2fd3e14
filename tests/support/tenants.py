"""Hosts with two tenants: made once in each process on each engine, and copied for each test."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from unittest import mock

from remit import testing
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.ledger import LedgerClient, open_root_ledger
from remit.runtime.tenants import TenantHost, create_tenant
from tests.support.postgres import run_sql
from tests.support.roots import _split, new_root

__all__ = ["TENANTS", "environment", "new_host", "opened"]

TENANTS = ("acme", "globex")


def new_host(place: Path, toml: str = "", *, database: str = "") -> Path:
    """Make a host with the tenants :data:`TENANTS`; its directory.

    Args:
        place: its directory, which is not there yet.
        toml: appended to the ``remit.toml`` of host and tenants.
        database: the URL of an empty PostgreSQL database for host and tenants, which they find by
            :func:`environment`; files when left out.
    """
    if database:
        server, name = _split(database)
        root, template = _made_on(server)
        copied = f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"
        run_sql(server, f"DROP DATABASE {name}", copied)
    else:
        root, _ = _made_on("")
    testing._write_tree(root, place)
    if toml:
        for one in (place, *((place / "tenants" / name) for name in TENANTS)):
            with (one / "remit.toml").open("a", encoding="utf-8") as file:
                file.write(toml)
    return place


def environment(database: str = "") -> dict[str, str]:
    """The variables that processes of a host need."""
    return {"REMIT_DATABASE_URL": database} if database else {}


def opened(root: Path, database: str = "", *, signing: bool = True) -> LedgerClient:
    loaded = load_settings(root / "remit.toml", environment=environment(database))
    return open_root_ledger(Root(root), loaded.settings.ledger, signing=signing)


@functools.cache
def _made_on(server: str) -> tuple[testing._Tree, str]:
    """A host, and the name of its database."""
    name, url = f"host{os.getpid()}", ""
    if server:
        run_sql(server, f"CREATE DATABASE {name}")
        url = server.replace("/postgres?", f"/{name}?")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REMIT_")}
    variables = {**kept, **environment(url)}
    with tempfile.TemporaryDirectory(prefix="remit-host-") as directory:
        host = new_root(Path(directory, "host"), database=url)
        with mock.patch.dict(os.environ, variables, clear=True), opened(host, url) as ledger:
            path = load_settings(host / "remit.toml").settings.ledger.path
            for tenant in TENANTS:
                create_tenant(TenantHost(Root(host), ledger, path, "tests"), tenant)
        return testing._read_tree(host), name
