"""``remit usage``, ``team``, ``user``, ``organisation``, and what keys and budgets show."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from remit.gateway.auth import KeyStore
from remit.ledger import LedgerClient, LedgerEntry
from tests.cli.conftest import Run, parsed
from tests.support.commands import require_said
from tests.support.roots import new_root
from tests.support.stores import outside


def _exchange(**metadata: Any) -> LedgerEntry:
    given = {
        "agent_id": "a", "session_id": "SES-1", "contract_id": "PRC-1", "outcome": "success",
        "input_tokens": 1_000, "output_tokens": 5, "model_id": "m", "cost_usd": 0.001,
        "cost_certainty": "measured", **metadata,
    }  # fmt: skip
    return LedgerEntry("EXCHANGE", "PRC-1", "SUCCESS", "Exchange completed", metadata=given)


@pytest.fixture
def spent(work: Path) -> str:
    """A root in which some was spent; the id of the key that spent it."""
    root = work / ".remit"
    new_root(root)
    with LedgerClient(root / "ledger.db") as ledger:
        with KeyStore(ledger) as keys:
            made = keys.create("chat", user_id="ann", team_id="search")
        began = {"contract_id": "PRC-1", "agent_id": "a", "session_id": "SES-1"}
        ledger.write_many([
            LedgerEntry("DISPATCH", "PRC-1", "DISPATCHED", "Call sent", metadata=began),
            _exchange(key_id=made.key_id),
            _exchange(key_id=made.key_id, model_id="big", cost_usd=0.25,
                      cost_certainty="upper_bound",
                      fallback_from=[{"model_id": "m", "error_code": "TIMEOUT"}]),
            _exchange(user_id="=cmd()", cost_usd=None, cost_certainty="unpriced"),
        ])  # fmt: skip
    return made.key_id


def test_the_range_does_not_end_in_the_future(remit: Run, spent: str) -> None:
    since, until = remit("usage").stdout.splitlines()[0].removesuffix(" UTC").split(" to ")
    assert since < until <= f"{datetime.now(UTC):%Y-%m-%d %H:%M}"
    stored = datetime.fromisoformat(parsed(remit("usage", "--json"))["until"])
    assert stored.minute % 15 == 0  # the sums are of whole quarter hours


def test_an_empty_root_says_so_and_an_undeclared_team_is_named(remit: Run, work: Path) -> None:
    new_root(work / ".remit")
    for command, said in (
        (("budget", "show"), "No budgets. `remit budget set` "),
        (("team", "list"), "No teams. `remit team create --name NAME` "),
        (("user", "list"), "No users. "),
        (("organisation", "list"), "No organisations. "),
        (("budget", "check"), "The balances of 0 budgets match the ledger; "),
        (("ledger", "recover"), "Nothing to settle."),
        (("order", "list"), "No orders to list. "),
    ):
        assert remit(*command).stdout.startswith(said), command
    assert remit("team", "create", "--name", "Known", "--id", "known").returncode == 0
    for team, is_noted in (("known", False), ("nosuch", True)):
        made = remit("key", "create", "--name", team, "--team", team)
        assert (
            "`remit team create --id nosuch --name NAME` declares it" in made.stderr
        ) is is_noted


def test_who_has_no_team_and_no_key_is_none(remit: Run, spent: str) -> None:
    for by in ("team", "key"):
        assert "\n(none) " in remit("usage", "--by", by).stdout


def test_one_command_says_who_spent_what_on_which_model_and_why_it_fell_back(
    remit: Run, spent: str
) -> None:
    result = remit("usage", "--since", "yesterday", "--by", "user,model", "--why")
    assert result.returncode == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[1] == [
        "user", "model", "attempts", "in", "out", "measured", "upper", "bound", "unpriced",
        "fallbacks",
    ]  # fmt: skip
    assert lines[2] == ["ann", "big", "1", "1,000", "5", "$0.00", "$0.25", "0", "1"]
    assert lines[3] == ["ann", "m", "1", "1,000", "5", "$0.001", "$0.00", "0", "0"]
    assert lines[5] == ["total", "3", "3,000", "15", "$0.001", "$0.25", "1", "1"]
    assert "ann big: m skipped: timed out (TIMEOUT), 1 call, such as LED-" in result.stdout


def test_programs_get_json_csv_and_parquet(remit: Run, spent: str, work: Path) -> None:
    told = json.loads(remit("usage", "--by", "key,day", "--json").stdout)
    assert told["by"] == ["key", "day"]
    row = next(row for row in told["rows"] if row["key"] == spent)
    assert (row["key_name"], row["calls"], row["measured_usd"]) == ("chat", 2, 0.001)
    assert told["total"]["unpriced_calls"] == 1
    assert "fallbacks" not in told
    rows = list(csv.DictReader(io.StringIO(remit("usage", "--by", "user", "--csv").stdout)))
    # What a spreadsheet would take for a formula is a text there.
    assert {row["user"] for row in rows} == {"ann", "'=cmd()"}
    assert sum(int(row["calls"]) for row in rows) == 3
    parquet = pytest.importorskip("pyarrow.parquet")
    file = work / "usage.parquet"
    assert remit("usage", "--by", "team", "--parquet", str(file)).returncode == 0
    table = parquet.read_table(file).to_pylist()
    assert {row["team"]: row["upper_bound_usd"] for row in table} == {
        "search": Decimal("0.250000000"), "": Decimal(0),
    }  # fmt: skip


def test_a_wrong_row_fails_the_check_and_is_mended(remit: Run, spent: str, work: Path) -> None:
    assert remit("budget", "check").returncode == 0
    outside(str(work / ".remit/ledger.db"), "UPDATE usage SET nano = 5 WHERE model_id = 'big'")
    result = remit("budget", "check", "--json")
    assert result.returncode == 1
    [one] = json.loads(result.stdout)["usage"]
    assert (one["field"], one["live"], one["ledger"]) == ("nano", 5, 250_000_000)
    assert "model_id=big" in one["row"]
    verified = remit("ledger", "verify")
    assert verified.returncode == 1
    assert "model_id=big" in verified.stdout + verified.stderr
    assert remit("budget", "check", "--repair").returncode == 0
    assert remit("budget", "check").returncode == 0


def test_a_repair_with_problems_left_fails(remit: Run, spent: str, work: Path) -> None:
    outside(
        str(work / ".remit/ledger.db"),
        "UPDATE usage SET nano = 5 WHERE model_id = 'big'",
        "UPDATE entries SET record = '[' WHERE event_type = 'EXCHANGE'",
    )
    result = remit("budget", "check", "--repair")
    assert (result.returncode, "MISMATCH:" in result.stdout) == (1, True), result.stdout


def test_gateway_calls_are_in_the_list_of_sessions_and_are_the_latest_trace(
    remit: Run, spent: str
) -> None:
    (listed,) = json.loads(remit("session", "list", "--json").stdout)["sessions"]
    assert (listed["session_id"], listed["turns"]) == ("SES-1", 0)
    # One of the calls has no price, so the sum is unknown.
    assert (listed["calls"], listed["tokens"], listed["cost_usd"]) == (3, 3_015, None)
    line = remit("session", "list").stdout.split()
    assert line[-4:] == ["3", "3,015", "unknown", "0"]
    shown = remit("trace", "last")
    assert shown.returncode == 0, shown.stderr
    assert "gateway call" in shown.stdout
    assert "LED-" in shown.stdout


def test_a_budget_is_shown_for_the_owner_of_the_question(remit: Run, spent: str) -> None:
    def found(*owner: str) -> Any:
        result = remit("budget", "show", *owner, "--json")
        assert result.returncode == 0, result.stderr
        (scope,) = json.loads(result.stdout)["scopes"]
        return scope["scope"], scope["spent_usd"], scope["spent_tokens"], scope["limit_usd"]

    # No owner has a budget; what each spent is known all the same.
    assert found("--key", "chat") == (f"key:{spent}", 0.251, 2_010, None)
    assert found("--team", "search") == ("team:search", 0.251, 2_010, None)
    assert found("--user", "ann") == ("user:ann", 0.251, 2_010, None)
    assert found("--agent", "a") == ("agent:a", 0.251, 3_015, None)
    assert found("--session", "SES-1", "--agent", "a")[1:3] == (0.251, 3_015)
    assert remit("budget", "show", "--team", "nobody").returncode == 2
    assert remit("budget", "set", "--session", "SES-1", "--usd", "1").returncode == 0
    everything = remit("budget", "show")
    assert "SES-1" not in everything.stdout
    assert "1 session budget not shown" in everything.stderr
    assert "SES-1" in remit("budget", "show", "--sessions").stdout


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
    assert "\nteams:" not in remit("team", "show", "payments-billing").stdout
    team = parsed(remit("team", "show", "payments-billing", "--json"))
    assert [key["name"] for key in team["keys"]] == ["k1"]
    for option, said in (
        ("--usd", "'x' is not a number."),
        ("--rpm", "'x' is not a valid integer."),
    ):
        require_said(remit("budget", "set", "--key", "k1", option, "x"), said, code=2)
    assert team["users"] == ["ann"]
    assert (team["limit_usd"], team["budget"]["window"]) == (500, "month")
    (user,) = parsed(remit("user", "list", "--json"))["users"]
    assert (user["id"], user["name"]) == ("ann", None)
    done = parsed(remit("team", "rename", "payments-billing", "--name", "Payments", "--json"))
    assert (done["before"], done["after"]) == ("Payments & Billing", "Payments")
    (key,) = parsed(remit("key", "list", "--json"))["keys"]
    assert remit("key", "create", "--name", "paused", "--rpm", "0").returncode == 0  # as for a team
    assert (key["team_id"], key["team_name"]) == ("payments-billing", "Payments")
    assert key["limits"] == {"requests_per_minute": 60, "token_limit": 1000}
    shown = remit("key", "show", "k1").stdout
    assert "limit 60 calls a minute" in shown
    assert "0 tokens of 1,000" in shown
    listed = remit("key", "list").stdout
    assert "60 calls a minute" in listed
    assert "Payments" in listed
    budgets = parsed(remit("budget", "show", "--team", "payments-billing", "--json"))
    assert [scope["name"] for scope in budgets["scopes"]] == ["Payments"]
    assert "team:payments-billing (Payments)" in remit("budget", "show").stdout
    assert remit("gate", "check", "--all", "--enforce").returncode == 0
    assert remit("budget", "check").returncode == 0


def test_limits_are_changed_with_what_they_were_and_by_whom(remit: Run, root: Path) -> None:
    require_said(remit("budget", "set", "--team", "t"), "unlimited", code=2)
    assert remit("budget", "set", "--team", "t", "--window", "day").returncode == 2
    assert remit("budget", "set", "--team", "t", "--usd", "1", "--unlimited").returncode == 2
    first = parsed(remit("budget", "set", "--team", "t", "--usd", "10", "--tpm", "5", "--json"))
    assert (first["before"], bool(first["by"])) == (None, True)
    done = remit("budget", "set", "--team", "t", "--tokens", "7", "--on-short", "clamp")
    assert "at most" not in done.stdout
    assert "Before: $10.00; 5 tokens a minute. Set by " in done.stderr
    ended = parsed(remit("budget", "set", "--team", "t", "--unlimited", "--json"))
    assert ended["before"] == {"token_limit": 7, "on_short": "clamp"}
    with LedgerClient(root / "ledger.db") as ledger:
        *_, last = ledger.read_by_event_type("BUDGET_ALLOCATED")
    assert last.metadata["before"] == ended["before"]
    assert last.metadata["by"] == ended["by"]
    assert remit("budget", "check").returncode == 0
