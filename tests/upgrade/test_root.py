"""A root that version 0.1.0 made opens, is read, verified, brought up to date and written to."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest

from remit.gateway.auth import AuthLimits, KeyStore
from remit.kernel.budget import BudgetScope, nano_of
from remit.ledger import Erased, LedgerClient, LedgerEntry, LedgerError, LedgerFormatError
from remit.ledger.postgres.connection import Writer
from remit.ledger.schema import LAYOUT_VERSION
from remit.ledger.sqlite.migrations import migrate
from remit.providers import MockProvider
from remit.routing.trail import create_thought_record, list_thought_records, verify_trail
from remit.runtime import Runtime
from tests.support.commands import run_remit
from tests.support.stores import outside
from tests.support.waiting import until
from tests.upgrade.conftest import OldRoot, unpack

_LIMITS = AuthLimits(revocation_s=0.1, stale_after_s=60, refused_log_s=60)
_CLASSIFIED = '{"speech_act":"question","ambiguity":"low"}'


def test_it_is_read_verified_and_written_to(old: OldRoot) -> None:
    facts = old.facts
    records = outside(old.ledger, "SELECT seq, record, entry_hash FROM entries ORDER BY seq")
    # A database that has just come up is waited for as long as a call's lease lasts.
    lease = {"gateway.timeout_ms": 5_000, "gateway.lease_margin_ms": 0}
    with Runtime.open(old.path, flags={"model.default": "openai", **lease}) as runtime:
        runtime.gateway.register_provider(
            "openai", MockProvider(responses=[_CLASSIFIED, "You asked about gardening."])
        )
        ledger = runtime.ledger
        # The call that was under way is settled as an orphan, once.
        until(lambda: runtime.gateway.recover() == [] and not ledger.orphans())
        (orphan,) = ledger.query(event_type="EXCHANGE_ORPHANED")
        assert orphan.metadata["dispatch_entry_id"] == facts["orphans"][0]
        assert ledger.orphans() == []
        turns = ledger.query(event_type="TURN_RECORDED", session_id=facts["session"])
        asked = [entry.metadata["user_message"] for entry in turns]
        assert asked == [f"Question {n} of a person who likes gardening." for n in range(3)]
        (erased,) = ledger.query(event_type="TURN_RECORDED", session_id=facts["erased_session"])
        assert isinstance(erased.metadata["user_message"], Erased)
        (status,) = runtime.budgeter.status(BudgetScope(key_id=facts["key_id"]))
        assert status.nano_limit == nano_of("5.00")
        with KeyStore(ledger, _LIMITS) as keys:
            assert keys.authenticate(facts["key"]).key_id == facts["key_id"]
        assert len(list_thought_records(ledger, "TASK-1")) == 3
        create_thought_record(
            ledger,
            {"type": "plan", "task_id": "TASK-1", "agent_id": "planner", "content": "step 3"},
        )
        assert verify_trail(ledger).verified
        with runtime.session(facts["session"]) as session:
            assert session.turn("What did I ask about?").response == "You asked about gardening."
            assert session.turn_count == 4
        report = ledger.verify(checkpoint=old.checkpoint)
        assert report.verified, report.problems
    after = outside(old.ledger, "SELECT seq, record, entry_hash FROM entries ORDER BY seq")
    assert after[: len(records)] == records
    assert outside(old.ledger, "SELECT max(version) FROM migrations") == [(LAYOUT_VERSION,)]


def test_a_migration_of_sqlite_killed_anywhere_goes_on(tmp_path: Path) -> None:
    old = unpack(tmp_path, "root")
    path = tmp_path / "ledger.db"
    killed = 0
    for statement in range(1, 1000):
        shutil.copy(old.ledger, path)
        if (pid := os.fork()) == 0:
            _migrate_and_die(path, statement)
        _, status = os.waitpid(pid, 0)
        killed += os.WIFSIGNALED(status)
        # The next to open finds the one layout or the other, and goes on from there.
        if statement % 10 == 1 or not os.WIFSIGNALED(status):
            with LedgerClient(path) as ledger:
                assert ledger.count() == old.facts["entries"]
                report = ledger.verify()
                assert report.verified, report.problems
                ledger.write(LedgerEntry("CONFIG_CHANGED", "s", "d", "r"))
        else:
            assert outside(str(path), "PRAGMA user_version") in ([(2,)], [(LAYOUT_VERSION,)])
            assert outside(str(path), "PRAGMA integrity_check") == [("ok",)]
        for leftover in (path, path.with_name("ledger.db-wal"), path.with_name("ledger.db-shm")):
            leftover.unlink(missing_ok=True)
        if not os.WIFSIGNALED(status):
            break
    assert killed > 15


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


@pytest.mark.parametrize("old", ["postgresql"], indirect=True)
def test_a_migration_of_postgresql_that_breaks_off_goes_on(
    old: OldRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Writer.script

    def lost(self: Writer, sql: str) -> None:
        if sql == "COMMIT":
            raise ConnectionResetError("lost")
        run(self, sql)

    with monkeypatch.context() as broken:
        broken.setattr(Writer, "script", lost)
        with pytest.raises(Exception, match="lost"):
            LedgerClient(old.ledger)
    assert outside(old.ledger, "SELECT max(version) FROM migrations") == [(2,)]
    with LedgerClient(old.ledger) as ledger:
        assert ledger.verify().verified
    assert outside(old.ledger, "SELECT max(version) FROM migrations") == [(LAYOUT_VERSION,)]


def test_tables_of_still_older_forms_get_the_columns_that_came_later(old: OldRoot) -> None:
    outside(old.ledger, "ALTER TABLE in_flight DROP COLUMN attempt")
    outside(old.ledger, "CREATE INDEX own_index ON in_flight (agent_id)")
    outside(old.ledger, "ALTER TABLE budgets DROP COLUMN minute")
    outside(old.ledger, "DROP TABLE leases")
    with LedgerClient(old.ledger) as ledger:
        assert ledger.select("SELECT attempt FROM in_flight") == [(1,)]
        ledger.transact(lambda tx: tx.execute("DROP INDEX own_index"))  # still there
        assert ledger.select("SELECT minute, window_end FROM budgets LIMIT 1") == [(0, 0)]
        with pytest.raises(LedgerError, match="closed"):
            ledger.select("SELECT closed FROM budgets LIMIT 1")
        assert ledger.select("SELECT count(*) FROM leases") == [(0,)]
        report = ledger.verify()
        assert report.verified, report.problems


def test_what_does_not_belong_in_an_old_ledger_is_still_found(tmp_path: Path) -> None:
    old = unpack(tmp_path, "root")
    outside(
        old.ledger,
        "CREATE TRIGGER sneaky AFTER UPDATE ON virtual_keys BEGIN "
        "UPDATE virtual_keys SET role = 'admin'; END",
        "CREATE VIEW old_budgets AS SELECT scope, spent_nano FROM budgets",
        "CREATE VIEW broken AS SELECT * FROM nowhere",
    )
    with LedgerClient(old.ledger) as ledger:
        assert any("sneaky" in problem.message for problem in ledger.verify().problems)
        assert ledger.select("SELECT scope FROM old_budgets")
    outside(old.ledger, "DROP TRIGGER sneaky", "DROP VIEW old_budgets", "DROP VIEW broken")
    with LedgerClient(old.ledger) as ledger:
        assert ledger.verify().verified


def test_a_column_that_no_version_made_is_not_dropped(tmp_path: Path) -> None:
    old = unpack(tmp_path, "root")
    outside(old.ledger, "ALTER TABLE virtual_keys ADD COLUMN note TEXT")
    with pytest.raises(LedgerFormatError, match=r"virtual_keys has what no version .* note"):
        LedgerClient(old.ledger)
    assert outside(old.ledger, "PRAGMA user_version") == [(2,)]


def test_an_old_export_makes_a_root(tmp_path: Path) -> None:
    old = unpack(tmp_path, "root")
    new = str(tmp_path / "new")
    export = str(tmp_path / "all.jsonl")
    for command in (
        ["ledger", "export", "--out", export, "--root", str(old.path)],
        ["init", "--bare", new],
        ["ledger", "import", export, "--root", new],
        ["init", new],
        ["gate", "check", "--gate", "G0B", "--enforce", "--root", new],
    ):
        ran = run_remit(*command)
        assert ran.returncode == 0, (command, ran.stderr)
