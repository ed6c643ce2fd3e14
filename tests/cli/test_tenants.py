"""``remit tenant``: made, listed, proved from the host; what a plan in a tenant's root may do."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
import stat
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.kernel.tenant import TenantFile, check_name, tenant_of_origin
from remit.runtime.tenants import (
    TenantHost,
    export_tenant,
    find_tenant,
    recover_tenants,
    remove_old_places,
    remove_tenant,
)
from tests.ledger.segments.writing import cut_off, sessions
from tests.support.commands import require_said, run_remit
from tests.support.postgres import PostgresServer, run_sql
from tests.support.standalone import standalone
from tests.support.tenants import environment, new_host, opened


@dataclass
class Host:
    """A host with tenants, and how commands are run on it."""

    root: Path
    database: str

    def run(self, *arguments: object, root: Path | None = None) -> CompletedProcess[str]:
        return run_remit(
            *arguments, "--root", root or self.root,
            environment={"REMIT_DATABASE_URL": self.database or None},
        )  # fmt: skip

    def json(self, *arguments: object, root: Path | None = None) -> Any:
        done = self.run(*arguments, "--json", root=root)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def tenant(self, name: str) -> Path:
        return self.root / "tenants" / name


@pytest.fixture(params=["sqlite", "postgresql"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    database = ""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        database = server.database()
    return Host(new_host(tmp_path / "host", database=database), database)


def test_each_tenant_has_a_ledger_and_a_key_of_its_own(host: Host) -> None:
    listed = host.json("tenant", "list")["tenants"]
    assert [one["name"] for one in listed] == ["acme", "globex"]
    keys = {}
    for root, name in ((host.root, ""), *((host.tenant(x), x) for x in ("acme", "globex"))):
        made = host.json("key", "create", "--name", "k", root=root)
        keys[name] = made["key"]
        found = host.json("key", "list", root=root)["keys"]
        assert [one["id"] for one in found] == [made["id"]]
        assert host.json("ledger", "verify", root=root)["verified"]
        rotated = host.json("key", "rotate", "k", root=root)["key"]
        assert rotated.startswith(f"sk-remit-{name}_" if name else "sk-remit-")
    assert keys["acme"].startswith("sk-remit-acme_")
    assert len(keys[""]) == len("sk-remit-") + 43
    with opened(host.root, host.database) as ledger:
        (made, _) = ledger.query(event_type="TENANT_CREATED")
        said = made.metadata
    assert tenant_of_origin(said["origin"]) == "acme"
    key = host.run("ledger", "key", root=host.tenant("acme")).stdout.strip()
    assert said["verifier_key"] == key
    if host.database:
        schemas = run_sql(
            host.database, "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'remit%' ORDER BY 1"
        )
        assert schemas == [("remit_tenant_acme",), ("remit_tenant_globex",)]
        assert "schema remit_tenant_acme of the host" in listed[0]["place"]


def test_a_tenant_opens_no_ledger_but_its_own(host: Host) -> None:
    acme, globex = TenantFile.read(host.tenant("acme")), TenantFile.read(host.tenant("globex"))
    assert acme is not None
    assert globex is not None
    of_host = "public" if host.database else str(host.root / "ledger.db")
    of_other = globex.ledger if host.database else str(host.tenant("globex") / "ledger.db")
    sizes = {root: host.json("ledger", "stats", root=root)["entries"]
             for root in (host.root, host.tenant("globex"))}  # fmt: skip
    for ledger in (of_host, of_other):
        wrong = dataclasses.replace(acme, ledger=ledger)
        TenantFile.path(host.tenant("acme")).write_bytes(wrong.encoded())
        for command in (("ledger", "query"), ("ledger", "verify"),
                        ("key", "create", "--name", "k")):  # fmt: skip
            done = host.run(*command, root=host.tenant("acme"))
            assert done.returncode == 1, command
            assert "belongs to 'remit.local" in done.stdout + done.stderr
        for command in (("checkpoint", "acme"), ("export", "acme", "--out", host.root / "out"),
                        ("move", "acme", "--to", host.root / "new")):  # fmt: skip
            require_said(host.run("tenant", *command), "belongs to")
    for wrong in (dataclasses.replace(globex, name="acme"),
                  dataclasses.replace(acme, origin=f"{acme.origin}x")):  # fmt: skip
        TenantFile.path(host.tenant("acme")).write_bytes(wrong.encoded())
        done = host.run("ledger", "query", root=host.tenant("acme"))
        assert (done.returncode, "does not belong to the tenant" in done.stderr) == (1, True), (
            done.stderr
        )
    TenantFile.path(host.tenant("acme")).write_bytes(acme.encoded())
    for root, size in sizes.items():
        assert host.json("ledger", "stats", root=root)["entries"] == size


def test_an_entry_of_a_tenant_is_proved_from_the_host(host: Host, tmp_path: Path) -> None:
    taken = host.json("tenant", "checkpoint")["taken"]
    assert host.json("tenant", "checkpoint", "acme")["taken"]["acme"] == taken["acme"]
    host.json("key", "create", "--name", "k", root=host.tenant("acme"))
    last = host.json("ledger", "stats", root=host.tenant("acme"))["entries"] - 1
    proof = tmp_path / "proof.json"
    done = host.run("tenant", "prove", "acme", f"LED-{last:08x}", "--out", proof)
    assert done.returncode == 0, done.stderr
    key = host.run("ledger", "key").stdout.strip()
    found = host.json("tenant", "verify", proof, "--key", key)
    assert (found["verified"], found["index"]) == (True, last)
    assert host.json("tenant", "list")["tenants"][0]["entries"] == last + 1
    of_tenant = host.run("ledger", "key", root=host.tenant("acme")).stdout.strip()
    assert host.run("tenant", "verify", proof, "--key", of_tenant).returncode == 1
    assert host.run("tenant", "prove", "acme", "LED-00ffffff").returncode == 1


def test_an_entry_in_a_segment_of_a_tenant_is_proved_from_the_host(
    host: Host, tmp_path: Path
) -> None:
    with opened(host.tenant("acme"), host.database) as ledger:
        sessions(ledger, 60)
        cut_off(ledger, tmp_path / "segments")
    proof = tmp_path / "proof.json"
    words = ("tenant", "prove", "acme", "LED-0000002a", "--out", proof)
    assert "--archive DIR" in host.run(*words).stderr
    done = host.run(*words, "--archive", tmp_path / "segments")
    assert done.returncode == 0, done.stderr
    key = host.run("ledger", "key").stdout.strip()
    assert host.json("tenant", "verify", proof, "--key", key)["index"] == 42
    assert standalone("--tenant-proof", proof, "--key", key).returncode == 0


def test_an_older_copy_of_a_tenant_is_told(tmp_path: Path) -> None:
    host = Host(new_host(tmp_path / "host"), "")
    tenant = host.tenant("acme")
    old = {name: (tenant / name).read_bytes() for name in ("ledger.db", "HOT/keys/ledger.head")
           if (tenant / name).exists()}  # fmt: skip
    host.json("key", "create", "--name", "k", root=tenant)
    host.json("tenant", "checkpoint", "acme")
    for name, data in old.items():  # with the head beside its key, so that it does not know itself
        (tenant / name).write_bytes(data)
    if "HOT/keys/ledger.head" not in old:
        (tenant / "HOT/keys/ledger.head").unlink()
    require_said(host.run("tenant", "checkpoint", "acme"), "does not extend its last recorded head")


def test_a_name_that_no_tenant_can_have() -> None:
    for name in ("", "-a", "a-", "A", "a_b", "../x", "a" * 33, "ä", "a b", "a\n"):
        with pytest.raises(RemitError, match="is not a valid tenant name"):
            check_name(name)
    for name in ("a", "0", "acme-eu", "a" * 32):
        assert check_name(name) == name


def test_a_tenant_goes_on_to_be_made_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(new_host(tmp_path / "host"), "")

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("remit.runtime.tenants.tenant.make_root", killed)
    assert host.run("tenant", "create", "late").returncode == 130
    monkeypatch.undo()
    states = {one["name"]: one["state"] for one in host.json("tenant", "list")["tenants"]}
    assert states == {"acme": "served", "globex": "served", "late": "unfinished"}
    assert "is incomplete" in host.run("tenant", "checkpoint", "late").stderr
    # All is done but the last step.
    monkeypatch.setattr("remit.runtime.tenants.tenant.save", killed)
    assert host.run("tenant", "create", "late").returncode == 130
    monkeypatch.undo()
    assert host.json("tenant", "create", "late")["name"] == "late"
    with opened(host.root) as ledger:
        assert len(list(ledger.query(event_type="TENANT_CREATED", submission_id="late"))) == 1
    file = host.tenant("late") / "tenant.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_environment_of_the_host_moves_no_ledger_of_a_tenant(tmp_path: Path) -> None:
    host = new_host(tmp_path / "host")
    variables = {"REMIT_DATABASE_URL": "postgresql://else/db", "REMIT_LEDGER__ORIGIN": "x.com/y"}
    loaded = load_settings(host / "tenants/acme/remit.toml", environment=variables)
    file = TenantFile.read(host / "tenants/acme")
    assert file is not None
    assert (loaded.settings.ledger.path, loaded.settings.ledger.origin) == (
        "ledger.db", file.origin,
    )  # fmt: skip
    assert loaded.sources["ledger.path"] == "tenant.json"
    assert environment() == {}


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
