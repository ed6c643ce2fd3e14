"""``remit tenant remove``: the last head stays with the host, all else goes, killed or not."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.kernel.tenant import TenantFile
from remit.ledger import LedgerEntry
from remit.runtime.tenants import TenantHost, removals, remove_tenant
from remit.runtime.tenants.places import Place
from tests.support.commands import run_remit
from tests.support.postgres import PostgresServer, run_sql
from tests.support.processes import run_forked
from tests.support.tenants import new_host, opened

_SCHEMAS = "SELECT nspname FROM pg_namespace WHERE nspname ~ 'remit' ORDER BY 1"


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_a_removed_tenant_leaves_its_last_head(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    database = ""
    if engine == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        database = server.database()
    host = new_host(tmp_path / "host", database=database)
    tenant, old = host / "tenants/acme", tmp_path / "old"

    def run(*arguments: object) -> Any:
        done = run_remit("tenant", *arguments, "--root", host, "--json",
                         environment={"REMIT_DATABASE_URL": database or None})  # fmt: skip
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr

    run("move", "acme", "--to", old)
    run("move", "acme", "--to", "host" if database else tmp_path / "new")
    with opened(tenant, database) as ledger:
        ledger.write(LedgerEntry("NOTE", "S", "D", "the last entry", metadata={"prompt": "secret"}))
        size = ledger.count()
    assert "requires a reason" in run("remove", "acme", "--reason", " ", "--yes")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    refused = run("remove", "acme", "--reason", "ended", "--export", tmp_path / "full")
    assert "is not empty" in refused
    with opened(tenant, database) as ledger:
        assert ledger.verify().verified  # as it was
    done = run("remove", "acme", "--reason", "ended", "--export", tmp_path / "out", "--yes")
    assert done["entries"] == size
    exported = (tmp_path / "out/ledger.jsonl").read_text()
    assert "the last entry" in exported
    assert not tenant.exists()
    assert not list(old.iterdir())
    if database:
        assert run_sql(database, _SCHEMAS) == [("remit_tenant_globex",)]
    else:
        assert not list((tmp_path / "new").iterdir())
    again = run("remove", "acme", "--reason", "ended", "--yes")  # as a retry does
    assert (again["entries"], again["entry"]) == (size, done["entry"])
    removed, globex = run("list")["tenants"]
    assert (removed["name"], removed["reason"], globex["removed"]) == ("acme", "ended", "")
    assert removed["place"].startswith("removed 20")
    assert removed["entries"] == size
    assert "was removed" in run("create", "acme")
    with opened(host, database) as ledger:
        assert ledger.verify().verified
        (entry,) = ledger.query(event_type="TENANT_REMOVED")
        key = str(ledger.verifier_key)
    assert (entry.metadata["size"], entry.metadata["exported"]) == (size, True)
    proof = tmp_path / "out/proof.json"
    assert run("verify", proof, "--key", key)["entries"] == size


@pytest.mark.parametrize(
    "point", ["erase", "remove_place", "remove_old_place", "rmtree", "unlink", "rmdir"]
)
def test_a_recorded_removal_that_is_killed_is_repeated_with_success(
    tmp_path: Path, point: str
) -> None:
    host = new_host(tmp_path / "host")
    moved = run_remit("tenant", "move", "acme", "--to", tmp_path / "new", "--root", host)
    assert moved.returncode == 0, moved.stderr
    ended = run_forked(_die_while_removing, host, point, environment=dict(os.environ))
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    again = ("tenant", "remove", "acme", "--reason", "r", "--yes", "--root", host, "--json")
    first, second = run_remit(*again), run_remit(*again)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout == second.stdout
    assert not (host / "tenants/acme").exists()
    assert not list((tmp_path / "new").iterdir())
    with opened(host) as ledger:
        assert len(list(ledger.query(event_type="TENANT_REMOVED"))) == 1


def _die_while_removing(host: Path, point: str) -> None:
    """Remove a tenant; killed as a step begins, or after a call that follows the record of it."""
    path = load_settings(host / "remit.toml").settings.ledger.path

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def then_die(function: Any) -> Any:
        def wrapped(*arguments: Any, **named: Any) -> None:
            function(*arguments, **named)
            if point != "remove_place" or "moved" not in arguments[0].location:
                die()

        return wrapped

    def step(name: str) -> None:
        if name == point:
            die()
        if name != "erase":
            return
        if point == "remove_place":
            Place.remove = then_die(Place.remove)  # type: ignore[method-assign]
        elif point == "remove_old_place":
            removals.remove_old_place = then_die(removals.remove_old_place)
        elif point == "rmtree":
            removals.shutil.rmtree = then_die(removals.shutil.rmtree)
        elif point == "unlink":  # of the plan; only the empty directory is left
            removals.remove_empty = lambda _: die()
        else:
            removals.remove_empty = then_die(removals.remove_empty)

    with opened(host) as ledger:
        of_host = TenantHost(Root(host), ledger, path, "t", step)
        remove_tenant(of_host, "acme", reason="r", wait_s=5)


def test_a_removal_that_is_killed_is_undone_or_finished(tmp_path: Path) -> None:
    host = new_host(tmp_path / "host")
    tenant = host / "tenants/acme"
    for point, removed in (("record", False), ("remove_place", True)):
        ended = run_forked(_die_while_removing, host, point, environment=dict(os.environ))
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        assert TenantFile.removing_path(tenant).exists()
        if removed:
            TenantFile.path(tenant).unlink()  # as it goes on: the plan is what is left last
            retry = run_remit("tenant", "remove", "acme", "--reason", "r", "--yes", "--root", host)
            assert retry.returncode == 0, retry.stderr
        listed = json.loads(run_remit("tenant", "list", "--root", host, "--json").stdout)
        assert [bool(one["removed"]) for one in listed["tenants"]] == [removed, False]
        assert tenant.exists() != removed
        if not removed:
            with opened(tenant) as ledger:
                assert ledger.write(LedgerEntry("NOTE", "S", "D", "goes on"))
    with opened(host) as ledger:
        assert len(list(ledger.query(event_type="TENANT_REMOVED"))) == 1
