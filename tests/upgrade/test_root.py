"""Roots of earlier layouts open, verify and are upgraded, whatever kills the migration."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import (
    LAYOUT_VERSION,
    Erased,
    LedgerClient,
    LedgerEntry,
    LedgerError,
    LedgerFormatError,
)
from remit.ledger.postgres.connection import Writer
from remit.ledger.sqlite.migrations import migrate
from tests.packages.shipped import manifests
from tests.server.running import serving
from tests.support.commands import run_remit
from tests.support.keeping import Keeper
from tests.support.postgres import PostgresServer
from tests.support.processes import run_forked
from tests.support.soak import sample
from tests.support.stores import outside
from tests.support.waiting import until
from tests.upgrade.conftest import COMMITS, ROOTS, OldRoot, unpack
from tests.upgrade.upstream import answering

_ENTRIES = "SELECT seq, record, entry_hash FROM entries ORDER BY seq"
_VERIFIER = Path(__file__).parents[2] / "docs" / "verify_standalone.py"


class _Root:
    """An old root, and the command line of this version."""

    def __init__(self, old: OldRoot, upstream: Keeper) -> None:
        self.old = old
        self._environment = {
            "OPENAI_BASE_URL": f"{upstream.url}/v1", "OPENAI_API_KEY": "sk-openai",
            "REMIT_ROOT": str(old.path),
        }  # fmt: skip

    def run(self, *arguments: object, stdin: str = "", **more: str) -> str:
        """Run ``remit ARGUMENTS``, which succeeds; return its output."""
        environment = {**self._environment, **more}
        ran = run_remit(*arguments, stdin=stdin, environment=environment)
        assert ran.returncode == 0, (arguments, ran.stdout, ran.stderr)
        return ran.stdout

    def settle(self) -> bool:
        """Run ``remit ledger recover``; return True if no call is in flight any more.

        On another machine than the one of the old processes, a database that has just started is
        given the time of a lease first.
        """
        short = {"REMIT_GATEWAY__TIMEOUT_MS": "5000", "REMIT_GATEWAY__LEASE_MARGIN_MS": "0"}
        self.run("ledger", "recover", **short)
        batch = "SELECT dispatch_entry_id FROM batches" if self.old.layout > 3 else "SELECT ''"
        (left,) = outside(
            self.old.ledger,
            f"SELECT count(*) FROM in_flight WHERE dispatch_entry_id NOT IN ({batch})",
        )
        return left == (0,)

    def check(self) -> None:
        """Check records, budgets and gates, as ``docs/operations/upgrade.md`` says."""
        self.run("ledger", "verify")
        self.run("budget", "check")
        assert "8 of 8 gates pass" in self.run("gate", "check", "--all", "--enforce")


@pytest.mark.soak
@pytest.mark.parametrize("old", sample(ROOTS, 3), indirect=True, ids="-".join)
def test_it_verifies_is_settled_upgraded_and_written_to(old: OldRoot, tmp_path: Path) -> None:
    facts = old.facts
    checkpoint = tmp_path / "kept-outside"
    checkpoint.write_text(facts["checkpoint"])
    records = outside(old.ledger, _ENTRIES)
    assert records[-1][2] == facts["head"]
    with answering() as upstream:
        root = _Root(old, upstream)
        report = json.loads(root.run("ledger", "verify", "--json", "--checkpoint", checkpoint))
        assert (report["verified"], report["entries"]) == (True, len(records))
        root.run("budget", "check")

        until(root.settle)
        with LedgerClient(old.ledger) as ledger:
            orphans = ledger.query(event_type="EXCHANGE_ORPHANED")
            assert [one.metadata["dispatch_entry_id"] for one in orphans] == facts["in_flight"]
        root.run("ledger", "verify", "--checkpoint", checkpoint)
        root.run("budget", "check")

        root.run("init", old.path)
        listed = json.loads(root.run("package", "list", "--json"))["packages"]
        installed = {one["package_id"]: one["version"] for one in listed}
        assert installed == {name: one.version for name, one in manifests().items()}
        root.check()

        _talk(root)
        _serve(old, upstream)
        root.check()
        _hand_out(root, tmp_path)
    after = outside(old.ledger, _ENTRIES)
    assert after[: len(records)] == records
    assert outside(old.ledger, "SELECT max(version) FROM migrations") == [(LAYOUT_VERSION,)]


WITH_BATCH = [old for old in ROOTS if COMMITS[old[0]] > 3]  # the tables of layout 4
ENDS = {
    "answered": (2, "measured"),
    "half answered": (1, "measured"),
    "running beyond its expiry": (2, "upper_bound"),
    "forgotten": (2, "upper_bound"),
}
"""What became of the batch: how many of its two requests are charged, and as what."""


@pytest.mark.soak
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("old", sample(WITH_BATCH, 1), indirect=True, ids="-".join)
def test_its_open_batch_is_settled(old: OldRoot, end: str) -> None:
    batch_id, (charged, certainty) = old.facts["batch"], ENDS[end]
    first = outside(old.ledger, "SELECT max(seq) FROM entries")[0][0]
    ((made_ms,),) = outside(old.ledger, "SELECT created_ms FROM batches")
    held = "SELECT count(*) FROM batches", "SELECT count(*) FROM batch_lines"
    assert [outside(old.ledger, sql) for sql in held] == [[(1,)], [(2,)]]
    with answering() as upstream:
        if end != "forgotten":
            upstream.batches[batch_id] = {
                "id": batch_id, "object": "batch", "status": "in_progress",
                "expires_at": made_ms // 1000 + 1,
            }  # fmt: skip
            upstream.lines[batch_id] = [
                {"custom_id": f"line-{number}", "body": {"model": "gpt-4o-mini"}}
                for number in range(2)
            ]
        if end == "answered":
            upstream.finish(batch_id)
        elif end == "half answered":
            upstream.finish(batch_id, only=1, how="expired")
        root = _Root(old, upstream)
        until(root.settle)
        assert [outside(old.ledger, sql) for sql in held] == [[(0,)], [(0,)]]
        root.run("ledger", "verify")
        root.run("budget", "check")
    with LedgerClient(old.ledger) as ledger:
        found = [
            one.metadata
            for one in ledger.query(event_type="EXCHANGE", after=first)
            if one.metadata.get("batch_id") == batch_id
        ]
    paid = [one for one in found if one.get("cost_usd")]
    assert (len(found), len(paid)) == (2, charged)
    assert {one["cost_certainty"] for one in paid} == {certainty}


def _talk(root: _Root) -> None:
    """Continue a session whose turn was killed, and decide what waits for a person."""
    facts = root.old.facts
    said = root.run("chat", "--model", "openai", "--session", facts["chat"], stdin="And sencha?\n")
    assert "three minutes" in said
    with LedgerClient(root.old.ledger) as ledger:
        turns = list(ledger.query(event_type="TURN_RECORDED", session_id=facts["chat"]))
        asked = [turn.metadata["user_message"] for turn in turns]
        assert asked[:2] == ["How long does it steep?", "And sencha?"]
        assert asked[-1] == "And sencha?"
        erased = ledger.query(event_type="EXCHANGE", session_id="SES-ERASED01")
        assert all(isinstance(one.metadata["response"], Erased) for one in erased)
    waiting = json.loads(root.run("approve", "--json"))["approvals"]
    assert [one["request_id"] for one in waiting] == [facts["request"]]
    root.run("approve", facts["request"], "--yes", "--by", "Ann")
    root.run("trail", "add", "step 2", "--task", "TASK-1", "--type", "plan", "--agent", "planner")
    assert len(json.loads(root.run("trail", "list", "--task", "TASK-1", "--json"))["thoughts"]) == 3
    if order := facts.get("order"):
        assert json.loads(root.run("order", "show", order, "--json"))["state"] == "ready"


def _serve(old: OldRoot, upstream: Keeper) -> None:
    """Let the old keys call, and continue what they began."""
    facts, keys = old.facts, old.facts["keys"]
    database = old.ledger if "://" in old.ledger else ""
    with serving(old.path, upstream.url, database=database, checked=False) as served:
        session = "SES-CHAIN001"
        for name, expected in (("ann", 200), ("gone", 401)):
            status, said, _ = served.call("openai", "And now?", session=session, token=keys[name])
            assert status == expected, said
        # A session belongs to the key that began it, in every version.
        assert served.call("openai", "Mine?", session=session, token=keys["ben"])[0] == 403
        assert served.call("anthropic", "And now?", model="claude-sonnet-4-5",
                           session="SES-BEN00001", token=keys["ben"])[0] == 200  # fmt: skip
        body: dict[str, Any] = {"model": "gpt-4o-mini", "input": "More?", "store": True}
        if name := facts.get("response"):
            more = {**body, "previous_response_id": name}
            assert served.ask("POST", "/v1/responses", more, token=keys["ann"])[0] == 200
        if name := facts.get("conversation"):
            more = {**body, "conversation": name}
            assert served.ask("POST", "/v1/responses", more, token=keys["ann"])[0] == 200


def _hand_out(root: _Root, directory: Path) -> None:
    """Export, prove and import: for other people's tools, and into a new root."""
    export, proof, new = (str(directory / name) for name in ("all.jsonl", "proof", "new"))
    root.run("ledger", "export", "--out", export)
    root.run("ledger", "prove", root.old.facts["in_flight"][0], "--out", proof)
    key = root.run("ledger", "key").strip()
    verifier = [sys.executable, _VERIFIER, export, "--key", key]
    ran = subprocess.run(verifier, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for command in (
        ["init", "--bare", new],
        ["ledger", "import", export, "--root", new],
        ["init", new],
        ["gate", "check", "--gate", "G0B", "--enforce", "--root", new],
    ):
        ran = run_remit(*command, environment={"REMIT_DATABASE_URL": None})
        assert ran.returncode == 0, (command, ran.stdout, ran.stderr)


_LAYOUT_1 = Path(__file__).parents[1] / "ledger" / "layout1.db.gz"
_OLD = [commit for commit, layout in COMMITS.items() if layout < LAYOUT_VERSION]


def _file(commit: str, directory: Path) -> Path:
    """Return the ledger of a root, or the one of layout 1, as one file without a log."""
    if commit == "layout1":
        file = directory / "layout1.db"
        file.write_bytes(gzip.decompress(_LAYOUT_1.read_bytes()))
        return file
    ledger = unpack(directory, commit).ledger
    outside(ledger, "PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(ledger)


@pytest.mark.soak
@pytest.mark.parametrize("commit", ["layout1", *_OLD])
def test_sqlite_killed_at_any_statement_is_finished_by_the_next_open(
    commit: str, tmp_path: Path
) -> None:
    original = _file(commit, tmp_path)
    before = outside(str(original), "SELECT seq, record, entry_hash FROM entries ORDER BY seq")
    (layout,) = outside(str(original), "PRAGMA user_version")
    path = tmp_path / "tried" / "ledger.db"
    path.parent.mkdir()
    shutil.copy(original, path)
    statements = _statements(path)
    assert statements > 5
    for statement in sample(range(1, statements + 1), 2):
        for leftover in path.parent.iterdir():
            leftover.unlink()
        shutil.copy(original, path)
        if (pid := os.fork()) == 0:
            _migrate_and_die(path, statement)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), statement
        # SQLite commits while the statement COMMIT runs, not as it begins.
        assert outside(str(path), "PRAGMA user_version") == [layout]
        assert outside(str(path), "PRAGMA integrity_check") == [("ok",)]
        _check_finished(str(path), before)


def _statements(path: Path) -> int:
    """Migrate, and return the number of statements that it took."""
    seen: list[str] = []
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.set_trace_callback(seen.append)
        migrate(connection)
    return len(seen)


def _migrate_and_die(path: Path, statement: int) -> None:
    """In a child: migrate, and be killed as the statement of that number begins."""
    seen = 0

    def count(_: str) -> None:
        nonlocal seen
        seen += 1
        if seen == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    connection = sqlite3.connect(path, isolation_level=None)
    connection.set_trace_callback(count)
    migrate(connection)
    os._exit(0)


def _check_finished(store: str, before: list[tuple[Any, ...]]) -> None:
    with LedgerClient(store) as ledger:
        report = ledger.verify()
        assert report.verified, report.problems
        ledger.write(LedgerEntry("CONFIG_CHANGED", "s", "d", "r"))
    after = outside(store, "SELECT seq, record, entry_hash FROM entries ORDER BY seq")
    assert after[:-1] == before
    assert outside(store, "SELECT max(version) FROM migrations") == [(LAYOUT_VERSION,)]


@pytest.mark.soak
@pytest.mark.parametrize("commit", ["51d42c2", "659dd33", "9db8616"])
def test_postgresql_killed_at_any_statement_is_finished_by_the_next_open(
    commit: str, tmp_path: Path, postgres: PostgresServer
) -> None:
    template = postgres.database()
    layout = unpack(tmp_path, commit, template).layout
    before = outside(template, "SELECT seq, record, entry_hash FROM entries ORDER BY seq")
    counted = postgres.database(template)
    ran = run_forked(open_and_die, counted, 0, environment=os.environ)
    assert ran.returncode == 0, ran.stderr
    statements = int(ran.stdout)
    assert statements > 5
    for statement in sample(range(1, statements + 1), 2):
        database = postgres.database(template)
        ran = run_forked(open_and_die, database, statement, environment=os.environ)
        assert ran.returncode == -signal.SIGKILL, (statement, ran.stderr)
        assert outside(database, "SELECT max(version) FROM migrations") == [(layout,)]
        _check_finished(database, before)
        postgres.drop(database)


def open_and_die(url: str, statement: int) -> None:
    """In a child: open a ledger, and be killed as that statement of its migration begins.

    Prints the number of statements of the migration if ``statement`` is 0.
    """
    seen, is_migrating = 0, False

    def begins(sql: str) -> None:
        nonlocal seen, is_migrating
        is_migrating |= sql.startswith("BEGIN")
        if is_migrating:
            seen += 1
            if seen == statement:
                os.kill(os.getpid(), signal.SIGKILL)
        if sql == "COMMIT" and not statement:
            print(seen, flush=True)
            is_migrating = False

    def counted(method: Any) -> Any:
        def call(self: Writer, sql: str, *rest: Any) -> Any:
            begins(sql)
            return method(self, sql, *rest)

        return call

    for method in (Writer.put, Writer.ask, Writer.script):
        setattr(Writer, method.__name__, counted(method))
    LedgerClient(url).close()


@pytest.mark.parametrize(
    "old", [("9db8616", "sqlite"), ("9db8616", "postgresql")], indirect=True, ids="-".join
)
def test_a_newer_layout_is_refused_and_nothing_changes(old: OldRoot) -> None:
    newer = LAYOUT_VERSION + 1
    is_server = "://" in old.ledger
    outside(old.ledger, f"INSERT INTO migrations VALUES ({newer}, 'now')",
            *([] if is_server else [f"PRAGMA user_version = {newer}"]))  # fmt: skip
    before = _contents(old)
    for command in (
        ["init", old.path],
        ["ledger", "verify"],
        ["ledger", "recover"],
        ["ledger", "export", "--out", old.path.parent / "export"],
        ["budget", "check", "--repair"],
        ["gate", "check", "--all", "--enforce"],
        ["package", "list"],
        ["key", "create", "--name", "new"],
        ["chat", "--model", "openai"],
    ):
        environment = {"REMIT_ROOT": str(old.path), "OPENAI_API_KEY": "sk-openai"}
        ran = run_remit(*command, stdin="Hello\n", environment=environment)
        said = ran.stdout + ran.stderr
        assert ran.returncode != 0, command
        assert f"layout {newer}" in said or f"version {newer}" in said, (command, said)
        assert "upgrade Remit" in said, (command, said)
        assert _contents(old) == before, command


def _contents(old: OldRoot) -> dict[str, Any]:
    """Return the bytes of every file of the root, and what the ledger contains.

    ``ledger.place`` names the database, which has a name of its own in each test.
    """
    files: dict[str, Any] = {
        str(file): file.read_bytes()
        for file in old.path.rglob("*")
        if file.is_file() and not file.name.startswith(("ledger.db", "ledger.place", ".lock"))
    }
    for table in ("entries", "contents", "in_flight", "budgets", "virtual_keys", "migrations"):
        files[table] = sorted(outside(old.ledger, f"SELECT * FROM {table}"))
    return files


def test_tables_of_still_older_forms_get_the_columns_that_came_later(tmp_path: Path) -> None:
    old = unpack(tmp_path, "51d42c2")
    outside(old.ledger, "ALTER TABLE in_flight DROP COLUMN attempt")
    outside(old.ledger, "CREATE INDEX own_index ON in_flight (agent_id)")
    outside(old.ledger, "ALTER TABLE budgets DROP COLUMN minute")
    outside(old.ledger, "DROP TABLE leases")
    with LedgerClient(old.ledger) as ledger:
        assert ledger.select("SELECT DISTINCT attempt FROM in_flight") == [(1,)]
        ledger.transact(lambda tx: tx.execute("DROP INDEX own_index"))  # still there
        assert ledger.select("SELECT minute, window_end FROM budgets LIMIT 1") == [(0, 0)]
        with pytest.raises(LedgerError, match="closed"):
            ledger.select("SELECT closed FROM budgets LIMIT 1")
        assert ledger.select("SELECT count(*) FROM leases") == [(0,)]
        report = ledger.verify()
        assert report.verified, report.problems


def test_a_column_that_no_version_made_is_not_dropped(tmp_path: Path) -> None:
    old = unpack(tmp_path, "51d42c2")
    outside(old.ledger, "ALTER TABLE virtual_keys ADD COLUMN note TEXT")
    with pytest.raises(
        LedgerFormatError, match=r"virtual_keys contains objects that no version .* note"
    ):
        LedgerClient(old.ledger)
    assert outside(old.ledger, "PRAGMA user_version") == [(2,)]
