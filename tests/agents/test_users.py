"""Sessions of users: what they cost each, what they are held to, and erasure by person."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.gateway.budget import BudgetLimits, BudgetScope, audit_budgets
from remit.kernel.errors import InvalidInputError
from remit.runtime.installation import root_tools
from tests.agents.test_subagents import ask, by_agent, pair
from tests.support.agents import Scripted, anthropic_runtime
from tests.support.commands import run_remit
from tests.support.stores import files_hold
from tests.support.wire import message

_SECRET = "the hedgehog of Ann"


def test_a_user_is_held_to_a_limit_of_their_own_in_every_session(scripted: Scripted) -> None:
    answer = message("Hello.", input_tokens=400, output_tokens=100)
    with scripted(answer) as (runtime, server):
        scope = BudgetScope(user_id="ann")
        runtime.budgeter.allocate(scope, limits=BudgetLimits(tokens=6_000))
        agent = runtime.agent("a", max_retries=0)
        for _ in range(30):
            if agent.run("hello", user="ann").failed:
                break
        (state,) = runtime.budgeter.status(scope)
        assert 0 < state.spent_tokens <= 6_000
        assert state.spent_tokens == 500 * len(server.calls)
        before = len(server.calls)
        assert agent.run("hello", user="ann").error_code == "budget_exhausted"
        assert len(server.calls) == before
        assert agent.run("hello", user="bob").response == "Hello."
        users = [e.metadata.get("user_id") for e in runtime.ledger.query(event_type="EXCHANGE")]
        assert users == ["ann"] * before + ["bob"]
        tools = {
            one.tool_id: one for one in root_tools(runtime.root, runtime.ledger, runtime.loaded)
        }
        assert {row["name"] for row in tools["usage"](by="user")["rows"]} == {"ann", "bob"}
        audit = audit_budgets(runtime.ledger)
        assert audit.equal, audit.differences


def test_a_person_is_erased_from_every_entry_of_their_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = by_agent(
        boss=[ask(f"Find {_SECRET}."), message(f"Here is {_SECRET}.")],
        helper=[message(f"I found {_SECRET}.")],
    )
    root = tmp_path / "root"
    with anthropic_runtime(root, monkeypatch, script) as (runtime, _):
        boss, _ = pair(runtime)
        session = boss.session(user="u-17", subject_id="ann@example.org")
        session.turn(f"Where is {_SECRET}?")
        again = boss.session(session.session_id)  # it is known from the record for whom
        again.turn(f"And {_SECRET}?")
        session.end()
        assert all(
            entry.metadata.get("user_id") == "u-17"
            for entry in runtime.ledger.query(event_type="EXCHANGE")
        )
        runtime.ledger.flush()
        done = run_remit(
            "ledger", "erase", "--subject", "ann@example.org", "--reason", "asked", "--yes",
            "--root", root,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert runtime.ledger.verify().verified
        found = [
            entry.id
            for entry in runtime.ledger.read_all()
            if _SECRET in str(entry.metadata) or _SECRET in str(entry.reason)
        ]
        assert found == []
        assert "ann@example.org" not in str([e.metadata for e in runtime.ledger.read_all()])
    assert files_hold(root, _SECRET) == []
    assert files_hold(root, "ann@example.org") == []


def test_for_whom_a_session_is_cannot_be_changed(scripted: Scripted) -> None:
    with scripted(message("Hi.")) as (runtime, _):
        agent = runtime.agent("a")
        session = agent.session(user="ann")
        with pytest.raises(InvalidInputError, match="and the user of a session"):
            agent.session(session.session_id, user="bob")
        with pytest.raises(InvalidInputError, match="and the user of a session"):
            agent.session(session.session_id, subject_id="bob")
