"""Plans of moves and removals lie in a tenant's root: what they say is held against the host's
record before anything is renamed or removed."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.runtime.tenants import (
    TenantHost,
    export_tenant,
    find_tenant,
    recover_tenants,
    remove_old_places,
    remove_tenant,
)
from tests.support.tenants import new_host, opened


def _elsewhere(place: Path) -> dict[Path, bytes]:
    """The files that a plan could lead to, but for ledgers, which are read."""
    return {
        path: path.read_bytes()
        for folder in (place, place / "host", place / "host/tenants/globex")
        for path in folder.iterdir()
        if path.is_file() and "ledger" not in path.name
    }


def test_a_plan_reaches_nothing_that_is_not_the_tenants(tmp_path: Path) -> None:
    host = new_host(tmp_path / "host")
    tenant, globex = host / "tenants/acme", host / "tenants/globex"
    own: dict[str, Any] = json.loads((tenant / "tenant.json").read_text())
    other = {**own, "name": "globex", "origin": own["origin"].replace("acme", "globex")}
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as file:
        file.execute("CREATE TABLE kept (a)")
    file.close()
    for name in ("moved-x", "a.moved-"):
        (tenant / name).mkdir()
    ledgers = (host / "ledger.db", globex / "ledger.db", foreign)
    out = "x/../../globex/tenant"

    def plan(before: object, after: object, move_id: str = "00000000") -> dict[str, Any]:
        return {"before": before, "after": after, "move_id": move_id}

    with opened(host) as ledger:
        path = load_settings(host / "remit.toml").settings.ledger.path
        recorded, before = ledger.count(), _elsewhere(tmp_path)

        def held(name: str, said: object) -> None:
            (tenant / name).write_text(json.dumps(said))
            failed = recover_tenants(TenantHost(Root(host), ledger, path))
            assert bool(failed) == (name == "moving.json" and said != dropping), said
            if name != "moving.json":
                with pytest.raises(RemitError):
                    remove_old_places(TenantHost(Root(host), ledger, path), "acme")
                with pytest.raises(RemitError):
                    remove_tenant(
                        TenantHost(Root(host), ledger, path), "acme", reason="r", wait_s=0
                    )
            (tenant / name).unlink(missing_ok=True)
            assert all(one.exists() for one in ledgers), said
            assert (_elsewhere(tmp_path), ledger.count()) == (before, recorded), said

        dropping = plan(own, {**own, "ledger": str(foreign)})
        held("moving.json", dropping)
        held("moving.json", plan({**own, "ledger": "a"}, own, "/../../globex/ledger.db"))
        held("moving.json", plan(own, own, out))
        held("moving.json", plan(own, {**own, "name": "globex"}))
        held("moved-a.json", plan(own, own, out))
        held("moved-11111111.json", plan(own, own))
        held("moved-00000000.json", plan(own, other))
        (tmp_path / "p.moved-00000000").write_bytes(foreign.read_bytes())
        before = _elsewhere(tmp_path)
        held("moved-00000000.json", plan({**own, "ledger": str(tmp_path / "p")}, own))
        keys = tenant / "HOT/keys"
        shutil.copytree(keys, tmp_path / "keys")
        before = _elsewhere(tmp_path)
        shutil.copy(host / "HOT/keys/ledger.vkey", keys)
        held("moving.json", plan(own, {**own, "ledger": str(host / "ledger.db")}))
        (keys / "ledger.vkey").write_bytes((tmp_path / "keys/ledger.vkey").read_bytes())


def test_a_removal_is_the_roots_own_and_ends_behind_a_link(tmp_path: Path) -> None:
    host, disk, out = new_host(tmp_path / "host"), tmp_path / "disk", tmp_path / "out"
    tenant, globex = host / "tenants/acme", host / "tenants/globex"
    globex.rename(disk)
    globex.symlink_to(disk)
    own = json.loads((tenant / "tenant.json").read_text())
    archive = next((tenant / "HOT/installed").glob("*/archives")) / "x.tar.gz"
    archive.symlink_to(host / "HOT/keys/ledger.key")
    with opened(host) as ledger, opened(tenant) as log:
        with pytest.raises(RemitError, match="leads out"):
            export_tenant(ledger, find_tenant(Root(host), "acme"), log, out)
        path = load_settings(host / "remit.toml").settings.ledger.path
        remove_tenant(TenantHost(Root(host), ledger, path), "globex", reason="r", wait_s=0)
        assert not disk.exists()
        assert not globex.is_symlink()
        (entry,) = ledger.query(event_type="TENANT_REMOVED")
        said = {"file": {**own, "name": "globex"}, "by": "t",
                "removal_id": entry.metadata["removal_id"]}  # fmt: skip
        (tenant / "removing.json").write_text(json.dumps(said))
        assert "not belong to the tenant acme" in str(
            recover_tenants(TenantHost(Root(host), ledger, path))["acme"]
        )
        assert (tenant / "ledger.db").exists()
