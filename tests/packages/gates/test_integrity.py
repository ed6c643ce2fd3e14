"""G6: ledger, checkpoint, trails and budgets; a short run finds old edits too."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.kernel.settings import GateSettings, default_settings
from remit.ledger import LedgerClient, LedgerEntry
from remit.packages.gates import GateContext, check_gates
from remit.packages.gates.integrity import rehash
from remit.packages.gates.uses import recorded_uses
from remit.routing.trail import ThoughtInput, create_thought_record
from tests.packages.gates.conftest import House
from tests.packages.gates.test_orders import Writer

ENTRIES = 700


@contextmanager
def database(house: House) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(house.path / "ledger.db")
    try:
        yield connection
        connection.commit()
    finally:
        connection.close()


def _grow(house: House, entries: int = ENTRIES) -> None:
    with house.ledger() as ledger:
        ledger.write_many(
            [
                LedgerEntry("SESSION_START", f"SES-{number}", "x", "x", [], {"prompt": f"{number}"})
                for number in range(entries)
            ]
        )


def test_a_ledger_without_a_checkpoint_does_not_pass_where_there_is_a_key(house: House) -> None:
    assert house.one("G6").passed
    with house.context() as context, database(house) as connection:
        connection.execute("DELETE FROM checkpoints")
        connection.commit()
        report = check_gates(context, ["G6"], record=False, by="test")
    assert "No checkpoint is signed" in report.gates[0].errors[0]


def test_checkpoints_without_a_key_do_not_pass(house: House) -> None:
    for file in (house.path / "HOT/keys").iterdir():
        if "packages" not in file.name:
            file.unlink()
    assert "no key to check them by" in house.errors("G6")


def test_an_edit_is_found(house: House) -> None:
    with database(house) as connection:
        connection.execute("UPDATE entries SET submission_id = 'PKG-X' WHERE seq = 3")
    assert "The ledger does not verify: seq 3: column" in house.errors("G6")


def test_an_edit_of_content_is_found(house: House) -> None:
    _grow(house, 3)
    with database(house) as connection:
        connection.execute(
            "UPDATE contents SET value = ? WHERE content_id = (SELECT max(content_id) FROM "
            "contents)", (b"x",),
        )  # fmt: skip
    assert "content" in house.errors("G6")


def test_trails_verify(house: House) -> None:
    with house.ledger() as ledger:
        for number in range(3):
            create_thought_record(
                ledger, ThoughtInput("plan", "TASK-1", "agent-1", f"thought {number}")
            )
    assert "3 thoughts in 1 trails" in house.one("G6").message
    with database(house) as connection:
        connection.execute("UPDATE thoughts SET prev_hash = hash WHERE position = 1")
    assert "The trail does not verify" in house.errors("G6")


def test_budgets_are_what_the_ledger_says(house: House) -> None:
    with house.ledger() as ledger:
        TokenBudgeter(ledger).allocate(BudgetScope("SES-1"), 500)
    assert "1 budgets" in house.one("G6").message
    with database(house) as connection:
        connection.execute("UPDATE budgets SET spent_tokens = 7")
    assert "The budget of session:SES-1 says spent_tokens 7, and the ledger 0" in house.errors("G6")


def test_an_empty_ledger_does_not_pass(house: House) -> None:
    for file in house.path.glob("ledger.db*"):
        file.unlink()
    LedgerClient(house.path / "ledger.db").close()
    assert "The ledger has no entry" in house.errors("G6")


def test_a_later_run_reads_the_new_whole_and_hashes_the_old(house: House) -> None:
    house.flags["gates.full_entries"] = 0
    _grow(house)
    first = house.one("G6")
    assert first.passed, first.errors
    assert "hashed again" not in first.message
    second = house.one("G6")
    assert second.passed, second.errors
    assert "from entry 512 on read whole" in second.message
    assert f"({first.entry_id}; --full reads all)" in second.message
    assert "hashed again" not in house.one("G6", full=True).message


_EDIT = (
    "UPDATE entries SET record = replace(record, 'SES-77', 'SES-78') WHERE record LIKE '%SES-77%'"
)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (
            _EDIT,
            " does not match its hash",
        ),
        ("DELETE FROM entries WHERE seq = 100", "The records 0 to 255 are not those of the"),
        (
            "UPDATE tree_hashes SET hash = zeroblob(32) WHERE level = 1 AND idx = 1",
            "The records 256 to 511 are not those of the ledger's tree",
        ),
    ],
)
def test_a_later_run_finds_an_edit_of_what_was_verified_before(
    house: House, sql: str, says: str
) -> None:
    house.flags["gates.full_entries"] = 0
    _grow(house)
    assert house.one("G6").passed
    with database(house) as connection:
        assert connection.execute(sql).rowcount == 1
    assert says in house.errors("G6")


def test_who_edits_record_hash_and_tree_alike_meets_the_checkpoint(house: House) -> None:
    import hashlib

    from remit.ledger.tlog import leaf_hash, tree_root

    house.flags["gates.full_entries"] = 0
    _grow(house)
    assert house.one("G6").passed
    with database(house) as connection:
        ((seq,),) = connection.execute("SELECT seq FROM entries WHERE record LIKE '%SES-77%'")
        connection.execute(_EDIT)
        records = [
            row[0].encode()
            for row in connection.execute("SELECT record FROM entries WHERE seq < 256 ORDER BY seq")
        ]
        connection.execute(
            "UPDATE entries SET entry_hash = ? WHERE seq = ?",
            (hashlib.sha256(records[seq]).hexdigest(), seq),
        )
        connection.execute(
            "UPDATE tree_hashes SET hash = ? WHERE level = 1 AND idx = 0",
            (tree_root([leaf_hash(record) for record in records]),),
        )
    assert "history before it was rewritten" in house.errors("G6")


def test_gates_over_the_ledger_read_both_stores(ledger: LedgerClient, tmp_path: Path) -> None:
    write = Writer(ledger)
    write.begin()
    write.call(write.exchange())
    write.end(10, 0.01)
    ledger.write_many(
        [LedgerEntry("SESSION_START", "SES-1", "x", "x", [], {"n": n}) for n in range(600)]
    )
    assert list(rehash(ledger, 512)) == []
    settings = default_settings().model_copy(update={"gates": GateSettings(full_entries=0)})
    context = GateContext(tmp_path, ledger, settings, lambda: ("local", "m"), ())
    for _ in range(2):
        report = check_gates(context, ["G2", "G6"], by="test")
        assert [one.errors for one in report.gates] == [[], []]
        assert "work orders: " in report.gates[0].message
    assert "--full reads all" in report.gates[0].message
    assert "hashed again" in report.gates[1].message
    recorded = [entry for entry, _, _ in recorded_uses(ledger, 0, ledger.count())]
    assert [entry.event_type for entry in recorded] == ["EXCHANGE"]


def test_what_a_later_run_does_not_look_at_a_full_one_does(house: House) -> None:
    """The honest limit: old content and columns are hashed by nobody until somebody asks."""
    house.flags["gates.full_entries"] = 0
    _grow(house)
    assert house.one("G6").passed
    with database(house) as connection:
        connection.execute("UPDATE entries SET submission_id = 'SES-X' WHERE seq = 100")
    assert house.one("G6").passed
    result = house.one("G6", full=True)
    assert "column submission_id" in " ".join(result.errors)
