"""Users, teams and organisations by name: on record alone; on both stores."""

from __future__ import annotations

from typing import Any

import pytest

from remit.gateway.auth import Directory, KeyStore, shown_keys
from remit.gateway.budget import BudgetLimits, BudgetScope, TokenBudgeter, TokenUsage
from remit.kernel.errors import InvalidInputError, NotFoundError
from remit.ledger import LedgerClient, LedgerEntry


def test_a_name_is_declared_and_changed_on_record(ledger: LedgerClient) -> None:
    directory = Directory(ledger)
    made = directory.declare("team", "payments", "Payments", by="ann")
    assert (made.id, made.name, made.by) == ("payments", "Payments", "ann")
    before, after = directory.rename("team", "payments", "Payments & Billing", by="ben")
    assert (before.name, after.name, after.by) == ("Payments", "Payments & Billing", "ben")
    entries = ledger.read_by_event_type("OWNER_NAMED")
    assert [(one.id, one.decision) for one in entries] == [
        (made.entry, "CREATED"), (after.entry, "RENAMED"),
    ]  # fmt: skip
    assert Directory(ledger).declared() == {"team:payments": after}
    # The same name again is nothing new; the same id under another kind is.
    assert directory.rename("team", "payments", "Payments & Billing", by="ann") == (after, after)
    directory.declare("user", "payments", "A person", by="ann")
    assert ledger.count() == 3
    assert ledger.verify_chain() == (True, [])


def test_ids_work_without_a_name(ledger: LedgerClient) -> None:
    directory, budgeter = Directory(ledger), TokenBudgeter(ledger)
    with KeyStore(ledger) as keys:
        made = keys.create("k", team_id="red", user_id="a/n:n", organisation_id="o")
        limits = BudgetLimits(requests_per_minute=60, nano=5 * 10**9)
        budgeter.allocate(BudgetScope(key_id=made.key_id), limits=limits)
        budgeter.debit(BudgetScope(key_id=made.key_id), TokenUsage(7, 3, cost_nano=10**9))
        budgeter.allocate(BudgetScope(team_id="blue"), 100)
        assert [team.id for team in directory.list("team")] == ["blue", "red"]
        assert [user.id for user in directory.list("user")] == ["a/n:n"]
        with pytest.raises(NotFoundError, match="The team 'green' does not exist"):
            directory.find("team", "green")
        with pytest.raises(NotFoundError):
            directory.rename("team", "red", "Red", by="ann")
        for call in (directory.declare, directory.rename):
            with pytest.raises(InvalidInputError, match="The team's id is empty"):
                call("team", "", "Red", by="ann")
        group: Any = "group"
        for call in (
            lambda: directory.list(group),
            lambda: directory.find(group, "red"),
            lambda: directory.declare(group, "red", "Red", by="ann"),
            lambda: directory.rename(group, "red", "Red", by="ann"),
        ):
            with pytest.raises(InvalidInputError, match="'group'"):
                call()
        directory.declare("user", "a/n:n", "Ann", by="ann")
        blue, red = directory.described(directory.list("team"), budgeter.list())
        assert (red["name"], red["users"], red["budget"]) == (None, ["a/n:n"], None)
        assert [key["name"] for key in red["keys"]] == ["k"]
        assert (red["spent_usd"], red["spent_tokens"]) == (1.0, 10)  # of its keys
        assert (blue["keys"], blue["budget"]["token_limit"]) == ([], 100)
        (shown,) = shown_keys(keys.list(), directory, budgeter)
        assert (shown["user_name"], shown["team_name"]) == ("Ann", "")
        assert shown["limits"] == {"usd_limit": 5.0, "requests_per_minute": 60}
        assert shown["budget"]["spent_usd"] == 1.0
        assert directory.scope_names() == {
            f"key:{made.key_id}": "k", "user:a%2Fn%3An": "Ann",
        }  # fmt: skip


def test_a_budget_comes_with_the_declaration_or_not_at_all(ledger: LedgerClient) -> None:
    directory, budgeter = Directory(ledger), TokenBudgeter(ledger)

    def allocate(tx: Any, scope: BudgetScope) -> None:
        budgeter.allocate(scope, 100, tx=tx)

    directory.declare("team", "red", "Red", by="ann", in_transaction=allocate)
    assert [state.token_limit for state in budgeter.list("team:red")] == [100]

    def fail(tx: Any, scope: BudgetScope) -> None:
        budgeter.allocate(scope, 100, tx=tx)
        raise InvalidInputError("no")

    before = ledger.count()
    with pytest.raises(InvalidInputError):
        directory.declare("team", "blue", "Blue", by="ann", in_transaction=fail)
    assert ledger.count() == before
    assert [team.id for team in directory.list("team")] == ["red"]


def test_an_erased_name_is_gone_and_the_id_goes_on(ledger: LedgerClient) -> None:
    directory = Directory(ledger)
    made = directory.declare("user", "u1", "Ann Example", by="op")
    assert directory.find("user", "u1").name == "Ann Example"
    ledger.erase(entry_id=made.entry, reason="asked for", requested_by="op")
    assert (found := directory.find("user", "u1")).name == ""
    assert found.entry == made.entry
    assert ledger.verify_chain() == (True, [])
    assert directory.rename("user", "u1", "A", by="op")[1].name == "A"


def test_what_a_worker_writes_names_nobody(ledger: LedgerClient) -> None:
    said = {"kind": "team", "owner_id": "red", "name": "Mine", "by": "me", "tier": "ho1"}
    ledger.write(LedgerEntry("OWNER_NAMED", "team:red", "CREATED", "x", metadata=said))
    assert Directory(ledger).declared() == {}


@pytest.mark.parametrize("bad", ["", " x", "a\nb", "x" * 129, 5])
def test_what_cannot_be_a_name_or_id(ledger: LedgerClient, bad: Any) -> None:
    for id_, name in ((bad, "fine"), ("fine", bad)):
        with pytest.raises(InvalidInputError, match="The team's"):
            Directory(ledger).declare("team", id_, name, by="ann")
    assert ledger.count() == 0
