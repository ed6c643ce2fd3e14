"""``remit tenant export``, ``move`` and ``remove``: one ledger in force, the last head stays."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from remit.gateway.auth import KeyStore
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter
from remit.kernel.errors import RemitError
from remit.kernel.root import Root
from remit.kernel.settings import load_settings
from remit.kernel.tenant import TenantFile
from remit.ledger import LedgerClient, LedgerEntry, LedgerError
from remit.runtime.state_tables import check_state
from remit.runtime.tenants import (
    TenantHost,
    export_tenant,
    find_tenant,
    hold_open,
    move_tenant,
    moves,
    recover_tenants,
    removals,
    remove_old_places,
    remove_tenant,
)
from remit.runtime.tenants.places import Place
from tests.support.commands import require_said, run_remit
from tests.support.postgres import PostgresServer, run_sql
from tests.support.processes import run_forked
from tests.support.stores import conversation, outside
from tests.support.tenants import environment, new_host, opened

_KEPT = (
    "SELECT seq, entry_hash, record FROM entries ORDER BY seq",
    "SELECT key_id, name, hash, old_hash, changed FROM virtual_keys ORDER BY key_id",
    "SELECT * FROM budgets ORDER BY scope",
    "SELECT epoch FROM key_epoch",
    "SELECT size, note FROM checkpoints ORDER BY size",
    "SELECT commitment, scope, nonce FROM contents ORDER BY commitment",
    "SELECT commitment, seq FROM erasures ORDER BY commitment",
    "SELECT response_id, owner FROM response_ids ORDER BY response_id",
    "SELECT session_id, owner FROM session_owners ORDER BY session_id",
)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host; its tenant has content, an erasure, a key with a budget, a checkpoint, and state."""
    host = new_host(tmp_path / "host")
    with opened(host / "tenants/acme") as ledger:
        conversation(ledger, "SES-MOVED001", 3, subject="ann")
        conversation(ledger, "SES-MOVED002", 2)
        ledger.erase(subject_id="ann", reason="asked")
        with KeyStore(ledger) as keys:
            made = keys.create("k")
        limits = BudgetLimits(1000, 5 * 10**9, None, None, None)
        TokenBudgeter(ledger).allocate(BudgetScope(key_id=made.key_id), limits=limits)
        ledger.transact(lambda tx: tx.execute("INSERT INTO session_owners VALUES ('SES-X', 'k')"))
        ledger.checkpoint()
    return host


def _kept(root: Path, database: str = "") -> list[Any]:
    """All that has to stay, as far as both engines show it alike."""
    with opened(root, database) as ledger:
        report = ledger.verify()
        assert report.verified, report
        assert list(check_state(ledger, False)) == []
        rows: list[Any] = [ledger.select(query) for query in _KEPT]
        rows.append([entry.to_dict() for entry in ledger.query(session_id="SES-MOVED002")])
    return [[[str(value) for value in row] if isinstance(row, tuple) else row for row in part]
            for part in rows]  # fmt: skip


def _moved(host: Path, to: object, database: str = "") -> Any:
    done = run_remit("tenant", "move", "acme", "--to", to, "--root", host, "--json",
                     environment={"REMIT_DATABASE_URL": database or None})  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _without_last_checkpoint(kept: list[Any]) -> list[Any]:
    return [*kept[:4], kept[4][:1], *kept[5:]]


def test_a_move_between_engines_keeps_everything(
    tmp_path: Path, host: Path, postgres: PostgresServer
) -> None:
    tenant = host / "tenants/acme"
    database = postgres.database()
    before = _kept(tenant)
    for to in (database, tmp_path / "elsewhere"):
        with opened(tenant) as old:  # another process has it open meanwhile
            done = _moved(host, to)
            with pytest.raises(LedgerError):
                old.write(LedgerEntry("NOTE", "S", "D", "too late"))
        assert done["entries"] == len(before[0])
        assert _without_last_checkpoint(_kept(tenant)) == _without_last_checkpoint(before)
        assert not list(tenant.glob("moving*"))
        if "://" in done["place"]:
            schemas = run_sql(database, "SELECT nspname FROM pg_namespace WHERE nspname ~ 'remit'")
            assert schemas == [("remit_tenant_acme",)]
    schemas = run_sql(database, "SELECT nspname FROM pg_namespace WHERE nspname ~ 'remit'")
    assert len(schemas) == 1
    assert schemas[0][0].startswith("remit_tenant_acme_moved_")
    erasing = ("ledger", "erase", "--subject", "ann", "--reason", "again", "--root", tenant)
    for do, named in (((), 0), (("--yes",), 2)):  # the old ledgers, which no erasure reaches
        erased = json.loads(run_remit(*erasing, *do, "--json").stdout)
        assert (erased["remainder"] or "").count("moved") == named
    with opened(host) as ledger:
        moves = list(ledger.query(event_type="TENANT_MOVED"))
        assert [one.metadata["size"] for one in moves] == [len(before[0])] * 2
        assert all("postgres" not in one.metadata["place"] or ":" in one.metadata["place"]
                   for one in moves)  # fmt: skip
    # What was left behind goes only where it is this tenant's, and is in the ledger in force.
    aside = min(tenant.glob("ledger.db.moved-*"), key=lambda path: len(path.name))
    own = aside.read_bytes()
    aside.write_bytes((host / "tenants/globex/ledger.db").read_bytes())
    require_said(run_remit("tenant", "clean", "acme", "--yes", "--root", host), "belongs to")
    assert aside.exists()
    aside.write_bytes(own)
    cleaned = json.loads(
        run_remit("tenant", "clean", "acme", "--yes", "--root", host, "--json").stdout
    )
    assert len(cleaned["removed"]) == 2
    assert not list(tenant.glob("*moved*"))
    schemas = run_sql(database, "SELECT nspname FROM pg_namespace WHERE nspname ~ 'remit'")
    assert schemas == []
    with opened(host) as ledger:
        assert len(list(ledger.query(event_type="TENANT_OLD_PLACE_REMOVED"))) == 2
    again = json.loads(run_remit("tenant", "clean", "acme", "--root", host, "--json").stdout)
    assert again["removed"] == []
    run_remit("tenant", "checkpoint", "--root", host)
    with opened(tenant) as ledger:
        assert ledger.write(LedgerEntry("NOTE", "S", "D", "goes on")) == f"LED-{len(before[0]):08x}"


def test_a_move_that_is_finished_is_repeated_without_effect(tmp_path: Path, host: Path) -> None:
    done = _moved(host, tmp_path / "new")
    assert _moved(host, tmp_path / "new") == done
    again = run_remit("tenant", "move", "acme", "--to", tmp_path / "new", "--remove-old",
                      "--root", host)  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert not list((host / "tenants/acme").glob("*moved*"))
    assert {**_moved(host, tmp_path / "new"), "aside": done["aside"]} == done
    with opened(host) as ledger:
        assert len(list(ledger.query(event_type="TENANT_MOVED"))) == 1


def test_an_old_ledger_stays_while_the_new_one_does_not_verify(tmp_path: Path, host: Path) -> None:
    """The new one may have lost content since it was copied: then the old one has the only copy."""
    _moved(host, tmp_path / "new")
    outside(
        str(tmp_path / "new/ledger.db"),
        "DELETE FROM contents WHERE content_id = (SELECT max(content_id) FROM contents)",
    )
    require_said(run_remit("tenant", "clean", "acme", "--yes", "--root", host), "only undamaged")
    assert list((host / "tenants/acme").glob("ledger.db.moved-*"))


def test_an_export_of_a_tenant_is_on_disk_before_the_tenant_goes(
    tmp_path: Path, host: Path
) -> None:
    synced = set[str]()
    plain = os.fsync

    def fsync(handle: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        plain(handle)

    with opened(host) as ledger, mock.patch.object(os, "fsync", fsync):
        tenant = find_tenant(Root(host), "acme")
        with opened(tenant.root.path) as log:
            export_tenant(ledger, tenant, log, tmp_path / "out")
    written = {str(path) for path in (tmp_path / "out").rglob("*")}
    assert written <= synced


def test_what_cannot_be_moved_stays_as_it_is(tmp_path: Path, host: Path) -> None:
    tenant = host / "tenants/acme"
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken/ledger.db").write_text("something else")
    done = run_remit("tenant", "move", "acme", "--to", tmp_path / "taken", "--root", host)
    assert "already exists" in done.stderr
    with hold_open(find_tenant(Root(host), "acme")):
        done = run_remit("tenant", "move", "acme", "--to", tmp_path / "x", "--wait", "0",
                         "--root", host)  # fmt: skip
        assert "still runs calls" in done.stderr
    outside(str(tenant / "ledger.db"), "INSERT INTO in_flight (dispatch_entry_id, owner, "
            "lease_until_ms, session_id, work_order_id, agent_id, contract_id, reserved_tokens) "
            "VALUES ('LED-00000001', 'o', 1, 's', 'w', 'a', 'c', 0)")  # fmt: skip
    done = run_remit("tenant", "move", "acme", "--to", tmp_path / "x", "--root", host)
    assert "Calls are in flight" in done.stderr
    assert not (tmp_path / "x/ledger.db").exists()
    assert not list(tenant.glob("*moved*"))
    assert (tmp_path / "taken/ledger.db").read_text() == "something else"


_POINTS = ("aside", "copy", "copied", "switch", "finish", "recorded")


def _killed(function: Callable[..., object], *arguments: object) -> None:
    """Call a function in a process of its own, which it kills."""
    ended = run_forked(function, *arguments, environment=dict(os.environ))
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def _move_and_die(host: Path, to: str, point: str, database: str) -> None:
    """Move a tenant; killed as a step begins, once the copy is made, or once it is on record."""

    def dies(function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> None:
            function(*arguments, **named)
            os.kill(os.getpid(), signal.SIGKILL)

        return call

    def step(name: str) -> None:
        if name == point:
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "finish" and point == "recorded":
            LedgerClient.write = dies(LedgerClient.write)  # type: ignore[method-assign]

    if point == "copied":
        moves.copy_ledger = dies(moves.copy_ledger)
    os.environ.update(environment(database))
    path = load_settings(host / "remit.toml").settings.ledger.path
    with opened(host, database) as ledger:
        move_tenant(TenantHost(Root(host), ledger, path, "t", step), "acme", to, wait_s=5)


def _places(tenant: Path) -> Iterator[str]:
    """Ledgers of the tenant that could be opened under a name that it has had."""
    for path in (tenant / "ledger.db", *sorted(tenant.parents[2].glob("to-*/ledger.db"))):
        if path.exists():
            yield str(path)


def test_a_move_that_is_killed_leaves_the_old_or_the_new_in_force(
    tmp_path: Path, host: Path
) -> None:
    tenant = host / "tenants/acme"
    records = _kept(tenant)[0]
    moves = 0
    for number, point in enumerate(_POINTS):
        before = TenantFile.read(tenant)
        _killed(_move_and_die, host, str(tmp_path / f"to-{number}"), point, "")
        if TenantFile.moving_path(tenant).exists():  # nobody opens it as it is
            with pytest.raises(RemitError, match="is being moved"):
                opened(tenant)
        listed = run_remit("tenant", "list", "--root", host)
        assert listed.returncode == 0, listed.stderr
        moved = TenantFile.read(tenant) != before
        moves += moved
        assert moved == (point in ("finish", "recorded"))
        assert len(list(_places(tenant))) == 1, point
        assert _kept(tenant)[0] == records, point
        assert not list(tenant.glob("moving*")), point
    with opened(host) as ledger:
        assert len(list(ledger.query(event_type="TENANT_MOVED"))) == moves == 2


@pytest.mark.parametrize("point", ["write", "unlink"])
def test_a_removal_of_the_old_ledger_that_is_killed_is_repeated_with_success(
    tmp_path: Path, host: Path, point: str
) -> None:
    records = _kept(host / "tenants/acme")[0]
    done = _moved(host, tmp_path / "new")
    _killed(_remove_old_and_die, host, point)
    again = ("tenant", "move", "acme", "--to", tmp_path / "new", "--remove-old", "--root", host,
             "--json")  # fmt: skip
    for _ in range(2):
        repeated = run_remit(*again)
        assert repeated.returncode == 0, repeated.stderr
        assert json.loads(repeated.stdout)["entries"] == done["entries"]
    assert not list((host / "tenants/acme").glob("*moved*"))
    assert not list((host / "tenants/acme").glob("ledger.db*"))
    assert _kept(host / "tenants/acme")[0] == records
    with opened(host) as ledger:
        assert len(list(ledger.query(event_type=moves.OLD_PLACE_REMOVED))) == 1


def _remove_old_and_die(host: Path, point: str) -> None:
    """Remove the ledger that a tenant was moved away from; killed after a step."""
    path = load_settings(host / "remit.toml").settings.ledger.path
    with opened(host) as ledger:
        place: Any = ledger if point == "write" else Path
        function = getattr(place, point)

        def wrapped(*arguments: Any, **named: Any) -> None:
            function(*arguments, **named)
            if point != "unlink" or "moved" in str(arguments[0]):
                os.kill(os.getpid(), signal.SIGKILL)

        setattr(place, point, wrapped)
        remove_old_places(TenantHost(Root(host), ledger, path, "t"), "acme")


def test_a_move_to_postgresql_that_is_killed(tmp_path: Path, postgres: PostgresServer) -> None:
    database = postgres.database()
    host = new_host(tmp_path / "host", database=database)
    tenant, other = host / "tenants/acme", postgres.database()
    for point, moved in (("copy", False), ("copied", False), ("finish", True)):
        _killed(_move_and_die, host, other, point, database)
        with opened(host, database) as ledger:
            recover_tenants(TenantHost(Root(host), ledger, database))
        file = TenantFile.read(tenant)
        assert file is not None
        assert (file.database == other) == moved
        with opened(tenant, database) as ledger:
            ledger.write(LedgerEntry("NOTE", "S", "D", "goes on"))
            assert ledger.verify().verified
        schemas = [
            run_sql(url, "SELECT nspname FROM pg_namespace WHERE nspname = 'remit_tenant_acme'")
            for url in (database, other)
        ]
        assert [bool(found) for found in schemas] == [not moved, moved]


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
    refused = run("remove", "acme", "--reason", "ended", "--export", tmp_path / "full", "--yes")
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


@pytest.mark.parametrize("point", ["erase", "remove_old_place", "unlink"])
def test_a_recorded_removal_that_is_killed_is_repeated_with_success(
    tmp_path: Path, point: str
) -> None:
    host = new_host(tmp_path / "host")
    moved = run_remit("tenant", "move", "acme", "--to", tmp_path / "new", "--root", host)
    assert moved.returncode == 0, moved.stderr
    _killed(_die_while_removing, host, point)
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
        elif point == "unlink":  # of the plan; only the empty directory is left
            removals.remove_empty = lambda _: die()

    with opened(host) as ledger:
        of_host = TenantHost(Root(host), ledger, path, "t", step)
        remove_tenant(of_host, "acme", reason="r", wait_s=5)


def test_a_removal_that_is_killed_is_undone_or_finished(tmp_path: Path) -> None:
    host = new_host(tmp_path / "host")
    tenant = host / "tenants/acme"
    for point, removed in (("record", False), ("remove_place", True)):
        _killed(_die_while_removing, host, point)
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
