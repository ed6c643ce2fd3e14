"""Migrations of every earlier layout, ended by SIGKILL at any statement, and a newer layout."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from remit.ledger import LAYOUT_VERSION, LedgerClient, LedgerEntry, LedgerError, LedgerFormatError
from remit.ledger.postgres.connection import Writer
from remit.ledger.sqlite.migrations import migrate
from tests.support.commands import run_remit
from tests.support.postgres import PostgresServer
from tests.support.processes import run_forked
from tests.support.soak import sample
from tests.support.stores import outside
from tests.upgrade.conftest import COMMITS, OldRoot, unpack

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
