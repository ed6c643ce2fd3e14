"""G6: ledger, checkpoint, trails and budgets; a short run finds old edits too."""

from __future__ import annotations

import hashlib
from pathlib import Path

from remit.gateway.budget import BudgetScope, TokenBudgeter
from remit.kernel.settings import GateSettings, default_settings
from remit.ledger import LedgerClient, LedgerEntry
from remit.ledger.tlog import leaf_hash, tree_root
from remit.packages.gates import GateContext, check_gates
from remit.packages.gates.g3_constraints import recorded_uses
from remit.routing.trail import ThoughtInput, create_thought_record, verify_trail
from tests.packages.gates.conftest import House
from tests.packages.gates.test_orders import Writer

ENTRIES = 700


def _grow(house: House, entries: int = ENTRIES) -> None:
    with house.ledger() as ledger:
        ledger.write_many(
            [
                LedgerEntry("SESSION_START", f"SES-{number}", "x", "x", [], {"prompt": f"{number}"})
                for number in range(entries)
            ]
        )


_EDIT = (
    "UPDATE entries SET record = replace(record, 'SES-77', 'SES-78') WHERE record LIKE '%SES-77%'"
)


def _edit(house: House, sql: str, *values: object) -> None:
    with house.database() as connection:
        assert connection.execute(sql, values).rowcount


def test_a_ledger_with_a_key_has_a_checkpoint_and_one_with_a_checkpoint_a_key(house: House) -> None:
    assert house.passes("G6")
    with house.context() as context:
        _edit(house, "DELETE FROM checkpoints")
        report = check_gates(context, ["G6"], record=False, by="test")
    assert "No checkpoint is signed" in report.gates[0].errors[0]
    with house.ledger() as ledger:
        ledger.checkpoint()
    assert house.passes("G6")
    for file in (house.path / "HOT/keys").iterdir():
        if "packages" not in file.name:
            file.unlink()
    assert "no key to check them" in house.errors("G6")


def test_trails_and_budgets_verify(house: House) -> None:
    with house.ledger() as ledger:
        TokenBudgeter(ledger).allocate(BudgetScope("SES-1"), 500)
        for number in range(3):
            thought = ThoughtInput("plan", "TASK-1", "agent-1", f"thought {number}")
            create_thought_record(ledger, thought)
    message = house.passes("G6")
    assert "3 thoughts in 1 trail," in message
    assert "1 budget," in message
    _edit(house, "UPDATE thoughts SET prev_hash = hash WHERE position = 1")
    _edit(house, "UPDATE budgets SET spent_tokens = 7")
    found = house.errors("G6")
    assert "state: thoughts: " in found
    assert "budgets: spent_tokens of session:SES-1 is 7, by the ledger 0" in found


def test_a_later_run_goes_on_from_where_the_trails_were_checked(house: House) -> None:
    house.flags["gates.full_entries"] = 0

    def think(number: int) -> None:
        with house.ledger() as ledger:
            thought = ThoughtInput("plan", "TASK-1", "agent-1", f"thought {number}")
            create_thought_record(ledger, thought)

    for number in range(3):
        think(number)
        assert f"{number + 1} thought{'' if not number else 's'} in 1 trail," in house.passes("G6")
    with house.ledger() as ledger:
        told: list[tuple[int, int]] = []
        report = verify_trail(
            ledger, since_mark=True, progress=lambda done, total: told.append((done, total))
        )
        assert (report.verified, report.records, told[-1]) == (True, 3, (0, 0))
    think(3)
    _edit(house, "UPDATE thoughts SET prev_hash = hash WHERE position = 3")
    assert "does not follow the record before it" in house.errors("G6")
    _edit(house, "DELETE FROM thoughts WHERE position = 3")
    assert "its place in the chain is missing" in house.errors("G6")
    _edit(house, "DELETE FROM thoughts WHERE position = 1")  # of those that were checked
    assert "the task has no record at position 1" in house.errors("G6")


def test_a_later_run_checks_what_is_not_as_it_was(house: House) -> None:
    house.flags["gates.full_entries"] = 0
    _grow(house)
    assert "read again" not in house.passes("G6")
    assert "of them were not read again" in house.passes("G6")
    assert "read again" not in house.passes("G6", full=True)
    for change, back in (
        ("UPDATE entries SET submission_id = 'SES-X' WHERE seq = 100", "submission_id"),
        ("UPDATE contents SET value = 'x' WHERE content_id = 100", "stored value"),
        (_EDIT, " does not match entry_hash"),
        (
            "UPDATE tree_hashes SET hash = zeroblob(32) WHERE level = 1 AND idx = 1",
            "tree_hashes: level 1",
        ),
        ("DELETE FROM entries WHERE seq = 300", "gap: this entry is missing"),
    ):
        _edit(house, change)
        assert back in house.errors("G6")


def test_a_ledger_that_was_put_back_is_found(house: House) -> None:
    older = (house.path / "ledger.db").read_bytes()
    _grow(house)
    assert house.passes("G6")
    for file in house.path.glob("ledger.db*"):
        file.unlink()
    (house.path / "ledger.db").write_bytes(older)
    assert "is an older copy" in house.errors("G6")


def test_who_edits_record_hash_and_tree_alike_meets_the_checkpoint(house: House) -> None:
    house.flags["gates.full_entries"] = 0
    _grow(house)
    assert house.passes("G6")
    with house.database() as connection:
        ((seq,),) = connection.execute("SELECT seq FROM entries WHERE record LIKE '%SES-77%'")
        connection.execute(_EDIT)
        records = [
            row[0].encode()
            for row in connection.execute("SELECT record FROM entries WHERE seq < 256 ORDER BY seq")
        ]
    digest = hashlib.sha256(records[seq]).hexdigest()
    _edit(house, "UPDATE entries SET entry_hash = ? WHERE seq = ?", digest, seq)
    root = tree_root([leaf_hash(record) for record in records])
    _edit(house, "UPDATE tree_hashes SET hash = ? WHERE level = 1 AND idx = 0", root)
    assert "history before it was rewritten" in house.errors("G6")


def test_gates_over_the_ledger_read_both_stores(ledger: LedgerClient, tmp_path: Path) -> None:
    write = Writer(ledger)
    write.begin()
    write.call(write.exchange())
    write.end(10, 0.01)
    ledger.write_many(
        [LedgerEntry("SESSION_START", "SES-1", "x", "x", [], {"n": n}) for n in range(600)]
    )
    settings = default_settings().model_copy(update={"gates": GateSettings(full_entries=0)})
    context = GateContext(tmp_path, ledger, settings, lambda: ("local", "m"), ())
    for _ in range(2):
        report = check_gates(context, ["G2", "G6"], by="test")
        assert [gate.errors for gate in report.gates] == [[], []]
        assert "work orders: " in report.gates[0].message
    assert "--full" not in report.gates[0].message  # without a root's key nothing is kept
    recorded = [entry for entry, _, _ in recorded_uses(ledger, 0, ledger.count())]
    assert [entry.event_type for entry in recorded] == ["EXCHANGE"]
