"""``remit team``, ``user``, ``organisation``, and what keys and budgets show of limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.ledger import LedgerClient
from tests.cli.conftest import Run, parsed
from tests.support.roots import new_root


@pytest.fixture
def root(work: Path) -> Path:
    return new_root(work / ".remit")


@pytest.mark.usefixtures("root")
def test_a_team_with_its_keys_and_budget(remit: Run) -> None:
    made = parsed(remit("team", "create", "--name", "Payments & Billing", "--budget-usd", "500",
                       "--window", "month", "--json"))  # fmt: skip
    assert (made["id"], made["name"]) == ("payments-billing", "Payments & Billing")
    remit("key", "create", "--name", "k1", "--team", "payments-billing", "--user", "ann", "--rpm",
          "60", "--budget-tokens", "1000")  # fmt: skip
    team = parsed(remit("team", "show", "payments-billing", "--json"))
    assert [key["name"] for key in team["keys"]] == ["k1"]
    assert team["users"] == ["ann"]
    assert (team["limit_usd"], team["budget"]["window"]) == (500, "month")
    (user,) = parsed(remit("user", "list", "--json"))["users"]
    assert (user["id"], user["name"]) == ("ann", None)
    done = parsed(remit("team", "rename", "payments-billing", "--name", "Payments", "--json"))
    assert (done["before"], done["after"]) == ("Payments & Billing", "Payments")
    (key,) = parsed(remit("key", "list", "--json"))["keys"]
    assert (key["team_id"], key["team_name"]) == ("payments-billing", "Payments")
    assert key["limits"] == {"requests_per_minute": 60, "token_limit": 1000}
    shown = remit("key", "show", "k1").stdout
    assert "limit 60 calls a minute" in shown
    assert "0 tokens of 1000" in shown
    listed = remit("key", "list").stdout
    assert "60 calls a minute" in listed
    assert "Payments" in listed
    budgets = parsed(remit("budget", "show", "--team", "payments-billing", "--json"))
    assert [scope["name"] for scope in budgets["scopes"]] == ["Payments"]
    assert "team:payments-billing (Payments)" in remit("budget", "show").stdout
    assert remit("gate", "check", "--all", "--enforce").returncode == 0
    assert remit("budget", "check").returncode == 0


@pytest.mark.usefixtures("root")
def test_what_cannot_be_declared(remit: Run) -> None:
    assert "Give an id" in remit("organisation", "create", "--name", "支払い").stderr
    assert remit("organisation", "create", "--id", "o", "--name", "支払い").returncode == 0
    again = remit("organisation", "create", "--id", "o", "--name", "x")
    assert (again.returncode, "already" in again.stderr) == (1, True)
    missing = remit("organisation", "show", "nope")
    assert missing.returncode == 1
    assert "organisation list` lists existing ids: o" in missing.stderr


def test_limits_are_changed_with_what_they_were_and_by_whom(remit: Run, root: Path) -> None:
    refused = remit("budget", "set", "--team", "t")
    assert refused.returncode == 2
    assert "unlimited" in refused.stderr
    assert remit("budget", "set", "--team", "t", "--window", "day").returncode == 2
    assert remit("budget", "set", "--team", "t", "--usd", "1", "--unlimited").returncode == 2
    first = parsed(remit("budget", "set", "--team", "t", "--usd", "10", "--tpm", "5", "--json"))
    assert (first["before"], bool(first["by"])) == (None, True)
    done = remit("budget", "set", "--team", "t", "--tokens", "7", "--on-short", "clamp")
    assert "at most" not in done.stdout
    assert "Before: $10; 5 tokens a minute. Set by " in done.stderr
    ended = parsed(remit("budget", "set", "--team", "t", "--unlimited", "--json"))
    assert ended["before"] == {"token_limit": 7, "on_short": "clamp"}
    with LedgerClient(root / "ledger.db") as ledger:
        *_, last = ledger.read_by_event_type("BUDGET_ALLOCATED")
    assert last.metadata["before"] == ended["before"]
    assert last.metadata["by"] == ended["by"]
    assert remit("budget", "check").returncode == 0


def test_the_head_of_a_table_is_no_item_of_the_list(remit: Run, root: Path) -> None:
    for name in ("ann", "ben"):
        assert remit("user", "create", "--name", name).returncode == 0
    whole, part = (remit("user", "list", "--limit", number) for number in ("2", "1"))
    assert [line.split()[0] for line in whole.stdout.splitlines()] == ["id", "ann", "ben"]
    assert whole.stderr == ""
    assert [line.split()[0] for line in part.stdout.splitlines()] == ["id", "ann"]
    assert "Only the first 1 are shown" in part.stderr
